"""Reading a range: every row once, in order, whatever the calls do."""

import threading

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.errors import (
    InvalidRequestError,
    OutcomeUnknownError,
    PermanentError,
    SessionExpiredError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.read.prefetch import Prefetch, Signal
from bqflink_beam.read.rows import RangeReader, ReadPolicy, Tally
from bqflink_beam.read.stream_range import StreamRange
from bqflink_beam.retry import Backoff
from bqflink_beam.service.base import ReadResponse, SessionRequest
from bqflink_beam.testing.clock import FakeClock
from bqflink_beam.testing.read_model import ReadFault, ReadModel

TABLE = TableReference("p", "d", "t")
SCHEMA = pa.schema([("id", pa.int64())])
PATIENT = ReadPolicy()


def model_of(rows, *, faults=(), response_rows=10):
    model = ReadModel(
        {TABLE: pa.table({"id": range(rows)}, SCHEMA)}, response_rows=response_rows, faults=faults
    )
    session = model.create_session(SessionRequest(table=TABLE))
    return model, session.streams[0]


def reader_of(service, part, *, tally=None, policy=PATIENT, clock=None):
    return RangeReader(
        service,
        part,
        SCHEMA.serialize().to_pybytes(),
        tally=tally or Tally(),
        policy=policy,
        clock=clock or FakeClock(),
    )


def ids(batches):
    return [row for batch in batches for row in batch.batch.column("id").to_pylist()]


def prefetch_threads():
    return [thread for thread in threading.enumerate() if thread.name == "bq-read-prefetch"]


@st.composite
def broken_calls(draw):
    transient = st.sampled_from(
        [
            TransientError("cut"),
            TransientError("busy", code="RESOURCE_EXHAUSTED", retry_after_s=3.0),
            OutcomeUnknownError("no answer"),
        ]
    )
    return [
        ReadFault(call, draw(st.integers(0, 3)), draw(transient))
        for call in range(draw(st.integers(0, 8)))
    ]


@settings(deadline=None)
@given(broken_calls(), st.integers(0, 50), st.none() | st.integers(0, 50), st.integers(1, 17))
def test_every_row_of_the_range_comes_once_and_in_order(faults, start, length, response_rows):
    model, stream = model_of(50, faults=faults, response_rows=response_rows)
    stop = None if length is None else start + length

    batches = list(reader_of(model, StreamRange(stream, start, stop)))

    assert ids(batches) == list(range(50))[start:stop]
    assert [batch.stop for batch in batches[:-1]] == [batch.offset for batch in batches[1:]]
    assert prefetch_threads() == []


def test_a_broken_call_is_made_again_at_the_next_row():
    model, stream = model_of(50, faults=[ReadFault(0, 2, TransientError("cut"))])
    tally = Tally()

    rows = ids(reader_of(model, StreamRange(stream), tally=tally))

    assert rows == list(range(50))
    assert model.calls == [(stream, 0), (stream, 20)]
    assert tally.retries == 1


def test_progress_makes_patience_new():
    faults = [ReadFault(call, 1, TransientError("cut")) for call in range(99)]
    model, stream = model_of(1000, faults=faults)
    clock = FakeClock()
    policy = ReadPolicy(backoff=Backoff(budget_s=1.0, wait_initial_s=0.5, wait_max_s=60.0))

    rows = ids(reader_of(model, StreamRange(stream), policy=policy, clock=clock))

    assert rows == list(range(1000))
    assert len(clock.slept) == 99
    assert max(clock.slept) <= 0.5


def test_without_progress_the_reader_gives_up_and_says_where():
    faults = [ReadFault(call, 0, TransientError("down", code="UNAVAILABLE")) for call in range(999)]
    model, stream = model_of(50, faults=[ReadFault(0, 1, TransientError("cut")), *faults[1:]])
    clock = FakeClock()
    reader = reader_of(model, StreamRange(stream), clock=clock)

    with pytest.raises(TransientError, match=r"stopped at row 10: \d+ tries .*: down") as raised:
        list(reader)

    assert raised.value.stream == stream
    assert raised.value.code == "UNAVAILABLE"
    assert 600 < sum(clock.slept) <= 900
    assert clock.slept == sorted(clock.slept[:8]) + clock.slept[8:]


def test_throttling_waits_as_long_as_the_service_asks_and_is_counted():
    busy = TransientError("quota", code="RESOURCE_EXHAUSTED", retry_after_s=7.5)
    model, stream = model_of(30, faults=[ReadFault(0, 1, busy)])
    clock, tally = FakeClock(), Tally()

    rows = ids(reader_of(model, StreamRange(stream), clock=clock, tally=tally))

    assert rows == list(range(30))
    assert clock.slept == [7.5]
    assert tally.throttled_s == 7.5


def test_an_ordinary_cut_is_not_counted_as_throttling():
    model, stream = model_of(30, faults=[ReadFault(0, 1, TransientError("cut"))])
    tally = Tally()

    list(reader_of(model, StreamRange(stream), tally=tally))

    assert (tally.retries, tally.throttled_s) == (1, 0.0)


def test_a_silent_call_is_given_up_and_replaced():
    model, stream = model_of(50, faults=[ReadFault(0, 2, None)])
    policy = ReadPolicy(idle_s=0.05)

    rows = ids(reader_of(model, StreamRange(stream), policy=policy, clock=SYSTEM_CLOCK))

    assert rows == list(range(50))
    assert model.calls == [(stream, 0), (stream, 20)]
    assert model.closed == 2


def test_the_time_a_slow_consumer_takes_is_no_lack_of_progress():
    model, stream = model_of(50, faults=[ReadFault(0, 2, TransientError("cut"))])
    clock = FakeClock()

    rows = []
    for batch in reader_of(model, StreamRange(stream), clock=clock):
        rows += ids([batch])
        for thread in prefetch_threads():
            thread.join()
        clock.advance(10_000)

    assert rows == list(range(50))
    assert len(model.calls) == 2


def test_the_time_the_prefetch_waits_for_room_is_no_silence_of_the_service():
    model, stream = model_of(50, faults=[ReadFault(0, 2, None)])
    clock = FakeClock()
    schema = pa.ipc.read_schema(pa.py_buffer(SCHEMA.serialize()))
    prefetch = Prefetch(
        lambda: model.read_rows(stream, 0),
        lambda response: pa.ipc.read_record_batch(pa.py_buffer(response.arrow_batch), schema),
        responses_max=1,
        bytes_max=1 << 20,
        clock=clock,
    )
    with prefetch._changed:
        assert prefetch._changed.wait_for(lambda: prefetch._ready, 5)

    clock.advance(10_000)
    prefetch.take(5)
    prefetch.take(5)

    assert prefetch.take(0.05) is Signal.NOTHING_YET
    assert prefetch.silent_s() == 0.0
    prefetch.close()


def test_poll_returns_when_its_time_is_up_and_goes_on_later():
    model, stream = model_of(50, faults=[ReadFault(0, 0, None)])
    reader = reader_of(
        model, StreamRange(stream), policy=ReadPolicy(idle_s=0.3), clock=SYSTEM_CLOCK
    )

    first = reader.poll(0.02)

    assert first is None and not reader.done
    assert ids(reader) == list(range(50))


def test_poll_does_not_sit_out_a_long_pause():
    busy = TransientError("quota", code="RESOURCE_EXHAUSTED", retry_after_s=70.0)
    model, stream = model_of(50, faults=[ReadFault(0, 0, busy)])
    clock = FakeClock()
    reader = reader_of(model, StreamRange(stream), clock=clock)

    polls = [reader.poll(20.0) for _ in range(3)]

    assert polls == [None, None, None]
    assert clock.slept == [20.0, 20.0, 20.0]
    assert ids(reader) == list(range(50))
    assert len(model.calls) == 2


def test_an_expired_session_is_never_tried_again():
    model, stream = model_of(50)
    model.expired = True

    with pytest.raises(SessionExpiredError):
        list(reader_of(model, StreamRange(stream)))

    assert model.calls == [(stream, 0)]


def test_an_offset_beyond_the_stream_is_an_error_and_not_an_empty_read():
    model, stream = model_of(50)

    with pytest.raises(InvalidRequestError):
        list(reader_of(model, StreamRange(stream, 51)))


def test_stop_cuts_a_response_and_ends_the_call():
    model, stream = model_of(50)

    first = list(reader_of(model, StreamRange(stream, 0, 13)))
    second = list(reader_of(model, StreamRange(stream, 13)))

    assert ids(first) == list(range(13))
    assert ids(first) + ids(second) == list(range(50))
    assert model.closed == 2


def test_an_empty_range_makes_no_call():
    model, stream = model_of(50)

    assert list(reader_of(model, StreamRange(stream, 7, 7))) == []
    assert model.calls == []


def test_resuming_at_the_very_end_gives_nothing():
    model, stream = model_of(50)

    assert list(reader_of(model, StreamRange(stream, 50))) == []


def test_no_thread_outlives_a_consumer_that_stops_early():
    model, stream = model_of(1000)
    before = len(prefetch_threads())

    for _ in range(100):
        batches = iter(reader_of(model, StreamRange(stream), clock=SYSTEM_CLOCK))
        next(batches)
        batches.close()

    assert len(prefetch_threads()) == before
    assert model.closed == 100


def test_closing_ends_a_call_that_waits_for_the_service():
    model, stream = model_of(50, faults=[ReadFault(0, 0, None)])
    reader = reader_of(model, StreamRange(stream), clock=SYSTEM_CLOCK)
    reader.poll(0.02)

    reader.close()

    assert prefetch_threads() == []
    assert reader.poll(1.0) is None and reader.done


class ScriptedRead:
    """Serves the given responses, and tells when the n-th was asked for."""

    def __init__(self, responses, *, tell_at=10**9):
        self.responses = responses
        self.tell_at = tell_at
        self.reached = threading.Event()

    def create_session(self, request):
        raise NotImplementedError

    def split_stream(self, stream, fraction, *, deadline_s):
        raise NotImplementedError

    def read_rows(self, stream, offset):
        return ScriptedCall(self)


class ScriptedCall:
    def __init__(self, service):
        self.service = service
        self.sent = 0
        self.closed = False

    def __iter__(self):
        return self

    def __next__(self):
        if self.closed or self.sent == len(self.service.responses):
            raise StopIteration
        self.sent += 1
        if self.sent == self.service.tell_at:
            self.service.reached.set()
        return self.service.responses[self.sent - 1]

    def close(self):
        self.closed = True


def response_of(values, *, rows=None, progress_stop=0.0):
    batch = pa.record_batch({"id": values}, SCHEMA)
    return ReadResponse(
        rows=len(values) if rows is None else rows,
        arrow_batch=batch.serialize().to_pybytes(),
        progress_stop=progress_stop,
    )


@pytest.mark.parametrize(
    "bounds", [{"prefetch_responses": 3}, {"prefetch_bytes": 3 * 800}], ids=["responses", "bytes"]
)
def test_prefetch_reads_ahead_only_so_far(bounds):
    responses = [response_of(list(range(100)))] * 50
    near, far = ScriptedRead(responses, tell_at=4), ScriptedRead(responses, tell_at=6)

    for service in (near, far):
        reader = reader_of(
            service, StreamRange("s"), policy=ReadPolicy(**bounds), clock=SYSTEM_CLOCK
        )
        reader.poll(5.0)
        service.reached.wait(0.2)
        reader.close()

    assert near.reached.is_set()
    assert not far.reached.is_set()


def test_messages_without_rows_are_passed_over():
    sign_of_life = ReadResponse(rows=0, arrow_batch=b"")
    service = ScriptedRead([response_of([]), sign_of_life, response_of([1, 2]), response_of([])])

    assert ids(reader_of(service, StreamRange("s"))) == [1, 2]


def test_a_row_count_that_is_not_true_stops_the_read():
    service = ScriptedRead([response_of([1, 2]), response_of([3, 4], rows=1)])

    with pytest.raises(PermanentError, match="says 1 rows and holds 2"):
        list(reader_of(service, StreamRange("s")))


def test_a_message_that_is_no_batch_stops_the_read():
    service = ScriptedRead([ReadResponse(rows=1, arrow_batch=b"not arrow at all")])

    with pytest.raises(PermanentError, match="no Arrow record batch"):
        list(reader_of(service, StreamRange("s")))


def test_progress_never_runs_backwards():
    fractions = [0.2, 0.1, 0.7, 0.5, 1.5]
    responses = [response_of([1], progress_stop=fraction) for fraction in fractions]

    batches = list(reader_of(ScriptedRead(responses), StreamRange("s")))

    assert [batch.progress for batch in batches] == [0.2, 0.2, 0.7, 0.7, 1.0]


def test_a_batch_splits_into_parts_that_join_to_the_whole():
    [batch] = reader_of(ScriptedRead([response_of(list(range(9)))]), StreamRange("s", 100))

    head, tail = batch.split(4)

    assert (head.offset, head.stop, tail.offset, tail.stop) == (100, 104, 104, 109)
    assert ids([head, tail]) == list(range(9))
    assert batch.split(9) == (batch, None)
