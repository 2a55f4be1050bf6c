"""Write streams: what is asked for, what an answer means, and what is asked again."""

import pytest
from google.cloud.bigquery_storage_v1 import types
from google.protobuf import timestamp_pb2

from bqflink_beam.errors import (
    ConfigError,
    NotFoundError,
    OffsetGapError,
    OutcomeUnknownError,
    StreamFinalizedError,
    StreamGoneError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.retry import Backoff
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service import table_schema
from bqflink_beam.service.base import CommitAnswer, StreamKind, StreamProblem
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.write import StorageWrite
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_storage import DEFAULT, STREAM, TABLE, end, storage_error

_TABLE = TableReference("p", "d", "t")
_Stream = types.WriteStream.pb()
_Finalized = types.FinalizeWriteStreamResponse.pb()
_Committed = types.BatchCommitWriteStreamsResponse.pb()
_Flushed = types.FlushRowsResponse.pb()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def recent(clock):
    return Recent(clock)


@pytest.fixture
def write(storage, opened, clock, recent):
    channels = opened(Channels(storage.connection, lambda: None))
    return StorageWrite(channels, recent, backoff=Backoff(budget_s=70.0), clock=clock)


def test_stream_is_made_of_the_kind_asked_for(storage, write):
    storage.unary_script.append(
        _Stream(name=STREAM, type_=types.WriteStream.Type.BUFFERED.value, location="eu")
    )

    made = write.create_stream(_TABLE, StreamKind.BUFFERED)

    (name, request, metadata), *_ = storage.unary_requests
    assert name == "CreateWriteStream"
    assert request.parent == TABLE
    assert request.write_stream.type_ == types.WriteStream.Type.BUFFERED.value
    assert metadata["x-goog-request-params"] == "parent=" + TABLE.replace("/", "%2F")
    assert (made.name, made.kind, made.location) == (STREAM, StreamKind.BUFFERED, "eu")


def test_stream_is_read_with_its_tables_schema_and_commit_time(storage, write):
    schema = TableSchema((Field(name="a", type="INT64", mode="REQUIRED"),))
    storage.unary_script.append(
        _Stream(
            name=STREAM,
            type_=types.WriteStream.Type.PENDING.value,
            commit_time=timestamp_pb2.Timestamp(seconds=5, nanos=500_000_000),
            table_schema=table_schema.to_message(schema),
        )
    )

    stream = write.get_stream(STREAM)

    assert storage.unary_requests[0][1].view == types.WriteStreamView.FULL.value
    assert stream.kind is StreamKind.PENDING
    assert stream.commit_s == 5.5
    assert stream.schema == schema


def test_making_streams_is_asked_again_until_it_works(storage, write, clock):
    storage.unary_script.extend(
        [end("UNAVAILABLE"), end("RESOURCE_EXHAUSTED"), end("INTERNAL"), _Stream(name=STREAM)]
    )

    assert write.create_stream(_TABLE, StreamKind.PENDING).name == STREAM
    assert len(clock.slept) == 3


def test_streams_are_not_made_faster_than_the_service_likes(storage, write, clock):
    start_s = clock.monotonic_s()

    for _ in range(180):
        write.create_stream(_TABLE, StreamKind.PENDING)

    assert clock.monotonic_s() - start_s == pytest.approx(4.0, abs=0.1)


def test_table_that_was_just_made_may_not_be_known_yet(storage, write, recent):
    recent.created(TABLE)
    storage.unary_script.extend(
        [end("NOT_FOUND"), end("NOT_FOUND"), _Stream(name=STREAM), end("NOT_FOUND"), _Stream()]
    )

    assert write.create_stream(_TABLE, StreamKind.PENDING).name == STREAM
    write.get_stream(STREAM)


def test_patience_with_what_was_just_made_ends(storage, write, recent):
    recent.created(TABLE)
    storage.unary_script.extend([end("NOT_FOUND")] * 1000)

    with pytest.raises(NotFoundError):
        write.create_stream(_TABLE, StreamKind.PENDING)


def test_table_that_is_not_there_is_an_error_at_once(storage, write, clock):
    storage.unary_script.append(end("NOT_FOUND"))

    with pytest.raises(NotFoundError) as caught:
        write.create_stream(_TABLE, StreamKind.PENDING)
    assert caught.value.table == "p.d.t"
    assert clock.slept == []


def test_finalize_returns_the_row_count_and_may_be_repeated(storage, write):
    storage.unary_script.extend([end("UNAVAILABLE"), _Finalized(row_count=7)])

    assert write.finalize(STREAM) == 7


@pytest.mark.parametrize("stop", [1, 5, 10_000])
def test_flush_shows_the_rows_before_stop(storage, write, stop):
    storage.unary_script.append(_Flushed(offset=stop - 1))

    write.flush(STREAM, stop)

    request = storage.unary_requests[0][1]
    assert request.write_stream == STREAM
    assert request.HasField("offset")
    assert request.offset.value == stop - 1


def test_flush_behind_an_earlier_one_is_success(storage, write):
    storage.unary_script.append(end("ALREADY_EXISTS", "already flushed"))

    write.flush(STREAM, 5)


def test_flush_without_an_answer_is_asked_again(storage, write):
    storage.unary_script.extend([end("UNAVAILABLE"), end("DEADLINE_EXCEEDED"), _Flushed()])

    write.flush(STREAM, 5)

    assert len(storage.unary_requests) == 3


@pytest.mark.parametrize(
    ("reaction", "kind"),
    [
        (end("NOT_FOUND"), StreamGoneError),
        (end("INVALID_ARGUMENT", "Stream is finalized"), StreamFinalizedError),
        (end("OUT_OF_RANGE", "Offset 9 is beyond the end of the stream"), OffsetGapError),
    ],
)
def test_flush_of_a_lost_stream_says_how_it_is_lost(storage, write, reaction, kind):
    storage.unary_script.append(reaction)

    with pytest.raises(kind) as caught:
        write.flush(STREAM, 5)
    assert caught.value.stream == STREAM


def test_flush_of_nothing_is_refused_here(storage, write):
    with pytest.raises(ConfigError):
        write.flush(STREAM, 0)
    assert storage.unary_requests == []


def test_commit_is_applied_exactly_when_it_has_a_time(storage, write):
    storage.unary_script.append(_Committed(commit_time=timestamp_pb2.Timestamp(seconds=9)))

    assert write.commit(_TABLE, [STREAM, "other"]) == CommitAnswer(9.0)
    request = storage.unary_requests[0][1]
    assert (request.parent, list(request.write_streams)) == (TABLE, [STREAM, "other"])


def test_commit_tells_why_each_stream_was_refused(storage, write):
    problem = storage_error("STREAM_ALREADY_COMMITTED")
    problem.error_message = "committed before"
    storage.unary_script.append(_Committed(stream_errors=[problem]))

    answer = write.commit(_TABLE, [STREAM])

    assert answer == CommitAnswer(
        None, (StreamProblem("STREAM_ALREADY_COMMITTED", STREAM, "committed before"),)
    )


@pytest.mark.parametrize(
    ("code", "kind"),
    [("UNAVAILABLE", OutcomeUnknownError), ("ABORTED", TransientError)],
)
def test_commit_is_tried_once(storage, write, code, kind):
    storage.unary_script.append(end(code))

    with pytest.raises(kind) as caught:
        write.commit(_TABLE, [STREAM])
    assert caught.type is kind
    assert len(storage.unary_requests) == 1


def test_append_connection_of_the_service_writes(storage, write, opened):
    from tests.unit.service.scripted_storage import DESCRIPTOR

    connection = opened(write.open_append(DEFAULT, DESCRIPTOR, budget_s=20.0))

    assert connection.send([b"a"], None).result() is None
    assert storage.streams[DEFAULT] == [b"a"]
