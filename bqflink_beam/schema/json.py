"""`TableSchema` <-> the JSON of the REST API and of ``bq show --schema``.

The text of `dumps` is compact and the same for equal schemas, so it serves as a
fingerprint. What the model does not know (collation, data policies) is not kept:
whoever patches a table must change the service's own JSON, not write this back.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import Field, TableSchema

# How the model's names are called by REST; in the order they are written.
_TEXTS = (
    ("roundingMode", "rounding_mode"),
    ("defaultValueExpression", "default_value_expression"),
    ("description", "description"),
)
# REST writes 64-bit integers as text.
_NUMBERS = (
    ("maxLength", "max_length"),
    ("precision", "precision"),
    ("scale", "scale"),
    ("timestampPrecision", "timestamp_precision"),
)


def from_json(fields: Sequence[Mapping[str, Any]]) -> TableSchema:
    """Reads a list of REST fields (``TableFieldSchema``).

    Raises:
        ConfigError: a field lacks a name or a type, or says something no column can be.
    """
    return TableSchema(tuple(_field_from_json(field, "") for field in fields))


def to_json(schema: TableSchema) -> list[dict[str, Any]]:
    """Returns a list of REST fields. What is not set, and mode NULLABLE, is left out."""
    return [_field_to_json(field) for field in schema]


def loads(text: bytes | str) -> TableSchema:
    """Reads JSON text: a list of fields, or an object with ``fields`` (or ``schema``) in it.

    Raises:
        ConfigError: the text is not such JSON.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"a schema must be JSON: {error}") from error
    if isinstance(value, Mapping) and "schema" in value:
        value = value["schema"]
    if isinstance(value, Mapping):
        value = value.get("fields")
    if not isinstance(value, list):
        raise ConfigError("a schema in JSON is a list of fields, or an object with 'fields'")
    return from_json(value)


def dumps(schema: TableSchema) -> bytes:
    """Returns the schema as compact JSON; equal schemas give equal bytes."""
    text = json.dumps(to_json(schema), ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _field_from_json(value: Any, owner: str) -> Field:
    if not isinstance(value, Mapping) or not value.get("name") or not value.get("type"):
        raise ConfigError(f"a field needs 'name' and 'type', got {value!r}", column=owner or None)
    path = f"{owner}.{value['name']}" if owner else str(value["name"])
    facts: dict[str, Any] = {ours: value[theirs] for theirs, ours in _TEXTS if value.get(theirs)}
    for theirs, ours in _NUMBERS:
        if value.get(theirs) is not None:
            facts[ours] = _number(value[theirs], theirs, path)
    element = value.get("rangeElementType")
    if element:
        facts["range_element_type"] = element["type"] if isinstance(element, Mapping) else element
    return Field(
        name=value["name"],
        type=value["type"],
        mode=value.get("mode") or "NULLABLE",
        fields=tuple(_field_from_json(inner, path) for inner in value.get("fields") or ()),
        policy_tags=tuple((value.get("policyTags") or {}).get("names") or ()),
        **facts,
    )


def _number(value: Any, name: str, path: str) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be a whole number, got {value!r}", column=path) from error


def _field_to_json(field: Field) -> dict[str, Any]:
    out: dict[str, Any] = {"name": field.name, "type": field.type}
    if field.mode != "NULLABLE":
        out["mode"] = field.mode
    if field.fields:
        out["fields"] = [_field_to_json(inner) for inner in field.fields]
    for theirs, ours in _NUMBERS:
        if getattr(field, ours) is not None:
            out[theirs] = str(getattr(field, ours))
    if field.range_element_type:
        out["rangeElementType"] = {"type": field.range_element_type}
    for theirs, ours in _TEXTS:
        if getattr(field, ours) is not None:
            out[theirs] = getattr(field, ours)
    if field.policy_tags:
        out["policyTags"] = {"names": list(field.policy_tags)}
    return out
