"""`TableSchema` <-> Avro schema.

`to_avro` gives what load jobs read back as the same types (with ``useAvroLogicalTypes``
and the table's schema given): DATETIME is ``local-timestamp-micros``, since the text
that BigQuery itself exports does not load as a DATETIME. `from_avro` also reads that
export, the schemas of read sessions, and the schemas of others.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.arrow import decimal_kind
from bqflink_beam.schema.model import TYPES, Field, TableSchema

DISPLAY_NAME = "displayName"
"""How read sessions give the true name of a column that Avro has no name for."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_NESTING_MAX = 15
_RANGE_NAMESPACE = "google.sqlType"

_SIMPLE: dict[str, Any] = {
    "STRING": "string",
    "BYTES": "bytes",
    "INT64": "long",
    "FLOAT64": "double",
    "BOOL": "boolean",
    "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    "BIGNUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 77, "scale": 38},
    "DATE": {"type": "int", "logicalType": "date"},
    "TIME": {"type": "long", "logicalType": "time-micros"},
    "DATETIME": {"type": "long", "logicalType": "local-timestamp-micros"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
    "JSON": {"type": "string", "sqlType": "JSON"},
    "GEOGRAPHY": {"type": "string", "sqlType": "GEOGRAPHY"},
    "INTERVAL": {"type": "string", "sqlType": "INTERVAL"},
    "PICOS": {"type": "string", "sqlType": "TIMESTAMP"},
}
_PRIMITIVES = {
    "int": "INT64",
    "long": "INT64",
    "float": "FLOAT64",
    "double": "FLOAT64",
    "string": "STRING",
    "enum": "STRING",
    "bytes": "BYTES",
    "fixed": "BYTES",
    "boolean": "BOOL",
}
_LOGICAL = {
    "date": "DATE",
    "time-millis": "TIME",
    "time-micros": "TIME",
    "timestamp-millis": "TIMESTAMP",
    "timestamp-micros": "TIMESTAMP",
    "local-timestamp-millis": "DATETIME",
    "local-timestamp-micros": "DATETIME",
    "datetime": "DATETIME",
    "uuid": "STRING",
    "duration": "BYTES",
    "geography_wkt": "GEOGRAPHY",
    "Json": "JSON",
}


def to_avro(schema: TableSchema) -> dict[str, Any]:
    """Returns the Avro record schema of the table's rows, as plain JSON values."""
    return _Writer().record("Row", schema.fields)


def from_avro(schema: Mapping[str, Any] | str) -> TableSchema:
    """Returns the table that could hold records of an Avro schema without loss.

    Args:
        schema: a record schema, as JSON text or parsed.

    Raises:
        ConfigError: a field has a type that no BigQuery type can hold: a map, a union of
            more than one type, an array that is or has NULL, an array of arrays.
    """
    parsed = json.loads(schema) if isinstance(schema, str) else schema
    if not isinstance(parsed, Mapping) or parsed.get("type") != "record":
        raise ConfigError("a row's Avro schema must be a record")
    return TableSchema(_Reader().fields(parsed, "", 0))


def branches(type_: Any) -> tuple[Any, int | None]:
    """Returns the one type of a union and the place of null in it; None if it has none.

    Raises:
        ConfigError: the union has several types.
    """
    if not isinstance(type_, list):
        return type_, None
    others = [each for each in type_ if each != "null"]
    if len(others) != 1 or len(type_) > 2:
        raise ConfigError(f"no column holds the union {type_}; it may have one type, and null")
    return others[0], type_.index("null") if "null" in type_ else None


class _Writer:
    """Writes one schema; Avro wants each named type defined once."""

    def __init__(self) -> None:
        self._structs = 0
        self._ranges: set[str] = set()

    def record(self, name: str, fields: tuple[Field, ...]) -> dict[str, Any]:
        taken = {field.name for field in fields}
        out = []
        for number, field in enumerate(fields, 1):
            written: dict[str, Any] = {"name": field.name}
            if not _NAME.fullmatch(field.name):
                placeholder = f"column_{number}"
                while placeholder in taken:
                    placeholder += "_"
                taken.add(placeholder)
                written = {"name": placeholder, DISPLAY_NAME: field.name}
            if field.description:
                written["doc"] = field.description
            written["type"] = self._mode(field)
            out.append(written)
        return {"type": "record", "name": name, "fields": out}

    def _mode(self, field: Field) -> Any:
        type_ = self._type(field)
        if field.repeated:
            return {"type": "array", "items": type_}
        required = field.required and field.default_value_expression is None
        return type_ if required else ["null", type_]

    def _type(self, field: Field) -> Any:
        if field.type == "STRUCT":
            self._structs += 1
            return self.record(f"Struct{self._structs}", field.fields)
        if field.type == "RANGE":
            return self._range(field.range_element_type or "")
        if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
            return _SIMPLE["PICOS"]
        return _SIMPLE[field.type]

    def _range(self, element: str) -> Any:
        name = f"RANGE_{element}"
        if name in self._ranges:
            return f"{_RANGE_NAMESPACE}.{name}"
        self._ranges.add(name)
        bounds = [{"name": end, "type": ["null", _SIMPLE[element]]} for end in ("start", "end")]
        return {
            "type": "record",
            "name": name,
            "namespace": _RANGE_NAMESPACE,
            "sqlType": "RANGE",
            "fields": bounds,
        }


