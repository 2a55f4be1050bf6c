import pytest

from bqflink_beam.errors import (
    AlreadyWrittenError,
    InvalidRequestError,
    OffsetGapError,
    RowsRejectedError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import StreamKind
from bqflink_beam.write.appender import GiveUpStream, StreamAppender
from bqflink_beam.write.batching import ROW_BYTES_LIMIT, RowBatch
from tests.sim.model_bigquery import ModelWrite

TABLE = TableReference("p", "d", "t")


@pytest.fixture
def model():
    return ModelWrite()


def batch(*rows):
    return RowBatch(str(TABLE), b"[]", b"", list(rows), list(range(len(rows))))


def appender(model, *, fresh=True, next_offset=0, stream=None, request_bytes_max=20):
    name = stream or model.create_stream(TABLE, StreamKind.PENDING).name
    return StreamAppender(
        model.open_append(name, b"", budget_s=1.0),
        name,
        next_offset=next_offset,
        fresh=fresh,
        request_bytes_max=request_bytes_max,
    )


def refuse_listed(*bad):
    """The service names the bad rows, but never more than one at a time."""

    def refuse(rows):
        found = [(index, f"bad {row!r}") for index, row in enumerate(rows) if row in bad][:1]
        return RowsRejectedError("row errors", rows=found) if found else None

    return refuse


def refuse_silently(*bad):
    def refuse(rows):
        return InvalidRequestError("malformed") if any(row in bad for row in rows) else None

    return refuse


@pytest.mark.parametrize("refuse", [refuse_listed, refuse_silently])
def test_bad_rows_come_back_and_every_other_row_is_in_order(model, refuse):
    writer = appender(model)
    model.refuse = refuse(b"bad1", b"bad2", b"bad3")

    writer.send(batch(b"a", b"b", b"bad1", b"c", b"bad2", b"d", b"e", b"f"))
    writer.send(batch(b"g", b"bad3"))
    rejected = writer.drain()

    assert model.streams[writer.stream].rows == [b"a", b"b", b"c", b"d", b"e", b"f", b"g"]
    assert writer.next_offset == 7
    assert [row.batch.rows[row.index] for row in rejected] == [b"bad1", b"bad2", b"bad3"]
    assert [row.batch.timestamps[row.index] for row in rejected] == [2, 4, 1]


def test_a_schema_that_fits_no_row_is_an_error_and_not_a_pile_of_failed_rows(model):
    writer = appender(model)
    model.refuse = lambda rows: InvalidRequestError("malformed")

    writer.send(batch(b"a", b"b", b"c"))
    with pytest.raises(InvalidRequestError):
        writer.drain()


def test_a_poison_row_alone_is_a_failed_row_once_the_schema_is_known_to_fit(model):
    writer = appender(model)
    model.refuse = refuse_silently(b"bad")

    writer.send(batch(b"a"))
    writer.send(batch(b"bad"))

    assert [row.message for row in writer.drain()] == ["malformed"]
    assert model.streams[writer.stream].rows == [b"a"]


def test_a_row_too_large_for_any_request_is_a_failed_row(model):
    writer = appender(model, request_bytes_max=ROW_BYTES_LIMIT)

    writer.send(batch(b"a", b"x" * ROW_BYTES_LIMIT, b"b"))
    rejected = writer.drain()

    assert model.streams[writer.stream].rows == [b"a", b"b"]
    assert [row.index for row in rejected] == [1]
    assert str(ROW_BYTES_LIMIT) in rejected[0].message


def test_a_resend_that_had_landed_counts_on_a_fresh_stream(model):
    writer = appender(model)
    model.lost_answers = 1

    writer.send(batch(b"a", b"b"))

    assert writer.drain() == []
    assert model.streams[writer.stream].rows == [b"a", b"b"]


def test_an_offset_that_is_taken_on_a_fresh_stream_stops(model):
    first = appender(model)
    first.send(batch(b"a"))
    first.drain()
    second = appender(model, stream=first.stream)

    second.send(batch(b"b"))
    with pytest.raises(AlreadyWrittenError):
        second.drain()


@pytest.mark.parametrize("lost_answers", [0, 1])
def test_an_offset_that_is_taken_on_an_old_stream_gives_it_up(model, lost_answers):
    first = appender(model)
    first.send(batch(b"a"))
    first.drain()
    second = appender(model, stream=first.stream, fresh=False, next_offset=lost_answers)
    model.lost_answers = lost_answers

    second.send(batch(b"b"))
    with pytest.raises(GiveUpStream):
        second.drain()


@pytest.mark.parametrize("fresh", [True, False])
def test_missing_rows_stop_whoever_owns_the_stream(model, fresh):
    writer = appender(model, fresh=fresh, next_offset=5)

    writer.send(batch(b"a"))
    with pytest.raises(OffsetGapError):
        writer.drain()
