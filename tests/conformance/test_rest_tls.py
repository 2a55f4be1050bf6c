"""Google's clients as they are made by default: TLS, one port for REST and gRPC."""

import os
import subprocess
import sys
import textwrap

import pytest

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
