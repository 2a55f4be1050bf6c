"""JSON_VALUE and its kin, and the functions that turn a JSON value into one of another type."""

import json

from bqflink_beam.emulator.sql import exact, jsontexts
from bqflink_beam.emulator.sql.casts import cast, coerce
from bqflink_beam.emulator.sql.expressions import Env
from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.sql.kinds import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    JSON,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    array_of,
)
from bqflink_beam.emulator.sql.named import NamedReader, arity, register_named
from bqflink_beam.emulator.sql.scope import Scalar, quote_text

_PARTS = {"scalar": STRING, "part": JSON, "parts": array_of(JSON), "scalars": array_of(STRING)}
"""What a function takes out of a JSON value; of a text, JSON is STRING."""


def _path(arguments: list[Scalar], name: str, *, legacy: bool) -> str:
    if len(arguments) == 1:
        return "[]"
    path = arguments[1].literal
    if not isinstance(path, str):
        raise unsupported(f"{name} with a path that is no literal")
    return json.dumps(jsontexts.path_of(path, legacy=legacy))


def _extraction(name: str, what: str) -> NamedReader:
    legacy = name.startswith("JSON_EXTRACT")

    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        arity(arguments, range(1, 3), name)
        path = quote_text(_path(arguments, name, legacy=legacy))
        value = arguments[0]
        if value.kind == JSON:
            return Scalar(env.plan.call(f"json_value_{what}", value.sql, path), _PARTS[what])
        text = coerce(env.plan, value, STRING, name)
        result = array_of(STRING) if what.endswith("s") else STRING
        return Scalar(env.plan.call(f"json_text_{what}", text.sql, path), result)

    return read


def _conversion(function: str, kind: Kind) -> NamedReader:
    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        (value,) = arity(arguments, 1, kind.name)
        if value.kind != JSON:
            raise InvalidQuery(f"No matching signature for {kind.name} for type {value.kind}")
        return Scalar(env.plan.call(function, value.sql), kind)

    return read


def _string(env: Env, arguments: list[Scalar]) -> Scalar:
    """``STRING(x)`` of JSON, or of a date or time."""
    (value,) = arity(arguments, 1, "STRING") if len(arguments) != 2 else (arguments[0],)
    if len(arguments) == 2:
        raise unsupported("STRING with a time zone")
    if value.kind == JSON:
        return Scalar(env.plan.call("json_to_string", value.sql), STRING)
    if value.kind not in (DATE, TIME, DATETIME, TIMESTAMP):
        raise InvalidQuery(f"No matching signature for STRING for type {value.kind}")
    return cast(env.plan, value, STRING)


def _type(env: Env, arguments: list[Scalar]) -> Scalar:
    (value,) = arity(arguments, 1, "JSON_TYPE")
    return Scalar(
        env.plan.call("json_kind", coerce(env.plan, value, JSON, "JSON_TYPE").sql), STRING
    )


_V = "VARCHAR"
_BODIES = {
    "text_scalar": jsontexts.text_scalar,
    "value_scalar": jsontexts.value_scalar,
    "text_part": jsontexts.text_part,
    "value_part": jsontexts.value_part,
}
_LISTS = {
    "text_parts": jsontexts.text_parts,
    "value_parts": jsontexts.value_parts,
    "text_scalars": jsontexts.text_scalars,
    "value_scalars": jsontexts.value_scalars,
}
exact.add(
    {
        **{f"json_{name}": exact.Exact(body, (_V, _V), _V) for name, body in _BODIES.items()},
        **{
            f"json_{name}": exact.Exact(body, (_V, _V), "VARCHAR[]")
            for name, body in _LISTS.items()
        },
        "json_field": exact.Exact(jsontexts.field, (_V, _V), _V),
        "json_element": exact.Exact(jsontexts.element, (_V, "BIGINT"), _V),
        "json_normal": exact.Exact(jsontexts.normal, (_V,), _V),
        "json_kind": exact.Exact(jsontexts.kind_of, (_V,), _V),
        "json_quoted": exact.Exact(jsontexts.quoted, (_V,), _V),
        "json_to_int64": exact.Exact(jsontexts.to_int64, (_V,), "BIGINT"),
        "json_to_float64": exact.Exact(jsontexts.to_float64, (_V,), "DOUBLE"),
        "json_to_bool": exact.Exact(jsontexts.to_bool, (_V,), "BOOLEAN"),
        "json_to_string": exact.Exact(jsontexts.to_string, (_V,), _V),
    }
)
register_named(
    {
        **{name: _extraction(name, "scalar") for name in ("JSON_VALUE", "JSON_EXTRACT_SCALAR")},
        **{name: _extraction(name, "part") for name in ("JSON_QUERY", "JSON_EXTRACT")},
        **{name: _extraction(name, "parts") for name in ("JSON_QUERY_ARRAY", "JSON_EXTRACT_ARRAY")},
        **{
            name: _extraction(name, "scalars")
            for name in ("JSON_VALUE_ARRAY", "JSON_EXTRACT_STRING_ARRAY")
        },
        "INT64": _conversion("json_to_int64", INT64),
        "FLOAT64": _conversion("json_to_float64", FLOAT64),
        "BOOL": _conversion("json_to_bool", BOOL),
        "STRING": _string,
        "JSON_TYPE": _type,
    }
)
