"""The rules of a write that only a running pipeline shows, each against the embedded BigQuery."""

import copy
import pickle
import typing

import apache_beam as beam
import pytest
from apache_beam.coders import RowCoder, registry
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.error_handling import ErrorHandler
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import GlobalWindows, TimestampedValue
from apache_beam.utils.timestamp import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.testing import Fault
from bqflink_beam.transforms import metrics
from tests.transforms.sources import replay

TABLE = "p.d.t"
FIELDS = [{"name": "id", "type": "INT64"}, {"name": "name", "type": "STRING"}]
ROWS = [{"id": index, "name": f"name {index}"} for index in range(40)]
ONCE = bq.ExactlyOnce(register_location="US")
METHODS = {"at least once": bq.AtLeastOnce(), "exactly once": ONCE, "unbounded": ONCE}


@pytest.fixture
def server():
    with testing.Emulator() as emulator:
        emulator.create_table(TABLE, FIELDS)
        yield emulator


@pytest.fixture(params=METHODS)
def way(request):
    """A method, and how its input comes."""
    return request.param


def pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--project=p", *flags]))


def source(p, rows, way="exactly once"):
    if way != "unbounded":
        return p | beam.Create(rows)
    return replay(p, _Row(rows), len(rows), pause_s=0)


class _Row:
    def __init__(self, rows):
        self._rows = rows

    def __call__(self, partition, index):
        return self._rows[index]


def write(server, destination=TABLE, **options):
    return bq.WriteToBigQueryStorage(destination, connection=server.connection, **options)


def by_id(server, table=TABLE):
    return sorted(server.visible_rows(table), key=lambda row: row["id"])


def counted(result, name):
    found = result.metrics().query(
        beam.metrics.MetricsFilter().with_namespace(metrics.NAMESPACE).with_name(name)
    )
    return sum(counter.committed for counter in found["counters"])


# --- streams that are lost ---------------------------------------------------------------


def test_a_stream_lost_before_its_flush_fails_the_job_and_the_others_are_flushed(server):
    number = server.faults.add(Fault(method="FlushRows", action="expire"))

    lost_rows = pytest.raises(Exception, match=r"(?s)may be lost.*on_lost_stream='report'")
    with lost_rows, pipeline() as p:
        _in_two_streams(p) | write(server, method=bq.ExactlyOnce(shards=2, batch_rows_max=10))

    assert server.faults.hits(number) == 1
    lost, kept = sorted(server.streams(TABLE), key=lambda stream: not stream.expired)
    assert (lost.expired, kept.expired) == (True, False)
    assert kept.rows == 20
    assert len(server.visible_rows(TABLE)) == 20


def test_a_lost_stream_is_reported_when_asked_and_the_job_goes_on(server):
    server.faults.add(Fault(method="FlushRows", action="expire"))
    method = bq.ExactlyOnce(shards=2, batch_rows_max=10, on_lost_stream="report")

    p = pipeline()
    result = _in_two_streams(p) | write(server, method=method)
    seen = result.lost_streams | beam.Map(lambda lost: (lost.table, lost.last_offset))
    assert_that(seen, equal_to([(TABLE, 19)]))
    ran = p.run()
    ran.wait_until_finish()

    assert len(server.visible_rows(TABLE)) == 20
    assert counted(ran, metrics.STREAMS_LOST) == 1
    assert counted(ran, metrics.STREAMS_FLUSHED) == 1


def _in_two_streams(p):
    """Four batches of ten in one bundle, dealt to two shards."""
    return replay(p, _Row(ROWS), len(ROWS), pause_s=0)


def test_an_unbounded_write_ends_no_stream(server):
    with pipeline() as p:
        source(p, ROWS, "unbounded") | write(server)

    assert by_id(server) == ROWS
    assert server.counters.get("FinalizeWriteStream", 0) == 0
    assert not any(stream.finalized for stream in server.streams(TABLE))


# --- failed rows -------------------------------------------------------------------------


def to_three_tables(row):
    return ["p.d.t", "p.d.T", "p.d.missing"][row["id"] % 3]


def test_a_missing_table_among_many_costs_its_rows_only(server, way):
    server.create_table("p.d.T", FIELDS)

    with pipeline() as p:
        result = source(p, ROWS, way) | write(
            server, to_three_tables, method=METHODS[way], on_failed_row="output"
        )
        failed = result.failed_rows | beam.Map(
            lambda each: (each.table, each.row, "does not exist" in each.error)
        )
        assert_that(failed, equal_to([("p.d.missing", row, True) for row in ROWS[2::3]]))

    # Two tables whose names differ in case only are two tables.
    assert by_id(server, "p.d.t") == ROWS[0::3]
    assert by_id(server, "p.d.T") == ROWS[1::3]


