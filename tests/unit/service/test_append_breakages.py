"""Random breakages of append calls: every ticket ends, and its end tells the truth.

First the pure window against a model of the network that also lets requests of broken
calls arrive late; then whole connections on a real server.
"""

import collections

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bqflink_beam.errors import (
    AlreadyWrittenError,
    InvalidRequestError,
    OffsetGapError,
    OutcomeUnknownError,
    TransientError,
)
from bqflink_beam.retry import Backoff
from bqflink_beam.service.append import Appends
from bqflink_beam.service.append_window import Ticket, Window
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.recent import Recent
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_storage import (
    CUT_BEFORE,
    DEFAULT,
    DESCRIPTOR,
    LOST_ANSWER,
    OK,
    STREAM,
    THEN_IDLE_CLOSE,
    ScriptedStorage,
    end,
    refuse,
)

_BUDGET_S = 30.0
_STEPS = (
    "send", "take", "answer", "answer", "lose", "refuse", "reject", "break", "late", "tick", "age",
)  # fmt: skip


class _Network:
    """One stream at the far end; requests of broken calls may still arrive."""

    def __init__(self, stream):
        self.at_offsets = not stream.endswith("_default")
        self.rows = []
        self.late = collections.deque()

    def apply(self, offset, rows):
        """Returns None, or the error that the service would answer with."""
        if self.at_offsets and offset < len(self.rows):
            return AlreadyWrittenError("within", stream=STREAM)
        if self.at_offsets and offset > len(self.rows):
            return OffsetGapError("beyond", stream=STREAM)
        self.rows.extend(rows)
        return None


class _Run:
    """A window, the network, and the steps between them."""

    def __init__(self, stream):
        self.stream = stream
        self.network = _Network(stream)
        self.window = Window(budget_s=_BUDGET_S, requests_max=1_000, bytes_max=10**9)
        self.now_s = 0.0
        self.sent = []
        self.tickets = []
        self.next_offset = 0

    def step(self, name):
        getattr(self, f"_{name}")()

    def _send(self):
        rows = [b"%d.%d" % (len(self.tickets), n) for n in range(1 + len(self.tickets) % 2)]
        offset = self.next_offset if self.network.at_offsets else None
        self.next_offset += len(rows)
        ticket = Ticket(self.stream, b"", rows, offset, lambda ticket, timeout_s: None)
        self.tickets.append((ticket, rows))
        self.window.add(ticket, self.now_s)

    def _take(self):
        if self.window.sendable_in_s(self.now_s) == 0.0:
            ticket = self.window.take()
            self.sent.append((ticket.offset, ticket.rows))

    def _answer(self, error=None):
        if not self.sent:
            return
        offset, rows = self.sent.pop(0)
        error = error if error and not self._there(offset) else self.network.apply(offset, rows)
        if error is None:
            self.window.appended(offset, self.now_s)
        else:
            again = isinstance(error, TransientError)
            if self.window.refused(error, self.now_s, again=again) and again:
                self.window.pause(self.now_s + 1.0)

    def _refuse(self):
        self._answer(TransientError("busy", stream=STREAM))

    def _reject(self):
        # Only what never flew before: the service rejects the same bytes every time.
        first = self.window.first_flying
        if first is not None and not first.maybe_applied:
            self._answer(InvalidRequestError("bad", stream=STREAM))

    def _lose(self):
        if self.sent:
            self.network.apply(*self.sent.pop(0))
            self._break()

    def _break(self):
        self.network.late.extend(self.sent)
        self.sent.clear()
        self.window.broke(sent=True)

    def _late(self):
        if self.network.late:
            self.network.apply(*self.network.late.popleft())

    def _tick(self):
        self.now_s += 0.7

    def _age(self):
        self.now_s += 0.4 * _BUDGET_S

    def _there(self, offset):
        return self.network.at_offsets and offset < len(self.network.rows)

    def finish(self):
        for _ in range(10_000):
            if not self.window.count:
                return
            self.now_s += 1.0
            self._take()
            self._answer()
        raise AssertionError("requests are left over that nothing moves")


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.sampled_from(_STEPS), max_size=120))
def test_rows_are_at_their_offset_once_and_every_end_tells_the_truth(steps):
    run = _Run(STREAM)
    for name in steps:
        run.step(name)

    run.finish()

    for ticket, rows in run.tickets:
        assert ticket.done
        there = run.network.rows[ticket.offset : ticket.offset + len(rows)] == rows
        match ticket.error:
            case None:
                assert there and ticket.landed == ticket.offset
            case AlreadyWrittenError(resent=resent):
                assert there and resent
            case OffsetGapError() | InvalidRequestError() | TransientError():
                assert not there
            case OutcomeUnknownError():
                assert ticket.maybe_applied
            case other:
                raise AssertionError(other)
    assert len(run.network.rows) == len(set(run.network.rows))
    assert run.window.bytes == 0


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.sampled_from(_STEPS), max_size=120))
def test_default_stream_has_every_acknowledged_row_and_no_refused_one(steps):
    run = _Run(DEFAULT)
    for name in steps:
        run.step(name)

    run.finish()

    count = collections.Counter(run.network.rows)
    for ticket, rows in run.tickets:
        assert ticket.done
        for row in rows:
            if ticket.error is None:
                assert count[row] >= 1
                assert ticket.maybe_applied or count[row] == 1
            elif not ticket.maybe_applied:
                assert count[row] == 0
            else:
                assert not isinstance(ticket.error, TransientError)
    assert run.window.bytes == 0


