"""The schema that Python rows, or the class of such rows, call for."""

import collections
import dataclasses
import datetime
import decimal
import enum
import types
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bqflink_beam.codec.temporals import SPANS, is_whole
from bqflink_beam.errors import ConfigError, shorten
from bqflink_beam.schema.arrow import decimal_kind
from bqflink_beam.schema.model import TYPES, Field, TableSchema

# Of two types seen in one column, the one that holds values of both.
_WIDER = {
    frozenset({"INT64", "FLOAT64"}): "FLOAT64",
    frozenset({"INT64", "NUMERIC"}): "NUMERIC",
    frozenset({"INT64", "BIGNUMERIC"}): "BIGNUMERIC",
    frozenset({"NUMERIC", "BIGNUMERIC"}): "BIGNUMERIC",
}
_SIMPLE: tuple[tuple[Any, str], ...] = (
    ((bool, np.bool_), "BOOL"),
    ((float, np.floating), "FLOAT64"),
    ((str, uuid.UUID), "STRING"),
    ((bytes, bytearray, memoryview), "BYTES"),
    (datetime.date, "DATE"),
    (datetime.time, "TIME"),
)


def from_rows(rows: Iterable[Mapping[str, Any]]) -> TableSchema:
    """Returns the schema that holds all of some rows; every column NULLABLE or REPEATED.

    Decimals are NUMERIC where their digits allow, else BIGNUMERIC; ints beyond 64 bits
    too. A `datetime` with a zone is a TIMESTAMP, one without a DATETIME.

    Raises:
        ConfigError: a column with values of two types, or with none to tell its type.
    """
    return TableSchema(_fields_of(list(rows), ""))


def from_class(kind: type) -> TableSchema:
    """Returns the schema of a NamedTuple, a dataclass or a TypedDict.

    ``X | None`` is NULLABLE, as is a key that a TypedDict may lack, ``X`` alone REQUIRED,
    ``list[X]`` REPEATED, a class of this kind a STRUCT, a bare dict JSON, a `datetime` a
    TIMESTAMP, a `Decimal` a NUMERIC; ``Annotated[datetime, "DATETIME"]`` says otherwise.

    Raises:
        ConfigError: a field has a type that is no column's.
    """
    return TableSchema(_class_fields(kind, ""))


# --- rows ------------------------------------------------------------------------------


def _fields_of(rows: Sequence[Any], owner: str) -> tuple[Field, ...]:
    seen: dict[str, tuple[str, list[Any]]] = {}
    for row in rows:
        if not isinstance(row, Mapping):
            raise ConfigError(f"a row must be a mapping, got {shorten(row)}", column=owner or None)
        for name, value in row.items():
            seen.setdefault(str(name).lower(), (str(name), []))[1].append(value)
    return tuple(
        _field_of(name, [value for value in found if value is not None], f"{owner}{name}")
        for name, found in seen.values()
    )


def _field_of(name: str, found: list[Any], path: str) -> Field:
    lists = [value for value in found if _is_list(value)]
    if lists and len(lists) < len(found):
        raise ConfigError(f"{path} is a list in some rows and not in others", column=path)
    mode = "REPEATED" if lists else "NULLABLE"
    values = [item for value in lists for item in value if item is not None] if lists else found
    if any(isinstance(value, Mapping) for value in values):
        return Field(name=name, type="STRUCT", mode=mode, fields=_fields_of(values, f"{path}."))
    if not values:
        raise ConfigError(f"{path} has no value that tells its type; give a schema", column=path)
    return Field(name=name, mode=mode, **_common(values, path))


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)


def _common(values: list[Any], path: str) -> dict[str, Any]:
    kinds = {tuple(sorted(_kind(value, path).items())) for value in values}
    found = [dict(kind) for kind in sorted(kinds)]
    first = found[0]
    for other in found[1:]:
        wider = _WIDER.get(frozenset({first["type"], other["type"]}))
        if wider is None:
            raise ConfigError(
                f"{path} is {first['type']} in some rows and {other['type']} in others",
                column=path,
            )
        first = {"type": wider}
    return first


def _kind(value: Any, path: str) -> dict[str, Any]:
    if isinstance(value, enum.Enum) and isinstance(value.value, str):
        return {"type": "STRING"}
    if isinstance(value, datetime.datetime):
        return {"type": "DATETIME" if value.tzinfo is None else "TIMESTAMP"}
    if isinstance(value, np.datetime64):
        return {"type": "DATETIME"}
    for kinds, name in _SIMPLE:
        if isinstance(value, kinds):
            return {"type": name}
    if isinstance(value, (int, np.integer)) and not isinstance(value, np.timedelta64):
        return {"type": _integer(int(value), path)}
    if isinstance(value, decimal.Decimal):
        return {"type": _decimal(value, path)}
    return _our_kind(value, path)


