"""Google's storage clients run on the embedded BigQuery as they are, in plaintext and over TLS."""

import contextlib
import datetime
import decimal
import pathlib
import threading

import grpc
import pytest
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery, bigquery_storage
from google.cloud.bigquery_storage_v1 import types, writer
from google.cloud.bigquery_storage_v1.services.big_query_read import transports as read_transports
from google.cloud.bigquery_storage_v1.services.big_query_write import (
    transports as write_transports,
)
from google.protobuf import descriptor_pb2

from bqflink_beam import testing
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import SessionRequest
from bqflink_beam.testing.conformance.kit import Writer

pytestmark = pytest.mark.filterwarnings(
    "ignore::PendingDeprecationWarning:google", "ignore::DeprecationWarning"
)
T = TableReference("p", "d", "t")
FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "name", "type": "STRING"},
    {"name": "amount", "type": "NUMERIC"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "local", "type": "DATETIME"},
    {"name": "tags", "type": "STRING", "mode": "REPEATED"},
    {"name": "home", "type": "STRUCT", "fields": [{"name": "city", "type": "STRING"}]},
]
ROWS = [
    {
        "id": number,
        "name": f"n{number}" if number % 2 else None,
        "amount": decimal.Decimal(number) / 4,
        "at": datetime.datetime(2024, 1, 1, 0, 0, number % 60, tzinfo=datetime.timezone.utc),
        "local": datetime.datetime(2024, 1, 1, 0, 0, number % 60),  # noqa: DTZ001
        "tags": ["a", "b"][: number % 3],
        "home": {"city": "X"} if number % 5 else None,
    }
    for number in range(200)
]
WRITER = Writer(id="int64", name="string")


@pytest.fixture(scope="module")
def server():
    settings = testing.Settings(streams_min=3, response_rows_max=17)
    with testing.Emulator(settings=settings, tls_port=0) as server:
        server.create_table(str(T), FIELDS, rows=ROWS)
        yield server


@pytest.fixture(params=["plaintext", "tls"])
def channel(request, server):
    if request.param == "plaintext":
        opened = grpc.insecure_channel(server.storage_endpoint)
    else:
        roots = pathlib.Path(server.ca_certificate).read_bytes()
        opened = grpc.secure_channel(
            server.tls_endpoint, grpc.ssl_channel_credentials(root_certificates=roots)
        )
    with opened:
        yield opened


@pytest.fixture
def reader(channel):
    transport = read_transports.BigQueryReadGrpcTransport(channel=channel)
    return bigquery_storage.BigQueryReadClient(transport=transport)


@pytest.fixture
def write_client(channel):
    transport = write_transports.BigQueryWriteGrpcTransport(channel=channel)
    return bigquery_storage.BigQueryWriteClient(transport=transport)


@pytest.mark.parametrize("data_format", ["ARROW", "AVRO"])
def test_reader_gives_every_row(reader, data_format):
    session = reader.create_read_session(
        parent="projects/p",
        read_session=types.ReadSession(table=T.path, data_format=types.DataFormat[data_format]),
    )

    rows = [
        dict(row)
        for stream in session.streams
        for row in reader.read_rows(stream.name).rows(session)
    ]

    assert len(session.streams) == 3
    if data_format == "AVRO":
        # Google's reader leaves Avro's DATETIME as the text it is.
        rows = [{**row, "local": datetime.datetime.fromisoformat(row["local"])} for row in rows]
    else:
        rows = [{name: value.as_py() for name, value in row.items()} for row in rows]
    assert sorted(rows, key=lambda row: row["id"]) == ROWS


def test_reader_gives_arrow_and_resumes_at_an_offset(reader):
    session = reader.create_read_session(
        parent="projects/p",
        read_session=types.ReadSession(
            table=T.path,
            data_format=types.DataFormat.ARROW,
            read_options=types.ReadSession.TableReadOptions(
                selected_fields=["home.city", "id"], row_restriction="id >= 100"
            ),
        ),
        max_stream_count=1,
    )
    name = session.streams[0].name

    whole = reader.read_rows(name).to_arrow(session)
    rest = reader.read_rows(name, offset=40).to_arrow(session)

    assert whole.to_pylist() == [{"id": r["id"], "home": r["home"]} for r in ROWS[100:]]
    assert rest.to_pylist() == whole.to_pylist()[40:]