def test_a_missing_table_is_asked_for_once_in_a_bundle_and_not_once_a_row(server):
    with pipeline() as p:
        (
            p
            | beam.Create([{"id": 2}] * 300)
            | write(server, to_three_tables, method=bq.AtLeastOnce(), on_failed_row="output")
        )

    assert server.counters["tables.get"] < 30


def test_a_table_that_may_not_be_written_to_costs_its_rows_only(server, way):
    server.create_table("p.d.T", FIELDS)
    server.create_table("p.d.missing", FIELDS)
    method = "GetWriteStream" if way == "at least once" else "CreateWriteStream"
    server.faults.add(
        Fault(method=method, code="PERMISSION_DENIED", table="p.d.missing", times=None)
    )

    with pipeline() as p:
        result = source(p, ROWS, way) | write(
            server, to_three_tables, method=METHODS[way], on_failed_row="output"
        )
        assert_that(result.failed_rows | beam.Map(lambda each: each.row), equal_to(ROWS[2::3]))

    assert by_id(server, "p.d.t") + by_id(server, "p.d.T") == ROWS[0::3] + ROWS[1::3]


def test_credentials_that_are_refused_fail_the_job_and_make_no_failed_rows(server, way):
    method = "GetWriteStream" if way == "at least once" else "CreateWriteStream"
    server.faults.add(Fault(method=method, code="UNAUTHENTICATED", times=None))

    with pytest.raises(bq.BqflinkError, match="UNAUTHENTICATED"), pipeline() as p:
        source(p, ROWS, way) | write(
            server, _Names({}), method=METHODS[way], on_failed_row="output"
        )


def test_a_worker_without_credentials_fails_the_job_and_makes_no_failed_rows(way, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    nobody = bq.Connection(rest_endpoint="https://127.0.0.1:1", storage_endpoint="127.0.0.1:1")

    refused = pytest.raises(bq.ConfigError, match="no application default credentials")
    with refused, pipeline() as p:
        source(p, ROWS, way) | bq.WriteToBigQueryStorage(
            _Names({}), connection=nobody, method=METHODS[way], on_failed_row="output"
        )


def test_a_table_so_new_that_the_storage_api_denies_it_loses_no_rows_to_the_failed_ones(
    server, way
):
    method = "GetWriteStream" if way == "at least once" else "CreateWriteStream"
    denied = server.faults.add(
        Fault(method=method, code="NOT_FOUND", storage_error="TABLE_NOT_FOUND", times=2)
    )

    with pipeline() as p:
        result = source(p, ROWS, way) | write(
            server, _Names({}), method=METHODS[way], on_failed_row="output"
        )
        assert_that(result.failed_rows, equal_to([]))

    assert by_id(server) == ROWS
    assert server.faults.hits(denied) == 2


def test_a_view_among_many_tables_costs_its_rows_only(server, way):
    view = {"view": {"query": "SELECT id, name FROM d.t", "useLegacySql": False}}
    client = server.connection.open()
    client.tables.create(bq.TableReference.parse("p.d.view"), view)
    client.close()

    with pipeline() as p:
        result = source(p, ROWS, way) | write(
            server, _Names({7: "p.d.view"}), method=METHODS[way], on_failed_row="output"
        )
        assert_that(result.failed_rows | beam.Map(lambda each: each.row), equal_to([ROWS[7]]))

    assert by_id(server) == ROWS[:7] + ROWS[8:]


def test_without_dead_letters_a_missing_table_fails_the_job(server, way):
    server.create_table("p.d.T", FIELDS)

    with pytest.raises(Exception, match=r"(?s)does not exist.*p\.d\.missing"), pipeline() as p:
        source(p, ROWS, way) | write(server, to_three_tables, method=METHODS[way])


def test_rows_that_bigquery_refuses_come_out_with_their_values_and_times(server, way):
    with pipeline() as p:
        timed = source(p, ROWS, way) | beam.Map(lambda row: TimestampedValue(row, row["id"]))
        result = timed | write(server, method=METHODS[way], on_failed_row="output")
        # The table changes after it was asked for: now it takes names of six characters.
        server.store.delete_table(bq.TableReference.parse(TABLE))
        server.create_table(TABLE, [FIELDS[0], {**FIELDS[1], "maxLength": "6"}])
        failed = result.failed_rows | beam.Map(
            lambda each: (each.table, each.row, each.column, each.timestamp)
        )
        expected = [(TABLE, row, None, Timestamp(row["id"])) for row in ROWS[10:]]
        assert_that(failed, equal_to(expected))

    assert by_id(server) == ROWS[:10]


def test_a_beam_error_handler_gets_the_failed_rows(server):
    bad = {"id": "x", "name": "no number"}

    with pipeline() as p:
        with ErrorHandler(beam.Map(lambda each: each.row)) as handler:
            (
                p
                | beam.Create([*ROWS, bad])
                | write(server).with_exception_handling(error_handler=handler)
            )
        assert_that(handler.output(), equal_to([bad]))

    assert by_id(server) == ROWS


def test_no_error_handler_leaves_the_write_as_it_was(server):
    result = (
        pipeline() | beam.Create(ROWS) | write(server).with_exception_handling(error_handler=None)
    )

    with pytest.raises(bq.ConfigError):
        result.failed_rows  # noqa: B018


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (None, "returned None"),
        (17, "returned 17"),
        ("nonsense", "returned 'nonsense'"),
        ("p.d.t$20260101", "AtLeastOnce only"),
        (KeyError("kind"), "raised KeyError: 'kind'"),
        (ZeroDivisionError("by zero"), "raised ZeroDivisionError: by zero"),
    ],
)
@pytest.mark.parametrize("output", [True, False], ids=["output", "raise"])
def test_a_function_that_names_no_table_costs_its_row_or_the_job(server, named, said, output):
    destination = _Names({7: named})
    if not output:
        with pytest.raises(Exception, match=said), pipeline() as p:
            p | beam.Create(ROWS) | write(server, destination, method=ONCE)
        assert server.visible_rows(TABLE) == []
        return
    with pipeline() as p:
        result = (
            p | beam.Create(ROWS) | write(server, destination, method=ONCE, on_failed_row="output")
        )
        failed = result.failed_rows | beam.Map(lambda each: (each.row, said in each.error))
        assert_that(failed, equal_to([(ROWS[7], True)]))

    assert by_id(server) == ROWS[:7] + ROWS[8:]


