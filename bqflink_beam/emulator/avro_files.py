"""Avro files as extract jobs write them."""

import io
import itertools
from collections.abc import Iterable
from typing import Any

import fastavro
import pyarrow as pa

from bqflink_beam.emulator import values
from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.schema.model import Field, TableSchema

_CODECS = {"NONE": "null", "DEFLATE": "deflate", "SNAPPY": "snappy"}
_TYPES: dict[str, Any] = {
    "INT64": "long",
    "FLOAT64": "double",
    "BOOL": "boolean",
    "STRING": "string",
    "BYTES": "bytes",
    "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    "BIGNUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 77, "scale": 38},
    "JSON": {"type": "string", "sqlType": "JSON"},
    "GEOGRAPHY": {"type": "string", "sqlType": "GEOGRAPHY"},
    "INTERVAL": {"type": "string", "sqlType": "INTERVAL"},
}
_LOGICAL: dict[str, Any] = {
    "DATE": {"type": "int", "logicalType": "date"},
    "TIME": {"type": "long", "logicalType": "time-micros"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
    "DATETIME": {"type": "string", "logicalType": "datetime"},
}


def avro_file(
    schema: TableSchema,
    chunks: Iterable[pa.RecordBatch],
    *,
    compression: str,
    logical_types: bool,
) -> bytes:
    """Returns rows as an Avro object container file.

    Raises:
        Refused: a column whose form without logical types is not known here.
    """
    numbers = itertools.count(1)
    document = {
        "type": "record",
        "name": "Root",
        "fields": [_field(field, logical_types, numbers) for field in schema],
    }
    sink = io.BytesIO()
    rows = (_record(schema.fields, row) for row in values.python_rows(chunks))
    fastavro.writer(sink, fastavro.parse_schema(document), rows, codec=_CODECS[compression])
    return sink.getvalue()


def _field(field: Field, logical: bool, numbers: "itertools.count[int]") -> dict[str, Any]:
    element = _element(field, logical, numbers)
    if field.repeated:
        kind: Any = {"type": "array", "items": element}
    else:
        kind = element if field.required else ["null", element]
    return {"name": field.name, "type": kind}


def _element(field: Field, logical: bool, numbers: "itertools.count[int]") -> Any:
    if field.type == "STRUCT":
        name = f"__s_{next(numbers)}"
        fields = [_field(inner, logical, numbers) for inner in field.fields]
        return {"type": "record", "name": name, "fields": fields}
    if field.type in _LOGICAL and field.timestamp_precision is None:
        if not logical:
            raise invalid(
                f"Column {field.name} of type {field.type} is exported to Avro with "
                "useAvroLogicalTypes only"
            )
        return _LOGICAL[field.type]
    if field.type not in _TYPES:
        raise invalid(f"Column {field.name} of type {field.type} cannot be exported to Avro here")
    return _TYPES[field.type]


def _record(fields: tuple[Field, ...], row: dict[str, Any]) -> dict[str, Any]:
    return {field.name: _value(field, row[field.name]) for field in fields}


def _value(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if field.repeated:
        return [_scalar(field, item) for item in value]
    return _scalar(field, value)


def _scalar(field: Field, value: Any) -> Any:
    if field.type == "STRUCT":
        return _record(field.fields, value)
    if field.type == "DATETIME":
        return value.isoformat()
    if field.type == "INTERVAL":
        return values.interval_text(value)
    return value