def _window_of(*tickets):
    window = Window(budget_s=_BUDGET_S, requests_max=1_000, bytes_max=10**9)
    for ticket in tickets:
        window.add(ticket, 0.0)
    return window


def _ticket(offset=None):
    stream = DEFAULT if offset is None else STREAM
    return Ticket(stream, b"", [b"row"], offset, lambda ticket, timeout_s: None)


def test_nothing_overtakes_a_refused_request_or_it_would_wait_for_ever():
    first, second, third = _ticket(), _ticket(), _ticket()
    window = _window_of(first, second, third)
    window.take()
    window.take()

    window.refused(TransientError("busy"), 1.0, again=True)
    before = window.sendable_in_s(1.0)
    window.appended(None, 2.0)

    assert before is None
    assert second.done
    assert window.take() is first
    assert window.take() is third


def test_request_refused_for_longer_than_the_budget_is_not_sent_again():
    ticket = _ticket(0)
    window = _window_of(ticket)
    for now_s in (1.0, _BUDGET_S, 1.0 + _BUDGET_S):
        window.take()
        window.refused(TransientError("busy"), now_s, again=True)

    assert isinstance(ticket.error, TransientError)
    assert window.count == 0


def test_refusal_of_what_an_earlier_call_may_have_brought_in_is_an_unknown_outcome():
    ticket = _ticket()
    window = _window_of(ticket)
    window.take()
    window.broke(sent=True)
    for now_s in (1.0, 1.0 + _BUDGET_S):
        window.take()
        window.refused(TransientError("busy"), now_s, again=True)

    assert isinstance(ticket.error, OutcomeUnknownError)


def test_requests_go_singly_while_the_one_that_ends_calls_is_looked_for():
    tickets = [_ticket() for _ in range(3)]
    window = _window_of(*tickets)
    window.send_singly(2)
    allowed = []
    for now_s in (1.0, 2.0):
        window.take()
        allowed.append(window.sendable_in_s(now_s))
        window.appended(None, now_s)
    window.add(_ticket(), 3.0)
    window.take()

    assert allowed == [None, None]
    assert window.sendable_in_s(3.0) == 0.0


@pytest.fixture(scope="module")
def server():
    server = ScriptedStorage()
    yield server
    server.close()


_REACTIONS = st.sampled_from(
    [
        OK,
        OK,
        OK,
        LOST_ANSWER,
        CUT_BEFORE,
        THEN_IDLE_CLOSE,
        refuse("INTERNAL"),
        refuse("RESOURCE_EXHAUSTED"),
        refuse("INVALID_ARGUMENT"),
        end("ABORTED"),
        end("OK"),
    ]
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    script=st.lists(_REACTIONS, max_size=12),
    requests=st.lists(st.integers(1, 3), min_size=1, max_size=12),
)
def test_connection_on_a_breaking_server_puts_each_row_at_its_offset_once(server, script, requests):
    server.script.clear()
    server.script.extend(script)
    server.streams.clear()
    channels = Channels(server.connection, lambda: None)
    appends = Appends(
        channels,
        Recent(FakeClock()),
        routing=f"write_stream={STREAM}",
        budget_s=20.0,
        backoff=Backoff(wait_initial_s=0.0005, wait_max_s=0.002),
    )
    sent, offset = [], 0
    for number, size in enumerate(requests):
        rows = [b"%d.%d" % (number, n) for n in range(size)]
        sent.append((offset, rows, appends.append(STREAM, DESCRIPTOR, rows, offset)))
        offset += size

    refused = False
    for start, rows, ticket in sent:
        there = server.streams[STREAM][start : start + len(rows)]
        try:
            assert ticket.result(timeout_s=25.0) == start
            there = server.streams[STREAM][start : start + len(rows)]
            assert there == rows
        except AlreadyWrittenError as error:
            there = server.streams[STREAM][start : start + len(rows)]
            assert error.resent and there == rows
        except InvalidRequestError:
            refused = True
        except OffsetGapError:
            assert refused
    appends.close()
    channels.close()

    landed = server.streams[STREAM]
    everything = [row for _, rows, _ in sent for row in rows]
    assert landed == everything[: len(landed)]
    assert refused or landed == everything
