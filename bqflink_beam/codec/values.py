"""What a column of each type accepts from Python, and what it becomes.

`converter` returns the one function that decides for a column, whatever the wire
format: it returns the value in plain form (int, float, bool, str, bytes, Decimal;
temporals as the integers of `temporals`; `Interval`; a pair for RANGE), or raises
`RowError` with the reason. Nothing is ever changed silently: no float becomes an
INT64, no digit of a NUMERIC is dropped, no text is cut.
"""

import dataclasses
import decimal
import enum
import json
import re
import sys
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bqflink_beam.codec import temporals
from bqflink_beam.codec.temporals import refusal
from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import Field

Convert = Callable[[Any], Any]

_FLOAT_MAX = int(sys.float_info.max)
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
_WIDE = decimal.Context(prec=100)
_ZERO, _ONE = decimal.Decimal(0), decimal.Decimal(1)
BIGNUMERIC_MAX = decimal.Decimal(2**255 - 1).scaleb(-38, _WIDE)
BIGNUMERIC_MIN = decimal.Decimal(-(2**255)).scaleb(-38, _WIDE)
NUMERIC_DIGITS, NUMERIC_SCALE = 38, 9
BIGNUMERIC_DIGITS, BIGNUMERIC_SCALE = 77, 38

_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_ROUNDINGS = {
    decimal.ROUND_CEILING,
    decimal.ROUND_DOWN,
    decimal.ROUND_FLOOR,
    decimal.ROUND_HALF_DOWN,
    decimal.ROUND_HALF_EVEN,
    decimal.ROUND_HALF_UP,
    decimal.ROUND_UP,
}
_MONTHS_MAX, _DAYS_MAX = 120_000, 3_660_000
# BigQuery itself takes 34 times as much, but Arrow, in which it is read, has nanoseconds.
_MICROS_MAX = (2**63 - 1) // 1_000
_INTERVAL_TEXT = re.compile(
    r"(?P<ym>[+-]?)(?P<years>\d+)-(?P<months>\d+) (?P<days>[+-]?\d+) "
    r"(?P<hms>[+-]?)(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,9}))?",
    re.ASCII,
)
_DURATION_TEXT = re.compile(
    r"P(?:(?P<years>[+-]?\d+)Y)?(?:(?P<months>[+-]?\d+)M)?(?:(?P<days>[+-]?\d+)D)?"
    r"(?:T(?:(?P<hours>[+-]?\d+)H)?(?:(?P<minutes>[+-]?\d+)M)?"
    r"(?:(?P<seconds>[+-]?\d+)(?:\.(?P<fraction>\d{1,9}))?S)?)?",
    re.ASCII,
)
_ENDS = ("start", "end")
_RANGE_TEXT = re.compile(r"\[\s*(?P<start>[^,\[\]]+?)\s*,\s*(?P<end>[^,\[\]]+?)\s*\)")
_OPEN = {"UNBOUNDED", "NULL"}


@dataclasses.dataclass(frozen=True)
class Interval:
    """An INTERVAL: three parts that BigQuery keeps apart, each with its own sign.

    `str()` gives BigQuery's text, ``years-months days hours:minutes:seconds.micros``.
    """

    months: int = 0
    days: int = 0
    micros: int = 0

    def __str__(self) -> str:
        years, months = divmod(abs(self.months), 12)
        seconds, micros = divmod(abs(self.micros), 1_000_000)
        minutes, second = divmod(seconds, 60)
        hours, minute = divmod(minutes, 60)
        return (
            f"{'-' if self.months < 0 else ''}{years}-{months} {self.days} "
            f"{'-' if self.micros < 0 else ''}{hours}:{minute}:{second}"
            + (f".{micros:06d}" if micros else "")
        )


@dataclasses.dataclass(frozen=True)
class Range:
    """A RANGE ``[start, end)`` of dates, datetimes or timestamps; None is an open end."""

    start: Any = None
    end: Any = None


def check_rounding(rounding: str | None) -> None:
    """Refuses a `rounding` that is not a constant of `decimal` (``decimal.ROUND_HALF_EVEN``…)."""
    if rounding is not None and rounding not in _ROUNDINGS:
        raise ConfigError(f"rounding must be one of {sorted(_ROUNDINGS)}, got {rounding!r}")


def converter(field: Field, rounding: str | None = None) -> Convert:
    """Returns the function that reads one value (one item, if REPEATED) of a column.

    Args:
        field: any column but a STRUCT, which is many columns.
        rounding: how temporals lose what is below a microsecond; None refuses them.
    """
    kind = field.type
    if kind == "STRING":
        return _limited(string, field.max_length, "characters") if field.max_length else string
    if kind == "BYTES":
        return _limited(bytes_, field.max_length, "bytes") if field.max_length else bytes_
    if kind in ("NUMERIC", "BIGNUMERIC"):
        return _numeric(field)
    if kind == "RANGE":
        return _range(field.range_element_type or "", rounding)
    if kind == "TIMESTAMP" and field.timestamp_precision == 12:
        return temporals.instant_picos
    if kind in _TEMPORALS:
        read = _TEMPORALS[kind]
        return read if rounding is None else lambda value: read(value, rounding)
    return _PLAIN[kind]


