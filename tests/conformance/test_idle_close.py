"""An append connection that nobody uses is closed; its stream, and whoever writes, goes on.

The service does so after 600 seconds, with ABORTED and these words: Google's Java client
knows them, and opens the connection again without counting that as a failure.
"""

import threading

import grpc
import pytest

from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.base import StreamKind
from bqflink_beam.testing import Emulator, FakeClock, Settings
from bqflink_beam.testing.conformance.kit import (
    Connection,
    Failure,
    GrpcTransport,
    Writer,
    append_request,
    offset_of,
)

IDLE_S = 600.0
T = TableReference("p", "d", "t")
SCHEMA = TableSchema((Field(name="id", type="INT64", mode="REQUIRED"),))
WRITER = Writer(id="int64")
ENCODER = RowEncoder(SCHEMA)


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def server(clock):
    with Emulator(clock=clock, settings=Settings(idle_close_s=IDLE_S)) as server:
        server.create_table(T, SCHEMA)
        yield server


@pytest.fixture
def transport(server):
    with grpc.insecure_channel(server.storage_endpoint) as channel:
        yield GrpcTransport(channel)


@pytest.fixture
def stream(server, opened):
    client = opened(server.connection.open())
    return client.write.create_stream(T, StreamKind.COMMITTED).name


def request(stream, *ids, offset=None):
    rows = [WRITER.row(id=number) for number in ids]
    return append_request(stream, rows, writer=WRITER, offset=offset)


def ids(server):
    return [row["id"] for row in server.visible_rows(T)]


def append_threads():
    return [each for each in threading.enumerate() if each.name == "bigquery-append"]


def test_idle_connection_is_closed_with_aborted_and_its_stream_goes_on(
    server, clock, transport, stream, opened
):
    first = opened(transport.append_rows())
    first.send(request(stream, 1, 2, offset=0))
    assert offset_of(first.receive()) == 0

    clock.advance(IDLE_S)
    with pytest.raises(Failure) as closed:
        first.receive()
    second = opened(transport.append_rows())
    second.send(request(stream, 3, offset=2))

    assert closed.value.code == "ABORTED"
    assert closed.value.text == (
        "Closing the stream because connection has been inactive for 600 seconds."
    )
    assert offset_of(second.receive()) == 2
    assert ids(server) == [1, 2, 3]


def test_each_request_makes_patience_new(server, clock, transport, stream, opened):
    connection = Connection(opened(transport.append_rows()))

    landed = []
    for number in range(4):
        landed.append(offset_of(connection(request(stream, number, offset=number))))
        clock.advance(IDLE_S - 1)

    assert landed == [0, 1, 2, 3]
    assert ids(server) == [0, 1, 2, 3]
    assert server.counters["AppendRows.connections"] == 1


def test_default_stream_is_closed_too_and_goes_on(server, clock, transport, opened):
    for number in range(2):
        connection = opened(transport.append_rows())
        connection.send(request(T.default_stream, number))
        assert offset_of(connection.receive()) is None
        clock.advance(IDLE_S)
        with pytest.raises(Failure) as closed:
            connection.receive()
        assert closed.value.code == "ABORTED"

    assert ids(server) == [0, 1]


def test_closed_connections_leave_no_thread(server, clock, transport, stream, opened):
    before = len(append_threads())
    connections = [opened(transport.append_rows()) for _ in range(5)]
    for connection in connections:
        connection.send(request(T.default_stream, 7))
        connection.receive()
    assert len(append_threads()) == before + 5

    clock.advance(IDLE_S)
    for connection in connections:
        with pytest.raises(Failure):
            connection.receive()

    for thread in append_threads()[before:]:
        thread.join(10)
    assert len(append_threads()) == before


@pytest.mark.parametrize("kind", [StreamKind.COMMITTED, StreamKind.BUFFERED, StreamKind.PENDING])
def test_our_connection_opens_again_and_each_row_is_there_once(server, clock, opened, kind):
    write = opened(server.connection.open()).write
    name = write.create_stream(T, kind).name
    connection = opened(write.open_append(name, ENCODER.descriptor, budget_s=20.0))

    landed = []
    for number in range(4):
        landed.append(connection.send([ENCODER.encode({"id": number})], number).result())
        clock.advance(IDLE_S)

    assert landed == [0, 1, 2, 3]
    if kind is StreamKind.BUFFERED:
        write.flush(name, 4)
    if kind is StreamKind.PENDING:
        assert write.finalize(name) == 4
        write.commit(T, [name])
    assert ids(server) == [0, 1, 2, 3]
    assert server.counters["AppendRows.connections"] == 4


def test_our_default_stream_writer_opens_again_and_loses_no_row(server, clock, opened):
    write = opened(server.connection.open()).write
    connection = opened(write.open_append(T.default_stream, ENCODER.descriptor, budget_s=20.0))

    for number in range(4):
        assert connection.send([ENCODER.encode({"id": number})], None).result() is None
        clock.advance(IDLE_S)

    assert ids(server) == [0, 1, 2, 3]
    assert server.counters["AppendRows.connections"] == 4
