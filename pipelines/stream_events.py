"""Flights as a stream that never ends, into BigQuery exactly once, on a Flink of its own.

Starts an embedded BigQuery and a Flink job server, submits the job, watches rows become
visible after each checkpoint, stops the server, and checks that every flight is there once.

    python stream_events.py --rows=20000
"""

import argparse
import collections
import logging
import sys
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import nyc_flights
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Duration

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.flink import FlinkJobServer, local_flink_options

TABLE = "demo.events.flights"
_CHECKPOINT_MS = 1_500
_ROWS_PER_PAUSE = 500
_FOR_EVER = 2**60


class _AllRows(RestrictionProvider):
    def initial_restriction(self, element):
        return OffsetRange(0, _FOR_EVER)

    def create_tracker(self, restriction):
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element, restriction):
        return _ROWS_PER_PAUSE


class ReplayFlights(beam.DoFn):
    """Yields the first `count` flights in order, then stays silent, as a stream does."""

    def setup(self) -> None:
        self._flights = nyc_flights.read("flights")

    @beam.DoFn.unbounded_per_element()
    def process(self, count: int, tracker=beam.DoFn.RestrictionParam(_AllRows())):  # noqa: B008
        start = tracker.current_restriction().start
        stop = min(start + _ROWS_PER_PAUSE, count)
        for index, row in enumerate(self._flights.slice(start, stop - start).to_pylist(), start):
            if not tracker.try_claim(index):
                return
            yield row
        tracker.defer_remainder(Duration(seconds=0 if stop < count else 1))


def build(p: beam.Pipeline, rows: int, connection: bq.Connection) -> None:
    """Wires the stream: replayed flights into one table, exactly once."""
    (
        p
        | "Count" >> beam.Create([rows])
        | "Replay" >> beam.ParDo(ReplayFlights())
        | bq.WriteToBigQueryStorage(TABLE, connection=connection)
    )


def wait_for_rows(server: testing.Emulator, rows: int, seconds: float) -> Iterator[int]:
    """Yields how many rows are visible, whenever that changed, until all are or time is up."""
    stop_s, seen = SYSTEM_CLOCK.monotonic_s() + seconds, -1
    while seen < rows and SYSTEM_CLOCK.monotonic_s() < stop_s:
        visible = server.row_count(TABLE)
        if visible != seen:
            yield visible
        seen = visible
        SYSTEM_CLOCK.sleep(0.2)


def compare(found: list[dict[str, Any]], rows: int) -> tuple[int, int]:
    """Returns how many rows are missing, and how many are there too often or not ours."""
    expected = collections.Counter(
        map(repr, nyc_flights.read("flights").slice(0, rows).to_pylist())
    )
    visible = collections.Counter(map(repr, found))
    return (expected - visible).total(), (visible - expected).total()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=120.0, help="longest wait for the rows")
    arguments = parser.parse_args(argv)
    with testing.Emulator() as server:
        server.create_table(TABLE, nyc_flights.schema("flights"))
        with FlinkJobServer() as flink:
            flags = local_flink_options(
                flink.job_endpoint, streaming=True, interval_ms=_CHECKPOINT_MS
            )
            p = beam.Pipeline(options=PipelineOptions(flags))
            build(p, arguments.rows, server.connection)
            # Returns at once. A cancel through the job server may leave the job running on
            # Flink, so the server that owns it is stopped instead.
            p.run()
            for visible in wait_for_rows(server, arguments.rows, arguments.seconds):
                print(f"{visible} rows visible", flush=True)
            # The workers are threads of this process, and complain when their runner goes.
            logging.getLogger("apache_beam").setLevel(logging.CRITICAL)
        missing, extra = compare(server.visible_rows(TABLE), arguments.rows)
    verdict = "ok" if not missing and not extra else "FAILED"
    print(f"stream {verdict}: {arguments.rows} rows, {missing} missing, {extra} duplicates")
    return 0 if verdict == "ok" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
