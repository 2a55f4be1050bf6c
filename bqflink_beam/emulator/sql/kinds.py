"""`Kind`: the BigQuery type of an expression, and how its values look inside DuckDB.

Two types differ from what DuckDB would use. TIMESTAMP is a plain ``TIMESTAMP`` in UTC,
so that no session time zone can touch it. BIGNUMERIC, for which DuckDB's DECIMAL is too
short, is a 32-byte blob whose byte order is the order of the numbers.
"""

import dataclasses
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.types import arrow_schema, is_picos
from bqflink_beam.emulator.values import decimals_from_bytes
from bqflink_beam.schema.model import Field, TableSchema


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type. `element` is set for ARRAY and RANGE, `fields` for STRUCT."""

    name: str
    element: "Kind | None" = None
    fields: tuple[tuple[str, "Kind"], ...] = ()

    def __str__(self) -> str:
        if self.fields:
            inner = ", ".join(f"{name} {kind}" if name else str(kind) for name, kind in self.fields)
            return f"STRUCT<{inner}>"
        return f"{self.name}<{self.element}>" if self.element else self.name


INT64, FLOAT64, BOOL = Kind("INT64"), Kind("FLOAT64"), Kind("BOOL")
STRING, BYTES, JSON = Kind("STRING"), Kind("BYTES"), Kind("JSON")
NUMERIC, BIGNUMERIC = Kind("NUMERIC"), Kind("BIGNUMERIC")
DATE, TIME, DATETIME, TIMESTAMP = (
    Kind("DATE"), Kind("TIME"), Kind("DATETIME"), Kind("TIMESTAMP"),
)  # fmt: skip
INTERVAL, GEOGRAPHY = Kind("INTERVAL"), Kind("GEOGRAPHY")

NUMERIC_MAX = Decimal("99999999999999999999999999999.999999999")
ORDERED = frozenset(
    {
        "INT64", "FLOAT64", "BOOL", "STRING", "BYTES", "NUMERIC", "BIGNUMERIC",
        "DATE", "TIME", "DATETIME", "TIMESTAMP",
    }
)  # fmt: skip
"""Types whose values compare here; JSON, GEOGRAPHY, INTERVAL, STRUCT, ARRAY do not."""

_DUCKDB = {
    "INT64": "BIGINT",
    "FLOAT64": "DOUBLE",
    "BOOL": "BOOLEAN",
    "STRING": "VARCHAR",
    "BYTES": "BLOB",
    "NUMERIC": "DECIMAL(38,9)",
    "BIGNUMERIC": "BLOB",
    "DATE": "DATE",
    "TIME": "TIME",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP",
    "JSON": "VARCHAR",
    "GEOGRAPHY": "VARCHAR",
    "INTERVAL": "INTERVAL",
}


def array_of(element: Kind) -> Kind:
    """Returns ARRAY<element>."""
    if element.name == "ARRAY":
        raise InvalidQuery("Cannot construct array with element type ARRAY")
    return Kind("ARRAY", element)


def kind_of_field(field: Field) -> Kind:
    """Returns the type of a column."""
    if is_picos(field):
        raise unsupported("TIMESTAMP(12) in SQL")
    if field.type == "STRUCT":
        kind = Kind("STRUCT", None, tuple((f.name, kind_of_field(f)) for f in field.fields))
    elif field.type == "RANGE":
        kind = Kind("RANGE", Kind(field.range_element_type or "DATE"))
    else:
        kind = Kind(field.type)
    return array_of(kind) if field.repeated else kind


def field_of_kind(name: str, kind: Kind) -> Field:
    """Returns a result column: NULLABLE, or REPEATED for an ARRAY."""
    if kind.name == "ARRAY" and kind.element:
        return dataclasses.replace(field_of_kind(name, kind.element), mode="REPEATED")
    if kind.name == "STRUCT":
        names = [
            inner or f"_field_{position}" for position, (inner, _) in enumerate(kind.fields, 1)
        ]
        fields = tuple(field_of_kind(n, k) for n, (_, k) in zip(names, kind.fields, strict=True))
        return Field(name=name, type="STRUCT", fields=fields)
    element = kind.element.name if kind.element else None
    return Field(name=name, type=kind.name, range_element_type=element)


def duckdb_type(kind: Kind) -> str:
    """Returns the DuckDB type that values of a kind have inside a query."""
    if kind.name == "ARRAY" and kind.element:
        return duckdb_type(kind.element) + "[]"
    if kind.name == "RANGE" and kind.element:
        bound = duckdb_type(kind.element)
        return f'STRUCT("start" {bound}, "end" {bound})'
    if kind.name == "STRUCT":
        inner = ", ".join(
            f"{quote_name(name or f'_field_{position}')} {duckdb_type(k)}"
            for position, (name, k) in enumerate(kind.fields, 1)
        )
        return f"STRUCT({inner})"
    return _DUCKDB[kind.name]


def quote_name(name: str) -> str:
    """Returns a name as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


