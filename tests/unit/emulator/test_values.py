"""Stored values and the cells of REST: nothing is rounded, cut or misread on the way."""

import datetime
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from google.cloud.bigquery import _helpers
from google.cloud.bigquery.schema import SchemaField
from hypothesis import given
from hypothesis import strategies as st

from bqflink_beam.emulator import load_parquet, types, values
from bqflink_beam.schema.model import Field, TableSchema

UTC = datetime.timezone.utc
WIDE = Context(prec=100)


@given(st.lists(st.none() | st.integers(-(2**255), 2**255 - 1), max_size=20))
def test_every_bignumeric_is_kept(unscaled):
    array = values.wide_decimals(unscaled, 38)

    kept = [None if one is None else values.unscaled(one, 38) for one in array.to_pylist()]

    assert kept == unscaled


_TAGS = Field(name="tags", type="STRING", mode="REPEATED")
_INNER = Field(name="inner", type="STRUCT", fields=(_TAGS,))
NESTED = TableSchema(
    (
        Field(name="one", type="STRUCT", fields=(_INNER, _TAGS)),
        Field(name="many", type="STRUCT", mode="REPEATED", fields=(_INNER, _TAGS)),
    )
)
GAPS = [
    {},
    {"one": {}, "many": None},
    {"one": {"inner": {"tags": None}}, "many": [{}, {"tags": None, "inner": {}}]},
    {"one": {"inner": None, "tags": ["a"]}},
]
FILLED = [
    {"one": None, "many": []},
    {"one": {"inner": None, "tags": []}, "many": []},
    {
        "one": {"inner": {"tags": []}, "tags": []},
        "many": [{"inner": None, "tags": []}, {"inner": {"tags": []}, "tags": []}],
    },
    {"one": {"inner": None, "tags": ["a"]}, "many": []},
]


def test_missing_lists_are_empty_at_any_depth():
    batch = values.batch_from_rows(NESTED, GAPS)

    assert batch.to_pylist() == FILLED


_WIDE = (
    Field(name="w", type="BIGNUMERIC"),
    Field(name="ws", type="BIGNUMERIC", mode="REPEATED"),
)
WIDE_NESTED = TableSchema(
    (
        *_WIDE,
        Field(name="one", type="STRUCT", fields=(*_WIDE, _TAGS)),
        Field(name="many", type="STRUCT", mode="REPEATED", fields=(*_WIDE, _TAGS)),
    )
)
_LARGEST, _SMALLEST = (Decimal(n).scaleb(-38, WIDE) for n in (2**255 - 1, -(2**255)))


def test_every_bignumeric_is_kept_at_any_depth():
    full = {"w": _LARGEST, "ws": [_SMALLEST, Decimal("1E-38")]}
    nothing = {"w": None, "ws": []}
    rows = [
        {
            **full,
            "one": {**full, "tags": ["a"]},
            "many": [{**full, "tags": []}, {**nothing, "tags": []}],
        },
        {**nothing, "one": None, "many": []},
        {**nothing, "one": {**nothing, "tags": []}, "many": []},
    ]

    batch = values.batch_from_rows(WIDE_NESTED, rows)

    batch.validate()
    assert batch.to_pylist() == rows


def test_empty_struct_of_a_bignumeric_is_no_null():
    wide = TableSchema((Field(name="one", type="STRUCT", fields=_WIDE[:1]),))

    batch = values.batch_from_rows(wide, [{"one": {}}, {"one": None}])

    assert batch.to_pylist() == [{"one": {"w": None}}, {"one": None}]


def test_null_lists_of_parquet_are_empty_at_any_depth():
    table = pa.Table.from_pylist(
        [{"one": None, "many": None, **row} for row in GAPS],
        types.arrow_schema(NESTED).with_metadata(None),
    )
    lists = {"parquetOptions": {"enableListInference": True}}

    (batch,) = load_parquet.parquet_batches(table, NESTED, lists)

    assert batch.to_pylist() == FILLED


@given(
    st.decimals(
        allow_nan=False, allow_infinity=False, places=9, min_value=-(10**28), max_value=10**28
    )
)
def test_decimal_text_is_the_same_number_without_exponent(number):
    text = values.decimal_text(number)

    assert Decimal(text) == number
    assert "e" not in text.lower()
    assert text == "0" or not text.startswith("-0") or "." in text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Decimal("1.500"), "1.5"),
        (Decimal("-0.000"), "0"),
        (Decimal("100"), "100"),
        (Decimal("1E+3"), "1000"),
        (Decimal("1E-9"), "0.000000001"),
    ],
)
def test_decimal_text(number, text):
    assert values.decimal_text(number) == text


@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamps_come_back_through_googles_client(at):
    field = Field(name="x", type="TIMESTAMP")

    text = values.rest_value(field, at, int64_timestamps=True)

    assert _helpers.CellDataParser().timestamp_to_py(text, SchemaField("x", "TIMESTAMP")) == at


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (datetime.datetime(1970, 1, 1, tzinfo=UTC), "0.0"),
        (datetime.datetime(2014, 8, 19, 12, 41, 35, tzinfo=UTC), "1.408452095E9"),
        (datetime.datetime(2014, 8, 19, 12, 41, 35, 220000, UTC), "1.40845209522E9"),
        (datetime.datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "-1.0E0"),
        (datetime.datetime(1970, 1, 1, 0, 0, 0, 1, UTC), "1.0E-6"),
    ],
)
def test_timestamps_in_floating_seconds(at, text):
    assert values.rest_value(Field(name="x", type="TIMESTAMP"), at) == text
    micros = values.timestamp_micros(at)
    assert Decimal(text).scaleb(6, WIDE) == micros


@pytest.mark.parametrize(
    ("number", "text"),
    [(float("nan"), "NaN"), (float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (0.1, "0.1")],
)
def test_float_text(number, text):
    assert values.float_text(number) == text


def test_nested_rows_as_rest_has_them():
    inner = (Field(name="a", type="INT64"), Field(name="b", type="BOOL", mode="REPEATED"))
    schema = TableSchema(
        (
            Field(name="s", type="STRUCT", fields=inner),
            Field(name="r", type="RANGE", range_element_type="DATE"),
        )
    )
    rows = [
        {"s": {"a": 1, "b": [True]}, "r": {"start": datetime.date(2020, 1, 2), "end": None}},
        {},
    ]

    rest = values.rest_rows(schema, [values.batch_from_rows(schema, rows)])

    assert rest == [
        {
            "f": [
                {"v": {"f": [{"v": "1"}, {"v": [{"v": "true"}]}]}},
                {"v": "[2020-01-02, UNBOUNDED)"},
            ]
        },
        {"f": [{"v": None}, {"v": None}]},
    ]


def test_every_type_has_its_arrow_rest_and_proto_schema():
    fields = tuple(
        Field(
            name=f"{kind}_{mode}",
            type=kind,
            mode=mode,
            fields=(Field(name="a", type="INT64", mode="REQUIRED"),) if kind == "STRUCT" else (),
            range_element_type="TIMESTAMP" if kind == "RANGE" else None,
            description="d",
        )
        for kind in sorted(types._SCALARS | {"STRUCT": None, "RANGE": None})
        for mode in ("NULLABLE", "REQUIRED", "REPEATED")
    )
    schema = TableSchema(fields)

    assert types.schema_from_rest(types.schema_to_rest(schema)) == schema
    assert types.arrow_schema(schema).names == [field.name for field in fields]
    proto = types.schema_to_proto(schema)
    assert [field.name for field in proto.fields] == [field.name for field in fields]
    assert {field.mode for field in proto.fields} == {1, 2, 3}
