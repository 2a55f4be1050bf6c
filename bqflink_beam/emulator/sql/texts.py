"""Functions on texts that are written out in Python: INSTR, INITCAP, TRANSLATE, NORMALIZE."""

import unicodedata
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import exact
from bqflink_beam.emulator.sql.expressions import Env, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import INT64, STRING
from bqflink_beam.emulator.sql.named import register_named, typed
from bqflink_beam.emulator.sql.scope import Scalar, quote_text

_DELIMITERS = '[](){}/|\\<>!?@"#$&~_,.:;*%+-^ \t\n\v\f\r'
_FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def position(text: str, part: str, start: int, occurrence: int) -> int:
    """Returns where a part is found, from 1; backwards from a negative start; 0 if it is not."""
    if occurrence < 1 or not start:
        raise InvalidQuery("INSTR needs an occurrence of at least 1 and a position other than 0")
    if not part:
        raise unsupported("INSTR of an empty text")
    if start > 0:
        at = start - 2
        for _ in range(occurrence):
            at = text.find(part, at + 1)
            if at < 0:
                return 0
        return at + 1
    at = len(text) + start + 1
    for _ in range(occurrence):
        if at <= 0:
            return 0
        at = text.rfind(part, 0, at - 1 + len(part))
        if at < 0:
            return 0
    return at + 1


def capitalized(text: str, delimiters: str) -> str:
    if not text.isascii():
        raise unsupported("INITCAP of a text that is not ASCII")
    out = []
    first = True
    for char in text:
        is_delimiter = char in delimiters
        out.append(char if is_delimiter else char.upper() if first else char.lower())
        first = is_delimiter
    return "".join(out)


def translated(text: str, source: str, target: str) -> str:
    if len(set(source)) != len(source):
        raise InvalidQuery("Duplicate character in TRANSLATE source characters")
    table = {ord(char): target[at] if at < len(target) else None for at, char in enumerate(source)}
    return text.translate(table)


def normalized(text: str, form: str) -> str:
    # Characters of Unicode 3.2 have the same normal form in every version since.
    if any(unicodedata.ucd_3_2_0.category(char) == "Cn" for char in text):
        raise unsupported("NORMALIZE of characters that Unicode 3.2 did not have")
    return unicodedata.normalize(form, text)  # type: ignore[arg-type]  # one of _FORMS


def _position(env: Env, arguments: list[Scalar]) -> Scalar:
    values = typed(env, arguments, (STRING, STRING, INT64, INT64), "INSTR", needed=2)
    texts = [value.sql for value in values]
    texts += ["CAST(1 AS BIGINT)"] * (4 - len(texts))
    return Scalar(env.plan.call("position", *texts), INT64)


def _capitalized(env: Env, arguments: list[Scalar]) -> Scalar:
    values = typed(env, arguments, (STRING, STRING), "INITCAP", needed=1)
    texts = [value.sql for value in values]
    if len(texts) == 1:
        texts.append(quote_text(_DELIMITERS))
    return Scalar(env.plan.call("capitalized", *texts), STRING)


def _translated(env: Env, arguments: list[Scalar]) -> Scalar:
    values = typed(env, arguments, (STRING, STRING, STRING), "TRANSLATE")
    return Scalar(env.plan.call("translated", *(value.sql for value in values)), STRING)


def _normalized(env: Env, node: Any) -> Scalar:
    only(node, "this", "form")
    form = node.args.get("form")
    name = form.name.upper() if isinstance(form, exp.Expression) else "NFC"
    if name not in _FORMS:
        raise InvalidQuery(f"Invalid normalization mode {name}")
    text = env.typed(node.this, STRING, "NORMALIZE").sql
    return Scalar(env.plan.call("normalized", text, f"'{name}'"), STRING)


_V = "VARCHAR"
exact.add(
    {
        "position": exact.Exact(position, (_V, _V, "BIGINT", "BIGINT"), "BIGINT"),
        "capitalized": exact.Exact(capitalized, (_V, _V), _V),
        "translated": exact.Exact(translated, (_V, _V, _V), _V),
        "normalized": exact.Exact(normalized, (_V, _V), _V),
    }
)
register({exp.Normalize: _normalized})
register_named({"INSTR": _position, "INITCAP": _capitalized, "TRANSLATE": _translated})
