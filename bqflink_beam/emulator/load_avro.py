"""Avro files of load jobs: their schema in BigQuery's types, and their rows."""

import dataclasses
import datetime
import io
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import fastavro

from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.jsonvalues import BadValue
from bqflink_beam.emulator.load_text import Row
from bqflink_beam.schema.model import Field, TableSchema

_PLAIN = {
    "boolean": "BOOL",
    "int": "INT64",
    "long": "INT64",
    "float": "FLOAT64",
    "double": "FLOAT64",
    "bytes": "BYTES",
    "fixed": "BYTES",
    "string": "STRING",
    "enum": "STRING",
}
_LOGICAL = {
    "date": "DATE",
    "time-millis": "TIME",
    "time-micros": "TIME",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "DATETIME",
    "local-timestamp-micros": "DATETIME",
}
_SQL_TYPES = ("JSON", "GEOGRAPHY")
# What a column of an explicit schema may be loaded from, besides its own type.
_ALSO = {
    "JSON": ("STRING",),
    "GEOGRAPHY": ("STRING",),
    "BIGNUMERIC": ("NUMERIC",),
    "NUMERIC": ("BIGNUMERIC",),
}
_EPOCH = datetime.date(1970, 1, 1)
_MOMENT = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICRO = datetime.timedelta(microseconds=1)


def avro_schema(data: bytes, options: Mapping[str, Any]) -> TableSchema:
    """Returns the schema of an Avro file.

    Raises:
        Refused: it is none, or has types that no column takes.
    """
    schema = _reader(data).writer_schema
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise invalid("Avro file root must be a record")
    return TableSchema(tuple(_field(f, _Names(schema), options) for f in schema["fields"]))


def _reader(data: bytes) -> Any:
    try:
        return fastavro.reader(io.BytesIO(data))
    except (ValueError, EOFError, KeyError) as error:
        raise invalid(
            "Error while reading data, error message: The Apache Avro library failed to read data "
            f"with the following error: {error}"
        ) from None


class _Names:
    """Named types of a schema, which are spelled out once and referred to afterwards."""

    def __init__(self, schema: Any) -> None:
        self._known: dict[str, Any] = {}
        self._collect(schema)

    def _collect(self, schema: Any) -> None:
        if isinstance(schema, list):
            for item in schema:
                self._collect(item)
        elif isinstance(schema, dict):
            if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
                self._known[schema["name"]] = schema
            for key in ("fields",):
                for item in schema.get(key, ()):
                    self._collect(item["type"])
            for key in ("items", "values", "type"):
                if isinstance(schema.get(key), dict | list):
                    self._collect(schema[key])

    def resolve(self, schema: Any) -> Any:
        if isinstance(schema, str) and schema in self._known:
            return self._known[schema]
        return {"type": schema} if isinstance(schema, str) else schema


def _field(field: Mapping[str, Any], names: _Names, options: Mapping[str, Any]) -> Field:
    name, schema, mode = field["name"], field["type"], "REQUIRED"
    if isinstance(schema, list):
        branches = [item for item in schema if item != "null"]
        if len(branches) != 1:
            raise invalid(f"Unsupported Avro union in field {name}")
        mode = "NULLABLE" if len(branches) < len(schema) else "REQUIRED"
        schema = branches[0]
    schema = names.resolve(schema)
    if schema["type"] == "array":
        inner = _field({"name": name, "type": schema["items"]}, names, options)
        if inner.repeated:
            raise invalid(f"Field {name} is an array of arrays")
        return _with_mode(inner, "REPEATED")
    if isinstance(schema["type"], dict | list):
        return _field({**field, "type": schema["type"]}, names, options)
    if schema["type"] == "record":
        return _record(name, mode, schema, names, options)
    if schema["type"] not in _PLAIN:
        raise invalid(f"Unsupported Avro type {schema['type']} of field {name}")
    return Field(name=name, mode=mode, type=_scalar(schema, options))


def _record(
    name: str, mode: str, schema: Mapping[str, Any], names: _Names, options: Mapping[str, Any]
) -> Field:
    fields = tuple(_field(inner, names, options) for inner in schema["fields"])
    if str(schema.get("sqlType", "")).upper() == "RANGE":
        element = next(f.type for f in fields if f.name == "start")
        return Field(name=name, mode=mode, type="RANGE", range_element_type=element)
    return Field(name=name, mode=mode, type="STRUCT", fields=fields)


