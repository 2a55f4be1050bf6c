"""Reads on a real Flink: checkpoints inside a stream, and no row lost between them."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.flink import local_flink_options
from bqflink_beam.testing import Fault
from tests.flink.collector import Collect, collected
from tests.flink.streaming import FIELDS, TABLE, missing_and_extra, rows_of, wait_until

ROWS = rows_of(2, 600)
SETTINGS = Settings(streams_min=3, response_rows_max=25)


@pytest.fixture
def server():
    with testing.Emulator(settings=SETTINGS) as emulator:
        emulator.create_table(TABLE, FIELDS, rows=ROWS)
        yield emulator


# Longer than the reads take: when its sources end, Flink reads what is left in one go, and
# takes no checkpoint while it does.
_IDLE_MS = 20_000


def start_read(flink_server, server, name, *, flags=None, **options):
    flags = flags or local_flink_options(
        flink_server.job_endpoint,
        streaming=True,
        interval_ms=500,
        shutdown_sources_after_idle_ms=_IDLE_MS,
    )
    p = beam.Pipeline(options=PipelineOptions([*flags, "--project=p"]))
    rows = p | "Read" >> bq.ReadFromBigQueryStorage(TABLE, connection=server.connection, **options)
    rows | "Collect" >> beam.ParDo(Collect(name))
    return p.run()


def checkpoints_completed(flink_server):
    return flink_server.log_path.read_text().count("Completed checkpoint")


def slow_calls(seconds):
    return Fault(method="ReadRows", action="delay", delay_s=seconds, times=None)


def test_a_read_that_checkpoints_every_few_rows_loses_nothing(flink_server, server):
    server.faults.add(slow_calls(0.3))

    job = start_read(flink_server, server, "every few rows", checkpoint_every_rows=20)
    wait_until(lambda: len(collected("every few rows")) >= len(ROWS))
    checkpoints_meanwhile = checkpoints_completed(flink_server)
    job.wait_until_finish()

    assert missing_and_extra(collected("every few rows"), ROWS) == (0, 0)
    assert server.counters["ReadRows.resumed"] >= 20
    assert server.counters["CreateReadSession"] == 2  # the check, and the read
    assert checkpoints_meanwhile >= 5


def test_a_read_that_crashes_goes_on_from_its_checkpoint_and_loses_nothing(flink_server, server):
    server.faults.add(slow_calls(0.3))

    job = start_read(flink_server, server, "crash", checkpoint_every_rows=20)
    assert wait_until(lambda: server.counters.get("ReadRows.resumed", 0) >= 1)
    # A checkpoint before the plan proves nothing, and one that runs now may have begun there.
    enough = checkpoints_completed(flink_server) + 2
    assert wait_until(lambda: checkpoints_completed(flink_server) >= enough)
    crash = server.faults.add(Fault(method="ReadRows", code="PERMISSION_DENIED"))
    job.wait_until_finish()

    missing, _ = missing_and_extra(collected("crash"), ROWS)
    assert missing == 0
    assert server.faults.hits(crash) == 1
    assert server.counters["CreateReadSession"] == 2  # planned once; the restart did not go back


def test_a_batch_read_gives_every_row_once(flink, server):
    flags = local_flink_options(flink.job_endpoint)

    start_read(flink, server, "batch", flags=flags).wait_until_finish()

    assert missing_and_extra(collected("batch"), ROWS) == (0, 0)
    assert server.counters["ReadRows"] == 3
