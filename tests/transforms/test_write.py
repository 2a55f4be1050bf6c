"""`WriteToBigQueryStorage` on the FnApiRunner and the embedded BigQuery: each row once, by every method."""

import collections
import datetime
import decimal

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, SlidingWindows, TimestampedValue

import bqflink_beam as bq
from bqflink_beam import testing
from tests.transforms.sources import replay

TABLE = "p.d.t"
FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "name", "type": "STRING"},
    {"name": "amount", "type": "NUMERIC"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "tags", "type": "STRING", "mode": "REPEATED"},
]
UTC = datetime.timezone.utc


def row(index):
    return {
        "id": index,
        "name": None if index % 7 == 0 else f"name {index}",
        "amount": decimal.Decimal(index) / 8,
        "at": datetime.datetime(2026, 1, 1, tzinfo=UTC) + datetime.timedelta(seconds=index),
        "tags": ["a", "b"][: index % 3],
    }


def row_of(partition, index):
    return row(250 * partition + index)


ROWS = [row(index) for index in range(500)]
METHODS = {
    "at least once": bq.AtLeastOnce(),
    "at least once, small": bq.AtLeastOnce(batch_rows_max=20),
    "exactly once": bq.ExactlyOnce(),
    "exactly once, sharded": bq.ExactlyOnce(shards=3, batch_rows_max=20),
}


@pytest.fixture
def server():
    with testing.Emulator() as emulator:
        emulator.create_dataset("p", "d")
        yield emulator


@pytest.fixture
def table(server):
    server.create_table(TABLE, FIELDS)
    return TABLE


def pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--project=p", *flags]))


def multiset(rows):
    """Rows by value and type; a list is a tuple, to be counted."""

    def value(it):
        return (tuple, tuple(it)) if isinstance(it, list) else (type(it), it)

    return collections.Counter(
        tuple((name, *value(each[name])) for name in sorted(each)) for each in rows
    )


def test_rows_and_types_arrive_once(server, table, method):
    with pipeline() as p:
        p | beam.Create(ROWS) | write(server, method=method)

    assert multiset(server.visible_rows(table)) == multiset(ROWS)


@pytest.fixture(params=METHODS.values(), ids=METHODS)
def method(request):
    return request.param


def write(server, destination=TABLE, **options):
    return bq.WriteToBigQueryStorage(destination, connection=server.connection, **options)


@pytest.mark.parametrize(
    "windows", [FixedWindows(10), SlidingWindows(50, 10)], ids=["fixed", "sliding"]
)
def test_windowed_rows_arrive_once(server, table, method, windows):
    with pipeline() as p:
        (
            p
            | beam.Create(ROWS)
            | beam.Map(lambda each: TimestampedValue(each, each["id"]))
            | beam.WindowInto(windows)
            | write(server, method=method)
        )

    assert multiset(server.visible_rows(table)) == multiset(ROWS)


@pytest.mark.parametrize(
    "windows", [None, FixedWindows(10), SlidingWindows(50, 10)], ids=["global", "fixed", "sliding"]
)
def test_unbounded_rows_arrive_once(server, table, windows):
    with pipeline() as p:
        rows = replay(p, row_of, 250, partitions=2, pause_s=0)
        if windows is not None:
            rows = (
                rows
                | beam.Map(lambda each: TimestampedValue(each, each["id"]))
                | beam.WindowInto(windows)
            )
        rows | write(server, method=bq.ExactlyOnce(batch_rows_max=30, shards=2))

    assert multiset(server.visible_rows(table)) == multiset(ROWS)


def test_a_missing_table_is_created_as_asked(server, method):
    create = bq.CreateTable(
        schema=FIELDS, time_partitioning="DAY", partition_field="at", clustering=("name",)
    )
    with pipeline() as p:
        p | beam.Create(ROWS) | write(server, "p.d.new", method=method, create=create)

    assert multiset(server.visible_rows("p.d.new")) == multiset(ROWS)
    resource = server.table_resource("p.d.new")
    assert resource["timePartitioning"] == {"type": "DAY", "field": "at"}
    assert resource["clustering"] == {"fields": ["name"]}


def test_a_run_without_rows_leaves_the_table_behind(server):
    with pipeline() as p:
        (p | beam.Create([]) | write(server, "p.d.new", create=bq.CreateTable(schema=FIELDS)))

    assert server.visible_rows("p.d.new") == []


def test_a_missing_table_is_named_while_the_pipeline_is_built(server):
    with pytest.raises(bq.BqflinkError, match=r"p\.d\.missing.*|does not exist.*p\.d\.missing"):
        pipeline() | beam.Create(ROWS) | write(server, "p.d.missing")


