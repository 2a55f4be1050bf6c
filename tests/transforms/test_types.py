"""Every type through the transforms: what is written is what is read, by table and by query."""

import dataclasses
import datetime
import decimal
import typing

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

import bqflink_beam as bq
from bqflink_beam.codec.values import BIGNUMERIC_MIN
from bqflink_beam.schema import json as schema_json
from bqflink_beam.testing import Emulator

civil = datetime.datetime.fromisoformat
KINDS = ["STRING", "BYTES", "INT64", "FLOAT64", "BOOL", "NUMERIC", "BIGNUMERIC", "DATE", "TIME",
         "DATETIME", "TIMESTAMP", "JSON", "GEOGRAPHY", "INTERVAL"]  # fmt: skip
VALUES = [
    "é", b"\x00", -1, 1.5, True, decimal.Decimal("-1.5"), BIGNUMERIC_MIN,
    datetime.date(1, 1, 1), datetime.time(23, 59, 59, 999_999), civil("9999-12-31T23:59:59.999999"),
    civil("1969-12-31T23:59:59.999999+00:00"), '{"a":1}', "POINT(1 2)", bq.Interval(1, -2, 3),
]  # fmt: skip
SPANS = tuple(
    bq.Field(name=name, type="RANGE", range_element_type=name) for name in ("DATE", "TIMESTAMP")
)
SCHEMA = bq.TableSchema(
    (
        bq.Field(name="id", type="INT64", mode="REQUIRED"),
        *(bq.Field(name=f"v_{kind}", type=kind) for kind in KINDS),
        bq.Field(
            name="s",
            type="STRUCT",
            mode="REPEATED",
            fields=(*SPANS, bq.Field(name="pair", type="STRUCT", fields=(
                bq.Field(name="start", type="INT64"), bq.Field(name="end", type="INT64"),
            ))),
        ),
    )
)  # fmt: skip
SPAN = {
    "DATE": bq.Range(datetime.date(2024, 1, 1), None),
    "TIMESTAMP": bq.Range(None, civil("2024-01-01T00:00:00+00:00")),
    "pair": {"start": 1, "end": 2},
}
FULL = {"id": 1, **dict(zip((f"v_{kind}" for kind in KINDS), VALUES, strict=True)), "s": [SPAN]}
EMPTY = {"id": 2, **{f"v_{kind}": None for kind in KINDS}, "s": []}


@pytest.fixture(scope="module")
def server():
    with Emulator() as emulator:
        emulator.create_table("p.d.every", schema_json.to_json(SCHEMA))
        with beam.Pipeline(runner=FnApiRunner()) as pipeline:
            rows = pipeline | beam.Create([FULL, {"ID": 2}])
            rows | bq.WriteToBigQueryStorage(  # noqa: B018 - the sink of the pipeline
                "p.d.every", connection=emulator.connection, method=bq.AtLeastOnce()
            )
        yield emulator


def read(server, expected, **options):
    connection = dataclasses.replace(server.connection, billing_project="p")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | bq.ReadFromBigQueryStorage(connection=connection, **options)
        assert_that(rows, equal_to(expected))


def test_a_table_gives_the_values_that_were_written(server):
    read(server, [FULL, EMPTY], table="p.d.every")


def test_a_query_gives_the_values_that_were_written(server):
    read(server, [FULL, EMPTY], query="SELECT * FROM `p.d.every`")


def test_a_filter_made_in_python_is_a_row_filter(server):
    row_filter = (bq.col("v_STRING") == "é") & (bq.col("v_DATE") < datetime.date(2024, 1, 1))

    read(server, [FULL], table="p.d.every", row_filter=row_filter)
    read(server, [EMPTY], table="p.d.every", row_filter=bq.col("v_STRING").is_null())


PICOS = "0352-10-27T07:33:21.000091000744Z"


@pytest.mark.parametrize("output", ["dict", "arrow"])
def test_picoseconds_are_read_as_they_were_written(server, output):
    at = bq.Field(name="at", type="TIMESTAMP", timestamp_precision=12)
    inner = dataclasses.replace(at, mode="REPEATED")
    schema = bq.TableSchema((at, bq.Field(name="s", type="STRUCT", fields=(inner,))))
    table = f"p.d.picos_{output}"
    server.create_table(table, schema_json.to_json(schema))
    rows = [{"at": PICOS, "s": {"at": [PICOS]}}, {"at": None, "s": None}]

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        (
            pipeline
            | beam.Create(rows)
            | bq.WriteToBigQueryStorage(  # noqa: B018
                table, connection=server.connection, method=bq.AtLeastOnce()
            )
        )
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        read_rows = pipeline | bq.ReadFromBigQueryStorage(
            table, connection=server.connection, output=output
        )
        if output == "arrow":
            read_rows |= beam.FlatMap(lambda batch: batch.to_pylist())
        assert_that(read_rows, equal_to(rows))


class Pair(typing.NamedTuple):
    start: int
    end: int


def test_rows_of_beam_are_written_as_deep_as_they_go(server):
    server.create_table("p.d.rows", schema_json.to_json(SCHEMA))
    row = beam.Row(id=3, s=[beam.Row(pair=Pair(1, 2))])

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = pipeline | beam.Create([row])
        rows | bq.WriteToBigQueryStorage(  # noqa: B018
            "p.d.rows", connection=server.connection, method=bq.AtLeastOnce()
        )

    span = {"DATE": None, "TIMESTAMP": None, "pair": {"start": 1, "end": 2}}
    read(server, [EMPTY | {"id": 3, "s": [span]}], table="p.d.rows")
