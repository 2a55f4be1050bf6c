"""``docs/types.md``, made of what the code does: run, not described.

Each cell is the answer of a codec, so the page cannot say what is not so.
"""

import datetime
import decimal
import enum
import json
import uuid
from typing import Any

import numpy as np
from apache_beam.utils.timestamp import Timestamp
from google.protobuf import descriptor_pb2

from bqflink_beam.codec import temporals, values
from bqflink_beam.codec.json import LineEncoder
from bqflink_beam.codec.proto import RowDecoder, RowEncoder
from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.errors import RowError
from bqflink_beam.schema import arrow, avro
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.transforms.rows import RowType

_INTRODUCTION = """# Types

This page is printed by `python -m bqflink_beam types`; a test keeps it true.

A value is the same whichever way it comes, and is never changed silently: what a column
cannot hold exactly is a `RowError` that names the column, the value and the reason.

- A key matches its column without case. An absent key is NULL, as `None` is: a write asks
  for no column's default. In a REQUIRED column with a default BigQuery refuses the row.
- A REPEATED column takes a list, a tuple or a one-dimensional numpy array, gives a list,
  and cannot hold `None`. Absent or `None`, it is empty. Text is never taken apart.
- A STRUCT takes and gives a dict. An empty one is not NULL.
- A column's own limits (`STRING(10)`, `NUMERIC(10, 2)`) hold, unless the column has a
  rounding mode: then the service rounds.
- Numbers go in where they are exact: the float 2.5 is a NUMERIC, the float 2.3 is not (it
  is 2.29999999999999982…), and no float is an INT64.
- More digits than microseconds are refused, unless `rounding` says how they go.
"""

_RANGES = """`RANGE<DATETIME>` and `RANGE<TIMESTAMP>` follow their elements. TIMESTAMP(12) is text, since
Python's `datetime` has six digits. A `str` for a JSON column is JSON text; a JSON string
needs its own quotes. JSON's null is a value, but has no form in a line of JSON, where it
would be read as NULL: there it is refused. Names that Python or a format cannot hold get
placeholders where needed and come back as themselves.
"""


class _Color(enum.Enum):
    RED = "red"


_MIDNIGHT = temporals.to_civil(1_704_067_200_000_000)
_MOMENT = temporals.to_civil(1_704_110_400_000_001)

# What users have at hand: a name for it, and one such value.
_GIVEN: tuple[tuple[str, Any], ...] = (
    ("bool", True),
    ("int", 5),
    ("float", 1.5),
    ("`Decimal`", decimal.Decimal("1.5")),
    ("text of a number", "1.5"),
    ("any text", "some text"),
    ("bytes", b"a"),
    ("bytearray", bytearray(b"a")),
    ("memoryview", memoryview(b"a")),
    ("UUID", uuid.UUID(int=5)),
    ("enum of text", _Color.RED),
    ("date", _MIDNIGHT.date()),
    ("time", _MOMENT.time()),
    ("datetime without zone", _MOMENT),
    ("datetime with zone", _MOMENT.replace(tzinfo=temporals.UTC)),
    ("text of a date", "2024-01-31"),
    ("text of a time", "12:00:00.000001"),
    ("text of a datetime", "2024-01-31T12:00:00"),
    ("text with a zone", "2024-01-31T12:00:00+01:00"),
    ("numpy bool", np.bool_(True)),
    ("numpy int", np.int64(5)),
    ("numpy float", np.float32(1.5)),
    ("numpy datetime64", np.datetime64("2024-01-31T12:00:00")),
    ("numpy datetime64 at midnight", np.datetime64("2024-01-31")),
    ("Beam `Timestamp`", Timestamp(5)),
    ("dict or list", {"a": [1]}),
    ("JSON text", '{"a": [1]}'),
    ("`Interval`", Interval(14, 3, 1)),
    ("text of an interval", "1-2 3 4:5:6.789"),
    ("text of an ISO 8601 duration", "P1Y2M3DT4H"),
    ("`Range`", Range("2024-01-01", None)),
    ("text of a range", "[2024-01-01, UNBOUNDED)"),
)