def _our_kind(value: Any, path: str) -> dict[str, Any]:
    """Tells values by their form: `Range`, `Interval`, and moments that have `micros`."""
    if {"start", "end"} <= getattr(value, "__dataclass_fields__", {}).keys():
        bound = value.start if value.start is not None else value.end
        if bound is not None:
            return {"type": "RANGE", "range_element_type": _kind(bound, path)["type"]}
    elif {"months", "days", "micros"} <= getattr(value, "__dataclass_fields__", {}).keys():
        return {"type": "INTERVAL"}
    elif is_whole(getattr(value, "micros", None)) and type(value).__name__ not in SPANS:
        return {"type": "TIMESTAMP"}
    raise ConfigError(
        f"{path}: no column type is known for {shorten(value)} ({type(value).__name__})",
        column=path,
    )


def _integer(value: int, path: str) -> str:
    if -(2**63) <= value < 2**63:
        return "INT64"
    # Not its text, which Python refuses to make of a number that is long enough.
    digits = next((digits for digits in (29, 38) if abs(value) < 10**digits), 39)
    return decimal_kind(digits, 0, path)


def _decimal(value: decimal.Decimal, path: str) -> str:
    if not value.is_finite():
        raise ConfigError(f"{path}: {value} is not a finite number", column=path)
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    return decimal_kind(max(len(digits) + int(exponent), 0) + scale, scale, path)


# --- classes ---------------------------------------------------------------------------


_CLASSES: dict[Any, str] = {
    bool: "BOOL",
    int: "INT64",
    float: "FLOAT64",
    str: "STRING",
    bytes: "BYTES",
    decimal.Decimal: "NUMERIC",
    datetime.datetime: "TIMESTAMP",
    datetime.date: "DATE",
    datetime.time: "TIME",
    uuid.UUID: "STRING",
    dict: "JSON",
}


# Values of what is made from these are taken too, an IntEnum's for example.
_BASES: tuple[tuple[type, str], ...] = (
    (np.bool_, "BOOL"),
    (np.integer, "INT64"),
    (np.floating, "FLOAT64"),
    (int, "INT64"),
    (float, "FLOAT64"),
    (str, "STRING"),
    (bytes, "BYTES"),
    (decimal.Decimal, "NUMERIC"),
)


def _class_fields(kind: Any, owner: str) -> tuple[Field, ...]:
    if not _has_fields(kind):
        raise ConfigError(f"a row class is a NamedTuple, a dataclass or a TypedDict, got {kind!r}")
    hints = typing.get_type_hints(kind, include_extras=True)
    optional = getattr(kind, "__optional_keys__", ())
    return tuple(
        _class_field(name, hint, f"{owner}{name}", optional=name in optional)
        for name, hint in hints.items()
    )


def _class_field(name: str, hint: Any, path: str, *, optional: bool) -> Field:
    inner, declared = _unwrapped(hint, None)
    inner, nullable = _without_none(inner, path)
    inner, declared = _unwrapped(inner, declared)
    mode = "NULLABLE" if nullable or optional else "REQUIRED"
    if typing.get_origin(inner) in (list, tuple, collections.abc.Sequence):
        item, *others = typing.get_args(inner)
        if others not in ([], [...]):
            raise ConfigError(f"{path}: an ARRAY has items of one type, got {inner!r}", column=path)
        inner, declared = _unwrapped(item, declared)
        mode = "REPEATED"
    if declared:
        return Field(name=name, type=declared, mode=mode)
    if _has_fields(inner):
        return Field(name=name, type="STRUCT", mode=mode, fields=_class_fields(inner, f"{path}."))
    return Field(name=name, type=type_of(inner, path), mode=mode)


def type_of(kind: Any, path: str) -> str:
    """Returns the column type for values of one class.

    Raises:
        ConfigError: there is none; `path` is the column named.
    """
    kind = typing.get_origin(kind) or kind
    if kind in _CLASSES:
        return _CLASSES[kind]
    if isinstance(kind, type):
        for base, name in _BASES:
            if issubclass(kind, base):
                return name
        if issubclass(kind, enum.Enum) and all(isinstance(each.value, str) for each in kind):
            return "STRING"
        if hasattr(kind, "to_utc_datetime"):
            return "TIMESTAMP"
    raise ConfigError(f"{path}: no column type is known for {kind!r}", column=path)


def _unwrapped(hint: Any, declared: str | None) -> tuple[Any, str | None]:
    """Returns what stands within Annotated, Required and NotRequired, and the type they name."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        named = [str(each) for each in arguments[1:] if str(each).upper() in TYPES]
        return _unwrapped(arguments[0], declared or (named[0] if named else None))
    if getattr(origin, "_name", None) in ("Required", "NotRequired"):
        return _unwrapped(arguments[0], declared)
    return hint, declared


def _without_none(hint: Any, path: str) -> tuple[Any, bool]:
    if typing.get_origin(hint) not in (typing.Union, types.UnionType):
        return hint, False
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    if len(kinds) != 1:
        raise ConfigError(f"{path}: a column has one type, got {hint!r}", column=path)
    return kinds[0], True


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (
        dataclasses.is_dataclass(kind)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
        or hasattr(kind, "__optional_keys__")  # a TypedDict, of typing or typing_extensions
    )