# --- crossing the border ------------------------------------------------------------------

_BIG_SHIFT = 1 << 255
_BIG_SCALE = 10**38
_BIG_MAX = (1 << 255) - 1


def big_to_key(value: Decimal) -> bytes:
    """Returns a BIGNUMERIC as a blob that sorts like the number.

    Raises:
        InvalidQuery: the value is too large.
    """
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    whole = int("".join(map(str, digits)) or "0")
    shift = exponent + 38
    scaled = whole * 10**shift if shift >= 0 else _half_away(whole, 10**-shift)
    if scaled > _BIG_MAX + sign:  # there is one more below zero than above
        raise InvalidQuery(f"BIGNUMERIC overflow: {value}")
    return ((-scaled if sign else scaled) + _BIG_SHIFT).to_bytes(32, "big")


def key_to_big(key: bytes) -> Decimal:
    """Returns the number of a blob made by `big_to_key`."""
    scaled = _unshifted(key)
    digits = tuple(int(digit) for digit in str(abs(scaled)))
    return Decimal((1 if scaled < 0 else 0, digits, -38))


def _unshifted(key: bytes) -> int:
    return int.from_bytes(key, "big") - _BIG_SHIFT


def _half_away(whole: int, divisor: int) -> int:
    quotient, rest = divmod(whole, divisor)
    return quotient + (2 * rest >= divisor)


def inward(array: pa.ChunkedArray, kind: Kind) -> pa.ChunkedArray:
    """Returns a stored column as DuckDB is to see it."""
    target = _inner_arrow(kind)
    if not _has_big(kind):
        return array.cast(target)
    chunks = [_inward(chunk, kind, target) for chunk in array.chunks]
    return pa.chunked_array(chunks, target)


def _inward(array: pa.Array, kind: Kind, target: pa.DataType) -> pa.Array:
    if kind.name == "BIGNUMERIC":
        keys = [None if v is None else big_to_key(v) for v in array.to_pylist()]
        return pa.array(keys, pa.binary())
    if not _has_big(kind):
        return array.cast(target)
    if kind.element:
        items = _inward(array.flatten(), kind.element, target.value_type)
        return _list_array(array, items, target)
    children = [
        _inward(array.field(position), inner, target.field(position).type)
        for position, (_, inner) in enumerate(kind.fields)
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())


def _list_array(lists: pa.Array, items: pa.Array, target: pa.DataType) -> pa.Array:
    """Returns lists of other items; NULL lists become empty ones."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0)
    ends = pc.cumulative_sum(lengths).cast(pa.int32())
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.ListArray.from_arrays(offsets, items, type=target)


def outward(table: pa.Table, schema: TableSchema, kinds: tuple[Kind, ...]) -> pa.Table:
    """Returns a result with the Arrow types in which tables are stored.

    Raises:
        InvalidQuery: an array of the result has a NULL in it, which BigQuery cannot write.
    """
    target = arrow_schema(schema)
    columns = [
        pa.chunked_array(
            [_outward(chunk, kind, field.type, field.name) for chunk in column.chunks], field.type
        )
        for column, field, kind in zip(table.columns, target, kinds, strict=True)
    ]
    return pa.table(columns, schema=target)


def _outward(array: pa.Array, kind: Kind, target: pa.DataType, name: str) -> pa.Array:
    if kind.name == "ARRAY" and kind.element:
        items = array.flatten()
        if items.null_count:
            raise InvalidQuery(f"Array cannot have a null element; error in writing field {name}")
        return _list_array(array, _outward(items, kind.element, target.value_type, name), target)
    if kind.name == "STRUCT":
        children = [
            _outward(array.field(position), inner, target.field(position).type, name)
            for position, (_, inner) in enumerate(kind.fields)
        ]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=array.is_null())
    if kind.name == "BIGNUMERIC":
        return decimals_from_bytes(
            [
                None if key is None else _unshifted(key).to_bytes(32, "little", signed=True)
                for key in array.to_pylist()
            ],
            target,
        )
    return array.cast(target)


def _inner_arrow(kind: Kind) -> pa.DataType:
    if kind.name == "ARRAY" and kind.element:
        return pa.list_(_inner_arrow(kind.element))
    if kind.name == "STRUCT":
        return pa.struct([(name, _inner_arrow(inner)) for name, inner in kind.fields])
    if kind.name == "RANGE" and kind.element:
        bound = _inner_arrow(kind.element)
        return pa.struct([("start", bound), ("end", bound)])
    if kind.name == "BIGNUMERIC":
        return pa.binary()
    if kind.name == "TIMESTAMP":
        return pa.timestamp("us")
    return arrow_schema(TableSchema((field_of_kind("x", kind),))).field(0).type


def _has_big(kind: Kind) -> bool:
    inner = [k for _, k in kind.fields] + ([kind.element] if kind.element else [])
    return kind.name == "BIGNUMERIC" or any(_has_big(k) for k in inner)
