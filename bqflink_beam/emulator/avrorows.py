"""Rows as Avro: the schema that the Storage Read API serves, and the rows behind it."""

import datetime
import io
import json
import re
from collections.abc import Callable
from typing import Any

import fastavro
import pyarrow as pa

from bqflink_beam.emulator import types, values
from bqflink_beam.emulator.projection import MICROS, NANOS
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.schema.model import Field, TableSchema

_PLAIN_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_SCALARS: dict[str, Any] = {
    "STRING": "string",
    "BYTES": "bytes",
    "INT64": "long",
    "FLOAT64": "double",
    "BOOL": "boolean",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIME": {"type": "long", "logicalType": "time-micros"},
    "DATETIME": {"type": "string", "logicalType": "datetime"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
    "JSON": {"type": "string", "sqlType": "JSON"},
    "GEOGRAPHY": {"type": "string", "sqlType": "GEOGRAPHY"},
    "INTERVAL": {"type": "string", "sqlType": "INTERVAL"},
}


class AvroEncoder:
    """Serializes rows of one schema, one after another, without a file around them.

    Args:
        timestamps: how TIMESTAMP(12) is served, as in `Projection`.
        display_names: whether names that Avro cannot have get a placeholder, with the
            column's own in ``displayName``.

    Raises:
        Refused: INVALID_ARGUMENT, a column's name is none of Avro's.
    """

    def __init__(
        self, schema: TableSchema, *, timestamps: str = MICROS, display_names: bool = False
    ) -> None:
        self._timestamps = timestamps
        self._display_names = display_names
        self._records = 0
        self._named: set[str] = set()
        self._placeholders = 0
        fields = [self._field(field) for field in schema]
        self.schema = {"type": "record", "name": "__root__", "fields": fields}
        self.schema_text = json.dumps(self.schema, separators=(",", ":"))
        self._parsed = fastavro.parse_schema(json.loads(self.schema_text))
        names = [field["name"] for field in fields]
        self._columns = [
            (name, field.name, _converter(field, field_schema, timestamps))
            for name, field, field_schema in zip(names, schema, fields, strict=True)
        ]

    def encode(self, batch: pa.RecordBatch) -> bytes:
        """Returns the rows of a projected batch."""
        sink = io.BytesIO()
        columns = []
        for _, column, convert in self._columns:
            array = batch.column(batch.schema.get_field_index(column))
            if pa.types.is_timestamp(array.type) and array.type.unit == "ns":
                # Python's datetime ends at microseconds.
                array = array.cast(pa.int64())
            items = array.to_pylist()
            columns.append(items if convert is None else [convert(item) for item in items])
        names = [name for name, _, _ in self._columns]
        write, parsed = fastavro.schemaless_writer, self._parsed
        for row in zip(*columns, strict=True):
            write(sink, parsed, dict(zip(names, row, strict=True)))
        return sink.getvalue()

    def _field(self, field: Field) -> dict[str, Any]:
        made: dict[str, Any] = {"name": self._name(field.name)}
        if self._display_names:
            made["displayName"] = field.name
        element = self._element(field)
        if field.repeated:
            made["type"] = {"type": "array", "items": element}
        else:
            made["type"] = element if field.required else ["null", element]
        return made

    def _name(self, name: str) -> str:
        if _PLAIN_NAME.match(name):
            return name
        if not self._display_names:
            raise Refused(
                f"request failed: column name {name!r} is no Avro name; set "
                "enable_display_name_attribute, or read as Arrow"
            )
        self._placeholders += 1
        return f"__field_{self._placeholders}"

    def _element(self, field: Field) -> Any:
        if field.type == "STRUCT":
            name = f"__s_{self._records}"
            self._records += 1
            return {
                "type": "record",
                "name": name,
                "fields": [self._field(inner) for inner in field.fields],
            }
        if field.type == "RANGE":
            return self._range(field.range_element_type or "DATE")
        if field.type in ("NUMERIC", "BIGNUMERIC"):
            precision, scale = (38, 9) if field.type == "NUMERIC" else (77, 38)
            if field.precision is not None:
                precision, scale = field.precision, field.scale or 0
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": precision,
                "scale": scale,
            }
        if types.is_picos(field) and self._timestamps != MICROS:
            if self._timestamps == NANOS:
                return {"type": "long", "logicalType": "timestamp-nanos"}
            return {"type": "string", "logicalType": "timestamp-picos"}
        return _SCALARS[field.type]

    def _range(self, element: str) -> Any:
        # Avro defines a name once, and names it afterwards.
        if element in self._named:
            return f"google.sqlType.RANGE_{element}"
        self._named.add(element)
        return {
            "type": "record",
            "namespace": "google.sqlType",
            "name": f"RANGE_{element}",
            "sqlType": "RANGE",
            "fields": [
                {"name": bound, "type": ["null", _SCALARS[element]]} for bound in ("start", "end")
            ],
        }


def _converter(
    field: Field, schema: dict[str, Any], timestamps: str
) -> Callable[[Any], Any] | None:
    """Returns what makes a Python value one that the Avro library writes; None if it is."""
    one = _element_converter(field, schema, timestamps)
    if one is None or not field.repeated:
        return one and (lambda value: None if value is None else one(value))
    return lambda items: [one(item) for item in items]


def _element_converter(
    field: Field, schema: dict[str, Any], timestamps: str
) -> Callable[[Any], Any] | None:
    if field.type == "DATETIME":
        return datetime.datetime.isoformat
    if field.type == "INTERVAL":
        return values.interval_text
    if field.type == "RANGE" and field.range_element_type == "DATETIME":
        return lambda value: {
            bound: None if at is None else at.isoformat() for bound, at in value.items()
        }
    if field.type == "STRUCT":
        return _struct_converter(field, schema, timestamps)
    return None


def _struct_converter(
    field: Field, schema: dict[str, Any], timestamps: str
) -> Callable[[Any], Any]:
    kind = schema["type"]
    record = kind["items"] if field.repeated else kind if field.required else kind[1]
    if timestamps == NANOS and any(types.is_picos(each) for each in field.fields):
        raise Refused("request failed: nested TIMESTAMP(12) is not served in nanoseconds as Avro")
    inner = [
        (made["name"], each.name, _converter(each, made, timestamps))
        for each, made in zip(field.fields, record["fields"], strict=True)
    ]
    return lambda value: {
        name: value[column] if convert is None else convert(value[column])
        for name, column, convert in inner
    }
