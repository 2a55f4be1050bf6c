"""The write service on the embedded BigQuery, with faults on the way."""

import collections

import pytest

from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.errors import (
    AlreadyWrittenError,
    InvalidRequestError,
    NotFoundError,
    OffsetGapError,
    OutcomeUnknownError,
    RowsRejectedError,
    SchemaMismatchError,
    StreamFinalizedError,
    StreamGoneError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.base import StreamKind
from bqflink_beam.testing import Fault
from bqflink_beam.testing.emulator import Emulator

_TABLE = TableReference("p", "d", "t")
_SCHEMA = TableSchema(
    (Field(name="id", type="INT64", mode="REQUIRED"), Field(name="name", type="STRING"))
)
_ENCODER = RowEncoder(_SCHEMA)


@pytest.fixture
def server():
    with Emulator() as server:
        server.create_table(str(_TABLE), _SCHEMA)
        yield server


@pytest.fixture
def client(server, opened):
    return opened(server.connection.open())


@pytest.fixture
def write(client):
    return client.write


def rows(*ids):
    return [_ENCODER.encode({"id": n, "name": f"row {n}"}) for n in ids]


def visible(server, table=_TABLE):
    return [row["id"] for row in server.visible_rows(str(table))]


def append_to(write, opened, stream, budget_s=20.0):
    return opened(write.open_append(stream, _ENCODER.descriptor, budget_s=budget_s))


def append_all(connection, chunks):
    """Sends chunks of ids at following offsets without waiting; returns the tickets."""
    tickets, offset = [], 0
    for chunk in chunks:
        tickets.append(connection.send(rows(*chunk), offset))
        offset += len(chunk)
    return tickets


def test_pending_rows_show_at_the_commit_and_not_before(server, write, opened):
    stream = write.create_stream(_TABLE, StreamKind.PENDING)
    connection = append_to(write, opened, stream.name)

    landed = [ticket.result() for ticket in append_all(connection, [[0, 1], [2], [3, 4]])]
    before = visible(server)
    count = write.finalize(stream.name)
    answer = write.commit(_TABLE, [stream.name])

    assert landed == [0, 2, 3]
    assert before == []
    assert count == 5
    assert answer.commit_s is not None and answer.problems == ()
    assert visible(server) == [0, 1, 2, 3, 4]
    assert write.get_stream(stream.name).commit_s == pytest.approx(answer.commit_s)


def test_second_commit_says_that_the_stream_is_committed_and_adds_nothing(server, write, opened):
    stream = write.create_stream(_TABLE, StreamKind.PENDING)
    append_to(write, opened, stream.name).send(rows(1), 0).result()
    write.finalize(stream.name)
    write.commit(_TABLE, [stream.name])

    again = write.commit(_TABLE, [stream.name])

    assert again.commit_s is None
    assert [(p.kind, p.stream) for p in again.problems] == [
        ("STREAM_ALREADY_COMMITTED", stream.name)
    ]
    assert visible(server) == [1]


def test_commit_whose_answer_is_lost_was_applied(server, write, opened):
    stream = write.create_stream(_TABLE, StreamKind.PENDING)
    append_to(write, opened, stream.name).send(rows(1), 0).result()
    write.finalize(stream.name)
    server.faults.add(Fault(method="BatchCommitWriteStreams", code="UNAVAILABLE", when="after"))

    with pytest.raises(OutcomeUnknownError):
        write.commit(_TABLE, [stream.name])

    assert visible(server) == [1]
    assert write.commit(_TABLE, [stream.name]).problems[0].kind == "STREAM_ALREADY_COMMITTED"


def test_flush_shows_exactly_the_rows_before_stop(server, write, opened):
    stream = write.create_stream(_TABLE, StreamKind.BUFFERED)
    append_to(write, opened, stream.name).send(rows(0, 1, 2, 3), 0).result()

    write.flush(stream.name, 3)
    first = visible(server)
    write.flush(stream.name, 3)
    write.flush(stream.name, 2)

    assert first == [0, 1, 2]
    assert visible(server) == [0, 1, 2]
    with pytest.raises(OffsetGapError):
        write.flush(stream.name, 5)
    write.flush(stream.name, 4)
    assert visible(server) == [0, 1, 2, 3]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "ABORTED"])
