"""The table that the queries of `sql_grammar` read: its schema, random rows, and literals."""

import dataclasses
import datetime
import math
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from bqflink_beam.schema.model import Field, TableSchema

UTC = datetime.timezone.utc
SCHEMA = TableSchema(
    (
        Field(name="id", type="INT64", mode="REQUIRED"),
        Field(name="i", type="INT64"),
        Field(name="j", type="INT64"),
        Field(name="f", type="FLOAT64"),
        Field(name="s", type="STRING"),
        Field(name="y", type="BYTES"),
        Field(name="b", type="BOOL"),
        Field(name="n", type="NUMERIC"),
        Field(name="g", type="BIGNUMERIC"),
        Field(name="d", type="DATE"),
        Field(name="t", type="TIME"),
        Field(name="dt", type="DATETIME"),
        Field(name="ts", type="TIMESTAMP"),
        Field(name="arr", type="INT64", mode="REPEATED"),
        Field(
            name="st",
            type="STRUCT",
            fields=(Field(name="x", type="INT64"), Field(name="z", type="STRING")),
        ),
        Field(
            name="sa",
            type="STRUCT",
            mode="REPEATED",
            fields=(Field(name="k", type="STRING"), Field(name="v", type="INT64")),
        ),
    )
)
ORDERED = (
    "INT64", "FLOAT64", "STRING", "BYTES", "BOOL", "NUMERIC", "BIGNUMERIC",
    "DATE", "TIME", "DATETIME", "TIMESTAMP",
)  # fmt: skip
Row = dict[str, Any]


# --- values ---------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("ab%_\\'\"\n é\U0001f600"), max_size=5)
_micros = st.integers(-(10**15), 10**15)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT64": st.integers(-50, 50) | st.sampled_from([0, 1, 10**9]),
    "FLOAT64": st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e300, 0.1, math.inf, -math.inf, math.nan]),
    "STRING": TEXTS,
    "BYTES": st.binary(max_size=3),
    "BOOL": st.booleans(),
    "NUMERIC": st.decimals(-1000, 1000, places=9, allow_nan=False),
    "BIGNUMERIC": st.decimals(-1000, 1000, places=20, allow_nan=False),
    "DATE": st.dates(datetime.date(1, 1, 1), datetime.date(9999, 12, 31)),
    "TIME": st.times(),
    "DATETIME": st.datetimes(),
    "TIMESTAMP": _micros.map(
        lambda m: datetime.datetime(1970, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=m)
    ),
}


def _cell(field: Field) -> st.SearchStrategy[Any]:
    if field.repeated:
        item = dataclasses.replace(field, mode="REQUIRED")
        return st.lists(_cell(item), max_size=3)
    if field.type == "STRUCT":
        value = st.fixed_dictionaries({inner.name: _cell(inner) for inner in field.fields})
    else:
        value = VALUES[field.type]
    return value if field.required else st.none() | value


@st.composite
def tables(draw: Any) -> list[Row]:
    """Rows of `SCHEMA`; `id` numbers them."""
    fields = [field for field in SCHEMA if field.name != "id"]
    row = st.fixed_dictionaries({field.name: _cell(field) for field in fields})
    size = draw(st.sampled_from([0, 1, 8, 12, 12]))
    return [{"id": n, **r} for n, r in enumerate(draw(st.lists(row, min_size=size, max_size=size)))]


def literal_text(value: Any, kind: str) -> str:
    """Returns a value as a literal of the query language."""
    if value is None:
        return f"CAST(NULL AS {kind})"
    if kind == "STRING":
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"'{escaped}'"
    if kind == "BYTES":
        return "b'" + "".join(f"\\x{byte:02x}" for byte in value) + "'"
    if kind == "FLOAT64":
        if math.isnan(value) or math.isinf(value):
            return f"CAST('{value}' AS FLOAT64)"
        return repr(value) if "e" in repr(value) or "." in repr(value) else f"{value}.0"
    if kind == "BOOL":
        return "TRUE" if value else "FALSE"
    if kind == "INT64":
        return str(value)
    if kind == "DATETIME":
        return f"DATETIME '{value.isoformat(sep=' ')}'"
    if kind == "TIMESTAMP":
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}+00:00'"
    return f"{kind} '{value:f}'" if isinstance(value, Decimal) else f"{kind} '{value}'"
