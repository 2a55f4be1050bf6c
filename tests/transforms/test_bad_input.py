"""Mistakes end in one clear error of ours that names the thing, or in a failed row; nothing hangs."""

import typing

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.write.batching import ROW_BYTES_LIMIT, ROW_OVERHEAD_BYTES
from bqflink_beam.write.options import REQUEST_BYTES_LIMIT
from bqflink_beam.write.preflight import REQUIRED_FLINK_OPTIONS
from tests.transforms.sources import Tap, replay

FIELDS = [{"name": "id", "type": "INT64"}, {"name": "text", "type": "STRING"}]
NOBODY = bq.Connection(
    rest_endpoint="http://127.0.0.1:1",
    storage_endpoint="127.0.0.1:1",
    plaintext=True,
    credentials=bq.Anonymous(),
)


@pytest.fixture(scope="module")
def server():
    with testing.Emulator() as emulator:
        emulator.create_table("p.d.t", FIELDS)
        yield emulator


def pipeline(*flags):
    flags = flags or ("--runner=FnApiRunner",)
    return beam.Pipeline(options=PipelineOptions(["--project=p", *flags]))


def write(server, table="p.d.t", **options):
    return bq.WriteToBigQueryStorage(table, connection=server.connection, **options)


def test_a_name_that_is_none_says_what_a_name_looks_like():
    with pytest.raises(bq.ConfigError, match=r"'project\.dataset\.table', got 'nonsense'"):
        pipeline() | beam.Create([]) | bq.WriteToBigQueryStorage("nonsense", connection=NOBODY)


def test_a_missing_table_is_named_with_the_way_out(server):
    with pytest.raises(bq.BqflinkError, match=r"(?s)create=CreateTable.*p\.d\.missing"):
        pipeline() | beam.Create([]) | write(server, "p.d.missing")


def test_an_endpoint_where_nobody_is_ends_in_an_error_that_names_it():
    with pytest.raises(bq.BqflinkError, match=r"http://127\.0\.0\.1:1.*is the endpoint right"):
        pipeline() | beam.Create([]) | bq.WriteToBigQueryStorage("p.d.t", connection=NOBODY)


def test_a_credentials_file_that_is_not_there_is_named():
    p = pipeline("--runner=FnApiRunner", "--bq_credentials=file:/nowhere/key.json")

    with pytest.raises(bq.ConfigError, match="/nowhere/key.json does not exist"):
        p | beam.Create([]) | bq.WriteToBigQueryStorage("p.d.t")


def test_a_row_too_large_for_any_request_is_a_failed_row(server):
    large = {"id": 1, "text": "x" * ROW_BYTES_LIMIT}
    with pipeline() as p:
        result = (
            p
            | beam.Create([{"id": 0, "text": "small"}, large])
            | write(server, on_failed_row="output")
        )
        failed = result.failed_rows | beam.Map(lambda each: (each.row["id"], "bytes" in each.error))
        assert_that(failed, equal_to([(1, True)]))

    assert server.visible_rows("p.d.t") == [{"id": 0, "text": "small"}]


@pytest.mark.parametrize("over", [0, 1])
def test_the_largest_request_that_can_be_asked_for_is_taken_and_a_larger_row_is_a_failed_one(over):
    columns = [
        {"name": f"a_column_with_quite_a_name_{index}", "type": "STRING"} for index in range(3000)
    ]
    encoded = REQUEST_BYTES_LIMIT - ROW_OVERHEAD_BYTES + over
    # Its field has a tag of one byte, and four for the length.
    row = {columns[0]["name"]: "x" * (encoded - 5)}

    with testing.Emulator() as server:
        server.create_table("p.d.wide", columns)
        with pipeline() as p:
            result = (
                p
                | beam.Create([row])
                | write(
                    server,
                    "p.d.wide",
                    method=bq.ExactlyOnce(batch_bytes_max=REQUEST_BYTES_LIMIT),
                    on_failed_row="output",
                )
            )
            failed = result.failed_rows | beam.Map(lambda each: "bytes" in each.error)
            assert_that(failed, equal_to([True] * over))

        assert server.row_count("p.d.wide") == 1 - over


def _itself(row: typing.Any) -> typing.Any:
    return row


@pytest.mark.parametrize("row", [17, "text", [("id", 1)], None])
def test_an_element_that_is_no_row_is_a_failed_row(server, row):
    with pipeline() as p:
        rows = p | beam.Create([row]) | beam.Map(_itself)  # of a type that Beam does not know
        result = rows | write(server, on_failed_row="output")
        failed = result.failed_rows | beam.Map(
            lambda each: (each.row, "a row must be" in each.error)
        )
        assert_that(failed, equal_to([(row, True)]))


def flink_flags(without=None):
    return [
        "--runner=FlinkRunner",
        "--job_endpoint=127.0.0.1:1",
        *(option.flag for option in REQUIRED_FLINK_OPTIONS if option is not without),
    ]


@pytest.mark.parametrize("missing", REQUIRED_FLINK_OPTIONS, ids=lambda option: option.name)
def test_an_unbounded_write_on_flink_names_the_option_that_is_missing(server, missing):
    rows = replay(pipeline(*flink_flags(missing)), dict, Tap("bad input", 0))

    with pytest.raises(bq.ConfigError, match=f"--{missing.name}"):
        rows | write(server)


def test_an_unbounded_write_on_flink_with_all_options_is_built(server):
    replay(pipeline(*flink_flags()), dict, Tap("good input", 0)) | write(server)


def test_a_read_with_checkpoints_on_flink_needs_its_bundles_finished_first(server):
    p = pipeline("--runner=FlinkRunner", "--streaming", "--checkpointing_interval=1000")

    with pytest.raises(bq.ConfigError, match="--finish_bundle_before_checkpointing"):
        p | bq.ReadFromBigQueryStorage("p.d.t", connection=server.connection)


def test_a_bounded_exactly_once_write_with_streaming_is_refused(server):
    p = pipeline("--runner=FlinkRunner", "--streaming")

    with pytest.raises(bq.ConfigError, match=r"(?s)--streaming.*bounded.*AtLeastOnce"):
        p | beam.Create([]) | write(server)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: bq.ExactlyOnce(shards=0), "shards"),
        (lambda: bq.ExactlyOnce(on_lost_stream="ignore"), "on_lost_stream"),
        (lambda: bq.ExactlyOnce(register="gs://b"), "register"),
        (lambda: bq.AtLeastOnce(batch_bytes_max=0), "batch_bytes_max"),
        (lambda: bq.AtLeastOnce(batch_rows_max=0), "batch_rows_max"),
        (lambda: bq.CreateTable(schema=FIELDS, clustering=("nope",)), "nope"),
        (lambda: bq.CreateTable(schema=FIELDS, partition_field="id"), "partition_field"),
        (lambda: bq.CreateTable(schema=[{"name": "a", "type": "INTT"}]), "INTT"),
        (lambda: bq.WriteToBigQueryStorage("p.d.t", on_failed_row="drop"), "on_failed_row"),
        (lambda: bq.WriteToBigQueryStorage("p.d.t", method="once"), "method"),
    ],
)
def test_an_option_that_cannot_be_is_named(make, what):
    with pytest.raises(bq.ConfigError, match=what):
        make()


def test_a_partition_decorator_needs_a_default_stream(server):
    with pytest.raises(bq.ConfigError, match="AtLeastOnce"):
        pipeline() | beam.Create([]) | write(server, "p.d.t$20260101", validate=False)