@contextlib.contextmanager
def append_stream(write_client, name):
    template = types.AppendRowsRequest(write_stream=name)
    data = types.AppendRowsRequest.ProtoData(writer_schema=types.ProtoSchema())
    data.writer_schema.proto_descriptor = descriptor_pb2.DescriptorProto.FromString(
        WRITER.descriptor.SerializeToString()
    )
    template.proto_rows = data
    stream = writer.AppendRowsStream(write_client, template)
    try:
        yield stream
    finally:
        stream.close()


def rows_request(*numbers, offset=None):
    data = types.AppendRowsRequest.ProtoData(
        rows=types.ProtoRows(serialized_rows=[WRITER.row(id=number) for number in numbers])
    )
    return types.AppendRowsRequest(proto_rows=data, offset=offset)


def test_writer_appends_finalizes_and_commits(server, write_client):
    table = new_table(server)
    made = write_client.create_write_stream(
        parent=table.path, write_stream=types.WriteStream(type_=types.WriteStream.Type.PENDING)
    )

    with append_stream(write_client, made.name) as stream:
        futures = [stream.send(rows_request(2 * n, 2 * n + 1, offset=2 * n)) for n in range(10)]
        offsets = [future.result(timeout=30).append_result.offset for future in futures]
    finalized = write_client.finalize_write_stream(name=made.name)
    committed = write_client.batch_commit_write_streams(
        types.BatchCommitWriteStreamsRequest(parent=table.path, write_streams=[made.name])
    )

    assert offsets == list(range(0, 20, 2))
    assert finalized.row_count == 20
    assert committed.commit_time.timestamp() > 0
    assert sorted(row["id"] for row in server.visible_rows(table)) == list(range(20))


def test_writer_is_told_of_a_written_offset(server, write_client):
    table = new_table(server)
    made = write_client.create_write_stream(
        parent=table.path, write_stream=types.WriteStream(type_=types.WriteStream.Type.COMMITTED)
    )

    with append_stream(write_client, made.name) as stream:
        stream.send(rows_request(1, offset=0)).result(timeout=30)
        with pytest.raises(exceptions.AlreadyExists, match="expected offset 1, received 0"):
            stream.send(rows_request(1, offset=0)).result(timeout=30)

    assert [row["id"] for row in server.visible_rows(table)] == [1]


def test_rest_and_grpc_share_the_tls_port(server, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", server.ca_certificate)
    client = bigquery.Client(
        project="p",
        credentials=AnonymousCredentials(),
        client_options=ClientOptions(api_endpoint=f"https://{server.tls_endpoint}"),
    )

    with contextlib.closing(client):
        rows = list(client.list_rows("p.d.t", max_results=3))

    assert [row["id"] for row in rows] == [0, 1, 2]


def test_our_own_client_speaks_tls(server):
    client = server.tls_connection.open()

    made = client.read.create_session(SessionRequest(table=T))
    table = client.tables.get(T)
    client.close()

    assert made.estimated_rows == len(ROWS)
    assert [field.name for field in table.schema] == [field["name"] for field in FIELDS]


def test_a_client_that_does_not_trust_the_certificate_is_not_served(server):
    with grpc.secure_channel(server.tls_endpoint, grpc.ssl_channel_credentials()) as channel:
        call = channel.unary_unary("/google.cloud.bigquery.storage.v1.BigQueryRead/ReadRows")
        with pytest.raises(grpc.RpcError) as failed:
            call(b"", timeout=5)

    assert failed.value.code() == grpc.StatusCode.UNAVAILABLE


def test_stopping_ends_tls_connections_and_threads():
    before = set(threading.enumerate())
    with testing.Emulator(tls_port=0) as server:
        roots = pathlib.Path(server.ca_certificate).read_bytes()
        credentials = grpc.ssl_channel_credentials(root_certificates=roots)
        with grpc.secure_channel(server.tls_endpoint, credentials) as channel:
            call = channel.unary_unary("/google.cloud.bigquery.storage.v1.BigQueryRead/ReadRows")
            with pytest.raises(grpc.RpcError) as failed:
                call(b"", timeout=10)
            certificate = pathlib.Path(server.ca_certificate)
            server.stop()

    assert failed.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert not certificate.exists()
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("bigquery")]


def new_table(server) -> TableReference:
    reference = TableReference("p", "d", f"t{len(server.store.tables)}")
    server.create_table(reference, FIELDS[:2])
    return reference
