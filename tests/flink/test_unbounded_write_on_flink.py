"""Unbounded exactly-once writes on a real Flink: exact multisets, under crashes made at exact calls.

A crash is an answer that no writer gets over (PERMISSION_DENIED), before or after the
call took effect: the bundle raises, and Flink restarts the job from its last checkpoint.
Each guarantee has a control without its guard, which must show the fault.
"""

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.testing import Fault
from bqflink_beam.transforms import pipeline_check, write_unbounded
from tests.flink.streaming import (
    FIELDS,
    TABLE,
    make_row,
    missing_and_extra,
    rows_of,
    streaming_job,
    wait_until,
)
from tests.transforms.sources import Tap, replay

EXACTLY_ONCE = bq.ExactlyOnce(shards=2, batch_rows_max=25)


@pytest.fixture
def server():
    with testing.Emulator() as emulator:
        emulator.create_table(TABLE, FIELDS)
        yield emulator


def crash(method, when, nth):
    return Fault(method=method, when=when, nth=nth, code="PERMISSION_DENIED")


def write(server, table=TABLE, **options):
    options.setdefault("method", EXACTLY_ONCE)
    return bq.WriteToBigQueryStorage(table, connection=server.connection, **options)


def stream(server, tap, **pace):
    def build(p):
        replay(p, make_row, tap, partitions=2, **pace) | write(server)

    return build


def run(flink_server, server, build, expected, **options):
    """Runs until all expected rows are visible and all faults have happened."""
    with streaming_job(flink_server, build, **options):
        assert wait_until(lambda: happened(server) and found(server, expected)[0] == 0)
        # Time for a restart and more checkpoints, so that a second flush of anything would show.
        wait_until(lambda: found(server, expected)[1] > 0, budget_s=8)
    return found(server, expected)


def found(server, expected):
    return missing_and_extra(server.visible_rows(TABLE), expected)


def doubles_rows(flink_server, server, build, expected, **options):
    """Runs a control until a row is visible twice; returns whether one ever was."""
    with streaming_job(flink_server, build, **options):
        return wait_until(lambda: found(server, expected)[1] > 0)


def happened(server):
    return all(server.faults.hits(number) for number in server.faults.rules())


CRASHES = [
    ("AppendRows", "after", 12),
    ("AppendRows", "before", 30),
    ("FlushRows", "before", 3),
    ("FlushRows", "after", 7),
]


def test_crashes_around_appends_and_flushes_lose_and_double_nothing(flink_server, server):
    for each in CRASHES:
        server.faults.add(crash(*each))
    tap = Tap("crashes", 0)

    with streaming_job(flink_server, stream(server, tap)):
        for count in range(100, 900, 100):
            # More rows only when these are visible, so that there are as many flushes.
            tap.open_to(count)
            assert wait_until(lambda count=count: found(server, rows_of(2, count))[0] == 0), count
        wait_until(lambda: found(server, rows_of(2, 800))[1] > 0, budget_s=8)

    assert happened(server)
    assert found(server, rows_of(2, 800)) == (0, 0)


def test_control_without_stable_input_a_crash_after_a_flush_doubles_rows(
    flink_server, server, monkeypatch
):
    monkeypatch.setattr(write_unbounded, "StableInputParDo", beam.ParDo)
    server.faults.add(crash("FlushRows", "after", 1))

    assert doubles_rows(flink_server, server, stream(server, Tap("control", 800)), rows_of(2, 800))


@pytest.mark.parametrize("method", [EXACTLY_ONCE, bq.AtLeastOnce()], ids=["once", "at least once"])
def test_windowed_streams_arrive_once(flink_server, server, method):
    windows = {"fixed": FixedWindows(10), "sliding": SlidingWindows(50, 10)}
    for name in windows:
        server.create_table(f"p.d.{name}", FIELDS)
    expected = rows_of(2, 300)

    def build(p):
        rows = replay(p, make_row, Tap(f"windows {method}", 300), partitions=2)
        timed = rows | beam.Map(lambda row: TimestampedValue(row, row["id"]))
        for name, window in windows.items():
            (
                timed
                | f"Window {name}" >> beam.WindowInto(window)
                | f"Write {name}" >> write(server, f"p.d.{name}", method=method)
            )

    with streaming_job(flink_server, build):
        wait_until(lambda: all(server.row_count(f"p.d.{name}") >= 600 for name in windows))
        wait_until(lambda: False, budget_s=2)

    for name in windows:
        assert missing_and_extra(server.visible_rows(f"p.d.{name}"), expected) == (0, 0)


def test_an_expired_stream_of_a_cold_key_is_replaced_without_a_crash(flink_server, server):
    tap = Tap("cold", 100)

    with streaming_job(flink_server, stream(server, tap)):
        assert wait_until(lambda: server.row_count(TABLE) == 200)
        for stream_state in server.streams(TABLE):
            server.write.streams.expire(stream_state.name)
        tap.open_to(200)
        wait_until(lambda: server.row_count(TABLE) >= 400)

    assert missing_and_extra(server.visible_rows(TABLE), rows_of(2, 200)) == (0, 0)
    assert "Restarting" not in flink_server.log_text()


class _SlowBundlesFn(beam.DoFn):
    """Makes checkpoints last: the barrier waits until this bundle has ended."""

    def process(self, row):
        yield row

    def finish_bundle(self):
        SYSTEM_CLOCK.sleep(2.0)


def slow_checkpoints(server, tap):
    """Appends go on while a checkpoint is under way, held up in a branch beside them."""

    def build(p):
        rows = replay(p, make_row, tap, partitions=2, rows_per_pause=25, pause_s=1)
        rows | write(server)
        rows | "Beside" >> beam.Reshuffle() | "Slow" >> beam.ParDo(_SlowBundlesFn())

    return build


# From the fifth flush on, six bundles in a row (of two streams) crash after their flushes took effect.
QUICK_RESTARTS = Fault(method="FlushRows", when="after", nth=5, times=12, code="PERMISSION_DENIED")


def test_restarts_in_quick_succession_double_nothing(flink_server, server):
    server.faults.add(QUICK_RESTARTS)
    tap = Tap("quick", 500)

    assert run(
        flink_server, server, slow_checkpoints(server, tap), rows_of(2, 500), interval_ms=3000
    ) == (0, 0)


def test_control_with_default_buffers_quick_restarts_double_rows(flink_server, server, monkeypatch):
    monkeypatch.setattr(pipeline_check, "require", lambda *args, **kwargs: None)
    server.faults.add(QUICK_RESTARTS)
    tap = Tap("quick control", 500)

    assert doubles_rows(
        flink_server,
        server,
        slow_checkpoints(server, tap),
        rows_of(2, 500),
        interval_ms=3000,
        num_concurrent_checkpoints=None,
    )