def _scalar(schema: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    sql_type = str(schema.get("sqlType", "")).upper()
    if schema["type"] == "string" and sql_type in _SQL_TYPES:
        return sql_type
    logical = schema.get("logicalType")
    if options.get("useAvroLogicalTypes"):
        if logical == "decimal":
            return decimal_target(int(schema["precision"]), int(schema.get("scale", 0)), options)
        if logical in _LOGICAL:
            return _LOGICAL[logical]
    return _PLAIN[schema["type"]]


def decimal_target(precision: int, scale: int, options: Mapping[str, Any]) -> str:
    """Returns the type that ``decimalTargetTypes`` chooses for a decimal."""
    targets = options.get("decimalTargetTypes") or ["NUMERIC"]
    fits = {
        "NUMERIC": scale <= 9 and precision - scale <= 29,
        "BIGNUMERIC": scale <= 38 and precision - scale <= 38,
        "STRING": True,
    }
    ordered = [kind for kind in ("NUMERIC", "BIGNUMERIC", "STRING") if kind in targets]
    if not ordered:
        raise invalid(f"Invalid decimalTargetTypes {targets}")
    return next((kind for kind in ordered if fits[kind]), ordered[-1])


def _with_mode(field: Field, mode: str) -> Field:
    return dataclasses.replace(field, mode=mode)


# --- rows -----------------------------------------------------------------------------------


def avro_rows(data: bytes, schema: TableSchema, options: Mapping[str, Any]) -> Iterator[Row]:
    """Yields the rows of an Avro file as values of a schema.

    Raises:
        Refused: the file is damaged, or its types are not those of the columns.
    """
    have = avro_schema(data, options)
    check_columns(have, schema, _ALSO, "Avro")
    wanted = {field.name.lower(): field for field in schema}
    pairs = [(f, wanted[f.name.lower()]) for f in have if f.name.lower() in wanted]
    reader = _reader(data)
    try:
        for record in reader:
            try:
                yield {
                    target.name: _value(source, target, record[source.name])
                    for source, target in pairs
                }
            except BadValue as bad:
                yield bad
    except (EOFError, ValueError) as error:
        raise invalid(
            "Error while reading data, error message: The Apache Avro library failed to read data "
            f"with the following error: {error}"
        ) from None


def check_columns(
    have: TableSchema | Field,
    want: TableSchema | Field,
    also: Mapping[str, tuple[str, ...]],
    what: str,
) -> None:
    """Checks that the columns of a file can be loaded into the columns of that name.

    Raises:
        Refused: a type or mode that does not fit.
    """
    wanted = {field.name.lower(): field for field in want.fields}
    for field in have.fields:
        target = wanted.get(field.name.lower())
        if target is None:
            continue
        if field.type != target.type and field.type not in also.get(target.type, ()):
            raise invalid(
                f"Provided Schema does not match: field {field.name} has type {field.type} in the "
                f"{what} file and {target.type} in the table"
            )
        if field.repeated != target.repeated:
            raise invalid(
                f"Provided Schema does not match: field {field.name} has mode {field.mode} in the "
                f"{what} file and {target.mode} in the table"
            )
        check_columns(field, target, also, what)


def _value(source: Field, target: Field, value: Any) -> Any:
    if value is None:
        return [] if target.repeated else None
    if target.repeated:
        if any(item is None for item in value):
            raise BadValue(target.name, f"Repeated field {target.name} has a NULL element.")
        return [_element(source, target, item) for item in value]
    return _element(source, target, value)


def _element(source: Field, target: Field, value: Any) -> Any:
    if target.type == "STRUCT":
        wanted = {field.name.lower(): field for field in target.fields}
        return {
            wanted[inner.name.lower()].name: _value(
                inner, wanted[inner.name.lower()], value[inner.name]
            )
            for inner in source.fields
            if inner.name.lower() in wanted
        }
    if target.type == "INT64":
        return _integer(value)
    if target.type in ("NUMERIC", "BIGNUMERIC"):
        return _decimal(target, value)
    if target.type == "BYTES" and isinstance(value, Decimal):
        raise BadValue(target.name, "A decimal without useAvroLogicalTypes cannot be loaded here.")
    if target.type == "STRING":
        return str(value)
    return value


def _decimal(target: Field, value: Decimal) -> Decimal:
    digits = 9 if target.type == "NUMERIC" else 38
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and -exponent > digits and value != round(value, digits):
        raise BadValue(target.name, f"Invalid {target.type} value: {value}")
    return value


def _integer(value: Any) -> int:
    """Undoes a logical type that the job has not asked for."""
    if isinstance(value, datetime.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=datetime.timezone.utc)
        return (moment - _MOMENT) // _MICRO
    if isinstance(value, datetime.date):
        return (value - _EPOCH).days
    if isinstance(value, datetime.time):
        seconds = (value.hour * 60 + value.minute) * 60 + value.second
        return seconds * 1_000_000 + value.microsecond
    return int(value)
