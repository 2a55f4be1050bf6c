"""JSON values to the values of a column, by the rules of JSON loads and of insertAll.

Numbers arrive with their digits (`loads`), so that a NUMERIC is what the text says.
"""

import base64
import binascii
import datetime
import decimal
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator import literals, types
from bqflink_beam.schema.model import Field

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_INTEGER = re.compile(r"[+-]?\d+\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NO_NUMBERS = frozenset({"inf", "infinity", "nan"})
_EXPONENT_MAX = 400
_WIDE = decimal.Context(prec=400)


class BadValue(ValueError):
    """A value that its column cannot take. `path` names the field."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


def loads(text: str | bytes) -> Any:
    """Parses JSON; numbers with a point become `Decimal`."""
    return json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def dumps(value: Any) -> str:
    """Returns a parsed value as the JSON text that a JSON column keeps."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return (
            int(value)
            if value == value.to_integral_value() and "." not in str(value)
            else float(value)
        )
    raise TypeError(f"{type(value).__name__} is no JSON value")


def row_values(
    fields: Sequence[Field],
    row: Any,
    *,
    ignore_unknown: bool,
    json_text: bool = False,
    path: str = "",
) -> dict[str, Any]:
    """Returns the values of one JSON object by the exact names of its fields.

    Fields that are absent stay absent.

    Args:
        json_text: a string for a JSON column is a text with JSON in it, as insertAll reads
            it, and not a JSON string, as load jobs do.

    Raises:
        BadValue: it is no object, has an unknown field, or a value of another type.
    """
    if not isinstance(row, Mapping):
        raise BadValue(path.rstrip("."), f"This field: {path.rstrip('.')} is not a record.")
    known = {field.name.lower(): field for field in fields}
    result: dict[str, Any] = {}
    for name, value in row.items():
        field = known.get(name.lower())
        if field is None:
            if ignore_unknown:
                continue
            raise BadValue(path + name, f"no such field: {path}{name}.")
        result[field.name] = field_value(
            field, value, path, ignore_unknown=ignore_unknown, json_text=json_text
        )
    return result


def field_value(
    field: Field, value: Any, path: str, *, ignore_unknown: bool, json_text: bool = False
) -> Any:
    """Returns a JSON value as a value of a field, a list if it is REPEATED."""
    name = path + field.name
    if not field.repeated:
        return _element(field, value, name, ignore_unknown, json_text)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadValue(name, f"Array specified for non-repeated field or the reverse: {name}.")
    if any(item is None for item in value):
        raise BadValue(name, f"Only optional fields can be set to NULL. Field: {name}; Value: NULL")
    return [_element(field, item, name, ignore_unknown, json_text) for item in value]


def _element(field: Field, value: Any, name: str, ignore_unknown: bool, json_text: bool) -> Any:
    if value is None:
        # A JSON null is a value of its type; NDJSON has no other way to say NULL, though.
        return None
    if field.type == "JSON":
        # Whether it is JSON is checked with the batch, as for every other way in.
        return value if json_text and isinstance(value, str) else dumps(value)
    if field.type == "STRUCT":
        return row_values(
            field.fields,
            value,
            ignore_unknown=ignore_unknown,
            json_text=json_text,
            path=f"{name}.",
        )
    if isinstance(value, list | Mapping) and field.type != "RANGE":
        kind = "Array" if isinstance(value, list) else "Record"
        raise BadValue(name, f"{kind} specified for field of another type: {name}.")
    try:
        if types.is_picos(field):
            return literals.picos_text(str(value))
        if field.type == "RANGE":
            return _range(field, value)
        return SCALARS[field.type](value)
    except (ValueError, decimal.InvalidOperation, OverflowError) as error:
        raise BadValue(
            name,
            f"Could not convert value to {_WORDS.get(field.type, field.type.lower())}. "
            f"Field: {name}; Value: {_short(value)} ({error})",
        ) from None


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 100 else text[:100] + "..."


_WORDS = {"INT64": "integer", "FLOAT64": "double", "BOOL": "boolean"}


