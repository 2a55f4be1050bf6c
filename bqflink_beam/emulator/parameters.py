"""Query parameters: REST's ``queryParameters`` to constants of a query."""

from collections.abc import Mapping, Sequence
from typing import Any

from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql.kinds import Kind, array_of
from bqflink_beam.emulator.sql.literals import parse_constant, typed_of
from bqflink_beam.emulator.sql.scope import Scalar
from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import canonical_type


def read_parameters(
    configuration: Mapping[str, Any],
) -> tuple[dict[str, Scalar], list[Scalar]]:
    """Returns the named and the positional parameters of a query configuration.

    Raises:
        Refused: one of them is no value of its type, or the two kinds are mixed.
    """
    parameters: Sequence[Mapping[str, Any]] = configuration.get("queryParameters") or ()
    named: dict[str, Scalar] = {}
    positional: list[Scalar] = []
    for parameter in parameters:
        kind = _kind(parameter.get("parameterType") or {})
        value = typed_of(_value(parameter.get("parameterValue") or {}, kind), kind)
        if parameter.get("name"):
            named[parameter["name"]] = value
        else:
            positional.append(value)
    if named and positional:
        raise invalid("Named and positional query parameters cannot be mixed")
    return named, positional


def _kind(resource: Any) -> Kind:
    if not isinstance(resource, Mapping):
        raise invalid(f"Invalid query parameter type: {resource!r}")
    name = str(resource.get("type", "")).upper()
    if name == "ARRAY":
        return array_of(_kind(resource.get("arrayType") or {}))
    if name in ("STRUCT", "RECORD"):
        fields = resource.get("structTypes") or ()
        return Kind(
            "STRUCT", None, tuple((f.get("name", ""), _kind(f.get("type") or {})) for f in fields)
        )
    if name == "RANGE":
        return Kind("RANGE", _kind(resource.get("rangeElementType") or {}))
    try:
        return Kind(canonical_type(name))
    except ConfigError as error:
        raise invalid(f"Invalid query parameter type: {error}") from None


def _value(resource: Any, kind: Kind) -> Any:
    if not isinstance(resource, Mapping):
        raise invalid(f"Invalid query parameter value: {resource!r}")
    if kind.name == "ARRAY" and kind.element:
        if "arrayValues" not in resource:
            return [] if not resource else None
        return [_value(item, kind.element) for item in resource["arrayValues"]]
    if kind.name == "STRUCT":
        values = resource.get("structValues") or {}
        return {name: _value(values.get(name) or {}, inner) for name, inner in kind.fields}
    if kind.name == "RANGE" and kind.element:
        bounds = resource.get("rangeValue")
        if bounds is None:
            return None
        return {which: _value(bounds.get(which) or {}, kind.element) for which in ("start", "end")}
    text = resource.get("value")
    if text is None:
        return None
    try:
        return parse_constant(str(text), kind)
    except Refused as refused:
        raise invalid(f"Invalid value for a query parameter of type {kind}: {refused}") from None
