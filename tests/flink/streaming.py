"""What the streaming tests on Flink share: a job that never ends, and waiting for what it does."""

import collections
import contextlib
from collections.abc import Callable

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.flink import local_flink_options

DATASET = "p.d"
TABLE = "p.d.t"
FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "source", "type": "INT64"},
]
_WAIT_S = 90.0


def make_row(partition: int, index: int) -> dict[str, int]:
    return {"id": index, "source": partition}


def rows_of(partitions: int, count: int) -> list[dict[str, int]]:
    return [make_row(partition, index) for partition in range(partitions) for index in range(count)]


def multiset(rows) -> collections.Counter:
    return collections.Counter(tuple(sorted(row.items())) for row in rows)


def missing_and_extra(found, expected) -> tuple[int, int]:
    """Returns how many rows are missing, and how many are there too often."""
    there, wanted = multiset(found), multiset(expected)
    return (wanted - there).total(), (there - wanted).total()


def wait_until(condition: Callable[[], bool], budget_s: float = _WAIT_S) -> bool:
    """Polls until the condition holds; returns whether it ever did."""
    stop_s = SYSTEM_CLOCK.monotonic_s() + budget_s
    while SYSTEM_CLOCK.monotonic_s() < stop_s:
        if condition():
            return True
        SYSTEM_CLOCK.sleep(0.2)
    return condition()


@contextlib.contextmanager
def streaming_job(flink_server, build: Callable[[beam.Pipeline], None], **options):
    """Submits a pipeline that never ends; when the block ends, so does its job server."""
    flags = local_flink_options(flink_server.job_endpoint, streaming=True, **options)
    p = beam.Pipeline(options=PipelineOptions([*flags, "--project=p"]))
    build(p)
    p.run()
    try:
        yield
    finally:
        flink_server.stop()