def _range(field: Field, value: Any) -> dict[str, Any]:
    element = SCALARS[field.range_element_type or "DATE"]
    if isinstance(value, Mapping):
        return {
            bound: None if value.get(bound) is None else element(value[bound])
            for bound in ("start", "end")
        }
    text = str(value).strip()
    parts = text[1:-1].split(",")
    if not (text.startswith("[") and text.endswith(")")) or len(parts) != 2:
        raise ValueError("not a range")
    bounds = [
        None if p.strip().upper() in ("UNBOUNDED", "NULL") else element(p.strip()) for p in parts
    ]
    return {"start": bounds[0], "end": bounds[1]}


# --- scalars ------------------------------------------------------------------------------


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("BYTES are base64 text")
    text = value.replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _number(value: Any) -> Decimal:
    text = str(value).strip()
    if _NUMBER.fullmatch(text) is None:
        raise ValueError("not a number")
    number = Decimal(text)
    # Before it becomes an integer, which takes minutes for the digits of 1e999000.
    if number and abs(number.adjusted()) > _EXPONENT_MAX:
        raise ValueError("out of range")
    return number


def _int64(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("a boolean")
    if isinstance(value, str):
        if not _INTEGER.match(value.strip()):
            raise ValueError("not an integer")
        number = int(value)
    elif isinstance(value, Decimal | float):
        value = _number(value)
        number = int(value)
        if number != value:
            raise ValueError("not a whole number")
    else:
        number = int(value)
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError("out of range")
    return number


def _float64(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("a boolean")
    if isinstance(value, str) and value.strip().lower().lstrip("+-") not in _NO_NUMBERS:
        _number(value)
    number = float(value)
    if math.isinf(number) and not isinstance(value, str):
        raise ValueError("out of range")
    return number


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    lowered = str(value).strip().lower()
    if lowered in ("true", "t", "yes", "y", "1"):
        return True
    if lowered in ("false", "f", "no", "n", "0"):
        return False
    raise ValueError("not a boolean")


def _decimal(scale: int, unscaled_min: int, unscaled_max: int) -> Callable[[Any], Decimal]:
    unit = Decimal(1).scaleb(-scale)
    least = Decimal(unscaled_min).scaleb(-scale, _WIDE)
    largest = Decimal(unscaled_max).scaleb(-scale, _WIDE)

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool):
            raise ValueError("a boolean")
        number = _number(value)
        if not number.is_finite():
            raise ValueError("not a finite number")
        rounded = number.quantize(unit, decimal.ROUND_HALF_UP, _WIDE)
        # Not abs(), which would round to 28 digits.
        if not least <= rounded <= largest:
            raise ValueError("out of range")
        return rounded

    return convert


def _date(value: Any) -> datetime.date:
    return datetime.date(1970, 1, 1) + datetime.timedelta(literals.days_from_text(str(value)))


def _time(value: Any) -> datetime.time:
    return (_EPOCH + datetime.timedelta(microseconds=literals.time_micros(str(value)))).time()


def _datetime(value: Any) -> datetime.datetime:
    micros = literals.datetime_micros(str(value))
    return (_EPOCH + datetime.timedelta(microseconds=micros)).replace(tzinfo=None)


def _timestamp(value: Any) -> datetime.datetime:
    """Text, or seconds since 1970 (the service's reading of a number)."""
    if isinstance(value, bool):
        raise ValueError("a boolean")
    if isinstance(value, int | float | Decimal) or _NUMBER.fullmatch(value):
        micros = int(_WIDE.multiply(_number(value), Decimal(1_000_000)).to_integral_value())
    else:
        micros, rest = divmod(literals.timestamp_picos(value), 10**6)
        if rest:
            raise ValueError("more than six fractional digits")
    return _EPOCH + datetime.timedelta(microseconds=micros)


def _interval(value: Any) -> Any:
    return pa.MonthDayNano(literals.interval_from_text(str(value)))


SCALARS: dict[str, Callable[[Any], Any]] = {
    "STRING": _string,
    "GEOGRAPHY": _string,
    "JSON": _string,
    "BYTES": _bytes,
    "INT64": _int64,
    "FLOAT64": _float64,
    "BOOL": _bool,
    "NUMERIC": _decimal(9, 1 - 10**38, 10**38 - 1),
    "BIGNUMERIC": _decimal(38, -(2**255), 2**255 - 1),
    "DATE": _date,
    "TIME": _time,
    "DATETIME": _datetime,
    "TIMESTAMP": _timestamp,
    "INTERVAL": _interval,
}
"""By type, what makes a value of a JSON value (or of a CSV cell's text); raises ValueError."""
