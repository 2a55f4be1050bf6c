"""Functions between texts and what they encode: hexadecimal, base64, code points."""

import base64
import binascii
import re

from bqflink_beam.emulator.sql import exact
from bqflink_beam.emulator.sql.expressions import Env
from bqflink_beam.emulator.sql.invalid import InvalidQuery
from bqflink_beam.emulator.sql.kinds import BYTES, INT64, STRING, array_of
from bqflink_beam.emulator.sql.named import NamedReader, arity, register_named, typed
from bqflink_beam.emulator.sql.scope import Scalar

_HEXADECIMAL = re.compile(r"[0-9a-fA-F]*\Z")


def from_hex(text: str) -> bytes:
    if not _HEXADECIMAL.match(text):
        raise InvalidQuery(f"Failed to decode hexadecimal text: {text}")
    return bytes.fromhex("0" * (len(text) % 2) + text)


def from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidQuery(f"Failed to decode invalid base64 string: {text}") from None


def character(code: int) -> str:
    if not code:
        return ""
    if not 0 < code <= 0x10FFFF or 0xD800 <= code < 0xE000:
        raise InvalidQuery(f"Invalid codepoint {code}")
    return chr(code)


def text_of_codes(codes: list[int | None]) -> str | None:
    if any(code is None for code in codes):
        return None
    for code in codes:
        if code is None or not 0 <= code <= 0x10FFFF or 0xD800 <= code < 0xE000:
            raise InvalidQuery(f"Invalid codepoint {code}")
    return "".join(chr(code) for code in codes if code is not None)


def codes_of_text(text: str) -> list[int]:
    return [ord(char) for char in text]


def ascii_code(text: str) -> int:
    code = ord(text[0]) if text else 0
    if code > 127:
        raise InvalidQuery("Non-ASCII character in the argument of ASCII")
    return code


def unicode_code(text: str) -> int:
    return ord(text[0]) if text else 0


def _from_hex(env: Env, arguments: list[Scalar]) -> Scalar:
    (text,) = arity(arguments, 1, "FROM_HEX")
    if isinstance(text.literal, str) and _HEXADECIMAL.match(text.literal):
        return Scalar(f"unhex('{from_hex(text.literal).hex()}')", BYTES)
    (text,) = typed(env, arguments, (STRING,), "FROM_HEX")
    return Scalar(env.plan.call("from_hex", text.sql), BYTES)


def _to_codes(env: Env, arguments: list[Scalar]) -> Scalar:
    (value,) = arity(arguments, 1, "TO_CODE_POINTS")
    if value.kind == BYTES:
        return Scalar(env.plan.call("codes_of_bytes", value.sql), array_of(INT64))
    (value,) = typed(env, arguments, (STRING,), "TO_CODE_POINTS")
    return Scalar(env.plan.call("codes_of_text", value.sql), array_of(INT64))


def _from_codes(env: Env, arguments: list[Scalar]) -> Scalar:
    (codes,) = typed(env, arguments, (array_of(INT64),), "CODE_POINTS_TO_STRING")
    return Scalar(env.plan.call("text_of_codes", codes.sql), STRING)


def _one(function: str, name: str, argument: exact.Exact) -> NamedReader:
    kind = INT64 if argument.arguments == ("BIGINT",) else STRING
    result = {"BIGINT": INT64, "VARCHAR": STRING, "BLOB": BYTES}[argument.result]

    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        (value,) = typed(env, arguments, (kind,), name)
        return Scalar(env.plan.call(function, value.sql), result)

    return read


_FUNCTIONS = {
    "from_base64": exact.Exact(from_base64, ("VARCHAR",), "BLOB"),
    "character": exact.Exact(character, ("BIGINT",), "VARCHAR"),
    "ascii_code": exact.Exact(ascii_code, ("VARCHAR",), "BIGINT"),
    "unicode_code": exact.Exact(unicode_code, ("VARCHAR",), "BIGINT"),
}
exact.add(
    {
        **_FUNCTIONS,
        "from_hex": exact.Exact(from_hex, ("VARCHAR",), "BLOB"),
        "codes_of_bytes": exact.Exact(list, ("BLOB",), "BIGINT[]"),
        "codes_of_text": exact.Exact(codes_of_text, ("VARCHAR",), "BIGINT[]"),
        "text_of_codes": exact.Exact(text_of_codes, ("BIGINT[]",), "VARCHAR"),
    }
)
register_named(
    {
        "FROM_HEX": _from_hex,
        "TO_CODE_POINTS": _to_codes,
        "CODE_POINTS_TO_STRING": _from_codes,
        "FROM_BASE64": _one("from_base64", "FROM_BASE64", _FUNCTIONS["from_base64"]),
        "CHR": _one("character", "CHR", _FUNCTIONS["character"]),
        "ASCII": _one("ascii_code", "ASCII", _FUNCTIONS["ascii_code"]),
        "UNICODE": _one("unicode_code", "UNICODE", _FUNCTIONS["unicode_code"]),
    }
)
