"""Rows made column by column are those made one by one."""

import datetime

import pyarrow as pa
from hypothesis import given, settings

from bqflink_beam.emulator import cells, values
from bqflink_beam.schema.model import Field, TableSchema
from tests.unit.emulator.sql_rows import SCHEMA, tables


@settings(max_examples=100, deadline=None)
@given(rows=tables())
def test_columns_give_the_same_cells_as_rows(rows):
    chunks = [values.batch_from_rows(SCHEMA, rows), values.batch_from_rows(SCHEMA, rows[1:])]
    chunks.append(chunks[0].slice(1))

    for micros in (False, True):
        found = cells.rest_rows(SCHEMA, chunks, int64_timestamps=micros)

        assert found == values.rest_rows(SCHEMA, chunks, int64_timestamps=micros)


def test_types_of_few_tables_give_the_same_cells():
    schema = TableSchema(
        (
            Field(name="j", type="JSON"),
            Field(name="g", type="GEOGRAPHY"),
            Field(name="v", type="INTERVAL"),
            Field(name="r", type="RANGE", range_element_type="TIMESTAMP"),
            Field(name="p", type="TIMESTAMP", timestamp_precision=12),
        )
    )
    early = datetime.datetime(1, 1, 1, tzinfo=datetime.timezone.utc)
    rows = [
        {
            "j": '{"a":1}',
            "g": "POINT(1 2)",
            "v": pa.MonthDayNano((1, 2, 3000)),
            "r": {"start": early, "end": None},
            "p": "2020-01-01T00:00:00.123456789012Z",
        },
        {},
    ]
    chunks = [values.batch_from_rows(schema, rows)]

    for micros in (False, True):
        found = cells.rest_rows(schema, chunks, int64_timestamps=micros)

        assert found == values.rest_rows(schema, chunks, int64_timestamps=micros)
