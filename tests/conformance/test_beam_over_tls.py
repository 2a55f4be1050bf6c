"""Beam's own BigQuery I/O on the embedded BigQuery, over TLS.

A process of its own is given endpoints, the certificate and a file with credentials, all in
variables that Google's libraries read. Beam 2.77 has two clients without one for the endpoint:

* The Storage Read client calls bigquerystorage.googleapis.com; gRPC reads ``grpc_proxy``, and
  the proxy here connects that host to the server's TLS port, whose certificate names it too.
* The apitools client has its endpoint in a class attribute, the one thing that is set here.
  (It would take a proxy as well, if PySocks were installed.)
"""

import http.server
import json
import os
import socket
import subprocess
import sys
import textwrap
import threading

import pytest

from bqflink_beam.emulator.server import EmulatorServer

EVENTS = [{"id": number, "name": f"n{number % 7}"} for number in range(100)]
FIELDS = [{"name": "id", "type": "INT64"}, {"name": "name", "type": "STRING"}]

PROGRAM = """
    import json
    import sys

    import apache_beam as beam
    from apache_beam.io.gcp.internal.clients.bigquery import BigqueryV2
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner
    from apache_beam.testing.util import assert_that, equal_to

    EVENTS = json.loads(sys.argv[1])
    BigqueryV2.BASE_URL = f"{sys.argv[2]}/bigquery/v2/"
    SCHEMA = "id:INTEGER,name:STRING"

    def run(name, build):
        options = PipelineOptions(
            project="proj", temp_location="gs://bucket/temp", pickle_library="cloudpickle"
        )
        with beam.Pipeline(runner=FnApiRunner(), options=options) as p:
            build(p)
        print("passed", name, flush=True)

    def reads(**how):
        return lambda p: assert_that(
            p | beam.io.ReadFromBigQuery(gcs_location="gs://bucket/export", **how),
            equal_to(EVENTS),
        )

    def writes(table, **how):
        return lambda p: (
            p
            | beam.Create(EVENTS)
            | beam.io.WriteToBigQuery(f"proj:d.{table}", schema=SCHEMA, **how)
        )

    run("DIRECT_READ", reads(method="DIRECT_READ", table="proj:d.events"))
    run("EXPORT", reads(method="EXPORT", table="proj:d.events"))
    for name, method in (("QUERY", "EXPORT"), ("QUERY_DIRECTLY", "DIRECT_READ")):
        text = "SELECT * FROM `proj.d.events`"
        run(name, reads(method=method, query=text, use_standard_sql=True))
    run("STREAMING_INSERTS", writes("streamed", method="STREAMING_INSERTS"))
    staging = "gs://bucket/staging"
    for form in ("NEWLINE_DELIMITED_JSON", "AVRO"):
        run(
            form,
            writes(
                f"loaded_{form}",
                method="FILE_LOADS",
                custom_gcs_temp_location=staging,
                temp_file_format=form,
            ),
        )
"""


class Proxy(http.server.ThreadingHTTPServer):
    """Connects every host to one port, and gives a token to whoever asks."""

    daemon_threads = True

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target = target
        self.connected = set()
        self.endpoint = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self._thread.join()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_CONNECT(self):
        self.server.connected.add(self.path)
        with socket.create_connection(self.server.target) as there:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=pump, args=(there, self.connection))
            back.start()
            pump(self.connection, there)
            back.join()
        self.close_connection = True

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        answer = json.dumps({"access_token": "t", "expires_in": 3600}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format, *args):
        """Keeps standard error clean."""


def pump(source, sink):
    try:
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


@pytest.fixture(scope="module")
def server():
    with EmulatorServer(tls_port=0, tls_names=["*.googleapis.com"]) as server:
        server.create_table("proj.d.events", FIELDS, rows=EVENTS)
        yield server


@pytest.fixture(scope="module")
def beam(server, tmp_path_factory):
    """What the program said, and which hosts it reached."""
    port = int(server.tls_endpoint.rpartition(":")[2])
    endpoint = f"https://{server.tls_endpoint}"
    with Proxy(("127.0.0.1", port)) as proxy:
        credentials = tmp_path_factory.mktemp("credentials") / "key.json"
        credentials.write_text(json.dumps(service_account(f"{proxy.endpoint}/token")))
        inherited = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        run = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(PROGRAM), json.dumps(EVENTS), endpoint],
            env={
                **inherited,
                "GOOGLE_APPLICATION_CREDENTIALS": str(credentials),
                "GOOGLE_CLOUD_PROJECT": "proj",
                "BIGQUERY_EMULATOR_HOST": endpoint,
                "STORAGE_EMULATOR_HOST": endpoint,
                "grpc_proxy": proxy.endpoint,
                "REQUESTS_CA_BUNDLE": server.ca_certificate,
                "HTTPLIB2_CA_CERTS": server.ca_certificate,
                "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": server.ca_certificate,
            },
            capture_output=True,
            text=True,
            timeout=250,
        )
    return run, proxy.connected


def service_account(token_uri):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return {
        "type": "service_account",
        "project_id": "proj",
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "beam@proj.iam.gserviceaccount.com",
        "token_uri": token_uri,
    }


@pytest.mark.parametrize("method", ["DIRECT_READ", "EXPORT", "QUERY", "QUERY_DIRECTLY"])
def test_beam_reads_every_row(beam, method):
    run, _ = beam

    assert f"passed {method}" in run.stdout.splitlines(), run.stderr[-3000:]


@pytest.mark.parametrize(
    ("method", "table"),
    [
        ("STREAMING_INSERTS", "streamed"),
        ("NEWLINE_DELIMITED_JSON", "loaded_NEWLINE_DELIMITED_JSON"),
        ("AVRO", "loaded_AVRO"),
    ],
)
def test_beam_writes_every_row_once(beam, server, method, table):
    run, _ = beam

    assert f"passed {method}" in run.stdout.splitlines(), run.stderr[-3000:]
    found = server.visible_rows(f"proj.d.{table}")
    assert sorted(found, key=lambda row: row["id"]) == EVENTS


def test_every_api_was_reached_by_the_one_tls_port(beam, server):
    run, connected = beam

    assert run.returncode == 0, run.stderr[-3000:]
    assert connected == {"bigquerystorage.googleapis.com:443"}
    for method in ("ReadRows", "jobs.insert", "tabledata.insertAll"):
        assert server.counters[method] >= 1, server.counters
