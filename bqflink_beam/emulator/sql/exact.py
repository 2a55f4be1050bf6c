"""Operations that DuckDB does not do as BigQuery does, in Python, called from inside a query.

Each function takes and returns values as DuckDB holds them (`kinds`). NULL arguments
never arrive: DuckDB answers NULL for them by itself. What a function raises ends the
query with that text, or makes the result NULL under SAFE_CAST.
"""

import base64
import binascii
import dataclasses
import datetime
import decimal
import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from bqflink_beam.emulator.sql.invalid import InvalidQuery, Unsupported, is_refusal, unsupported
from bqflink_beam.emulator.sql.kinds import (
    NUMERIC_MAX,
    big_to_key,
    key_to_big,
)
from bqflink_beam.emulator.sql.zones import from_civil, to_civil

_CONTEXT = decimal.Context(prec=400, Emax=10_000, Emin=-10_000)
_NANO = Decimal("1e-9")


@dataclasses.dataclass(frozen=True)
class Exact:
    """One function: its Python body and its DuckDB argument and result types."""

    body: Callable[..., Any]
    arguments: tuple[str, ...]
    result: str


def to_numeric(value: Decimal) -> Decimal:
    """Rounds half away from zero to 9 digits; the service's way with NUMERIC.

    Raises:
        InvalidQuery: too large.
    """
    rounded = value.quantize(_NANO, rounding=decimal.ROUND_HALF_UP, context=_CONTEXT)
    # Not abs(), which would round to 28 digits.
    if rounded.copy_abs() > NUMERIC_MAX:
        raise InvalidQuery(f"numeric overflow: {value}")
    return rounded


# --- text to values -------------------------------------------------------------------------

