"""Functions on regular expressions: both engines are RE2, and differ in what they make of matches."""

import re

from bqflink_beam.emulator.sql.casts import coerce
from bqflink_beam.emulator.sql.expressions import Env
from bqflink_beam.emulator.sql.invalid import unsupported
from bqflink_beam.emulator.sql.kinds import INT64, STRING, Kind, array_of
from bqflink_beam.emulator.sql.named import NamedReader, arity, register_named, typed
from bqflink_beam.emulator.sql.scope import Scalar, quote_text

_SKIPPED = re.compile(
    r"""\\Q.*?(?:\\E|\Z)                                # taken literally
      | \\.                                             # one character
      | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]         # a class of characters
      | (?P<group>\((?!\?)|\(\?P?<[^=!])                # a group that captures
    """,
    re.DOTALL | re.VERBOSE,
)
_TOO_MANY = (
    "Regular expressions passed into extraction functions must not have more than 1 capturing group"
)


def groups_of(pattern: str) -> int:
    """Returns how many capturing groups a pattern has."""
    return sum(match["group"] is not None for match in _SKIPPED.finditer(pattern))


def _pattern(value: Scalar, name: str) -> str:
    if not isinstance(value.literal, str):
        raise unsupported(f"{name} with a pattern that is no literal")
    return value.literal


def _matches(text: str, pattern: str, group: int) -> str:
    return f"regexp_extract_all({text}, {quote_text(pattern)}, {group})"


def _no_trailing_empty(text: str, pattern: str, value: str, kind: str, name: str) -> str:
    """Returns the value, refused where BigQuery has one empty match less at the end."""
    whole = _matches(text, pattern, 0)
    refusal = unsupported(f"{name} with an empty match at the end").message
    return (
        f"(CASE WHEN len({whole}) > 1 AND list_extract({whole}, -1) = '' "
        f"THEN CAST(error({quote_text(refusal)}) AS {kind}) ELSE {value} END)"
    )


def _extract(name: str) -> NamedReader:
    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        arity(arguments, range(2, 5), name)
        text, pattern_value = (coerce(env.plan, v, STRING, name) for v in arguments[:2])
        pattern = _pattern(pattern_value, name)
        if len(arguments) > 2 and arguments[2].literal != 1:
            raise unsupported(f"{name} from a position other than 1")
        groups = groups_of(pattern)
        if groups > 1:
            return _failing(text, STRING, _TOO_MANY)
        found = _matches(text.sql, pattern, groups)
        if len(arguments) < 4:
            return Scalar(f"list_extract({found}, 1)", STRING)
        occurrence = coerce(env.plan, arguments[3], INT64, name).sql
        bad = "CAST(error('Occurrence must be positive') AS BIGINT)"
        number = f"(CASE WHEN {occurrence} < 1 THEN {bad} ELSE {occurrence} END)"
        value = f"list_extract({found}, {number})"
        return Scalar(_no_trailing_empty(text.sql, pattern, value, "VARCHAR", name), STRING)

    return read


def _failing(text: Scalar, kind: Kind, message: str) -> Scalar:
    error = f"error({quote_text(message)})"
    value = f"CAST({error} AS VARCHAR)"
    if kind != STRING:
        value = f"[{value}]"
    return Scalar(f"(CASE WHEN {text.sql} IS NULL THEN NULL ELSE {value} END)", kind)


def _extract_all(env: Env, arguments: list[Scalar]) -> Scalar:
    name = "REGEXP_EXTRACT_ALL"
    text, pattern_value = typed(env, arguments, (STRING, STRING), name)
    pattern = _pattern(pattern_value, name)
    groups = groups_of(pattern)
    if groups > 1:
        return _failing(text, array_of(STRING), _TOO_MANY)
    found = _matches(text.sql, pattern, groups)
    checked = _no_trailing_empty(text.sql, pattern, found, "VARCHAR[]", name)
    if groups:
        refusal = quote_text(unsupported(f"{name} with a group that takes no part").message)
        checked = (
            f"(CASE WHEN len({found}) > list_count({found}) "
            f"THEN CAST(error({refusal}) AS VARCHAR[]) ELSE {checked} END)"
        )
    return Scalar(checked, array_of(STRING))


def _replace(env: Env, arguments: list[Scalar]) -> Scalar:
    text, pattern, new = typed(env, arguments, (STRING, STRING, STRING), "REGEXP_REPLACE")
    return Scalar(f"regexp_replace({text.sql}, {pattern.sql}, {new.sql}, 'g')", STRING)


def _position(env: Env, arguments: list[Scalar]) -> Scalar:
    name = "REGEXP_INSTR"
    if len(arguments) > 2:
        raise unsupported(f"{name} with a position or an occurrence")
    text, pattern_value = typed(env, arguments, (STRING, STRING), name)
    pattern = _pattern(pattern_value, name)
    if groups_of(pattern) or "\\Q" in pattern:
        raise unsupported(f"{name} with a group or \\Q")
    if not pattern:
        return Scalar(f"(CASE WHEN {text.sql} IS NULL THEN NULL ELSE 0 END)", INT64)
    # What stands before the first match is the shortest text that the pattern can follow.
    before = f"regexp_extract({text.sql}, {quote_text(chr(92) + f'A(?s:(.*?))(?:{pattern})')}, 1)"
    first = f"list_extract({_matches(text.sql, pattern, 0)}, 1)"
    refusal = quote_text(unsupported(f"{name} of an empty match").message)
    return Scalar(
        f"(CASE WHEN {text.sql} IS NULL THEN NULL WHEN {text.sql} = '' OR {first} IS NULL THEN 0 "
        f"WHEN {first} = '' THEN CAST(error({refusal}) AS BIGINT) "
        f"ELSE CAST(length({before}) + 1 AS BIGINT) END)",
        INT64,
    )


register_named(
    {
        "REGEXP_EXTRACT": _extract("REGEXP_EXTRACT"),
        "REGEXP_SUBSTR": _extract("REGEXP_SUBSTR"),
        "REGEXP_EXTRACT_ALL": _extract_all,
        "REGEXP_REPLACE": _replace,
        "REGEXP_INSTR": _position,
    }
)
