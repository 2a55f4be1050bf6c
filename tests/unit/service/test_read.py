"""Read sessions and their responses."""

import threading

import pytest
from google.cloud.bigquery_storage_v1 import types
from google.protobuf import timestamp_pb2

from bqflink_beam.errors import (
    AccessDeniedError,
    InvalidRequestError,
    NotFoundError,
    PermanentError,
    SessionExpiredError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.retry import Backoff
from bqflink_beam.service.base import ReadResponse, SessionRequest
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.read import StorageRead
from bqflink_beam.service.recent import Recent
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_storage import React, end, retry_info

_TABLE = TableReference("p", "d", "t")
_STREAM = "projects/p/locations/us/sessions/s/streams/r"
_Session = types.ReadSession.pb()
_Rows = types.ReadRowsResponse.pb()
_Split = types.SplitReadStreamResponse.pb()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def read_of(storage, opened, clock):
    def make(connection=None):
        channels = opened(Channels(storage.connection, lambda: None))
        return StorageRead(
            channels,
            connection or storage.connection,
            Recent(clock),
            backoff=Backoff(budget_s=60.0),
            clock=clock,
        )

    return make


def rows(count, start=0.0, stop=0.0, throttle=0):
    message = _Rows(row_count=count)
    message.arrow_record_batch.serialized_record_batch = b"batch %d" % count
    message.stats.progress.at_response_start = start
    message.stats.progress.at_response_end = stop
    message.throttle_state.throttle_percent = throttle
    return message


def test_session_is_asked_for_as_the_request_says(storage, read_of):
    answer = _Session(
        name="session",
        expire_time=timestamp_pb2.Timestamp(seconds=100, nanos=250_000_000),
        estimated_row_count=5,
        estimated_total_bytes_scanned=50,
    )
    answer.arrow_schema.serialized_schema = b"schema"
    answer.streams.add(name="one")
    answer.streams.add(name="two")
    storage.unary_script.append(answer)

    session = read_of().create_session(
        SessionRequest(
            table=_TABLE,
            columns=("a", "b.c"),
            row_filter="a > 1",
            streams_max=7,
            snapshot_s=12.345678,
        )
    )

    (name, request, metadata), *_ = storage.unary_requests
    asked = request.read_session
    assert name == "CreateReadSession"
    assert request.parent == "projects/p"
    assert request.max_stream_count == 7
    assert asked.table == _TABLE.path
    assert asked.data_format == types.DataFormat.ARROW.value
    assert list(asked.read_options.selected_fields) == ["a", "b.c"]
    assert asked.read_options.row_restriction == "a > 1"
    assert asked.table_modifiers.snapshot_time.ToMicroseconds() == 12_345_678
    assert metadata["x-goog-request-params"].startswith("read_session.table=projects%2Fp")
    assert session.streams == ("one", "two")
    assert session.arrow_schema == b"schema"
    assert session.expire_s == 100.25
    assert (session.estimated_rows, session.estimated_bytes) == (5, 50)


def test_session_of_an_empty_table_has_no_streams(storage, read_of):
    assert read_of().create_session(SessionRequest(table=_TABLE)).streams == ()
    assert not storage.unary_requests[0][1].read_session.HasField("table_modifiers")


def test_billing_project_pays(storage, read_of):
    connection = Connection(storage_endpoint="127.0.0.1:1", plaintext=True, billing_project="payer")

    read_of(connection).create_session(SessionRequest(table=_TABLE))

    assert storage.unary_requests[0][1].parent == "projects/payer"


@pytest.mark.parametrize(("remote", "codec"), [(False, 0), (True, 1)])
def test_buffers_are_compressed_over_a_network_only(storage, read_of, remote, codec):
    connection = Connection(
        storage_endpoint="emulator.example:1" if remote else "127.0.0.1:1",
        plaintext=True,
        allow_remote_plaintext=True,
    )

    read_of(connection).create_session(SessionRequest(table=_TABLE))

    options = storage.unary_requests[0][1].read_session.read_options
    assert options.arrow_serialization_options.buffer_compression == codec


def test_session_is_asked_for_again_when_the_service_is_away(storage, read_of, clock):
    storage.unary_script.extend([end("UNAVAILABLE"), end("INTERNAL"), _Session(name="session")])

    assert read_of().create_session(SessionRequest(table=_TABLE)).name == "session"
    assert len(clock.slept) == 2


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("NOT_FOUND", NotFoundError),
        ("INVALID_ARGUMENT", InvalidRequestError),
        ("PERMISSION_DENIED", AccessDeniedError),
    ],
)
def test_session_that_cannot_be_had_names_the_table(storage, read_of, code, kind):
    storage.unary_script.append(end(code))

    with pytest.raises(kind) as caught:
        read_of().create_session(SessionRequest(table=_TABLE))
    assert caught.value.table == "p.d.t"