class _Names:
    """Names the table, but for some ids something else."""

    def __init__(self, else_by_id):
        self._else_by_id = else_by_id

    def __call__(self, row):
        named = self._else_by_id.get(row["id"], TABLE)
        if isinstance(named, Exception):
            raise named
        return named


# --- rows --------------------------------------------------------------------------------


class Named(typing.NamedTuple):
    id: int
    name: str


@pytest.mark.parametrize("kind", [beam.Row, Named])
def test_rows_of_beam_are_written_and_bad_ones_come_back(server, kind, way):
    server.create_table("p.d.short", [FIELDS[0], {**FIELDS[1], "maxLength": "7"}])
    rows = [kind(**row) for row in ROWS]
    bad = kind(id=1, name="too long")

    with pipeline() as p:
        result = source(p, [*rows, bad], way) | write(
            server, "p.d.short", method=METHODS[way], on_failed_row="output"
        )
        failed = result.failed_rows | beam.Map(lambda each: (each.row._asdict(), each.column))
        assert_that(failed, equal_to([(bad._asdict(), "name")]))

    assert by_id(server, "p.d.short") == ROWS


def test_a_bad_row_of_a_class_of_the_main_program_comes_out(server, way):
    server.create_table("p.d.short", [FIELDS[0], {**FIELDS[1], "maxLength": "7"}])
    Local = typing.NamedTuple("Local", [("id", int), ("name", str)])  # noqa: UP014
    registry.register_coder(Local, RowCoder)
    bad = {"id": 1, "name": "too long"}

    with pipeline() as p:
        result = (
            source(p, [*ROWS, bad], way)
            | beam.Map(lambda row: Local(**row)).with_output_types(Local)
            | write(server, "p.d.short", method=METHODS[way], on_failed_row="output")
        )
        failed = result.failed_rows | beam.Map(lambda each: each.row._asdict())
        assert_that(failed, equal_to([bad]))

    with pytest.raises(pickle.PicklingError):  # no other process finds it by its name
        pickle.dumps(Local(1, ""))
    assert by_id(server, "p.d.short") == ROWS


class _WatchFn(beam.DoFn):
    """Yields a row to the steps fused with it, and looks whether they left it alone."""

    def process(self, row):
        before = copy.deepcopy(row)
        yield row
        if row != before or list(row) != list(before):
            raise AssertionError(f"{before} has become {row}")


def test_the_users_rows_are_not_changed(server, way):
    rows = [{"ID": 1}, {"name": None, "id": 2}, {"id": 3, "name": "x", "extra": [1]}]

    with pipeline() as p:
        (
            source(p, rows, way)
            | beam.ParDo(_WatchFn())
            | write(server, method=METHODS[way], on_failed_row="output")
        )

    assert by_id(server) == [{"id": 1, "name": None}, {"id": 2, "name": None}]