_INTEGER = re.compile(r"[+-]?(?:\d+|0[xX][0-9a-fA-F]+)\Z", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z", re.ASCII)
_FLOAT_WORDS = re.compile(r"[+-]?(?:inf|infinity|nan)\Z", re.IGNORECASE)
_DATE = re.compile(r"(\d{4,5})-(\d{1,2})-(\d{1,2})\Z", re.ASCII)
_TIME = re.compile(r"(\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{1,6}))?\Z", re.ASCII)
_ZONE = re.compile(r"(?:\s?(Z|z|UTC)|\s?([+-])(\d{1,2})(?::?(\d{2}))?)\Z", re.ASCII)
_ZONE_NAME = re.compile(r"(?<=\d) ?([A-Za-z]+(?:/[A-Za-z0-9_+-]+)+)\Z", re.ASCII)
_TEXT_MAX = 1 << 20
_SPACES = " \t\n\r\f\v"


def parse_int64(text: str) -> int:
    bare = text.strip(_SPACES)
    if not _INTEGER.match(bare):
        raise InvalidQuery(f"Bad int64 value: {text}")
    number = int(bare, 16) if "x" in bare.lower() else int(bare)
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidQuery(f"Bad int64 value: {text}")
    return number


def parse_float64(text: str) -> float:
    bare = text.strip(_SPACES)
    if not (_NUMBER.match(bare) or _FLOAT_WORDS.match(bare)):
        raise InvalidQuery(f"Bad double value: {text}")
    return float(bare)


def float64_repr(text: str) -> str:
    """Returns the number of a text as text that DuckDB reads as that very number.

    Numbers do not come out of a Python function as they are: DuckDB takes NaN for NULL.
    """
    return repr(parse_float64(text))


def parse_decimal(text: str) -> Decimal:
    bare = text.strip(_SPACES)
    if not _NUMBER.match(bare):
        raise InvalidQuery(f"Invalid NUMERIC value: {text}")
    return Decimal(bare)


def parse_numeric(text: str) -> Decimal:
    return to_numeric(parse_decimal(text))


def parse_bignumeric(text: str) -> bytes:
    return big_to_key(parse_decimal(text))


def parse_bool(text: str) -> bool:
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    raise InvalidQuery(f"Bad bool value: {text}")


def parse_date(text: str) -> datetime.date:
    match = _DATE.match(text)
    try:
        if match:
            return datetime.date(*(int(part) for part in match.groups()))
    except ValueError:
        pass  # no such day: the same answer as for text of another form
    raise InvalidQuery(f"Invalid date: '{text}'")


def parse_time(text: str) -> datetime.time:
    match = _TIME.match(text)
    try:
        if match:
            hour, minute, second = (int(part) for part in match.groups()[:3])
            return datetime.time(hour, minute, second, _micros(match[4]))
    except ValueError:
        pass  # no such time: the same answer as for text of another form
    raise InvalidQuery(f"Invalid time string '{text}'")


def _micros(fraction: str | None) -> int:
    return int(fraction.ljust(6, "0")) if fraction else 0


def parse_datetime(text: str) -> datetime.datetime:
    day, space, clock = text.replace("T", " ", 1).replace("t", " ", 1).partition(" ")
    try:
        return datetime.datetime.combine(
            parse_date(day), parse_time(clock) if space else datetime.time()
        )
    except InvalidQuery:
        raise InvalidQuery(f"Invalid datetime string '{text}'") from None


def parse_timestamp(text: str) -> datetime.datetime:
    """Returns a naive UTC datetime."""
    bare = text
    zone = _ZONE.search(bare, 10) if len(bare) > 10 else None
    offset = datetime.timedelta()
    if zone:
        bare = bare[: zone.start()]
        if zone[2]:
            hours, minutes = int(zone[3]), int(zone[4] or 0)
            if hours > 14 or minutes > 59:
                raise InvalidQuery(f"Invalid timestamp: '{text}'")
            offset = datetime.timedelta(hours=hours, minutes=minutes)
            offset = -offset if zone[2] == "-" else offset
    elif named := _ZONE_NAME.search(bare):
        return from_civil(parse_datetime(bare[: named.start()]), named[1])
    try:
        return parse_datetime(bare) - offset
    except (InvalidQuery, OverflowError):
        raise InvalidQuery(f"Invalid timestamp: '{text}'") from None


def parse_base64(text: str) -> bytes:
    """For parameters, which carry BYTES so; no cast of SQL does."""
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise InvalidQuery(f"Invalid base64 text: {text}") from None


def parse_json(text: str) -> str:
    try:
        value = json.loads(text, parse_float=_json_number)
    except ValueError as error:
        raise InvalidQuery(f"Invalid JSON: {error}") from None
    return dump_json(value)


def _json_number(text: str) -> float:
    return float(text)


def dump_json(value: object) -> str:
    """Returns JSON text as the service normalizes it: no spaces, keys sorted."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


# --- values to text -------------------------------------------------------------------------


def float64_text(value: float) -> str:
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if not value:
        return "0"  # whatever its sign
    text = f"{value:.15g}"
    return text if float(text) == value else f"{value:.17g}"


def decimal_text(value: Decimal) -> str:
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def bignumeric_text(key: bytes) -> str:
    return decimal_text(key_to_big(key))


def time_text(value: datetime.time) -> str:
    return f"{value:%H:%M:%S}" + _fraction(value.microsecond)


def datetime_text(value: datetime.datetime) -> str:
    return f"{value.year:04d}-{value:%m-%d %H:%M:%S}" + _fraction(value.microsecond)


def timestamp_text(value: datetime.datetime) -> str:
    return datetime_text(value) + "+00"


def _fraction(micros: int) -> str:
    if not micros:
        return ""
    return f".{micros // 1000:03d}" if micros % 1000 == 0 else f".{micros:06d}"


# --- numbers --------------------------------------------------------------------------------


def float64_to_numeric(value: float) -> Decimal:
    if not math.isfinite(value):
        raise InvalidQuery(
            f"Illegal conversion of non-finite floating point number to numeric: {value}"
        )
    return to_numeric(Decimal(value))


def float64_to_bignumeric(value: float) -> bytes:
    if not math.isfinite(value):
        raise InvalidQuery(
            f"Illegal conversion of non-finite floating point number to bignumeric: {value}"
        )
    return big_to_key(Decimal(value))


def bignumeric_to_int64(key: bytes) -> int:
    rounded = int(key_to_big(key).quantize(Decimal(1), decimal.ROUND_HALF_UP, _CONTEXT))
    if not -(1 << 63) <= rounded < 1 << 63:
        raise InvalidQuery(f"int64 out of range: {rounded}")
    return rounded


def _big(operation: Callable[[Decimal, Decimal], Decimal]) -> Callable[[bytes, bytes], bytes]:
    def run(a: bytes, b: bytes) -> bytes:
        return big_to_key(operation(key_to_big(a), key_to_big(b)))

    return run


def _divide(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise InvalidQuery(f"division by zero: {decimal_text(a)} / {decimal_text(b)}")
    return _CONTEXT.divide(a, b)


def _modulo(a: Decimal, b: Decimal) -> Decimal:
    if not b:
        raise InvalidQuery(f"division by zero: MOD({decimal_text(a)}, {decimal_text(b)})")
    return _CONTEXT.remainder(a, b)


def _numeric(operation: Callable[[Decimal, Decimal], Decimal]) -> Callable[..., Decimal]:
    return lambda a, b: to_numeric(operation(a, b))


def numeric_mean(total: Decimal, count: int) -> Decimal:
    return to_numeric(_CONTEXT.divide(total, Decimal(count)))


def bignumeric_sum(keys: list[bytes | None]) -> bytes | None:
    found = [key_to_big(key) for key in keys if key is not None]
    total = Decimal()
    for number in found:
        total = _CONTEXT.add(total, number)
    return big_to_key(total) if found else None


def bignumeric_mean(keys: list[bytes | None]) -> bytes | None:
    found = [key_to_big(key) for key in keys if key is not None]
    total = Decimal()
    for number in found:
        total = _CONTEXT.add(total, number)
    return big_to_key(_CONTEXT.divide(total, Decimal(len(found)))) if found else None


def numeric_round(value: Decimal, digits: int) -> Decimal:
    if digits >= 9:
        return value
    unit = Decimal(1).scaleb(-max(digits, -60))
    return to_numeric(value.quantize(unit, decimal.ROUND_HALF_UP, _CONTEXT))


def numeric_trunc(value: Decimal, digits: int) -> Decimal:
    if digits >= 9:
        return value
    unit = Decimal(1).scaleb(-max(digits, -60))
    return to_numeric(value.quantize(unit, decimal.ROUND_DOWN, _CONTEXT))


def bignumeric_round(key: bytes, digits: int) -> bytes:
    return _cut(key, digits, decimal.ROUND_HALF_UP)


def bignumeric_trunc(key: bytes, digits: int) -> bytes:
    return _cut(key, digits, decimal.ROUND_DOWN)


def bignumeric_ceil(key: bytes) -> bytes:
    return _cut(key, 0, decimal.ROUND_CEILING)


def bignumeric_floor(key: bytes) -> bytes:
    return _cut(key, 0, decimal.ROUND_FLOOR)


def _cut(key: bytes, digits: int, rounding: str) -> bytes:
    if digits >= 38:
        return key
    unit = Decimal(1).scaleb(-max(digits, -60))
    return big_to_key(key_to_big(key).quantize(unit, rounding, _CONTEXT))


def float64_round(value: float) -> float:
    if not math.isfinite(value):
        return value
    magnitude = math.floor(abs(value))
    magnitude += abs(value) - magnitude >= 0.5
    return math.copysign(float(magnitude), value)


def string_split(text: str, delimiter: str) -> list[str]:
    if not text:
        return [""]
    return text.split(delimiter) if delimiter else list(text)


def trimmed(text: str, side: str) -> str:
    """Takes the blanks of Unicode off; Python counts four control characters among them."""
    first, last = 0, len(text)
    while side != "RIGHT" and first < last and _is_blank(text[first]):
        first += 1
    while side != "LEFT" and last > first and _is_blank(text[last - 1]):
        last -= 1
    return text[first:last]


def _is_blank(char: str) -> bool:
    return char.isspace() and char not in "\x1c\x1d\x1e\x1f"


def padded(text: str, spec: str) -> str:
    """Returns a text at a length; `spec` is ``L`` or ``R``, the length, a blank, and the pattern."""
    size, _, pattern = spec[1:].partition(" ")
    length = int(size)
    if length < 0 or not pattern:
        raise InvalidQuery(
            "LPAD and RPAD need a length of at least 0 and a pattern that is not empty"
        )
    if length > _TEXT_MAX:
        raise InvalidQuery(f"The output of LPAD or RPAD exceeds {_TEXT_MAX} characters")
    missing = length - len(text)
    if missing <= 0:
        return text[:length]
    filled = (pattern * (missing // len(pattern) + 1))[:missing]
    return filled + text if spec[0] == "L" else text + filled


def digest(data: bytes, name: str) -> bytes:
    return hashlib.new(name, data, usedforsecurity=False).digest()


def check_utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidQuery("Invalid UTF-8 bytes in a cast of BYTES to STRING") from None


def upper_text(text: str) -> str:
    return _one_for_one(text, str.upper, "UPPER")


def lower_text(text: str) -> str:
    # A sigma's small form depends on where it stands.
    if "\u03a3" in text:
        raise unsupported("LOWER of a capital sigma")
    return _one_for_one(text, str.lower, "LOWER")


def _one_for_one(text: str, change: Callable[[str], str], name: str) -> str:
    """Changes case where one character stays one; for the others sources disagree."""
    if text.isascii():
        return change(text)
    changed = [change(char) for char in text]
    for char, new in zip(text, changed, strict=True):
        if len(new) != 1:
            raise unsupported(f"{name} of {char!r}")
    return "".join(changed)


def reversed_text(text: str) -> str:
    """By code points; DuckDB keeps what looks like one character together."""
    return text[::-1]


_V, _F, _D, _B = "VARCHAR", "DOUBLE", "DECIMAL(38,9)", "BLOB"

FUNCTIONS: dict[str, Exact] = {
    "parse_int64": Exact(parse_int64, (_V,), "BIGINT"),
    "float64_repr": Exact(float64_repr, (_V,), _V),
    "parse_numeric": Exact(parse_numeric, (_V,), _D),
    "parse_bignumeric": Exact(parse_bignumeric, (_V,), _B),
    "parse_bool": Exact(parse_bool, (_V,), "BOOLEAN"),
    "parse_date": Exact(parse_date, (_V,), "DATE"),
    "parse_time": Exact(parse_time, (_V,), "TIME"),
    "parse_datetime": Exact(parse_datetime, (_V,), "TIMESTAMP"),
    "parse_timestamp": Exact(parse_timestamp, (_V,), "TIMESTAMP"),
    "parse_json_text": Exact(parse_json, (_V,), _V),
    "to_civil": Exact(to_civil, ("TIMESTAMP", _V), "TIMESTAMP"),
    "from_civil": Exact(from_civil, ("TIMESTAMP", _V), "TIMESTAMP"),
    "float64_text": Exact(float64_text, (_F,), _V),
    "numeric_text": Exact(decimal_text, (_D,), _V),
    "bignumeric_text": Exact(bignumeric_text, (_B,), _V),
    "time_text": Exact(time_text, ("TIME",), _V),
    "datetime_text": Exact(datetime_text, ("TIMESTAMP",), _V),
    "timestamp_text": Exact(timestamp_text, ("TIMESTAMP",), _V),
    "float64_to_numeric": Exact(float64_to_numeric, (_F,), _D),
    "float64_to_bignumeric": Exact(float64_to_bignumeric, (_F,), _B),
    "numeric_to_float64": Exact(float, (_D,), _F),
    "numeric_to_bignumeric": Exact(big_to_key, (_D,), _B),
    "bignumeric_to_int64": Exact(bignumeric_to_int64, (_B,), "BIGINT"),
    "bignumeric_to_float64": Exact(lambda key: float(key_to_big(key)), (_B,), _F),
    "bignumeric_to_numeric": Exact(lambda key: to_numeric(key_to_big(key)), (_B,), _D),
    "numeric_mul": Exact(_numeric(_CONTEXT.multiply), (_D, _D), _D),
    "numeric_div": Exact(_numeric(_divide), (_D, _D), _D),
    "numeric_mod": Exact(_numeric(_modulo), (_D, _D), _D),
    "numeric_mean": Exact(numeric_mean, (_D, "BIGINT"), _D),
    "numeric_round": Exact(numeric_round, (_D, "BIGINT"), _D),
    "numeric_trunc": Exact(numeric_trunc, (_D, "BIGINT"), _D),
    "bignumeric_add": Exact(_big(_CONTEXT.add), (_B, _B), _B),
    "bignumeric_sub": Exact(_big(_CONTEXT.subtract), (_B, _B), _B),
    "bignumeric_mul": Exact(_big(_CONTEXT.multiply), (_B, _B), _B),
    "bignumeric_div": Exact(_big(_divide), (_B, _B), _B),
    "bignumeric_mod": Exact(_big(_modulo), (_B, _B), _B),
    "bignumeric_abs": Exact(lambda key: big_to_key(abs(key_to_big(key))), (_B,), _B),
    "bignumeric_neg": Exact(lambda key: big_to_key(-key_to_big(key)), (_B,), _B),
    "bignumeric_sum": Exact(bignumeric_sum, ("BLOB[]",), _B),
    "bignumeric_mean": Exact(bignumeric_mean, ("BLOB[]",), _B),
    "bignumeric_round": Exact(bignumeric_round, (_B, "BIGINT"), _B),
    "bignumeric_trunc": Exact(bignumeric_trunc, (_B, "BIGINT"), _B),
    "bignumeric_ceil": Exact(bignumeric_ceil, (_B,), _B),
    "bignumeric_floor": Exact(bignumeric_floor, (_B,), _B),
    "float64_round": Exact(float64_round, (_F,), _F),
    "string_split": Exact(string_split, (_V, _V), "VARCHAR[]"),
    "trimmed": Exact(trimmed, (_V, _V), _V),
    "padded": Exact(padded, (_V, _V), _V),
    "digest": Exact(digest, (_B, _V), _B),
    "check_utf8": Exact(check_utf8, (_B,), _V),
    "upper_text": Exact(upper_text, (_V,), _V),
    "lower_text": Exact(lower_text, (_V,), _V),
    "reversed_text": Exact(reversed_text, (_V,), _V),
}
"""Every function a compiled query may call, by the name it is called by (prefix ``bq_``)."""


def add(functions: Mapping[str, Exact]) -> None:
    """Adds functions of other modules; each name is taken once."""
    assert not set(functions) & set(FUNCTIONS), set(functions) & set(FUNCTIONS)
    FUNCTIONS.update(functions)


def fail(message: str) -> str:
    """Ends the query. DuckDB's own error() may not stand inside TRY."""
    raise (Unsupported if is_refusal(message) else InvalidQuery)(message)


FUNCTIONS["fail"] = Exact(fail, (_V,), _V)


def safe(function: Exact) -> Exact:
    """Returns the same function with NULL for whatever it refuses: SAFE_CAST."""

    def body(*arguments: Any) -> Any:
        try:
            return function.body(*arguments)
        except Unsupported:
            raise
        except InvalidQuery:
            return None

    return Exact(body, function.arguments, function.result)