def test_flush_and_finalize_survive_a_lost_answer(server, write, opened, when, code):
    stream = write.create_stream(_TABLE, StreamKind.BUFFERED)
    append_to(write, opened, stream.name).send(rows(0, 1), 0).result()
    server.faults.add(Fault(method="FlushRows", code=code, when=when))
    server.faults.add(Fault(method="FinalizeWriteStream", code=code, when=when))

    write.flush(stream.name, 2)
    count = write.finalize(stream.name)

    assert count == 2
    assert visible(server) == [0, 1]


def test_flush_of_an_expired_stream_says_that_it_is_gone(server, write, opened):
    stream = write.create_stream(_TABLE, StreamKind.BUFFERED)
    append_to(write, opened, stream.name).send(rows(0), 0).result()
    server.faults.add(Fault(method="FlushRows", action="expire"))

    with pytest.raises(StreamGoneError):
        write.flush(stream.name, 1)


@pytest.mark.parametrize("nth", [1, 2, 5])
@pytest.mark.parametrize(
    "fault",
    [
        {"code": "UNAVAILABLE", "when": "before"},
        {"code": "UNAVAILABLE", "when": "after"},
        {"code": "INTERNAL", "when": "after"},
        {"action": "cut", "when": "before"},
        {"action": "cut", "when": "after"},
        {"code": "INTERNAL", "when": "before", "in_band": True},
        {"code": "RESOURCE_EXHAUSTED", "when": "before", "in_band": True},
        {"action": "duplicate"},
    ],
    ids=lambda fault: "-".join(map(str, fault.values())),
)
def test_each_row_is_in_once_whatever_breaks_on_the_way(server, write, opened, fault, nth):
    stream = write.create_stream(_TABLE, StreamKind.BUFFERED)
    connection = append_to(write, opened, stream.name)
    server.faults.add(Fault(method="AppendRows", nth=nth, **fault))

    resent = 0
    for start, ticket in enumerate(append_all(connection, [[n] for n in range(8)])):
        try:
            assert ticket.result() == start
        except AlreadyWrittenError as error:
            assert error.resent
            resent += 1
    write.flush(stream.name, 8)

    assert visible(server) == list(range(8))
    assert resent <= 1


def test_first_writer_at_an_offset_wins_and_the_other_is_told(server, write, opened):
    stream = write.create_stream(_TABLE, StreamKind.BUFFERED)
    first, second = (append_to(write, opened, stream.name) for _ in range(2))
    first.send(rows(1), 0).result()

    with pytest.raises(AlreadyWrittenError) as caught:
        second.send(rows(2), 0).result()

    assert not caught.value.resent
    write.flush(stream.name, 1)
    assert visible(server) == [1]


def test_gap_is_refused_and_the_connection_goes_on(write, opened):
    stream = write.create_stream(_TABLE, StreamKind.BUFFERED)
    connection = append_to(write, opened, stream.name)

    with pytest.raises(OffsetGapError):
        connection.send(rows(1), 5).result()

    assert connection.send(rows(1), 0).result() == 0


def test_append_behind_finalize_is_refused(write, opened):
    stream = write.create_stream(_TABLE, StreamKind.PENDING)
    connection = append_to(write, opened, stream.name)
    connection.send(rows(1), 0).result()
    write.finalize(stream.name)

    with pytest.raises(StreamFinalizedError):
        connection.send(rows(2), 1).result()


def test_bad_rows_are_listed_by_index(server, write, opened):
    stream = write.create_stream(_TABLE, StreamKind.PENDING)
    connection = append_to(write, opened, stream.name)
    batch = [*rows(0), b"\xff\xff", *rows(2)]

    with pytest.raises(RowsRejectedError) as caught:
        connection.send(batch, 0).result()

    assert [index for index, _ in caught.value.rows] == [1]
    assert connection.send(rows(0, 2), 0).result() == 0


def test_column_that_the_table_has_not_is_a_schema_mismatch(write, opened):
    wider = RowEncoder(TableSchema((*_SCHEMA.fields, Field(name="extra", type="STRING"))))
    stream = write.create_stream(_TABLE, StreamKind.PENDING)
    connection = opened(write.open_append(stream.name, wider.descriptor, budget_s=20.0))

    with pytest.raises(SchemaMismatchError) as caught:
        connection.send([wider.encode({"id": 1, "extra": "x"})], 0).result()
    assert caught.value.table == "p.d.t"


