"""``INTERVAL 3 DAY``: added to dates and times, and subtracted from them."""

import dataclasses
import re
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import operators
from bqflink_beam.emulator.sql.casts import cast
from bqflink_beam.emulator.sql.expressions import Env, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import DATE, DATETIME, INT64, INTERVAL, TIMESTAMP
from bqflink_beam.emulator.sql.operators import checked_date, checked_timestamp
from bqflink_beam.emulator.sql.scope import Plan, Scalar, quote_text

CLOCK_UNITS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
}
MONTH_UNITS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


@dataclasses.dataclass(frozen=True)
class _Span:
    """An INTERVAL of one unit: the DuckDB text of its number, and the unit."""

    count: str
    unit: str


def amount(env: Env, node: Any) -> str:
    """Returns the number of an INTERVAL; the parser hands literals over as text."""
    if isinstance(node, exp.Literal):
        if not re.fullmatch(r"-?\d+", node.this):
            raise InvalidQuery(f"Invalid INTERVAL value {node.this}")
        return f"CAST({node.this} AS BIGINT)"
    return env.typed(node, INT64, "INTERVAL").sql


def shifted(value: Scalar, count: str, unit: str, word: str) -> Scalar:
    """Returns a date or time moved by a number of units.

    Raises:
        InvalidQuery: the unit is none of the value's type.
    """
    kind = value.kind
    if unit in MONTH_UNITS and kind != TIMESTAMP:
        moved = f"({value.sql} + to_months(CAST({count} * {MONTH_UNITS[unit]} AS INTEGER)))"
    elif unit in ("DAY", "WEEK") and kind == DATE:
        moved = f"({value.sql} + CAST({count} * {7 if unit == 'WEEK' else 1} AS INTEGER))"
    elif unit == "WEEK" and kind == DATETIME:
        moved = f"({value.sql} + to_microseconds({count} * {7 * CLOCK_UNITS['DAY']}))"
    elif unit in CLOCK_UNITS and kind != DATE:
        moved = f"({value.sql} + to_microseconds({count} * {CLOCK_UNITS[unit]}))"
    else:
        raise InvalidQuery(f"{unit} is not defined for {word} of type {kind}")
    if kind == DATE:
        return Scalar(checked_date(f"CAST({moved} AS DATE)"), DATE)
    return Scalar(checked_timestamp(moved, kind.name.lower()), kind)


def _interval(env: Env, node: Any) -> Scalar:
    only(node, "this", "unit")
    unit = node.args.get("unit")
    if not isinstance(unit, exp.Var):
        raise unsupported("An INTERVAL of several parts")
    name = unit.name.upper()
    if name not in MONTH_UNITS and name not in CLOCK_UNITS and name != "WEEK":
        raise InvalidQuery(f"Invalid INTERVAL unit {name}")
    span = _Span(amount(env, node.this), name)
    alone = quote_text(unsupported("An INTERVAL as a value").message)
    return Scalar(f"CAST(error({alone}) AS INTERVAL)", INTERVAL, span)


def _sum(operator: str) -> Any:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression", ignored=("typed", "safe"))
        a, b = env.expr(node.this), env.expr(node.expression)
        if operator == "+" and isinstance(a.literal, _Span):
            a, b = b, a
        if isinstance(b.literal, _Span):
            return _moved(env.plan, a, b.literal, operator)
        return operators.arithmetic(env.plan, operator, a, b)

    return read


def _moved(plan: Plan, value: Scalar, span: _Span, operator: str) -> Scalar:
    if value.kind == DATE:
        value = cast(plan, value, DATETIME)
    if value.kind not in (DATETIME, TIMESTAMP):
        raise unsupported(f"{value.kind} {operator} INTERVAL")
    count, unit = span.count, span.unit
    if unit == "WEEK":
        count, unit = f"({count} * 7)", "DAY"
    sign = "-" if operator == "-" else ""
    return shifted(value, f"({sign}{count})", unit, f"operator {operator}")


register({exp.Interval: _interval, exp.Add: _sum("+"), exp.Sub: _sum("-")})
