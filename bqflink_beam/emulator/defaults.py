"""Column default expressions, for rows that leave a column out and ask for its default.

Literals and the functions that BigQuery allows there; anything else is refused when
the table is written to, never guessed.
"""

import datetime
import decimal
import itertools
import re
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.clock import Clock
from bqflink_beam.emulator import literals, types, values
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.schema.model import Field

_NUMBER = re.compile(r"^[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?$")
_TEXT = re.compile(r"""^[rR]?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")$""", re.DOTALL)
_TYPED = re.compile(r"^([A-Za-z]+)\s+('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")$", re.DOTALL)
_CALL = re.compile(r"^([A-Za-z_]+)\s*(\(\s*\))?$")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?"}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


def default_maker(field: Field, clock: Clock) -> Callable[[], Any]:
    """Returns what makes the default of a column, a Python value, once for each row.

    A TIMESTAMP(12) is text, as it is stored.

    Raises:
        Refused: INVALID_ARGUMENT, the expression is none this server can evaluate.
    """
    text = (field.default_value_expression or "NULL").strip()
    upper = text.upper()
    if upper == "NULL":
        return lambda: None
    if field.repeated:
        if re.fullmatch(r"\[\s*\]", text):
            return list
        raise _unknown(field)
    call = _CALL.match(text)
    if call is not None and upper not in ("TRUE", "FALSE"):
        return _function(field, call[1].upper(), clock)
    value = _literal(field, text)
    return lambda: value


def fill(
    field: Field, column: pa.Array, missing: Sequence[bool], make: Callable[[], Any]
) -> pa.Array:
    """Returns a column with its default in the rows that are `missing`; the others as they are."""
    count = sum(missing)
    if not count:
        return column
    made_at = itertools.count(len(column))
    positions = [next(made_at) if absent else row for row, absent in enumerate(missing)]
    try:
        made = values.column_of(field, [make() for _ in range(count)])
    except (ValueError, OverflowError):
        raise _unknown(field) from None
    return pa.concat_arrays([column, made]).take(pa.array(positions))


def _function(field: Field, name: str, clock: Clock) -> Callable[[], Any]:
    def now() -> datetime.datetime:
        return _EPOCH + datetime.timedelta(microseconds=int(clock.now_s() * 1e6))

    if types.is_picos(field) and name == "CURRENT_TIMESTAMP":
        return lambda: literals.text_of_picos(int(clock.now_s() * 1e6) * 10**6)
    makers: dict[tuple[str, str], Callable[[], Any]] = {
        ("CURRENT_TIMESTAMP", "TIMESTAMP"): now,
        ("CURRENT_DATETIME", "DATETIME"): lambda: now().replace(tzinfo=None),
        ("CURRENT_DATE", "DATE"): lambda: now().date(),
        ("CURRENT_TIME", "TIME"): lambda: now().time(),
        ("GENERATE_UUID", "STRING"): lambda: str(uuid.uuid4()),
        ("SESSION_USER", "STRING"): lambda: "emulator@localhost",
        ("RAND", "FLOAT64"): clock.random,
    }
    maker = makers.get((name, field.type))
    if maker is None:
        raise _unknown(field)
    return maker


def _literal(field: Field, text: str) -> Any:
    typed = _TYPED.match(text)
    if typed is not None and typed[1].upper() == field.type:
        return _from_text(field, _unquote(field, typed[2]))
    if _TEXT.match(text):
        return _from_text(field, _unquote(field, text))
    if field.type == "BOOL" and text.upper() in ("TRUE", "FALSE"):
        return text.upper() == "TRUE"
    if _NUMBER.match(text):
        if field.type == "INT64" and re.fullmatch(r"[+-]?\d+", text):
            return int(text)
        if field.type == "FLOAT64":
            return float(text)
        if field.type in ("NUMERIC", "BIGNUMERIC"):
            return decimal.Decimal(text)
    raise _unknown(field)


def _from_text(field: Field, text: str) -> Any:
    try:
        if field.type in ("STRING", "JSON", "GEOGRAPHY"):
            return text
        if field.type in ("NUMERIC", "BIGNUMERIC"):
            return decimal.Decimal(text)
        if field.type == "DATE":
            return datetime.date(1970, 1, 1) + datetime.timedelta(literals.days_from_text(text))
        if field.type == "DATETIME":
            micros = literals.datetime_micros(text)
            return (_EPOCH + datetime.timedelta(microseconds=micros)).replace(tzinfo=None)
        if field.type == "TIME":
            micros = literals.time_micros(text)
            return (_EPOCH + datetime.timedelta(microseconds=micros)).time()
        if types.is_picos(field):
            return literals.picos_text(text)
        if field.type == "TIMESTAMP":
            micros = literals.timestamp_picos(text) // 10**6
            return _EPOCH + datetime.timedelta(microseconds=micros)
    except (ValueError, decimal.InvalidOperation):
        raise _unknown(field) from None
    raise _unknown(field)


def _unquote(field: Field, text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]

    def escape(match: "re.Match[str]") -> str:
        if match[1] not in _ESCAPES:
            raise _unknown(field)
        return _ESCAPES[match[1]]

    return re.sub(r"\\(.)", escape, text[1:-1], flags=re.DOTALL)


def _unknown(field: Field) -> Refused:
    return Refused(
        f"The default value expression {field.default_value_expression!r} of column {field.name} "
        "is not supported by the embedded BigQuery; use a literal or a CURRENT_ function"
    )