def test_rows_go_where_a_function_sends_them(server):
    for name in ("even", "odd"):
        server.create_table(f"p.d.{name}", FIELDS)

    with pipeline() as p:
        (
            p
            | beam.Create(ROWS)
            | write(server, even_or_odd, method=bq.ExactlyOnce(register_location="US"))
        )

    assert multiset(server.visible_rows("p.d.even")) == multiset(ROWS[::2])
    assert multiset(server.visible_rows("p.d.odd")) == multiset(ROWS[1::2])


def even_or_odd(each):
    return f"d.{['even', 'odd'][each['id'] % 2]}"


BAD = [
    {"id": 1, "nmae": "x"},
    {"id": None},
    {"id": 2, "amount": "1.2345678901"},
    {"id": 3, "at": 1.5},
]


def test_bad_rows_come_out_and_good_ones_are_written(server, table, method):
    with pipeline() as p:
        result = (
            p | beam.Create([*BAD, *ROWS]) | write(server, method=method, on_failed_row="output")
        )
        failed = result.failed_rows | beam.Map(lambda each: (each.table, each.row, each.column))
        expected = [
            (TABLE, bad, column)
            for bad, column in zip(BAD, ("nmae", "id", "amount", "at"), strict=True)
        ]
        assert_that(failed, equal_to(expected))

    assert multiset(server.visible_rows(table)) == multiset(ROWS)


def test_a_failed_row_of_five_windows_comes_out_once_with_its_time(server, table):
    with pipeline() as p:
        result = (
            p
            | beam.Create([BAD[0]])
            | beam.Map(lambda each: TimestampedValue(each, 100))
            | beam.WindowInto(SlidingWindows(50, 10))
            | write(server, on_failed_row="output")
        )
        failed = result.failed_rows | beam.Map(lambda each: (each.row, each.timestamp.micros))
        assert_that(failed, equal_to([(BAD[0], 100_000_000)]))


def test_a_bad_row_fails_the_job_by_default_and_writes_nothing(server, table):
    with pytest.raises(Exception, match="(?s)p.d.t.*nmae|nmae.*p.d.t"), pipeline() as p:
        p | beam.Create([*ROWS, BAD[0]]) | write(server)

    assert server.visible_rows(table) == []


def test_failed_rows_cannot_be_read_when_there_are_none(server, table):
    result = pipeline() | beam.Create(ROWS) | write(server)

    with pytest.raises(bq.ConfigError, match="on_failed_row='output'"):
        result.failed_rows  # noqa: B018


def test_running_a_pipeline_twice_writes_twice(server, table):
    p = pipeline()
    p | beam.Create(ROWS) | write(server)

    p.run().wait_until_finish()
    p.run().wait_until_finish()

    assert multiset(server.visible_rows(table)) == multiset(ROWS + ROWS)


def test_running_a_pipeline_rebuilt_from_its_proto_twice_writes_twice(server, table):
    p = pipeline()
    p | beam.Create(ROWS) | write(server)
    rebuilt = beam.Pipeline.from_runner_api(p.to_runner_api(), p.runner, p.options)

    rebuilt.run().wait_until_finish()
    rebuilt.run().wait_until_finish()

    assert multiset(server.visible_rows(table)) == multiset(ROWS + ROWS)


def test_the_same_run_id_writes_once(server, table):
    for _ in range(2):
        with pipeline() as p:
            (
                p
                | beam.Create(ROWS)
                | write(server, method=bq.ExactlyOnce(run_id="nightly 2026-11-30"))
            )

    assert multiset(server.visible_rows(table)) == multiset(ROWS)


def test_two_sinks_of_one_run_do_not_share_an_id(server, table):
    server.create_table("p.d.other", FIELDS)

    with pipeline() as p:
        rows = p | beam.Create(ROWS)
        rows | "One" >> write(server, method=bq.ExactlyOnce(run_id="r"))
        rows | "Two" >> write(server, "p.d.other", method=bq.ExactlyOnce(run_id="r"))

    assert multiset(server.visible_rows(table)) == multiset(ROWS)
    assert multiset(server.visible_rows("p.d.other")) == multiset(ROWS)


def test_the_commit_report_says_what_was_written(server, table):
    with pipeline() as p:
        result = p | beam.Create(ROWS) | write(server)
        assert_that(
            result.commits | beam.Map(lambda report: (dict(report.rows), report.reused)),
            equal_to([({TABLE: len(ROWS)}, False)]),
        )


def test_a_saved_pipeline_needs_a_run_id(server, table):
    with pytest.raises(bq.ConfigError, match="run_id"):
        pipeline("--output_executable_path=job.jar") | beam.Create(ROWS) | write(server)
