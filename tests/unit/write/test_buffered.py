"""One shard of an unbounded write: which stream a batch goes to, whatever became of the last one."""

import pytest

from bqflink_beam.errors import (
    AccessDeniedError,
    NotFoundError,
    OffsetGapError,
    RowsRejectedError,
    StreamGoneError,
)
from bqflink_beam.service.base import StreamKind
from bqflink_beam.testing.clock import FakeClock
from bqflink_beam.write import buffered
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.buffered import BufferedWriter
from bqflink_beam.write.position import FlushMark
from tests.sim.model_bigquery import ModelWrite

DAY_S = 24 * 3600.0


@pytest.fixture
def model():
    return ModelWrite()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def prepared():
    return []


@pytest.fixture
def writer(model, clock, prepared):
    return new_writer(model, clock, prepared)


def new_writer(model, clock, prepared, request_bytes_max=1000):
    writer = BufferedWriter(
        model,
        prepare_table=lambda table: prepared.append(str(table)),
        clock=clock,
        budget_s=1.0,
        request_bytes_max=request_bytes_max,
    )
    writer.start_bundle()
    return writer


def batch(*rows, table="p.d.t", descriptor=b"one"):
    return RowBatch(table, b"[]", descriptor, list(rows), [0] * len(rows))


def test_a_batch_is_flushed_up_to_the_position_it_leaves(writer, model):
    first = writer.append(None, batch(b"a", b"b"))
    second = writer.append(first.position, batch(b"c"))

    stream = first.position.stream
    assert (first.flush, second.flush) == (FlushMark(stream, 2), FlushMark(stream, 3))
    assert (second.position.stream, second.position.next_offset) == (stream, 3)
    assert model.streams[stream].rows == [b"a", b"b", b"c"]


def test_nothing_is_flushed_and_no_position_moves_when_no_row_was_taken(writer, model):
    position = writer.append(None, batch(b"a")).position
    model.refuse = lambda rows: RowsRejectedError(
        "row errors", rows=[(index, "bad") for index in range(len(rows))]
    )

    result = writer.append(position, batch(b"x", b"y"))

    assert (result.flush, result.position) == (None, position)
    assert [row.index for row in result.rejected] == [0, 1]


def _all_bad(rows):
    bad = [(index, "bad") for index, row in enumerate(rows) if row.startswith(b"bad")]
    return RowsRejectedError("row errors", rows=bad) if bad else None


def test_bad_rows_alone_use_up_one_stream_however_many_they_are(writer, model):
    model.refuse = _all_bad

    for _ in range(5):
        writer.start_bundle()
        for _ in range(3):
            assert writer.append(None, batch(b"bad")).position is None
    result = writer.append(None, batch(b"a"))
    other = writer.append(None, batch(b"b"))

    assert writer.streams_created == 2
    assert model.streams[result.position.stream].rows == [b"a"]
    assert model.streams[other.position.stream].rows == [b"b"]


def test_a_stream_with_rows_is_not_given_to_another_key_because_a_batch_was_bad(writer, model):
    first = writer.append(None, batch(b"a"))
    model.refuse = _all_bad
    writer.append(first.position, batch(b"bad"))

    other = writer.append(None, batch(b"b"))

    assert other.position.stream != first.position.stream
    assert model.streams[other.position.stream].rows == [b"b"]


def test_the_unused_stream_of_a_table_is_not_anothers(writer, model):
    model.refuse = _all_bad
    writer.append(None, batch(b"bad"))

    result = writer.append(None, batch(b"a", table="p.d.other"))

    assert str(model.streams[result.position.stream].table) == "p.d.other"


@pytest.mark.parametrize("written", [False, True], ids=["new key", "stream of the key is gone too"])
def test_an_unused_stream_that_has_expired_is_replaced(writer, model, written):
    position = writer.append(None, batch(b"a")).position if written else None
    model.refuse = _all_bad
    writer.append(None, batch(b"bad"))
    for name in list(model.streams):
        model.expire(name)
    writer.start_bundle()

    result = writer.append(position, batch(b"b", b"c"))

    assert result.flush == FlushMark(result.position.stream, 2)
    assert model.streams[result.position.stream].rows == [b"b", b"c"]


def test_a_missing_table_is_prepared_for_a_key_that_has_written_nothing(writer, prepared):
    position = writer.append(None, batch(b"a")).position
    writer.append(position, batch(b"b"))

    assert prepared == ["p.d.t"]


@pytest.mark.parametrize("code", [StreamGoneError, NotFoundError])
def test_a_table_dropped_under_a_position_is_an_error_and_is_not_made_again(
    writer, model, prepared, code
):
    model.gone_with_table = code
    position = writer.append(None, batch(b"a")).position
    model.expire(position.stream)
    model.tables_missing.add("p.d.t")
    prepared.clear()
    writer.start_bundle()

    with pytest.raises(NotFoundError, match="the table was dropped while rows") as raised:
        writer.append(position, batch(b"b"))

    assert prepared == []
    assert position.stream in raised.value.message
    assert raised.value.table == "p.d.t"


def test_an_idle_position_of_a_dropped_table_makes_no_table_either(writer, model, clock, prepared):
    position = writer.append(None, batch(b"a")).position
    clock.advance(6 * DAY_S)
    model.tables_missing.add("p.d.t")
    prepared.clear()

    with pytest.raises(NotFoundError, match="the table was dropped while rows"):
        writer.append(position, batch(b"b"))

    assert prepared == []


