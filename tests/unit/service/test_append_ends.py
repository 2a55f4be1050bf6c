"""The end of append connections: nobody left waiting, no thread, no call left over."""

import threading

import pytest

from bqflink_beam.errors import (
    OutcomeUnknownError,
    PermanentError,
)
from bqflink_beam.service.append import Appends, Limits
from bqflink_beam.service.recent import Recent
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_storage import (
    DEFAULT,
    DESCRIPTOR,
    SILENCE,
    STREAM,
    THEN_IDLE_CLOSE,
)


def test_closing_fails_what_has_no_answer(storage, appends):
    storage.script.append(SILENCE)
    connection = appends()
    ticket = connection.append(STREAM, DESCRIPTOR, [b"a"], 0)

    connection.close()

    with pytest.raises(OutcomeUnknownError, match="closed"):
        ticket.result()
    with pytest.raises(PermanentError, match="closed"):
        connection.append(STREAM, DESCRIPTOR, [b"a"], 0)


def test_sender_that_waits_for_room_is_woken_by_close(storage, appends):
    storage.script.append(SILENCE)
    connection = appends(limits=Limits(requests_max=1, bytes_max=10**6))
    connection.append(STREAM, DESCRIPTOR, [b"a"], 0)
    outcome = []

    def send():
        try:
            connection.append(STREAM, DESCRIPTOR, [b"b"], 1)
        except PermanentError as error:
            outcome.append(str(error))

    sender = threading.Thread(target=send)
    sender.start()
    connection.close()
    sender.join(10)

    assert not sender.is_alive()
    assert "closed" in outcome[0]


def test_thousand_reopenings_leave_no_thread_and_no_channel(storage, channels):
    def run(times):
        for _ in range(times):
            appends = Appends(
                channels, Recent(FakeClock()), routing=f"write_stream={DEFAULT}", budget_s=20.0
            )
            assert appends.append(DEFAULT, DESCRIPTOR, [b"a"], None).result() is None
            appends.close()

    run(20)
    before, ours = _client_threads(), _append_threads()
    storage_rows = len(storage.streams[DEFAULT])

    run(1_000)

    assert len(storage.streams[DEFAULT]) == storage_rows + 1_000
    assert len(_append_threads() - ours) <= 1
    assert _client_threads() <= before + _OTHERS_MAX
    assert len(channels._loads) == 1
    assert sum(channels._loads.values()) == 0


def test_thousand_idle_closes_of_one_connection_leave_no_thread(storage, channels, appends):
    connection = appends()

    def run(times):
        for _ in range(times):
            storage.script.append(THEN_IDLE_CLOSE)
            assert connection.append(DEFAULT, DESCRIPTOR, [b"a"], None).result() is None

    run(20)
    before, ours = _client_threads(), _append_threads()

    run(1_000)

    assert len(storage.streams[DEFAULT]) == 1_020
    assert len(_append_threads() - ours) <= 1
    assert _client_threads() <= before + _OTHERS_MAX
    assert sum(channels._loads.values()) <= 1


def test_nobody_is_left_waiting_when_a_busy_connection_is_closed(storage, channels):
    for round_ in range(30):
        connection = Appends(
            channels, Recent(FakeClock()), routing=f"write_stream={DEFAULT}", budget_s=20.0
        )
        ends = []

        def send(connection=connection, ends=ends):
            try:
                while True:
                    ends.append(connection.append(DEFAULT, DESCRIPTOR, [b"a"], None))
            except PermanentError:
                return

        sender = threading.Thread(target=send)
        sender.start()
        if round_ % 2:
            while not ends:
                threading.Event().wait(0.001)
        connection.close()
        sender.join(10)

        assert not sender.is_alive()
        for ticket in ends:
            try:
                assert ticket.result(timeout_s=1.0) is None
            except OutcomeUnknownError as error:
                assert "closed" in str(error)


def test_more_calls_than_one_connection_takes_do_not_wait_for_each_other(storage, channels, opened):
    many = [
        opened(
            Appends(channels, Recent(FakeClock()), routing=f"write_stream={DEFAULT}", budget_s=20.0)
        )
        for _ in range(130)
    ]

    tickets = [appends.append(DEFAULT, DESCRIPTOR, [b"a"], None) for appends in many]

    assert [ticket.result() for ticket in tickets] == [None] * 130
    assert len(channels._loads) == 3


def _append_threads():
    return {each for each in threading.enumerate() if each.name == "bqflink-append"}


# gRPC's threads have no name to know them by. A leak of them shows a thousandfold; what
# earlier tests have left behind may stir meanwhile.
_OTHERS_MAX = 20


def _client_threads():
    """Counts the threads of clients, gRPC's among them; the servers' come from pools."""
    return sum("Pool" not in thread.name for thread in threading.enumerate())
