"""Bounded exactly-once writes on a real Flink: the job is restarted from its beginning, the rows are once."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.periodicsequence import PeriodicImpulse
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.flink import FlinkJobServer, local_flink_options
from bqflink_beam.testing import Fault
from tests.flink.streaming import FIELDS, TABLE, missing_and_extra, rows_of

ROWS = rows_of(2, 500)
OTHER = "p.d.other"


@pytest.fixture
def server():
    with testing.Emulator() as emulator:
        for name in (TABLE, OTHER):
            emulator.create_table(name, FIELDS)
        yield emulator


@pytest.fixture(scope="module")
def flink(flink_jars, tmp_path_factory):
    """A job server whose Flink restarts failed jobs; for batch only its configuration says so."""
    folder = tmp_path_factory.mktemp("flink-restarting")
    (folder / "flink-conf.yaml").write_text(
        "restart-strategy.type: fixed-delay\n"
        "restart-strategy.fixed-delay.attempts: 3\n"
        "restart-strategy.fixed-delay.delay: 200 ms\n"
    )
    log = folder / "job-server.log"
    with FlinkJobServer(log_path=log, flink_conf_dir=folder) as server:
        yield server


def pipeline(flink, **options):
    flags = local_flink_options(flink.job_endpoint, **options)
    return beam.Pipeline(options=PipelineOptions([*flags, "--project=p"]))


def write(server, table=TABLE, **options):
    return bq.WriteToBigQueryStorage(table, connection=server.connection, **options)


def to_both_tables(row):
    return TABLE if row["id"] % 2 else OTHER


def crash(method, when, nth=1):
    return Fault(method=method, when=when, nth=nth, code="PERMISSION_DENIED")


CRASHES = {
    "after a stream is ended": crash("FinalizeWriteStream", "after", 1),
    "after the register": crash("jobs.insert", "after", 1),
    "after the first of two commits": crash("BatchCommitWriteStreams", "after", 1),
    "before the second of two commits": crash("BatchCommitWriteStreams", "before", 2),
    "after the last commit": crash("BatchCommitWriteStreams", "after", 2),
    "after the run was called done": crash("jobs.insert", "after", 2),
}


@pytest.mark.parametrize("fault", CRASHES.values(), ids=CRASHES)
def test_a_crash_restarts_the_job_and_every_row_is_written_once(flink, server, fault):
    number = server.faults.add(fault)
    method = bq.ExactlyOnce(register_location="US", batch_rows_max=100)

    with pipeline(flink) as p:
        p | beam.Create(ROWS) | write(server, to_both_tables, method=method)

    assert server.faults.hits(number) == 1
    found = server.visible_rows(TABLE) + server.visible_rows(OTHER)
    assert missing_and_extra(found, ROWS) == (0, 0)


def test_a_commit_whose_answer_is_lost_is_made_once(flink, server):
    number = server.faults.add(
        Fault(method="BatchCommitWriteStreams", when="after", action="cut", times=2)
    )

    with pipeline(flink) as p:
        p | beam.Create(ROWS) | write(server)

    assert server.faults.hits(number) == 2
    assert missing_and_extra(server.visible_rows(TABLE), ROWS) == (0, 0)


def test_windowed_rows_arrive_once_by_every_method(flink, server):
    windows = {"fixed": FixedWindows(10), "sliding": SlidingWindows(50, 10)}
    methods = {
        "once": bq.ExactlyOnce(),
        "sharded": bq.ExactlyOnce(shards=2),
        "at_least_once": bq.AtLeastOnce(),
    }
    names = [f"{window}_{method}" for window in windows for method in methods]
    for name in names:
        server.create_table(f"p.d.{name}", FIELDS)

    with pipeline(flink) as p:
        rows = p | beam.Create(ROWS) | beam.Map(lambda row: TimestampedValue(row, row["id"]))
        for window, fn in windows.items():
            windowed = rows | window >> beam.WindowInto(fn)
            for method, chosen in methods.items():
                name = f"{window}_{method}"
                windowed | name >> write(server, f"p.d.{name}", method=chosen)

    for name in names:
        assert missing_and_extra(server.visible_rows(f"p.d.{name}"), ROWS) == (0, 0), name


def test_running_a_pipeline_twice_writes_twice(flink, server):
    p = pipeline(flink)
    p | beam.Create(ROWS) | write(server)

    p.run().wait_until_finish()
    p.run().wait_until_finish()

    assert missing_and_extra(server.visible_rows(TABLE), ROWS + ROWS) == (0, 0)


def test_bounded_exactly_once_in_a_pipeline_that_streams_is_refused(flink, server):
    with pytest.raises(bq.ConfigError, match="--streaming"):
        pipeline(flink, streaming=True) | beam.Create(ROWS) | write(server)


def test_an_unbounded_input_added_later_is_found_when_the_pipeline_is_translated(flink, server):
    p = pipeline(flink)
    p | beam.Create(ROWS) | write(server)
    p | PeriodicImpulse(fire_interval=1)

    with pytest.raises(RuntimeError, match="Unable to translate") as raised:
        p.run()

    assert isinstance(raised.value.__cause__, bq.ConfigError)
    assert "bounded input" in str(raised.value.__cause__)