def int64(value: Any) -> int:
    """Reads an INT64: int, numpy integers, IntEnum. Never a float, a bool or text."""
    if isinstance(value, (bool, np.bool_)):
        raise refusal(value, "is a bool, not a number")
    if not temporals.is_whole(value):
        raise refusal(value, "is not an int; convert it where a loss can be seen")
    number = int(value)
    if not INT64_MIN <= number <= INT64_MAX:
        raise refusal(value, "is beyond 64 bits")
    return number


def float64(value: Any) -> float:
    """Reads a FLOAT64: float, numpy floats, and ints that a double holds exactly."""
    if isinstance(value, (bool, np.bool_)):
        raise refusal(value, "is a bool, not a number")
    if temporals.is_whole(value):
        whole = int(value)
        if abs(whole) > _FLOAT_MAX or int(float(whole)) != whole:
            raise refusal(value, "has more digits than a double holds; pass float(value)")
        return float(whole)
    if not isinstance(value, (float, np.floating)):
        raise refusal(value, "is not a float or int")
    number = float(value)
    # numpy's longdouble has more bits than a double; NaN equals nothing.
    if number != value and number == number:
        raise refusal(value, "has more digits than a double holds; pass float(value)")
    return number


def bool_(value: Any) -> bool:
    """Reads a BOOL: bool, numpy's bool. Never a number or text."""
    # Neither can be subclassed, and whatever else there is has a truth too.
    if type(value) not in (bool, np.bool_):
        raise refusal(value, "is not a bool")
    return bool(value)


def string(value: Any) -> str:
    """Reads a STRING: str, an enum of str values, UUID."""
    if isinstance(value, enum.Enum) and isinstance(value.value, str):
        value = value.value
    elif isinstance(value, uuid.UUID):
        value = str(value)
    if not isinstance(value, str):
        raise refusal(value, "is not a str")
    text = value if type(value) is str else str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise refusal(value, f"cannot be written as UTF-8: {error.reason}") from error
    return text


def bytes_(value: Any) -> bytes:
    """Reads BYTES: bytes, bytearray, memoryview. Never text, for it has no one encoding."""
    if isinstance(value, str):
        raise refusal(value, "is a str; pass value.encode(), or decode base64 first")
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise refusal(value, "is not bytes")
    return bytes(value)


def decimal_(value: Any) -> decimal.Decimal:
    """Reads a number without loss: Decimal, int, numpy integers, text; a float as it is."""
    if isinstance(value, decimal.Decimal):
        number = value if type(value) is decimal.Decimal else decimal.Decimal(value)
    elif isinstance(value, (bool, np.bool_)):
        raise refusal(value, "is a bool, not a number")
    elif temporals.is_whole(value):
        whole = int(value)
        if abs(whole) >= 10**80:
            raise refusal(value, "is beyond the type's range")
        number = decimal.Decimal(whole)
    elif isinstance(value, (float, np.floating)):
        number = decimal.Decimal(float64(value))
    elif isinstance(value, str) and _NUMBER.fullmatch(value):
        number = decimal.Decimal(value)
    else:
        raise refusal(value, "is not a Decimal, int or decimal text")
    if not number.is_finite():
        raise refusal(value, "is not a finite number; pass None for NULL")
    return number


def json_(value: Any) -> str:
    """Reads JSON: a str is JSON text and is kept as it is; anything else is dumped."""
    if isinstance(value, str):
        text = string(value)
        try:
            _JSON_TEXT.decode(text)
        except (ValueError, RecursionError) as error:
            reason = "is no JSON text (a JSON string needs its own quotes)"
            raise refusal(value, f"{reason}: {error}") from error
        return text
    try:
        _check_keys(value)
        text = _JSON_DUMP.encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise refusal(value, f"cannot be dumped as JSON: {error}") from error
    return text


def interval(value: Any) -> Interval:
    """Reads an INTERVAL: `Interval`, BigQuery's text, or an ISO 8601 duration."""
    found = value if isinstance(value, Interval) else _interval_from_text(value)
    for part, name, limit in (
        (found.months, "months", _MONTHS_MAX),
        (found.days, "days", _DAYS_MAX),
        (found.micros, "micros", _MICROS_MAX),
    ):
        if type(part) is not int or abs(part) > limit:
            raise refusal(value, f"needs {name} to be an int from -{limit} to {limit}")
    return found


