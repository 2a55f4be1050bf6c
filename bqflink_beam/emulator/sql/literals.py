"""Values to SQL: the one place where a Python value is written into a query."""

import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal

from bqflink_beam.emulator.sql import exact
from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.sql.kinds import Kind, big_to_key, duckdb_type, quote_name
from bqflink_beam.emulator.sql.scope import NOT_LITERAL, Scalar, quote_text

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc).replace(tzinfo=None)
_MICRO = datetime.timedelta(microseconds=1)


def value_sql(value: object, kind: Kind) -> str:
    """Returns a Python value as DuckDB text of a type.

    TIMESTAMP values are naive datetimes in UTC, BIGNUMERIC values are Decimals.
    """
    target = duckdb_type(kind)
    if value is None:
        return f"CAST(NULL AS {target})"
    if kind.name == "ARRAY" and kind.element and isinstance(value, Sequence):
        items = ", ".join(value_sql(item, kind.element) for item in value)
        return f"CAST([{items}] AS {target})"
    if kind.name == "STRUCT" and isinstance(value, Mapping):
        inner = ", ".join(
            f"{quote_name(name)} := {value_sql(item, k)}"
            for (name, k), item in zip(kind.fields, value.values(), strict=True)
        )
        return f"struct_pack({inner})"
    if kind.name == "RANGE" and kind.element and isinstance(value, Mapping):
        start, end = (value_sql(value[bound], kind.element) for bound in ("start", "end"))
        return f'struct_pack("start" := {start}, "end" := {end})'
    if kind.name not in _SCALARS:
        raise unsupported(f"A constant of type {kind}")
    return _SCALARS[kind.name](value)


def _timestamp(value: object) -> str:
    assert isinstance(value, datetime.datetime)
    return f"make_timestamp(CAST({(value - _EPOCH) // _MICRO} AS BIGINT))"


def _big(value: object) -> str:
    assert isinstance(value, Decimal)
    return f"unhex('{big_to_key(value).hex()}')"


_SCALARS: dict[str, Callable[[object], str]] = {
    "INT64": lambda value: f"CAST('{value}' AS BIGINT)",
    "FLOAT64": lambda value: f"CAST('{value!r}' AS DOUBLE)",
    "BOOL": lambda value: "TRUE" if value else "FALSE",
    "STRING": lambda value: quote_text(str(value)),
    "JSON": lambda value: quote_text(str(value)),
    "GEOGRAPHY": lambda value: quote_text(str(value)),
    "BYTES": lambda value: f"unhex('{value.hex()}')" if isinstance(value, bytes) else "",
    "NUMERIC": lambda value: f"CAST('{value:f}' AS DECIMAL(38,9))",
    "BIGNUMERIC": _big,
    "DATE": lambda value: f"CAST('{value}' AS DATE)",
    "TIME": lambda value: f"CAST('{value}' AS TIME)",
    "DATETIME": _timestamp,
    "TIMESTAMP": _timestamp,
}

_PARSERS: dict[str, Callable[[str], object]] = {
    "INT64": exact.parse_int64,
    "FLOAT64": exact.parse_float64,
    "BOOL": exact.parse_bool,
    "NUMERIC": exact.parse_numeric,
    "BIGNUMERIC": exact.parse_decimal,
    "DATE": exact.parse_date,
    "TIME": exact.parse_time,
    "DATETIME": exact.parse_datetime,
    "TIMESTAMP": exact.parse_timestamp,
    "JSON": exact.parse_json,
    "STRING": str,
    "GEOGRAPHY": str,
    "BYTES": exact.parse_base64,
}


def literal_of(value: object, kind: Kind) -> Scalar:
    """Returns a literal: a Scalar that knows its value."""
    return Scalar(value_sql(value, kind), kind, value)


def typed_of(value: object, kind: Kind) -> Scalar:
    """Returns a constant that is no literal, such as a query parameter: it coerces less."""
    return Scalar(value_sql(value, kind), kind, NOT_LITERAL)


def parsed_text(text: str, kind: Kind) -> Scalar:
    """Returns the constant that a text means as a type: ``DATE '2020-01-31'``.

    Raises:
        InvalidQuery: the text is no such value.
    """
    if kind.name == "RANGE" and kind.element:
        return _range(text, kind, kind.element)
    return typed_of(parse_constant(text, kind), kind)


def parse_constant(text: str, kind: Kind) -> object:
    """Returns the Python value that a text means as a type.

    Raises:
        InvalidQuery: it is no such value.
    """
    parser = _PARSERS.get(kind.name)
    if parser is None:
        raise InvalidQuery(f"Could not cast literal {text!r} to type {kind}")
    return parser(text)


def _range(text: str, kind: Kind, element: Kind) -> Scalar:
    inner = text.strip()
    bounds = [part.strip() for part in inner[1:-1].split(",")]
    if not (inner.startswith("[") and inner.endswith(")")) or len(bounds) != 2:
        raise InvalidQuery(f"Invalid RANGE value: {text}")
    start, end = (
        None if bound.upper() in ("UNBOUNDED", "NULL") else _PARSERS[element.name](bound)
        for bound in bounds
    )
    return typed_of({"start": start, "end": end}, kind)
