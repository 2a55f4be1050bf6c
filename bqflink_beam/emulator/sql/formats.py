"""FORMAT with a literal format: each specifier becomes one call, and the texts are joined."""

import re

from bqflink_beam.emulator.sql import exact
from bqflink_beam.emulator.sql.casts import cast, coerce
from bqflink_beam.emulator.sql.expressions import Env
from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.sql.kinds import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT64,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
)
from bqflink_beam.emulator.sql.named import register_named
from bqflink_beam.emulator.sql.scope import Plan, Scalar, quote_text

_SPECIFIER = re.compile(r"%(?:%|([-+ #0]*)(\d*)(?:\.(\d+))?([a-zA-Z]))")
_INTEGERS = frozenset("dxXo")
_PLAIN_TEXT = re.compile(r"[ !#-\[\]-~]*\Z")


def with_integer(value: int, form: str) -> str:
    return form % value


def with_float(value: float, form: str) -> str:
    return form % value


def with_text(value: str, form: str) -> str:
    return form % value


def float_text(value: float) -> str:
    """Returns a FLOAT64 that shows to be one."""
    text = exact.float64_text(value)
    if "n" in text:
        raise unsupported(f"FORMAT %t of {text}")
    if not value and str(value) == "-0.0":
        raise unsupported("FORMAT %t of a negative zero")
    return text if set(text) & set(".e") else f"{text}.0"


def text_literal(value: str) -> str:
    if not _PLAIN_TEXT.match(value):
        raise unsupported("FORMAT %T of a text with characters that need escapes")
    return f'"{value}"'


def _readable(plan: Plan, value: Scalar, name: str) -> str:
    """Returns a value's text for %t, or as a literal for %T. NULL stays NULL."""
    kind = value.kind
    if kind == FLOAT64:
        return plan.call("format_float_text", value.sql)
    if kind not in (BOOL, INT64, STRING, DATE, TIME, DATETIME, TIMESTAMP):
        raise unsupported(f"FORMAT %{name} of {kind}")
    text = value.sql if kind == STRING else cast(plan, value, STRING).sql
    if name == "t" or kind in (BOOL, INT64):
        return text
    if kind == STRING:
        return plan.call("format_literal", text)
    return f"('{kind.name} \"' || {text} || '\"')"


def _piece(plan: Plan, match: "re.Match[str]", value: Scalar) -> str:
    flags, width, precision, letter = match.groups()
    if len(width) > 5 or len(precision or "") > 5:
        raise unsupported(f"FORMAT {match[0]}")
    if letter in _INTEGERS:
        return _printed(plan, match, value, INT64, "integer")
    if letter == "f":
        if value.kind.name not in ("FLOAT64", "INT64"):
            raise unsupported(f"FORMAT %f of {value.kind}")
        return _printed(plan, match, value, FLOAT64, "float")
    if letter not in ("s", "t", "T"):
        raise unsupported(f"FORMAT %{letter}")
    if set(flags) - {"-"}:
        raise unsupported(f"FORMAT {match[0]}")
    name = "t" if letter == "s" else letter
    text = "'NULL'" if value.is_null and letter != "s" else _readable(plan, value, name)
    if letter != "s":
        text = f"coalesce({text}, 'NULL')"
    if not width and precision is None:
        return text
    form = f"%{flags}{width}" + ("" if precision is None else f".{precision}") + "s"
    return plan.call("format_text", text, quote_text(form))


def _printed(plan: Plan, match: "re.Match[str]", value: Scalar, kind: Kind, name: str) -> str:
    if kind == INT64 and (match[3] is not None or set(match[1]) & set("#")):
        raise unsupported(f"FORMAT {match[0]}")
    if value.kind != kind and not (kind == FLOAT64 and value.kind == INT64) and not value.is_null:
        raise InvalidQuery(f"Invalid type for argument of FORMAT {match[0]}: {value.kind}")
    number = coerce(plan, value, kind, "FORMAT")
    return plan.call(f"format_{name}", number.sql, quote_text(match[0]))


def _format(env: Env, arguments: list[Scalar]) -> Scalar:
    if not arguments or not isinstance(arguments[0].literal, str):
        raise unsupported("FORMAT with a format that is no literal")
    form, values = arguments[0].literal, list(arguments[1:])
    pieces: list[str] = []
    at = 0
    while at < len(form):
        if form[at] != "%":
            end = form.find("%", at) if "%" in form[at:] else len(form)
            pieces.append(quote_text(form[at:end]))
            at = end
            continue
        match = _SPECIFIER.match(form, at)
        if match is None:
            raise unsupported(f"FORMAT with {form!r}")
        at = match.end()
        if match[4] is None:
            pieces.append("'%'")
        elif not values:
            raise InvalidQuery("Too few arguments to FORMAT for pattern " + form)
        else:
            pieces.append(_piece(env.plan, match, values.pop(0)))
    if values:
        raise InvalidQuery("Too many arguments to FORMAT for pattern " + form)
    return Scalar("(" + " || ".join(pieces or ["''"]) + ")", STRING)


_V = "VARCHAR"
exact.add(
    {
        "format_integer": exact.Exact(with_integer, ("BIGINT", _V), _V),
        "format_float": exact.Exact(with_float, ("DOUBLE", _V), _V),
        "format_text": exact.Exact(with_text, (_V, _V), _V),
        "format_float_text": exact.Exact(float_text, ("DOUBLE",), _V),
        "format_literal": exact.Exact(text_literal, (_V,), _V),
    }
)
register_named({"FORMAT": _format})