def test_each_table_takes_rows_by_its_own_schema(server, way):
    server.create_table(
        "p.d.T", [{"name": "NAME", "type": "STRING"}, {"name": "ID", "type": "FLOAT64"}]
    )

    with pipeline() as p:
        source(p, ROWS, way) | write(
            server, _Names(dict.fromkeys(range(20, 40), "p.d.T")), method=METHODS[way]
        )

    assert by_id(server) == ROWS[:20]
    upper = [{"NAME": row["name"], "ID": float(row["id"])} for row in ROWS[20:]]
    assert sorted(server.visible_rows("p.d.T"), key=lambda row: row["ID"]) == upper


def test_rows_of_any_time_are_written(server, way):
    times = [MIN_TIMESTAMP, Timestamp(-1), Timestamp(0), MAX_TIMESTAMP]

    with pipeline() as p:
        result = (
            source(p, [{"id": index, "name": str(index)} for index in range(4)], way)
            | beam.Map(lambda row: TimestampedValue(row, times[row["id"]]))
            | beam.FlatMap(lambda row: [row, {"id": "bad", "name": str(row["id"])}])
            | write(server, method=METHODS[way], on_failed_row="output")
        )
        failed = result.failed_rows | beam.Map(lambda each: (each.row["name"], each.timestamp))
        assert_that(failed, equal_to([(str(index), at) for index, at in enumerate(times)]))

    assert [row["id"] for row in by_id(server)] == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", [AccumulationMode.DISCARDING, AccumulationMode.ACCUMULATING])
def test_a_trigger_that_fires_for_every_row_neither_splits_nor_doubles_a_commit(server, mode):
    with pipeline() as p:
        result = (
            p
            | beam.Create(ROWS)
            | beam.WindowInto(
                GlobalWindows(), trigger=Repeatedly(AfterCount(1)), accumulation_mode=mode
            )
            | write(server, method=bq.ExactlyOnce(shards=2, batch_rows_max=10))
        )
        commits = result.commits | beam.Map(lambda report: dict(report.rows))
        assert_that(commits, equal_to([{TABLE: len(ROWS)}]))

    assert by_id(server) == ROWS


def test_a_runner_that_does_not_name_the_run_is_refused_in_words(server):
    p = beam.Pipeline(options=PipelineOptions(["--runner=BundleBasedDirectRunner", "--project=p"]))
    p | beam.Create(ROWS) | write(server)

    with pytest.raises(bq.ConfigError, match="--runner=FnApiRunner"):
        p.run().wait_until_finish()

    assert server.visible_rows(TABLE) == []


# --- numbers -----------------------------------------------------------------------------


def test_the_metrics_say_what_happened(server, way):
    p = pipeline()
    source(p, [*ROWS, {"id": "x"}], way) | write(
        server, method=METHODS[way], on_failed_row="output"
    )
    ran = p.run()
    ran.wait_until_finish()

    streams = len(server.streams(TABLE))
    expected = {
        metrics.ROWS_ENCODED: 40,
        metrics.ROWS_APPENDED: 40,
        metrics.ROWS_FAILED: 1,
        metrics.ROWS_COMMITTED: 40 if way == "exactly once" else 0,
        metrics.STREAMS_CREATED: streams,
        metrics.STREAMS_LOST: 0,
        metrics.RUNS_REUSED: 0,
    }
    assert {name: counted(ran, name) for name in expected} == expected
    assert (streams == 0) == (way == "at least once")


def test_rows_that_bigquery_refused_do_not_count_as_appended(server, way):
    p = pipeline()
    source(p, ROWS, way) | write(server, method=METHODS[way], on_failed_row="output")
    server.store.delete_table(bq.TableReference.parse(TABLE))
    server.create_table(TABLE, [FIELDS[0], {**FIELDS[1], "maxLength": "6"}])
    ran = p.run()
    ran.wait_until_finish()

    assert counted(ran, metrics.ROWS_APPENDED) == 10
    assert counted(ran, metrics.ROWS_FAILED) == 30


def test_a_run_that_was_written_before_counts_as_reused(server):
    for times in (0, 1):
        p = pipeline()
        p | beam.Create(ROWS) | write(server, method=bq.ExactlyOnce(run_id="nightly"))
        ran = p.run()
        ran.wait_until_finish()
        assert counted(ran, metrics.RUNS_REUSED) == times
        assert counted(ran, metrics.ROWS_COMMITTED) == (0 if times else 40)
