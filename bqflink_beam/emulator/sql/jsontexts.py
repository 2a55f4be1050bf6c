"""JSON in texts and in JSON values: paths into it, scalars out of it, and its own text again.

In a STRING the text counts: numbers keep their digits, keys their order. A JSON value is
normalized: sorted keys, numbers as INT64, UINT64 or FLOAT64. What would depend on how
lenient a parser is (text that is no JSON, a key twice) is refused.
"""

import dataclasses
import functools
import json
import math
import re
from decimal import Decimal
from typing import Any

from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported

_KEY = r"\.([\w\-: \t\n\f\r]+)"
_OFFSET = r"\[[ \t\n\f\r]*(\d+)[ \t\n\f\r]*\]"
_STANDARD = re.compile(rf'{_OFFSET}|{_KEY}|\."((?:[^\\"]|\\"|\\[^"])*)"')
_LEGACY = re.compile(rf"{_OFFSET}|{_KEY}|\[[ \t\n\f\r]*'((?:[^\\']|\\'|\\[^'])*)'[ \t\n\f\r]*\]")
_ESCAPED = re.compile('[\x00-\x1f"\\\\\u2028\u2029]')
_SHORT = {"\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_MISSING = object()


@dataclasses.dataclass(frozen=True)
class _Number:
    """A number with the digits that it was written in."""

    text: str


def path_of(text: str, *, legacy: bool) -> list[str]:
    """Returns the keys and indexes of a JSONPath.

    Raises:
        InvalidQuery: it is none.
    """
    if not text.startswith("$"):
        raise InvalidQuery("JSONPath must start with '$'")
    tokens: list[str] = []
    at = 1
    while at < len(text):
        match = (_LEGACY if legacy else _STANDARD).match(text, at)
        if match is None:
            if legacy and text[at:] == ".":
                break
            raise InvalidQuery(f"Invalid token in JSONPath at: {text[at:]}")
        index, key, quoted = match.groups()
        if quoted is not None:
            quote = "'" if legacy else '"'
            tokens.append(quoted.replace("\\" + quote, quote))
        else:
            tokens.append(index if index is not None else key)
        at = match.end()
    return tokens


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise unsupported("JSON with a key twice")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def parse(text: str) -> Any:
    """Returns parsed JSON; numbers keep their digits.

    Raises:
        InvalidQuery: it is refused.
    """
    try:
        return json.loads(
            text,
            parse_float=_Number,
            parse_int=_Number,
            parse_constant=_no_constant,
            object_pairs_hook=_pairs,
        )
    except (ValueError, RecursionError):
        raise unsupported("A JSON function on a text that is no JSON") from None


def _parse_text(text: str) -> Any:
    """Returns parsed JSON, `_MISSING` for a text that begins as no JSON of any parser does."""
    bare = text.strip(" \t\n\r")
    if not bare or (bare[0].isalpha() and not bare.startswith(("true", "false", "null"))):
        return _MISSING
    return parse(text)


def _find(value: Any, tokens: list[str]) -> Any:
    for token in tokens:
        if isinstance(value, dict):
            value = value.get(token, _MISSING)
        elif isinstance(value, list):
            if re.fullmatch(r"\d{1,9}", token, re.ASCII) is None:
                if re.match(r"[\d\s+-]", token):
                    raise unsupported(f"{token!r} as an array's index in a JSONPath")
                return _MISSING
            value = value[int(token)] if int(token) < len(value) else _MISSING
        else:
            return _MISSING
    return value


@functools.lru_cache(maxsize=256)
def _tokens(path: str) -> list[str]:
    found: list[str] = json.loads(path)
    return found


# --- writing ------------------------------------------------------------------------------


def quoted(text: str) -> str:
    """Returns a text as a JSON string, escaped as the service does."""

    def escape(match: "re.Match[str]") -> str:
        return _SHORT.get(match[0]) or f"\\u{ord(match[0]):04x}"

    return '"' + _ESCAPED.sub(escape, text) + '"'


def _raw_string(text: str) -> str:
    if _ESCAPED.search(text):
        raise unsupported("A part of a JSON text with escaped characters in it")
    return f'"{text}"'


def _raw_number(number: _Number) -> str:
    return number.text


def normal_number(number: _Number) -> str:
    """Returns a number of a JSON value as the service writes it."""
    if re.fullmatch(r"-?\d+", number.text) and -(1 << 63) <= int(number.text) < 1 << 64:
        return "0" if number.text == "-0" else number.text
    value = float(number.text)
    text = repr(value)
    short = len(Decimal(text).as_tuple().digits) <= 15 and 1e-4 <= abs(value) < 1e15
    if not value:
        return text
    # A number near the middle between two doubles may get more digits than it needs.
    rest = abs(Decimal(text) - Decimal(value)) if math.isfinite(value) else Decimal(1)
    if not short or rest * 5 > Decimal(math.ulp(value)):
        raise unsupported(f"The text of the JSON number {number.text}")
    return text


def _write(value: Any, *, normal: bool) -> str:
    if isinstance(value, dict):
        items = sorted(value.items()) if normal else value.items()
        write_key = quoted if normal else _raw_string
        inner = (f"{write_key(key)}:{_write(item, normal=normal)}" for key, item in items)
        return "{" + ",".join(inner) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_write(item, normal=normal) for item in value) + "]"
    if isinstance(value, _Number):
        return normal_number(value) if normal else _raw_number(value)
    if isinstance(value, str):
        return quoted(value) if normal else _raw_string(value)
    return {None: "null", True: "true", False: "false"}[value]


