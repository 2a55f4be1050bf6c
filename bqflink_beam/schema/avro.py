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
from bqflink_beam.schema.model import NESTING_MAX, TYPES, Field, TableSchema

DISPLAY_NAME = "displayName"
"""How read sessions give the true name of a column that Avro has no name for."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
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
# By logical type: the types that it may stand with. With any other it means nothing.
_LOGICAL = {
    "date": (("int",), "DATE"),
    "time-millis": (("int",), "TIME"),
    "time-micros": (("long",), "TIME"),
    "timestamp-millis": (("long",), "TIMESTAMP"),
    "timestamp-micros": (("long",), "TIMESTAMP"),
    "local-timestamp-millis": (("long",), "DATETIME"),
    "local-timestamp-micros": (("long",), "DATETIME"),
    "datetime": (("string",), "DATETIME"),
    "geography_wkt": (("string",), "GEOGRAPHY"),
    "Json": (("string",), "JSON"),
    "decimal": (("bytes", "fixed"), "NUMERIC"),
}
_NAMED = ("record", "enum", "fixed")


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
    record = parsed(schema)
    return TableSchema(_Reader().fields(record, "", 0))


def parsed(schema: Mapping[str, Any] | str) -> dict[str, Any]:
    """Returns a row's schema as plain JSON values, every type by its full name.

    Raises:
        ConfigError: it is no record schema.
    """
    try:
        found = json.loads(schema) if isinstance(schema, str) else schema
        if not isinstance(found, Mapping) or found.get("type") != "record":
            raise ConfigError("a row's Avro schema must be a record")
        qualified: dict[str, Any] = _qualified(found, "", set())
    except (LookupError, TypeError, AttributeError, json.JSONDecodeError) as error:
        raise ConfigError(f"this is no Avro schema: {error!r} in it") from error
    return qualified


def _qualified(type_: Any, space: str, known: set[str]) -> Any:
    """Returns a type with the full names of those defined and used in it; `space` is around it."""
    if isinstance(type_, list):
        return [_qualified(each, space, known) for each in type_]
    if isinstance(type_, str):
        return f"{space}.{type_}" if f"{space}.{type_}" in known else type_
    out, kind = dict(type_), type_["type"]
    if kind == "array":
        out["items"] = _qualified(type_["items"], space, known)
    elif kind in _NAMED:
        name, inner = type_["name"], out.pop("namespace", space)
        out["name"] = name if "." in name or not inner else f"{inner}.{name}"
        known.add(out["name"])
    else:
        out["type"] = _qualified(kind, space, known)
    if kind == "record":
        space = out["name"].rpartition(".")[0]
        out["fields"] = [
            {**field, "type": _qualified(field["type"], space, known)} for field in type_["fields"]
        ]
    return out


def logical_type(type_: Mapping[str, Any]) -> str | None:
    """Returns the logical type of a type, None if it has none that means something."""
    name = type_.get("logicalType")
    bases, _ = _LOGICAL.get(name, ((), "")) if isinstance(name, str) else ((), "")
    return name if type_["type"] in bases else None


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
        if depth >= NESTING_MAX:
            raise ConfigError(f"STRUCTs nest at most {NESTING_MAX} deep", column=owner)
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
        kind, logical = type_["type"], logical_type(type_)
        if kind in _NAMED:
            self._named[type_["name"]] = type_
        if kind == "record":
            element = range_element(type_)
            if element:
                return {"type": "RANGE", "range_element_type": element}
            return {"type": "STRUCT", "fields": self.fields(type_, path, depth + 1)}
        if logical == "decimal":
            return _decimal(type_)
        if type_.get("sqlType") in TYPES:
            return _declared(type_)
        if logical is not None:
            return {"type": _LOGICAL[logical][1]}
        if kind not in _PRIMITIVES:
            raise ConfigError(f"no column holds Avro's {kind}")
        return {"type": _PRIMITIVES[kind]}

    def _resolved(self, type_: Any) -> Mapping[str, Any]:
        """Returns a type as an object: a primitive's name, a name used before, or itself."""
        if isinstance(type_, str):
            named: Mapping[str, Any] = self._named.get(type_, {"type": type_})
            return named
        inner = type_["type"]
        # Avro lets types be wrapped: {"type": {"type": "string", ...}}.
        return self._resolved(inner) if isinstance(inner, (dict, list)) else type_


def range_element(record: Mapping[str, Any]) -> str | None:
    """Returns the element type of the record that stands for a RANGE, None for any other."""
    space, _, element = record["name"].rpartition(".RANGE_")
    known = space.endswith(_RANGE_NAMESPACE) and element in ("DATE", "DATETIME", "TIMESTAMP")
    return element if known else None


def _declared(type_: Mapping[str, Any]) -> dict[str, Any]:
    kind = type_["sqlType"]
    if kind == "TIMESTAMP" and type_["type"] == "string":
        return {"type": "TIMESTAMP", "timestamp_precision": 12}
    return {"type": kind}


def _decimal(type_: Mapping[str, Any]) -> dict[str, Any]:
    digits, scale = type_.get("precision"), type_.get("scale", 0)
    if not isinstance(digits, int) or not isinstance(scale, int):
        raise ConfigError(f"a decimal needs a whole precision and scale, got {digits} and {scale}")
    if (digits, scale) == (38, 9):
        return {"type": "NUMERIC"}
    if (digits, scale) in ((76, 38), (77, 38)):
        return {"type": "BIGNUMERIC"}
    return {"type": decimal_kind(digits, scale, ""), "precision": digits, "scale": scale}