def test_responses_come_as_they_were_sent(storage, read_of):
    storage.unary_script.append([rows(3, 0.0, 0.3), rows(4, 0.3, 1.0, throttle=20)])

    responses = list(read_of().read_rows(_STREAM, 5))

    assert responses == [
        ReadResponse(rows=3, arrow_batch=b"batch 3", progress_start=0.0, progress_stop=0.3),
        ReadResponse(
            rows=4,
            arrow_batch=b"batch 4",
            progress_start=0.3,
            progress_stop=1.0,
            throttle_percent=20,
        ),
    ]
    request, metadata = storage.unary_requests[0][1:]
    assert (request.read_stream, request.offset) == (_STREAM, 5)
    assert metadata["x-goog-request-params"].startswith("read_stream=")


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        ("UNAVAILABLE", "x", TransientError),
        ("INTERNAL", "RST_STREAM", TransientError),
        ("UNKNOWN", "x", TransientError),
        ("FAILED_PRECONDITION", "session expired at 1", SessionExpiredError),
        ("FAILED_PRECONDITION", "offset 9 has not been allocated yet", InvalidRequestError),
        ("NOT_FOUND", "x", NotFoundError),
    ],
)
def test_broken_read_says_after_the_rows_what_to_do(storage, read_of, code, text, kind):
    storage.unary_script.append([rows(3), end(code, text)])
    responses = read_of().read_rows(_STREAM, 0)

    assert next(responses).rows == 3
    with pytest.raises(kind) as caught:
        next(responses)
    assert caught.type is kind


def test_throttled_read_keeps_the_services_wish(storage, read_of):
    storage.unary_script.append([React(end="RESOURCE_EXHAUSTED", details=(retry_info(9),))])

    with pytest.raises(TransientError) as caught:
        next(read_of().read_rows(_STREAM, 0))
    assert caught.value.retry_after_s == 9


def test_closing_ends_a_wait_for_the_next_response_from_any_thread(storage, read_of):
    storage.unary_script.append([rows(1), None])
    responses = read_of().read_rows(_STREAM, 0)
    next(responses)
    ended = []

    def wait():
        try:
            next(responses)
        except TransientError as error:
            ended.append(error.code)

    waiter = threading.Thread(target=wait)
    waiter.start()
    responses.close()
    waiter.join(10)

    assert ended == ["CANCELLED"]


def test_rows_in_another_format_are_an_error_not_nothing(storage, read_of):
    storage.unary_script.append([_Rows(row_count=3)])

    with pytest.raises(PermanentError, match="Arrow"):
        next(read_of().read_rows(_STREAM, 0))


def test_split_gives_two_streams_or_none(storage, read_of):
    both = _Split()
    both.primary_stream.name, both.remainder_stream.name = "first", "second"
    storage.unary_script.extend([both, _Split()])
    read = read_of()

    assert read.split_stream(_STREAM, 0.25, deadline_s=5.0) == ("first", "second")
    assert read.split_stream(_STREAM, 0.25, deadline_s=5.0) is None
    assert storage.unary_requests[0][1].fraction == 0.25


def test_split_is_tried_once(storage, read_of):
    storage.unary_script.append(end("UNAVAILABLE"))

    with pytest.raises(TransientError):
        read_of().split_stream(_STREAM, 0.5, deadline_s=5.0)
    assert len(storage.unary_requests) == 1