def _scalar(value: Any, *, normal: bool) -> str | None:
    """Returns a scalar as text; None for what has none."""
    if value is _MISSING or value is None or isinstance(value, dict | list):
        return None
    return value if isinstance(value, str) else _write(value, normal=normal)


# --- what queries call --------------------------------------------------------------------


def text_scalar(text: str, path: str) -> str | None:
    return _scalar(_find(_parse_text(text), _tokens(path)), normal=False)


def value_scalar(text: str, path: str) -> str | None:
    return _scalar(_find(parse(text), _tokens(path)), normal=True)


def text_part(text: str, path: str) -> str | None:
    found = _find(_parse_text(text), _tokens(path))
    return None if found is _MISSING or found is None else _write(found, normal=False)


def value_part(text: str, path: str) -> str | None:
    found = _find(parse(text), _tokens(path))
    return None if found is _MISSING else _write(found, normal=True)


def text_parts(text: str, path: str) -> list[str] | None:
    found = _find(_parse_text(text), _tokens(path))
    return [_write(item, normal=False) for item in found] if isinstance(found, list) else None


def value_parts(text: str, path: str) -> list[str] | None:
    found = _find(parse(text), _tokens(path))
    return [_write(item, normal=True) for item in found] if isinstance(found, list) else None


def _scalars(text: str, path: str, *, normal: bool) -> list[str | None] | None:
    found = _find(parse(text) if normal else _parse_text(text), _tokens(path))
    if not isinstance(found, list) or any(isinstance(item, dict | list) for item in found):
        return None
    return [_scalar(item, normal=normal) for item in found]


def text_scalars(text: str, path: str) -> list[str | None] | None:
    return _scalars(text, path, normal=False)


def value_scalars(text: str, path: str) -> list[str | None] | None:
    return _scalars(text, path, normal=True)


def field(text: str, name: str) -> str | None:
    """``value.name``: NULL where it is no object, or has no such key."""
    value = parse(text)
    found = value.get(name, _MISSING) if isinstance(value, dict) else _MISSING
    return None if found is _MISSING else _write(found, normal=True)


def element(text: str, index: int) -> str | None:
    """``value[index]``: NULL where it is no array, or shorter."""
    value = parse(text)
    if not isinstance(value, list) or not 0 <= index < len(value):
        return None
    return _write(value[index], normal=True)


def normal(text: str) -> str:
    """Returns the text of a JSON value."""
    return _write(parse(text), normal=True)


def kind_of(text: str) -> str:
    value = parse(text)
    names = {dict: "object", list: "array", str: "string", bool: "boolean", _Number: "number"}
    return names.get(type(value), "null")


def to_int64(text: str) -> int:
    value = parse(text)
    if not isinstance(value, _Number):
        raise InvalidQuery("The provided JSON input is not an integer")
    number = Decimal(value.text)
    if not re.fullmatch(r"-?\d+", value.text) or not -(1 << 63) <= number < 1 << 64:
        number = Decimal(float(value.text))
    if number != number.to_integral_value() or not -(1 << 63) <= number < 1 << 63:
        raise InvalidQuery(
            f"The provided JSON number: {value.text} cannot be converted to an int64"
        )
    return int(number)


def to_float64(text: str) -> float:
    value = parse(text)
    if not isinstance(value, _Number):
        raise InvalidQuery("The provided JSON input is not a number")
    if re.fullmatch(r"-?\d+", value.text) and abs(int(value.text)) > 1 << 53:
        raise InvalidQuery(
            f"JSON number: {value.text} cannot be converted to FLOAT64 without loss of precision"
        )
    number = float(value.text)
    if math.isinf(number):
        raise unsupported(f"The JSON number {value.text}")
    return number


def to_bool(text: str) -> bool:
    value = parse(text)
    if not isinstance(value, bool):
        raise InvalidQuery("The provided JSON input is not a boolean")
    return value


def to_string(text: str) -> str:
    value = parse(text)
    if not isinstance(value, str):
        raise InvalidQuery("The provided JSON input is not a string")
    return value
