"""A server that listens at an IPv6 address serves REST, gRPC and TLS there."""

import contextlib
import io
import re
import signal
import socket
import subprocess
import sys

import pytest
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.errors import NotFoundError
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.base import SessionRequest
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import Anonymous
from bqflink_beam.testing import Emulator

T = TableReference("p", "d", "t")
SCHEMA = TableSchema((Field(name="id", type="INT64", mode="REQUIRED"),))


def has_ipv6():
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


pytestmark = [
    pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback"),
    pytest.mark.filterwarnings("ignore::PendingDeprecationWarning:google"),
]


@pytest.fixture(scope="module")
def server():
    with Emulator(host="::1", tls_port=0) as server:
        yield server


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "tls"])
def test_our_client_writes_and_reads(server, opened, secure):
    table = TableReference("p", "d", f"ours_{secure}".lower())
    server.create_table(table, SCHEMA)
    client = opened((server.tls_connection if secure else server.connection).open())
    encoder = RowEncoder(SCHEMA)
    connection = opened(
        client.write.open_append(table.default_stream, encoder.descriptor, budget_s=20.0)
    )

    connection.send([encoder.encode({"id": number}) for number in range(3)], None).result()

    assert [field.name for field in client.tables.get(table).schema] == ["id"]
    assert client.read.create_session(SessionRequest(table=table)).estimated_rows == 3
    assert server.visible_rows(table) == [{"id": 0}, {"id": 1}, {"id": 2}]


@pytest.mark.parametrize("secure", [False, True], ids=["plaintext", "tls"])
def test_google_client_uploads_and_lists(server, opened, secure, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", server.ca_certificate)
    server.create_dataset("p", "d")
    endpoint = f"https://{server.tls_endpoint}" if secure else server.rest_endpoint
    client = opened(
        bigquery.Client(
            project="p",
            credentials=AnonymousCredentials(),
            client_options=ClientOptions(api_endpoint=endpoint),
        )
    )
    table = f"p.d.google_{secure}".lower()
    config = bigquery.LoadJobConfig(autodetect=True, source_format="CSV")

    client.load_table_from_file(io.BytesIO(b"id\n1\n2\n"), table, job_config=config).result()

    assert endpoint.partition("://")[2].startswith("[::1]:")
    assert [row["id"] for row in client.list_rows(table)] == [1, 2]


def test_command_takes_an_ipv6_host(opened):
    command = "emulator --host ::1 --port 0 --storage-port 0 --tls-port 0"
    process = subprocess.Popen(
        [sys.executable, "-m", "bqflink_beam", *command.split()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        found = re.fullmatch(
            r"bigquery ready rest=(http://\[::1\]:\d+) storage=(\[::1\]:\d+)"
            r" tls=(\[::1\]:\d+) ca=(\S+)\n",
            line,
        )
        assert found, line or process.stderr.read()
        rest, storage, tls, ca = found.groups()
        plain = Connection(
            rest_endpoint=rest, storage_endpoint=storage, plaintext=True, credentials=Anonymous()
        )
        secure = Connection(
            rest_endpoint=f"https://{tls}",
            storage_endpoint=tls,
            ca_certificate=ca,
            credentials=Anonymous(),
        )
        for connection in (plain, secure):
            client = opened(connection.open())
            assert client.tables.get(T) is None
            with pytest.raises(NotFoundError):
                client.read.create_session(SessionRequest(table=T))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0
