"""Hypothesis strategies for BigQuery schemas and rows, with the corners drawn often.

Needs `hypothesis`. Values are those a read gives, so a codec is tested by::

    @given(data())
    def test_round_trip(drawn):
        schema, rows = drawn
        assert decode(encode(rows)) == rows
"""

import datetime
import decimal
import json
from typing import Any

from hypothesis import strategies as st

from bqflink_beam.codec import temporals
from bqflink_beam.codec.values import BIGNUMERIC_MAX, BIGNUMERIC_MIN, Interval, Range
from bqflink_beam.schema.model import TYPES, Field, TableSchema

SCALARS = tuple(sorted(TYPES - {"STRUCT"}))

_WIDE = decimal.Context(prec=100)
_NAMES = st.one_of(
    st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True),
    st.sampled_from(
        ["foo_bar", "fooBar", "class", "from", "self", "DESCRIPTOR", "SerializeToString"]
        + ["column_1", "column_2", "1st", "a-b", "a b", "größe", "日付", "start", "end", "Clear"]
    ),
).filter(lambda name: not name.lower().startswith(("_change_", "_table_", "_partition")))


def _texts() -> st.SearchStrategy[str]:
    return st.one_of(st.text(max_size=12), st.sampled_from(["", "\x00", "'\"`\\", "🙂", "null"]))


def _numerics(least: int, greatest: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    units = st.one_of(
        st.integers(least, greatest),
        st.integers(-(10**12), 10**12),
        st.sampled_from([least, greatest, 0, 10**scale, -1]),
    )
    return units.map(lambda unit: decimal.Decimal(unit).scaleb(-scale, _WIDE))


def _json_texts() -> st.SearchStrategy[str]:
    finite = st.floats(allow_nan=False, allow_infinity=False)
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5), finite)
    trees = st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        ),
        max_leaves=5,
    )
    return trees.map(json.dumps)


def _datetimes() -> st.SearchStrategy[datetime.datetime]:
    ends = (temporals.to_civil(temporals.MICROS_MIN), temporals.to_civil(temporals.MICROS_MAX))
    corners = [*ends, temporals.EPOCH_CIVIL]
    return st.one_of(st.datetimes(), st.sampled_from(corners))


def _instants() -> st.SearchStrategy[datetime.datetime]:
    return _datetimes().map(lambda moment: moment.replace(tzinfo=temporals.UTC))


def _picos() -> st.SearchStrategy[str]:
    return st.builds(
        lambda moment, rest: temporals.picos_text(temporals.civil(moment), f"{rest:06d}"),
        _datetimes(),
        st.integers(0, 999_999),
    )


def _intervals() -> st.SearchStrategy[Interval]:
    micros = (2**63 - 1) // 1000
    return st.builds(
        Interval,
        st.integers(-120_000, 120_000),
        st.integers(-3_660_000, 3_660_000),
        st.one_of(st.integers(-micros, micros), st.sampled_from([0, -1, micros, -micros])),
    )


def _ranges(element: str) -> st.SearchStrategy[Range]:
    bounds = st.none() | {"DATE": _dates, "DATETIME": _datetimes, "TIMESTAMP": _instants}[element]()

    def ordered(first: Any, second: Any) -> Range:
        if first is not None and second is not None and second < first:
            first, second = second, first
        return Range(first, second)

    drawn = st.builds(ordered, bounds, bounds)
    return drawn.filter(lambda each: each.start is None or each.start != each.end)


def _dates() -> st.SearchStrategy[datetime.date]:
    return st.one_of(st.dates(), st.sampled_from([datetime.date.min, datetime.date.max]))


_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "STRING": _texts(),
    "BYTES": st.binary(max_size=12),
    "INT64": st.one_of(
        st.integers(-(2**63), 2**63 - 1), st.sampled_from([-(2**63), 2**63 - 1, 0, -1])
    ),
    "FLOAT64": st.floats(),
    "BOOL": st.booleans(),
    "NUMERIC": _numerics(-(10**38) + 1, 10**38 - 1, 9),
    "BIGNUMERIC": _numerics(
        int(BIGNUMERIC_MIN.scaleb(38, _WIDE)), int(BIGNUMERIC_MAX.scaleb(38, _WIDE)), 38
    ),
    "DATE": _dates(),
    "TIME": st.one_of(st.times(), st.sampled_from([datetime.time.min, datetime.time.max])),
    "DATETIME": _datetimes(),
    "TIMESTAMP": _instants(),
    "JSON": _json_texts(),
    "GEOGRAPHY": st.sampled_from(["POINT(-121 41)", "LINESTRING(0 0, 1 1)", "POINT EMPTY"]),
    "INTERVAL": _intervals(),
}


def values(field: Field) -> st.SearchStrategy[Any]:
    """Draws a value of a column as a read gives it; None and [] where the mode allows."""
    one = _one(field)
    if field.repeated:
        return st.lists(one, max_size=3)
    return one if field.required else st.none() | one


def _one(field: Field) -> st.SearchStrategy[Any]:
    if field.type == "STRUCT":
        return st.fixed_dictionaries({inner.name: values(inner) for inner in field.fields})
    if field.type == "RANGE":
        return _ranges(field.range_element_type or "")
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return _picos()
    return _VALUES[field.type]


def rows(schema: TableSchema) -> st.SearchStrategy[dict[str, Any]]:
    """Draws a row of a schema, with a value for every column."""
    return st.fixed_dictionaries({field.name: values(field) for field in schema})


@st.composite
def fields(draw: st.DrawFn, *, depth: int = 2, name: str | None = None) -> Field:
    """Draws a column; STRUCTs nest up to `depth` deep."""
    name = name or draw(_NAMES)
    mode = draw(st.sampled_from(["NULLABLE", "NULLABLE", "REQUIRED", "REPEATED"]))
    kind = draw(st.sampled_from(SCALARS + ("STRUCT",) * 3 if depth else SCALARS))
    if kind == "STRUCT":
        inner = draw(_columns(depth - 1, 3))
        return Field(name=name, type=kind, mode=mode, fields=tuple(inner))
    if kind == "RANGE":
        element = draw(st.sampled_from(["DATE", "DATETIME", "TIMESTAMP"]))
        return Field(name=name, type=kind, mode=mode, range_element_type=element)
    precision = draw(st.sampled_from([None, None, 12])) if kind == "TIMESTAMP" else None
    return Field(name=name, type=kind, mode=mode, timestamp_precision=precision)


def _columns(depth: int, size_max: int) -> st.SearchStrategy[list[Field]]:
    return st.lists(
        fields(depth=depth), min_size=1, max_size=size_max, unique_by=lambda each: each.name.lower()
    )


def schemas(*, depth: int = 2, columns_max: int = 6) -> st.SearchStrategy[TableSchema]:
    """Draws a table's schema: every type, nested and repeated, with awkward names."""
    return _columns(depth, columns_max).map(lambda columns: TableSchema(tuple(columns)))


@st.composite
def data(
    draw: st.DrawFn, *, depth: int = 2, columns_max: int = 6, rows_max: int = 4
) -> tuple[TableSchema, list[dict[str, Any]]]:
    """Draws a schema and rows of it."""
    schema = draw(schemas(depth=depth, columns_max=columns_max))
    return schema, draw(st.lists(rows(schema), max_size=rows_max))
