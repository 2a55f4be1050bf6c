"""Rows of a table as Beam rows: every value, every name, through coders and through a runner."""

import datetime
import decimal
import typing

import apache_beam as beam
import pytest
from apache_beam import coders
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import Timestamp
from hypothesis import HealthCheck, given, settings

from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies
from bqflink_beam.transforms.rows import RowType, attribute_names, mapping_of, schema_of

civil = datetime.datetime.fromisoformat


def through_coder(row_type, row):
    coder = coders.registry.get_coder(row_type.constraint)
    return row_type.from_row(coder.decode(coder.encode(row_type.to_row(row))))


def with_nan_as_text(value):
    if isinstance(value, dict):
        return {key: with_nan_as_text(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [with_nan_as_text(inner) for inner in value]
    return repr(value) if isinstance(value, float) else value


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.data(columns_max=3, rows_max=2))
def test_any_row_comes_back_from_beams_coder(drawn):
    schema, rows = drawn
    row_type = RowType(schema)

    for row in rows:
        assert with_nan_as_text(through_coder(row_type, row)) == with_nan_as_text(row)


EVERY = TableSchema(
    (
        Field(name="id", type="INT64", mode="REQUIRED"),
        Field(name="n", type="NUMERIC"),
        Field(name="big", type="BIGNUMERIC"),
        Field(name="o", type="TIME"),
        Field(name="c", type="DATETIME"),
        Field(name="t", type="TIMESTAMP"),
        Field(name="d", type="DATE"),
        Field(name="i", type="INTERVAL"),
        Field(name="r", type="RANGE", range_element_type="TIMESTAMP"),
        Field(name="class", type="STRING", mode="REPEATED"),
        Field(name="s", type="STRUCT", mode="REPEATED", fields=(Field(name="_x", type="NUMERIC"),)),
    )
)
ROW = {
    "id": 1,
    "n": decimal.Decimal("-99999999999999999999999999999.999999999"),
    "big": decimal.Decimal("0." + "1" * 38),
    "o": datetime.time(23, 59, 59, 999_999),
    "c": civil("0001-01-01T00:00:00.000001"),
    "t": civil("9999-12-31T23:59:59.999999+00:00"),
    "d": datetime.date(1, 1, 1),
    "i": Interval(-14, 3, -1),
    "r": Range(civil("1969-12-31T23:59:59.999999+00:00"), None),
    "class": ["a", "b"],
    "s": [{"_x": decimal.Decimal("1." + "0" * 8 + "1")}, {"_x": None}],
}


def test_rows_cross_the_stages_of_a_runner_unchanged():
    row_type = RowType(EVERY)

    def check(found):
        assert found == [ROW]

    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = (
            pipeline
            | beam.Create([ROW])
            | "ToRows" >> beam.Map(row_type.to_row).with_output_types(row_type.constraint)
            | beam.Reshuffle()
            | "ToDicts" >> beam.Map(row_type.from_row)
        )
        assert_that(rows, check)


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (datetime.time, ROW["o"]),
        (decimal.Decimal, ROW["n"]),
    ],
)
def test_beams_own_types_would_change_the_value(hint, value):
    """The control: without types of ours this much is lost."""
    coder = coders.registry.get_coder(RowTypeConstraint.from_fields([("x", hint)]))

    assert coder.decode(coder.encode(beam.Row(x=value))).x != value


def test_a_timestamp_is_beams():
    assert RowType(EVERY).to_row(ROW).t == Timestamp.from_rfc3339("9999-12-31T23:59:59.999999Z")


@pytest.mark.parametrize(
    ("columns", "names"),
    [
        (["id", "fooBar"], ["id", "fooBar"]),
        (["class", "from", "None"], ["field_class", "field_from", "field_None"]),
        (["_x", "__y"], ["x", "y"]),
        (["x", "_x"], ["x", "x_"]),
        (["a b", "a-b", "a_b"], ["a_b_", "a_b__", "a_b"]),
        (["1st", "日付", "größe"], ["field_1st", "field", "gr__e"]),
        (["count", "index", "as_dict", "self"], ["field_count", "field_index", "field_as_dict", "field_self"]),
    ],
)  # fmt: skip
def test_names_python_cannot_hold_are_changed_and_told(columns, names):
    schema = TableSchema(tuple(Field(name=name, type="INT64") for name in columns))

    assert attribute_names(columns) == names
    assert RowType(schema).renamed == {
        column: name for column, name in zip(columns, names, strict=True) if column != name
    }


class Place(typing.NamedTuple):
    city: str
    zip: int | None


def test_the_schema_of_a_row_type_is_the_tables():
    """NUMERIC comes back as BIGNUMERIC, which holds it: their rows look alike."""
    schema = TableSchema(
        (
            Field(name="id", type="INT64", mode="REQUIRED"),
            Field(name="big", type="BIGNUMERIC"),
            Field(name="o", type="TIME", mode="REPEATED"),
            Field(name="c", type="DATETIME"),
            Field(name="t", type="TIMESTAMP"),
            Field(name="d", type="DATE"),
            Field(name="i", type="INTERVAL"),
            Field(name="r", type="RANGE", range_element_type="DATE"),
            Field(name="s", type="STRUCT", fields=(Field(name="x", type="BYTES"),)),
            Field(name="l", type="STRUCT", mode="REPEATED", fields=(Field(name="x", type="BOOL"),)),
        )
    )

    assert schema_of(RowType(schema).constraint) == schema


def test_the_schema_of_a_named_tuple():
    assert schema_of(Place) == TableSchema(
        (Field(name="city", type="STRING", mode="REQUIRED"), Field(name="zip", type="INT64"))
    )


def test_a_type_that_is_no_column_is_refused_by_name():
    with pytest.raises(ConfigError) as caught:
        schema_of(RowTypeConstraint.from_fields([("x", complex)]))

    assert caught.value.column == "x"


def test_rows_within_rows_become_dicts():
    row = beam.Row(a=1, p=Place("x", None), l=[beam.Row(b=2)], d={"e": beam.Row(f=3)})

    assert mapping_of(row) == {
        "a": 1, "p": {"city": "x", "zip": None}, "l": [{"b": 2}], "d": {"e": {"f": 3}},
    }  # fmt: skip


def test_dicts_without_rows_are_not_copied():
    row = {"a": 1, "l": [{"b": 2}], "t": (1, 2)}

    assert mapping_of(row) is row