_COLUMNS: tuple[tuple[str, Field, tuple[Any, ...]], ...] = (
    ("STRING", Field(name="c", type="STRING"), ("some text",)),
    ("BYTES", Field(name="c", type="BYTES"), (b"a\xff",)),
    ("INT64", Field(name="c", type="INT64"), (-(2**63), 2**63 - 1)),
    ("FLOAT64", Field(name="c", type="FLOAT64"), (1.5, float("-inf"), float("nan"))),
    ("BOOL", Field(name="c", type="BOOL"), (True,)),
    (
        "NUMERIC",
        Field(name="c", type="NUMERIC"),
        ("-99999999999999999999999999999.999999999", "0.000000001"),
    ),
    (
        "BIGNUMERIC",
        Field(name="c", type="BIGNUMERIC"),
        (values.BIGNUMERIC_MIN, values.BIGNUMERIC_MAX),
    ),
    ("DATE", Field(name="c", type="DATE"), ("0001-01-01", "9999-12-31")),
    ("TIME", Field(name="c", type="TIME"), ("00:00:00", "23:59:59.999999")),
    (
        "DATETIME",
        Field(name="c", type="DATETIME"),
        ("0001-01-01T00:00:00", "9999-12-31T23:59:59.999999"),
    ),
    (
        "TIMESTAMP",
        Field(name="c", type="TIMESTAMP"),
        ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
    ),
    (
        "TIMESTAMP(12)",
        Field(name="c", type="TIMESTAMP", timestamp_precision=12),
        ("2024-01-31T12:00:00.123456789012Z",),
    ),
    ("JSON", Field(name="c", type="JSON"), ('{"a": [1]}', "null")),
    ("GEOGRAPHY", Field(name="c", type="GEOGRAPHY"), ("POINT(-121 41)",)),
    ("INTERVAL", Field(name="c", type="INTERVAL"), ("-10000-0 3 -4:5:6.789",)),
    (
        "RANGE&lt;DATE&gt;",
        Field(name="c", type="RANGE", range_element_type="DATE"),
        ("[2024-01-01, UNBOUNDED)",),
    ),
)


def page() -> str:
    """Returns the page as Markdown."""
    parts = [
        _INTRODUCTION,
        "## What a column takes and gives\n",
        _table(
            ["BigQuery", "gives", "takes besides `None`", "for example, what is read back"],
            [
                [name, _gives(field, samples), _takes(field), _examples(field, samples)]
                for name, field, samples in _COLUMNS
            ],
        ),
        _RANGES,
        "## What it is on the way\n",
        _table(
            ["BigQuery", "Arrow", "proto row", "Avro", "line of JSON", "Beam row"],
            [[name, *_wires(field, samples)] for name, field, samples in _COLUMNS],
        ),
    ]
    return "\n".join(parts)


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cell for cell in line)} |\n" for line in lines)


def _read_back(field: Field, value: Any) -> Any:
    schema = TableSchema((field,))
    encoder = RowEncoder(schema)
    return RowDecoder(schema, encoder.descriptor).decode(encoder.encode({"c": value}))["c"]


def _gives(field: Field, samples: tuple[Any, ...]) -> str:
    value = _read_back(field, samples[0])
    if isinstance(value, datetime.datetime):
        return "datetime, UTC" if value.tzinfo else "datetime without zone"
    name = type(value).__name__
    return f"`bq.{name}`" if isinstance(value, (Interval, Range)) else name


def _takes(field: Field) -> str:
    read = values.converter(field)
    taken = []
    for name, value in _GIVEN:
        try:
            read(value)
        except RowError:
            continue
        taken.append(name)
    if "any text" in taken:
        taken = ["text", *(name for name in taken if "text" not in name.lower() or "enum" in name)]
    return ", ".join(taken)


def _examples(field: Field, samples: tuple[Any, ...]) -> str:
    return "<br>".join(_code(repr(_read_back(field, sample))) for sample in samples)


def _wires(field: Field, samples: tuple[Any, ...]) -> list[str]:
    schema = TableSchema((field,))
    encoder = RowEncoder(schema)
    (proto_field,) = descriptor_pb2.DescriptorProto.FromString(encoder.descriptor).field
    proto_type = descriptor_pb2.FieldDescriptorProto.Type.Name(proto_field.type)
    avro_type = avro.to_avro(schema)["fields"][0]["type"][1]
    line = json.loads(LineEncoder(schema).encode({"c": samples[0]}))["c"]
    hint = RowType(schema).constraint._fields[0][1].__args__[0]
    return [
        _code(str(arrow.to_arrow(schema).field("c").type)),
        proto_type.removeprefix("TYPE_").lower(),
        _avro_name(avro_type),
        _code(json.dumps(line, ensure_ascii=False)),
        getattr(hint, "__name__", str(hint)),
    ]


def _avro_name(type_: Any) -> str:
    if not isinstance(type_, dict):
        return str(type_)
    meaning = type_.get("logicalType") or type_.get("sqlType") or type_.get("name")
    digits = f"({type_['precision']}, {type_['scale']})" if "scale" in type_ else ""
    return f"{type_['type']}, {meaning}{digits}"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")