class _Reader:
    """Reads one schema, and remembers the types it names."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def fields(self, record: Mapping[str, Any], owner: str, depth: int) -> tuple[Field, ...]:
        if depth >= _NESTING_MAX:
            raise ConfigError(f"STRUCTs nest at most {_NESTING_MAX} deep", column=owner)
        self._remember(record)
        return tuple(self._field(field, owner, depth) for field in record["fields"])

    def _field(self, field: Mapping[str, Any], owner: str, depth: int) -> Field:
        name = field.get(DISPLAY_NAME) or field["name"]
        path = f"{owner}.{name}" if owner else name
        try:
            type_, null_at = branches(field["type"])
            mode = "REQUIRED" if null_at is None else "NULLABLE"
            type_ = self._resolved(type_)
            if type_.get("type") == "array":
                if null_at is not None:
                    raise ConfigError("an ARRAY cannot be NULL; make it an empty array")
                if isinstance(type_["items"], list):
                    raise ConfigError("an ARRAY cannot hold NULL or a union")
                mode, type_ = "REPEATED", self._resolved(type_["items"])
            facts = self._facts(type_, path, depth)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error.message}", column=error.column or path) from None
        return Field(name=name, mode=mode, description=field.get("doc"), **facts)

    def _facts(self, type_: Mapping[str, Any], path: str, depth: int) -> dict[str, Any]:
        kind, logical = type_["type"], type_.get("logicalType")
        if kind == "record":
            element = range_element(type_)
            if element:
                self._remember(type_)
                return {"type": "RANGE", "range_element_type": element}
            return {"type": "STRUCT", "fields": self.fields(type_, path, depth + 1)}
        if logical == "decimal":
            return _decimal(type_)
        if type_.get("sqlType") in TYPES:
            return _declared(type_)
        found = _LOGICAL.get(logical or "") or _PRIMITIVES.get(kind)
        if found is None:
            raise ConfigError(f"no column holds Avro's {kind}")
        if kind in ("enum", "fixed"):
            self._remember(type_)
        return {"type": found}

    def _resolved(self, type_: Any) -> Mapping[str, Any]:
        """Returns a type as an object: a primitive's name, a name used before, or itself."""
        if isinstance(type_, str):
            named: Mapping[str, Any] = self._named.get(type_, {"type": type_})
            return named
        inner = type_["type"]
        # Avro lets types be wrapped: {"type": {"type": "string", ...}}.
        return self._resolved(inner) if isinstance(inner, (dict, list)) else type_

    def _remember(self, type_: Mapping[str, Any]) -> None:
        name, namespace = type_.get("name", ""), type_.get("namespace")
        self._named[name] = type_
        if namespace:
            self._named[f"{namespace}.{name}"] = type_


def range_element(record: Mapping[str, Any]) -> str | None:
    """Returns the element type of the record that stands for a RANGE, None for any other."""
    name = f"{record.get('namespace', '')}.{record.get('name', '')}".rpartition(".RANGE_")
    known = name[0].endswith(_RANGE_NAMESPACE) and name[2] in ("DATE", "DATETIME", "TIMESTAMP")
    return name[2] if known else None


def _declared(type_: Mapping[str, Any]) -> dict[str, Any]:
    kind = type_["sqlType"]
    if kind == "TIMESTAMP" and type_["type"] == "string":
        return {"type": "TIMESTAMP", "timestamp_precision": 12}
    return {"type": kind}


def _decimal(type_: Mapping[str, Any]) -> dict[str, Any]:
    digits, scale = type_["precision"], type_.get("scale", 0)
    if (digits, scale) == (38, 9):
        return {"type": "NUMERIC"}
    if (digits, scale) in ((76, 38), (77, 38)):
        return {"type": "BIGNUMERIC"}
    return {"type": decimal_kind(digits, scale, ""), "precision": digits, "scale": scale}
