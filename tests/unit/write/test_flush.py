import pytest

from bqflink_beam.errors import NotFoundError, StreamFinalizedError, TransientError
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import StreamKind
from bqflink_beam.write.flush import LostStream, flush_all, lost_error
from tests.sim.model_bigquery import ModelWrite

TABLE = TableReference("p", "d", "t")


@pytest.fixture
def model():
    return ModelWrite()


def stream_of(model, *rows):
    name = model.create_stream(TABLE, StreamKind.BUFFERED).name
    model.append(name, list(rows), 0)
    return name


def test_every_stream_is_flushed_to_its_mark_and_no_further(model):
    a, b = stream_of(model, b"1", b"2", b"3"), stream_of(model, b"4")

    assert flush_all(model, {a: 2, b: 1}) == []

    assert model.visible_rows == [b"1", b"2", b"4"]


@pytest.mark.parametrize("end", ["gone", "finalized", "table dropped"])
def test_a_lost_stream_is_told_of_after_all_others_are_flushed(model, end):
    streams = [stream_of(model, b"%d" % index) for index in range(40)]
    if end == "gone":
        model.expire(streams[3])
    elif end == "finalized":
        model.flush = _refusing(model, StreamFinalizedError("finalized", stream=streams[3]))
    else:
        # BigQuery has two codes for it: that of the stream, and TABLE_NOT_FOUND.
        model.flush = _refusing(model, NotFoundError("no such table", stream=streams[3]))

    lost = flush_all(model, dict.fromkeys(streams, 1))

    assert lost == [LostStream("p.d.t", streams[3], 0)]
    assert len(model.visible_rows) == 39


def test_another_failure_is_raised_after_all_others_are_flushed(model):
    streams = [stream_of(model, b"%d" % index) for index in range(40)]
    flush = model.flush

    def failing(stream, stop):
        if stream == streams[0]:
            raise TransientError("later")
        flush(stream, stop)

    model.flush = failing

    with pytest.raises(TransientError):
        flush_all(model, dict.fromkeys(streams, 1))

    assert len(model.visible_rows) == 39


def test_the_error_of_lost_streams_says_which_rows_and_how_to_go_on(model):
    error = lost_error([LostStream("p.d.t", "s1", 41), LostStream("p.d.t", "s2", 7)])

    assert "rows up to offset 41" in error.message
    assert "1 more" in error.message
    assert "on_lost_stream='report'" in error.message
    assert (error.table, error.stream) == ("p.d.t", "s1")


def _refusing(model, error):
    flush = model.flush

    def refusing(stream, stop):
        if stream == error.stream:
            raise error
        flush(stream, stop)

    return refusing