def _interval_from_text(value: Any) -> Interval:
    match = None
    if isinstance(value, str):
        match = _INTERVAL_TEXT.fullmatch(value) or _DURATION_TEXT.fullmatch(value)
    if match is None or not any(match.groups()):
        raise refusal(value, "is no Interval(months, days, micros) nor text like '1-2 3 4:5:6.789'")
    part = match.groupdict()
    fraction = (part["fraction"] or "").ljust(9, "0")
    if fraction[6:].strip("0"):
        raise refusal(value, "has parts of a microsecond, which would be lost")

    def whole(name: str) -> int:
        return int(part[name] or 0)

    seconds_sign = -1 if (part["seconds"] or "").startswith("-") else 1
    micros = (whole("hours") * 60 + whole("minutes")) * 60_000_000
    micros += whole("seconds") * 1_000_000 + seconds_sign * int(fraction[:6])
    return Interval(
        (whole("years") * 12 + whole("months")) * (-1 if part.get("ym") == "-" else 1),
        whole("days"),
        micros * (-1 if part.get("hms") == "-" else 1),
    )


def _range(element: str, rounding: str | None) -> Convert:
    inner = _TEMPORALS[element]

    def read(value: Any) -> tuple[int | None, int | None]:
        if isinstance(value, str) and (match := _RANGE_TEXT.fullmatch(value)):
            bounds = tuple(None if match[end].upper() in _OPEN else match[end] for end in _ENDS)
        elif isinstance(value, Range):
            bounds = (value.start, value.end)
        else:
            raise refusal(value, "is no Range(start, end) nor text like '[2024-01-01, UNBOUNDED)'")
        start, end = (None if bound is None else inner(bound, rounding) for bound in bounds)
        if start is not None and end is not None and start >= end:
            raise refusal(value, "needs its start before its end")
        return start, end

    return read


def numeric_limits(field: Field) -> tuple[int, int]:
    """Returns how many digits a NUMERIC or BIGNUMERIC column takes before and after the point.

    Digits beyond the column's own scale are refused, unless the column says with
    `rounding_mode` how the service shall round them.
    """
    digits, scale = NUMERIC_DIGITS, NUMERIC_SCALE
    if field.type == "BIGNUMERIC":
        digits, scale = BIGNUMERIC_DIGITS, BIGNUMERIC_SCALE
    if field.precision is None:
        return digits - scale, scale
    whole = field.precision - (field.scale or 0)
    return whole, scale if field.rounding_mode else field.scale or 0


def _numeric(field: Field) -> Convert:
    """Returns the reader of a NUMERIC or BIGNUMERIC column."""
    whole_max, scale_max = numeric_limits(field)
    big = field.type == "BIGNUMERIC"

    def read(value: Any) -> decimal.Decimal:
        number = decimal_(value)
        if not number:
            return _ZERO
        if number.adjusted() >= whole_max:
            raise refusal(value, f"has more than {whole_max} digits before the point")
        _, digits, exponent = number.as_tuple()
        surplus = -int(exponent) - scale_max
        if surplus > 0:
            if any(digits[-surplus:]):
                raise refusal(value, _too_fine(value, scale_max))
            number = number.quantize(_ONE.scaleb(-scale_max), context=_WIDE)
        if big and not BIGNUMERIC_MIN <= number <= BIGNUMERIC_MAX:
            raise refusal(value, "is beyond BIGNUMERIC's range")
        return number

    return read


def _too_fine(value: Any, scale_max: int) -> str:
    reason = f"has more than {scale_max} digits after the point"
    if isinstance(value, float):
        reason += f": as a float it is {decimal.Decimal(value)!s:.40}; pass Decimal('{value}')"
    return reason


def _limited(read: Convert, length_max: int, unit: str) -> Convert:
    def limited(value: Any) -> Any:
        found = read(value)
        if len(found) > length_max:
            raise refusal(value, f"is longer than the column's {length_max} {unit}")
        return found

    return limited


def _refuse_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _plain(value: Any) -> Any:
    if isinstance(value, (np.bool_, np.floating)) or temporals.is_whole(value):
        return value.item()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _check_keys(value: Any) -> None:
    """Refuses keys that are no text: `json` would turn 1 and True into "1" and "true"."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"key {key!r} is not a str")
            _check_keys(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_keys(inner)


_JSON_TEXT = json.JSONDecoder(parse_constant=_refuse_constant)
_JSON_DUMP = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain
)

_PLAIN: dict[str, Convert] = {
    "INT64": int64,
    "FLOAT64": float64,
    "BOOL": bool_,
    "JSON": json_,
    "GEOGRAPHY": string,
    "INTERVAL": interval,
}
_TEMPORALS: dict[str, Callable[..., int]] = {
    "DATE": temporals.date,
    "TIME": temporals.time,
    "DATETIME": temporals.civil,
    "TIMESTAMP": temporals.instant,
}


def to_range(element: str, start: int | None, end: int | None) -> Range:
    """Returns the `Range` of a pair that a converter made."""
    back = BACK[element]
    return Range(
        None if start is None else back(start),
        None if end is None else back(end),
    )


BACK: dict[str, Callable[[int], Any]] = {
    "DATE": temporals.to_date,
    "TIME": temporals.to_time,
    "DATETIME": temporals.to_civil,
    "TIMESTAMP": temporals.to_instant,
}
"""The way back from the integers that `converter` makes of temporals."""
