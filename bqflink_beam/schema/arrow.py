"""`TableSchema` <-> Arrow schema, as the Storage Read API types its columns."""

from collections.abc import Callable, Sequence

import pyarrow as pa

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import Field, TableSchema

EXTENSION_NAME = b"ARROW:extension:name"
_EXTENSION_PREFIX = "google:sqlType:"
# The types that share an Arrow type with another one, and are told apart by this.
_EXTENSIONS = {"JSON": "json", "GEOGRAPHY": "geography", "DATETIME": "datetime", "RANGE": "range"}

_SIMPLE = {
    "STRING": pa.string(),
    "BYTES": pa.binary(),
    "INT64": pa.int64(),
    "FLOAT64": pa.float64(),
    "BOOL": pa.bool_(),
    "NUMERIC": pa.decimal128(38, 9),
    "BIGNUMERIC": pa.decimal256(76, 38),
    "DATE": pa.date32(),
    "TIME": pa.time64("us"),
    "DATETIME": pa.timestamp("us"),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "JSON": pa.string(),
    "GEOGRAPHY": pa.string(),
    "INTERVAL": pa.month_day_nano_interval(),
}
_RANGE_ELEMENTS = {_SIMPLE[name]: name for name in ("DATE", "DATETIME", "TIMESTAMP")}


def to_arrow(schema: TableSchema) -> pa.Schema:
    """Returns the schema of the batches that hold the table's rows."""
    return pa.schema([arrow_field(field) for field in schema])


def from_arrow(schema: pa.Schema) -> TableSchema:
    """Returns the table that could hold batches of `schema` without loss.

    Decimals become NUMERIC where they fit, else BIGNUMERIC; unsigned 64-bit integers
    NUMERIC; lists REPEATED; a timestamp with a zone TIMESTAMP, one without DATETIME.

    Raises:
        ConfigError: a column has a type that no BigQuery type can hold.
    """
    return TableSchema(tuple(_from_arrow_field(field, "") for field in schema))


def may_have_ranges(schema: pa.Schema) -> bool:
    """Says whether a column looks like a RANGE that the schema does not declare as one."""
    return any(map(_may_be_range, schema))


def with_ranges(schema: pa.Schema, table: TableSchema) -> pa.Schema:
    """Returns a read session's schema with its RANGE columns declared as such.

    The service shows a RANGE and a STRUCT of `start` and `end` alike; only the table's
    schema tells them apart.
    """
    return pa.schema(_with_ranges(list(schema), table.fields), metadata=schema.metadata)


def sql_type(field: pa.Field) -> str | None:
    """Returns the BigQuery type that a field's metadata declares, None if it declares none."""
    name: str = (field.metadata or {}).get(EXTENSION_NAME, b"").decode()
    if not name.startswith(_EXTENSION_PREFIX):
        return None
    return name.removeprefix(_EXTENSION_PREFIX).upper()


def arrow_type(field: Field) -> pa.DataType:
    """Returns the Arrow type of one value of a column: of an item, if it is REPEATED."""
    if field.type == "STRUCT":
        return pa.struct([arrow_field(inner) for inner in field.fields])
    if field.type == "RANGE":
        element = _SIMPLE[field.range_element_type or ""]
        return pa.struct([pa.field("start", element), pa.field("end", element)])
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return pa.string()
    return _SIMPLE[field.type]


def arrow_field(field: Field) -> pa.Field:
    """Returns the Arrow field of a column; REQUIRED with a default may be missing, so NULL."""
    type_ = arrow_type(field)
    metadata = _metadata(field.type)
    if field.repeated:
        item = pa.field("item", type_, metadata=metadata)
        return pa.field(field.name, pa.list_(item), metadata=metadata)
    nullable = not field.required or field.default_value_expression is not None
    return pa.field(field.name, type_, nullable=nullable, metadata=metadata)


def _may_be_range(field: pa.Field) -> bool:
    type_ = field.type.value_type if is_list(field.type) else field.type
    if not pa.types.is_struct(type_) or sql_type(field) == "RANGE":
        return False
    inner = [type_.field(index) for index in range(type_.num_fields)]
    return {each.name for each in inner} == {"start", "end"} or any(map(_may_be_range, inner))


def _with_ranges(columns: list[pa.Field], fields: Sequence[Field]) -> list[pa.Field]:
    known = {field.name.lower(): field for field in fields}
    return [
        _declared(column, known[column.name.lower()]) if column.name.lower() in known else column
        for column in columns
    ]


