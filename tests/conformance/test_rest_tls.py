"""Google's clients as they are made by default: TLS, one port for REST and gRPC."""

import contextlib
import io
import os
import socket
import ssl
import subprocess
import sys
import textwrap

import pytest
from cryptography import x509
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud import storage as storage_client

from bqflink_beam.emulator.server import EmulatorServer

_PROGRAM = """
    import sys

    from google.api_core.client_options import ClientOptions
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import bigquery, bigquery_storage

    address = sys.argv[1]
    client = bigquery.Client(
        project="proj",
        credentials=AnonymousCredentials(),
        client_options=ClientOptions(api_endpoint=f"https://{address}"),
    )
    storage = bigquery_storage.BigQueryReadClient(
        credentials=AnonymousCredentials(), client_options=ClientOptions(api_endpoint=address)
    )
    result = client.query("SELECT id FROM d.t WHERE id > 1").result(page_size=None)
    print(sorted(row["id"] for row in result))
    table = client.list_rows("proj.d.t").to_arrow(bqstorage_client=storage)
    print(sorted(table.column("id").to_pylist()))
"""


@pytest.fixture
def server():
    with EmulatorServer(tls_port=0) as server:
        server.create_table(
            "proj.d.t", [{"name": "id", "type": "INT64"}], rows=[{"id": n} for n in range(1000)]
        )
        yield server


def test_default_clients_reach_both_apis_at_one_port(server):
    answer = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(_PROGRAM), server.tls_endpoint],
        env={
            **os.environ,
            "REQUESTS_CA_BUNDLE": server.ca_certificate,
            "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": server.ca_certificate,
        },
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert answer.returncode == 0, answer.stderr[-2000:]
    assert answer.stdout.splitlines() == [str(list(range(2, 1000))), str(list(range(1000)))]
    assert server.counters["ReadRows"] >= 1


def test_uploads_go_on_at_the_address_they_began_at(server, monkeypatch):
    """The URL of a resumable upload comes from the server: it must be https as well."""
    endpoint = f"https://{server.tls_endpoint}"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", server.ca_certificate)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
    client = bigquery.Client(
        project="proj",
        credentials=AnonymousCredentials(),
        client_options=ClientOptions(api_endpoint=endpoint),
    )
    files = storage_client.Client(project="proj", credentials=AnonymousCredentials())
    config = bigquery.LoadJobConfig(
        source_format="CSV", schema=[bigquery.SchemaField("id", "INT64")]
    )
    lines = b"".join(b"%d\n" % number for number in range(1000))

    with contextlib.closing(client), contextlib.closing(files):
        client.load_table_from_file(io.BytesIO(lines), "proj.d.up", job_config=config).result()
        with files.bucket("b").blob("x").open("wb", chunk_size=256 * 1024) as file:
            file.write(b"y" * 600_000)
        kept = files.bucket("b").blob("x").download_as_bytes()

    assert [row["id"] for row in server.visible_rows("proj.d.up")] == list(range(1000))
    assert kept == b"y" * 600_000


def test_certificate_is_for_the_names_that_were_asked_for():
    with EmulatorServer(tls_port=0, tls_names=["bigquery", "10.0.0.7"]) as server:
        host, _, port = server.tls_endpoint.partition(":")
        context = ssl.create_default_context(cafile=server.ca_certificate)
        with (
            socket.create_connection((host, int(port))) as plain,
            context.wrap_socket(plain, server_hostname="bigquery") as secure,
        ):
            certificate = x509.load_der_x509_certificate(secure.getpeercert(binary_form=True))

    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost", "bigquery"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == [
        "127.0.0.1",
        "::1",
        "10.0.0.7",
    ]
