"""``SAFE.`` in front of a function, and the functions that are called SAFE_ something.

What fails in the function itself is NULL; what fails in its arguments still ends the query,
so these are computed outside of the TRY, as the fields of a STRUCT that a lambda is given.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import exact, operators
from bqflink_beam.emulator.sql.casts import cast, unify
from bqflink_beam.emulator.sql.expressions import Env, construct, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import BYTES, FLOAT64, INT64, STRING
from bqflink_beam.emulator.sql.named import arity, register_named, typed
from bqflink_beam.emulator.sql.scope import Plan, Scalar

_NUMBERS = ("INT64", "NUMERIC", "BIGNUMERIC", "FLOAT64")
_NO_FUNCTIONS = (
    exp.AggFunc, exp.Window, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Cast, exp.Array,
    exp.Struct, exp.Exists, exp.SafeFunc, exp.And, exp.Or,
)  # fmt: skip
"""Nodes that the parser counts as functions and that take no ``SAFE.`` here."""
_OF_TEXT = (
    exp.Date, exp.Timestamp, exp.Datetime, exp.TsOrDsToDatetime, exp.TsOrDsToTime, exp.ParseJSON,
)  # fmt: skip
"""Functions that read a text when they run, for a literal too: a bad one is no error there."""


class _Ready(exp.Expression):  # type: ignore[misc]  # the library's base has no types
    """An argument that is compiled already."""

    arg_types = {"value": True}


def safely(plan: Plan, arguments: list[Scalar], build: Callable[[list[Scalar]], Scalar]) -> Scalar:
    """Returns what `build` makes of the arguments, or NULL where that fails.

    Literals are handed through as they are, for what depends on them when it is compiled.
    What is refused, and not wrong, ends the query all the same: `Plan.tries`.
    """
    row = plan.name("a")
    fields: list[str] = []
    given: list[Scalar] = []
    for value in arguments:
        if value.is_literal:
            given.append(value)
            continue
        name = f"f{len(fields)}"
        fields.append(f"{name} := {value.sql}")
        given.append(Scalar(f"struct_extract({row}, '{name}')", value.kind))
    plan.tries = True
    result = build(given)
    text = result.sql
    if any(isinstance(v.literal, str) and "CAST(error(" in v.literal for v in arguments):
        raise unsupported("SAFE. with this literal")
    if "CAST(error(" in text:
        text = text.replace("CAST(error(", f"CAST({plan.call('fail', '')[:-1]}")
    packed = ", ".join(fields) or "f0 := 0"
    return Scalar(
        f"list_extract(list_transform([struct_pack({packed})], lambda {row}: TRY({text})), 1)",
        result.kind,
    )


def _safe(env: Env, node: Any) -> Scalar:
    only(node, "this")
    call = node.this
    if not isinstance(call, exp.Func | exp.Mod | exp.IntDiv) or isinstance(call, _NO_FUNCTIONS):
        raise unsupported(f"SAFE. before {construct(call)}")
    call = call.copy()
    arguments: list[Scalar] = []
    slots: list[_Ready] = []
    for child in _children(call):
        value = env.expr(child)
        if value.is_literal and isinstance(call, _OF_TEXT):
            value = Scalar(value.sql, value.kind)
        if isinstance(child, exp.Literal) and value.is_literal:
            continue
        slot = _Ready()
        child.replace(slot)
        slots.append(slot)
        arguments.append(value)

    def build(given: list[Scalar]) -> Scalar:
        for slot, value in zip(slots, given, strict=True):
            slot.set("value", value)
        return env.expr(call)

    return safely(env.plan, arguments, build)


def _children(call: Any) -> list[Any]:
    """Returns the arguments of a call that are expressions; units and modes are words."""
    found = []
    for part in call.args.values():
        for child in part if isinstance(part, list) else [part]:
            if isinstance(child, exp.Interval):
                found += _children(child)
            elif isinstance(child, exp.Expression) and not isinstance(
                child, exp.Var | exp.WeekStart | exp.Identifier
            ):
                found.append(child)
    return found


def _ready(env: Env, node: Any) -> Scalar:
    value: Scalar = node.args["value"]
    return value


def _arithmetic(name: str, operator: str) -> Callable[[Env, list[Scalar]], Scalar]:
    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        values = _numbers(arity(arguments, 2, name), name)
        return safely(
            env.plan, values, lambda given: operators.arithmetic(env.plan, operator, *given)
        )

    return read


def _negate(env: Env, arguments: list[Scalar]) -> Scalar:
    values = _numbers(arity(arguments, 1, "SAFE_NEGATE"), "SAFE_NEGATE")
    return safely(env.plan, values, lambda given: operators.negate(env.plan, given[0]))


def _divide(env: Env, arguments: list[Scalar]) -> Scalar:
    values, kind = unify(
        env.plan, _numbers(arity(arguments, 2, "SAFE_DIVIDE"), "SAFE_DIVIDE"), "SAFE_DIVIDE"
    )
    if kind == INT64:
        values = [cast(env.plan, value, FLOAT64) for value in values]
    return safely(env.plan, values, lambda given: operators.arithmetic(env.plan, "/", *given))


def _numbers(values: list[Scalar], name: str) -> list[Scalar]:
    for value in values:
        if value.kind.name not in _NUMBERS:
            raise InvalidQuery(f"No matching signature for function {name} for type {value.kind}")
    return [dataclasses.replace(value) for value in values]


def text_or_refusal(data: bytes) -> str:
    """Returns UTF-8 as text; how many U+FFFD other bytes are is not known."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise unsupported("SAFE_CONVERT_BYTES_TO_STRING of bytes that are no UTF-8") from None


def _text(env: Env, arguments: list[Scalar]) -> Scalar:
    (data,) = typed(env, arguments, (BYTES,), "SAFE_CONVERT_BYTES_TO_STRING")
    return Scalar(env.plan.call("text_or_refusal", data.sql), STRING)


exact.add({"text_or_refusal": exact.Exact(text_or_refusal, ("BLOB",), "VARCHAR")})
register({exp.SafeFunc: _safe, _Ready: _ready})
register_named(
    {
        "SAFE_ADD": _arithmetic("SAFE_ADD", "+"),
        "SAFE_SUBTRACT": _arithmetic("SAFE_SUBTRACT", "-"),
        "SAFE_MULTIPLY": _arithmetic("SAFE_MULTIPLY", "*"),
        "SAFE_NEGATE": _negate,
        "SAFE_DIVIDE": _divide,
        "SAFE_CONVERT_BYTES_TO_STRING": _text,
    }
)