def _declared(column: pa.Field, field: Field) -> pa.Field:
    if is_list(column.type):
        return column.with_type(pa.list_(_declared(column.type.value_field, field)))
    if field.type == "RANGE":
        return column.with_metadata({**(column.metadata or {}), **(_metadata("RANGE") or {})})
    if field.type == "STRUCT":
        inner = [column.type.field(index) for index in range(column.type.num_fields)]
        return column.with_type(pa.struct(_with_ranges(inner, field.fields)))
    return column


def _metadata(kind: str) -> dict[bytes, bytes] | None:
    if kind not in _EXTENSIONS:
        return None
    metadata = {EXTENSION_NAME: f"{_EXTENSION_PREFIX}{_EXTENSIONS[kind]}".encode()}
    if kind == "GEOGRAPHY":
        metadata[b"ARROW:extension:metadata"] = b'{"encoding": "WKT"}'
    return metadata


def _from_arrow_field(field: pa.Field, owner: str) -> Field:
    path = f"{owner}.{field.name}" if owner else field.name
    type_, declared = field.type, sql_type(field)
    mode = "NULLABLE" if field.nullable else "REQUIRED"
    if is_list(type_):
        mode, declared = "REPEATED", declared or sql_type(type_.value_field)
        type_ = type_.value_type
    type_ = plain_type(type_)
    if pa.types.is_struct(type_):
        if declared == "RANGE":
            element = _RANGE_ELEMENTS.get(type_.field("start").type)
            return Field(name=field.name, type="RANGE", mode=mode, range_element_type=element)
        inner = tuple(_from_arrow_field(type_.field(i), path) for i in range(type_.num_fields))
        return Field(name=field.name, type="STRUCT", mode=mode, fields=inner)
    if pa.types.is_decimal(type_):
        return _decimal(field.name, mode, type_, path)
    if declared in ("JSON", "GEOGRAPHY") and is_text(type_):
        return Field(name=field.name, type=declared, mode=mode)
    for fits, name in _READINGS:
        if fits(type_):
            return Field(name=field.name, type=name, mode=mode)
    raise ConfigError(f"no BigQuery type holds Arrow's {type_}; cast or drop it", column=path)


def _decimal(name: str, mode: str, type_: pa.Decimal128Type, path: str) -> Field:
    digits, scale = type_.precision, type_.scale
    if type_ in (_SIMPLE["NUMERIC"], _SIMPLE["BIGNUMERIC"]):
        kind = "NUMERIC" if type_ == _SIMPLE["NUMERIC"] else "BIGNUMERIC"
        return Field(name=name, type=kind, mode=mode)
    kind = decimal_kind(digits, scale, path)
    return Field(name=name, type=kind, mode=mode, precision=digits, scale=scale)


def decimal_kind(digits: int, scale: int, path: str) -> str:
    """Returns NUMERIC or BIGNUMERIC, whichever holds decimals of that precision and scale.

    Raises:
        ConfigError: neither does.
    """
    if 0 <= scale <= 9 and digits - scale <= 29:
        return "NUMERIC"
    if 0 <= scale <= 38 and digits - scale <= 38:
        return "BIGNUMERIC"
    raise ConfigError(
        f"a decimal of {digits} digits, {scale} of them after the point, is beyond BIGNUMERIC; "
        "cast it, or store it as STRING",
        column=path,
    )


def plain_type(type_: pa.DataType) -> pa.DataType:
    """Returns the type of the values, which dictionaries and run ends only store otherwise."""
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return type_.value_type
    return type_


def is_list(type_: pa.DataType) -> bool:
    """Says whether a type is one of Arrow's lists."""
    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
    )


def is_text(type_: pa.DataType) -> bool:
    """Says whether a type is one of Arrow's texts."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or (hasattr(pa.types, "is_string_view") and pa.types.is_string_view(type_))
    )


def is_bytes(type_: pa.DataType) -> bool:
    """Says whether a type is one of Arrow's binaries."""
    return bool(
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_fixed_size_binary(type_)
        or (hasattr(pa.types, "is_binary_view") and pa.types.is_binary_view(type_))
    )


def has_zone(type_: pa.DataType) -> bool:
    """Says whether a type is a timestamp with a zone: a TIMESTAMP, not a DATETIME."""
    return bool(pa.types.is_timestamp(type_) and type_.tz is not None)


_READINGS: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_uint64, "NUMERIC"),
    (pa.types.is_integer, "INT64"),
    (pa.types.is_floating, "FLOAT64"),
    (pa.types.is_boolean, "BOOL"),
    (is_text, "STRING"),
    (is_bytes, "BYTES"),
    (pa.types.is_date, "DATE"),
    (pa.types.is_time, "TIME"),
    (has_zone, "TIMESTAMP"),
    (pa.types.is_timestamp, "DATETIME"),
    (lambda type_: type_ == pa.month_day_nano_interval(), "INTERVAL"),
)