def test_request_beyond_the_services_limit_is_an_invalid_request(server, opened):
    with Emulator(settings=Settings(append_bytes_max=1_000)) as small:
        small.create_table(str(_TABLE), _SCHEMA)
        write = opened(small.connection.open()).write
        connection = append_to(write, opened, _TABLE.default_stream)

        with pytest.raises(InvalidRequestError, match="1000"):
            connection.send(rows(*range(200)), None).result()
        assert connection.send(rows(1), None).result() is None


def test_default_stream_shows_rows_at_once(server, write, opened):
    connection = append_to(write, opened, _TABLE.default_stream)

    assert connection.send(rows(1, 2), None).result() is None

    assert visible(server) == [1, 2]


def test_missing_table_is_named(write, opened):
    missing = TableReference("p", "d", "none")
    connection = append_to(write, opened, missing.default_stream)

    with pytest.raises(NotFoundError, match="p.d.none|none"):
        connection.send(rows(1), None).result()
    with pytest.raises(NotFoundError) as caught:
        write.create_stream(missing, StreamKind.PENDING)
    assert caught.value.table == "p.d.none"


def test_default_stream_tells_schema_and_location(write):
    stream = write.get_stream(_TABLE.default_stream)

    assert stream.schema == _SCHEMA
    assert stream.location == "US"


def test_silent_service_ends_in_an_unknown_outcome(server, write, opened):
    server.faults.add(Fault(method="AppendRows", action="hang"))
    connection = append_to(write, opened, _TABLE.default_stream, budget_s=0.3)

    with pytest.raises(OutcomeUnknownError):
        connection.send(rows(1), None).result()
    assert connection.send(rows(2), None).result() is None


def test_service_that_refuses_for_longer_than_the_budget_is_transient(server, write, opened):
    server.faults.add(
        Fault(method="AppendRows", code="RESOURCE_EXHAUSTED", in_band=True, times=None)
    )
    connection = append_to(write, opened, _TABLE.default_stream, budget_s=0.4)

    with pytest.raises((TransientError, OutcomeUnknownError)):
        connection.send(rows(1), None).result()
    assert visible(server) == []


def test_widened_table_is_told_on_an_open_connection(server, client, opened):
    connection = append_to(client.write, opened, _TABLE.default_stream)
    connection.send(rows(1), None).result()
    table = client.tables.get(_TABLE)
    fields = [*table.resource["schema"]["fields"], {"name": "extra", "type": "STRING"}]

    client.tables.patch(_TABLE, {"schema": {"fields": fields}}, etag=table.etag)
    connection.send(rows(2), None).result()

    assert [field.name for field in connection.updated_schema] == ["id", "name", "extra"]
    assert visible(server) == [1, 2]


def test_pool_delivers_every_row_of_every_table_through_breaking_calls(server, client):
    tables = [TableReference("p", "d", f"t{n}") for n in range(4)]
    for table in tables:
        server.create_table(str(table), _SCHEMA)
    for nth in (3, 20, 41):
        server.faults.add(Fault(method="AppendRows", code="UNAVAILABLE", nth=nth))

    tickets = [
        client.pool.send(tables[n % 4].default_stream, _ENCODER.descriptor, rows(n))
        for n in range(80)
    ]

    assert [ticket.result() for ticket in tickets] == [None] * 80
    for number, table in enumerate(tables):
        expected = collections.Counter(range(number, 80, 4))
        seen = collections.Counter(visible(server, table))
        assert set(seen) == set(expected)


def test_pool_without_breakages_writes_each_row_once(server, client):
    tickets = [
        client.pool.send(_TABLE.default_stream, _ENCODER.descriptor, rows(n)) for n in range(50)
    ]
    for ticket in tickets:
        ticket.result()

    assert collections.Counter(visible(server)) == collections.Counter(range(50))


def test_table_made_now_is_written_to_now(server, client, opened):
    table = TableReference("p", "d", "fresh")
    client.tables.create(table, {"schema": {"fields": [{"name": "id", "type": "INT64"}]}})
    server.faults.add(Fault(method="CreateWriteStream", code="NOT_FOUND", times=2))

    stream = client.write.create_stream(table, StreamKind.COMMITTED)
    encoder = RowEncoder(TableSchema((Field(name="id", type="INT64"),)))
    narrow = opened(client.write.open_append(stream.name, encoder.descriptor, budget_s=20.0))
    narrow.send([encoder.encode({"id": 7})], 0).result()

    assert visible(server, table) == [7]