@pytest.mark.parametrize("end", ["gone", "finalized", "longer"])
def test_a_stream_that_ended_elsewhere_is_given_up_without_another_flush(
    writer, model, end, clock, prepared
):
    position = writer.append(None, batch(b"a")).position
    old = model.streams[position.stream]
    if end == "gone":
        model.expire(position.stream)  # as when somebody made the table anew
    elif end == "finalized":
        model.finalize(position.stream)
    else:
        model.append(position.stream, [b"a zombie's"], 1)
    restarted = new_writer(model, clock, prepared)

    result = restarted.append(position, batch(b"b", b"c"))

    assert result.position.stream != position.stream
    assert result.flush == FlushMark(result.position.stream, 2)
    assert model.streams[result.position.stream].rows == [b"b", b"c"]
    assert old.flushed == 0


def test_acknowledged_rows_that_are_missing_stop_the_write(writer, model, clock, prepared):
    position = writer.append(None, batch(b"a", b"b")).position
    model.streams[position.stream].rows.pop()

    with pytest.raises(OffsetGapError):
        new_writer(model, clock, prepared).append(position, batch(b"c"))


def test_a_stream_without_traffic_for_five_days_is_left_before_it_expires(writer, model, clock):
    position = writer.append(None, batch(b"a")).position
    clock.advance(5 * DAY_S - 1)
    kept = writer.append(position, batch(b"b")).position
    clock.advance(5 * DAY_S + 1)
    fresh = writer.append(kept, batch(b"c")).position

    assert kept.stream == position.stream
    assert fresh.stream != position.stream
    assert fresh.next_offset == 1


def test_a_taken_offset_is_a_landed_resend_only_in_the_bundle_that_made_the_stream(writer, model):
    position = writer.append(None, batch(b"a")).position
    model.lost_answers = 1
    same = writer.append(position, batch(b"b")).position
    writer.start_bundle()
    model.lost_answers = 1
    other = writer.append(same, batch(b"c")).position

    assert same.stream == position.stream
    assert other.stream != position.stream
    assert model.streams[other.stream].rows == [b"c"]


def test_an_instance_that_outlives_a_rejected_bundle_trusts_none_of_its_streams(writer, model):
    position = writer.append(None, batch(b"a")).position
    writer.append(position, batch(b"rejected"))
    writer.start_bundle()

    result = writer.append(position, batch(b"b"))

    assert result.position.stream != position.stream
    assert model.streams[result.position.stream].rows == [b"b"]


def test_no_stream_is_ever_finalized(writer, model, clock, prepared):
    position = writer.append(None, batch(b"a")).position
    model.append(position.stream, [b"zombie"], 1)
    writer.start_bundle()
    writer.append(position, batch(b"b"))
    writer.close()

    assert len(model.streams) == 2
    assert not any(stream.finalized for stream in model.streams.values())
    assert {stream.kind for stream in model.streams.values()} == {StreamKind.BUFFERED}


def test_another_schema_goes_on_the_same_stream_over_another_connection(writer, model):
    first = writer.append(None, batch(b"a", descriptor=b"one"))
    second = writer.append(first.position, batch(b"b", descriptor=b"two"))
    third = writer.append(second.position, batch(b"c", descriptor=b"one"))

    stream = first.position.stream
    assert third.position.stream == stream
    assert model.streams[stream].rows == [b"a", b"b", b"c"]
    assert model.descriptors == [(stream, b"one"), (stream, b"two"), (stream, b"one")]
    assert len(model.connections) == 1


def test_a_batch_that_failed_half_way_does_not_stand_in_the_way_of_the_next(model, clock, prepared):
    writer = new_writer(model, clock, prepared, request_bytes_max=20)
    position = writer.append(None, batch(b"a")).position
    model.refuse = lambda rows: AccessDeniedError("no") if rows == [b"x" * 15] else None
    with pytest.raises(AccessDeniedError):
        writer.append(position, batch(b"b", b"x" * 15))

    result = writer.append(position, batch(b"c"))

    assert model.streams[result.position.stream].rows == [b"c"]
    assert result.position.stream != position.stream


def test_the_connections_used_last_are_kept_and_no_more_than_allowed(writer, model, monkeypatch):
    monkeypatch.setattr(buffered, "_OPEN_STREAMS_MAX", 3)
    positions = {}
    for name in ("hot", "a", "b", "hot", "c", "hot", "d", "hot"):
        result = writer.append(positions.get(name), batch(b"row", table=f"p.d.{name}"))
        positions[name] = result.position
        assert len(model.connections) <= 3

    hot = positions["hot"].stream
    assert [stream for stream, _ in model.descriptors].count(hot) == 1
    assert [connection.stream for connection in model.connections][-1] == positions["d"].stream
    assert positions["hot"].next_offset == 4


def test_a_connection_that_was_closed_for_others_goes_on_where_it_was(writer, model, monkeypatch):
    monkeypatch.setattr(buffered, "_OPEN_STREAMS_MAX", 1)
    a = writer.append(None, batch(b"1", table="p.d.a")).position
    b = writer.append(None, batch(b"2", table="p.d.b")).position
    again = writer.append(a, batch(b"3", table="p.d.a")).position

    assert (again.stream, again.next_offset) == (a.stream, 2)
    assert b.stream != a.stream
    writer.close()
    assert model.connections == []
