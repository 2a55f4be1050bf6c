"""Aggregate and window functions."""

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import operators
from bqflink_beam.emulator.sql.casts import coerce, unify
from bqflink_beam.emulator.sql.expressions import Env, Reader, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported
from bqflink_beam.emulator.sql.kinds import (
    BIGNUMERIC,
    BOOL,
    FLOAT64,
    INT64,
    NUMERIC,
    ORDERED,
    STRING,
    Kind,
    array_of,
)
from bqflink_beam.emulator.sql.scope import Scalar

_NUMERIC_LIMIT = "CAST('99999999999999999999999999999.999999999' AS DECIMAL(38,9))"

AGGREGATES = (
    exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.AnyValue, exp.ArrayAgg,
    exp.GroupConcat, exp.LogicalAnd, exp.LogicalOr, exp.ApproxDistinct, exp.AggFunc,
)  # fmt: skip
"""Nodes that make the query around them an aggregating one."""


def inner_env(env: Env, node: Any) -> Env:
    """Returns what the arguments of an aggregate are compiled in: rows, not groups.

    Raises:
        InvalidQuery: no aggregate may stand here.
    """
    if not env.aggregates:
        raise InvalidQuery(f"Aggregate function {node.sql_name()} not allowed in {env.clause}")
    return Env(env.plan, env.scope, env.subselect, None, False, f"an argument of {node.sql_name()}")


def _argument(env: Env, node: Any) -> tuple[Scalar, str]:
    """Returns the argument, and ``DISTINCT `` where the query says so."""
    inner = inner_env(env, node)
    if isinstance(node.this, exp.Distinct):
        only(node.this, "expressions")
        if len(node.this.expressions) != 1:
            raise unsupported(f"{node.sql_name()}(DISTINCT) of several expressions")
        return operators.group_key(inner.expr(node.this.expressions[0])), "DISTINCT "
    if isinstance(node.this, exp.Order | exp.Limit | exp.HavingMax):
        raise unsupported(f"A modifier in {node.sql_name()}")
    return inner.expr(node.this), ""


def _count(env: Env, node: Any) -> Scalar:
    only(node, "this", ignored=("big_int",))
    if isinstance(node.this, exp.Star):
        only(node.this)
        inner_env(env, node)
        return Scalar("count(*)", INT64)
    value, distinct = _argument(env, node)
    return Scalar(f"count({distinct}{value.sql})", INT64)


def _count_if(env: Env, node: Any) -> Scalar:
    only(node, "this")
    condition, distinct = _argument(env, node)
    if distinct:
        raise unsupported("COUNTIF(DISTINCT)")
    test = coerce(env.plan, condition, BOOL, "COUNTIF").sql
    return Scalar(f"count(CASE WHEN {test} THEN 1 END)", INT64)


def _sum(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value, distinct = _argument(env, node)
    return sum_of(env, value, distinct)


def sum_of(env: Env, value: Scalar, distinct: str) -> Scalar:
    """Returns SUM, which overflows as loudly as the service's."""
    total = f"sum({distinct}{value.sql})"
    if value.kind == INT64:
        return Scalar(f"CAST({total} AS BIGINT)", INT64)
    if value.kind == FLOAT64:
        overflow = f"NOT isfinite({total}) AND bool_and(isfinite({value.sql}))"
        bad = "CAST(error('double overflow in SUM') AS DOUBLE)"
        return Scalar(f"(CASE WHEN {overflow} THEN {bad} ELSE {total} END)", FLOAT64)
    if value.kind == NUMERIC:
        bad = "CAST(error('numeric overflow: SUM') AS DECIMAL(38,9))"
        return Scalar(
            f"(CASE WHEN {total} > {_NUMERIC_LIMIT} OR {total} < -{_NUMERIC_LIMIT} "
            f"THEN {bad} ELSE {total} END)",
            NUMERIC,
        )
    if value.kind == BIGNUMERIC:
        return Scalar(env.plan.call("bignumeric_sum", f"list({distinct}{value.sql})"), BIGNUMERIC)
    raise InvalidQuery(f"No matching signature for SUM for type {value.kind}")


def _average(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value, distinct = _argument(env, node)
    count = f"count({distinct}{value.sql})"
    if value.kind == FLOAT64:
        total = sum_of(env, value, distinct)
        return Scalar(f"({total.sql} / nullif({count}, 0))", FLOAT64)
    if value.kind == INT64:
        mean = f"(CAST(sum({distinct}{value.sql}) AS DOUBLE) / nullif({count}, 0))"
        return Scalar(mean, FLOAT64)
    if value.kind == NUMERIC:
        total = sum_of(env, value, distinct)
        return Scalar(env.plan.call("numeric_mean", total.sql, f"nullif({count}, 0)"), NUMERIC)
    if value.kind == BIGNUMERIC:
        return Scalar(env.plan.call("bignumeric_mean", f"list({distinct}{value.sql})"), BIGNUMERIC)
    raise InvalidQuery(f"No matching signature for AVG for type {value.kind}")


def _extreme(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this")
        value, _ = _argument(env, node)
        if value.kind.name not in ORDERED:
            raise InvalidQuery(f"{name.upper()} is not defined for arguments of type {value.kind}")
        plain = f"{name}({value.sql})"
        if value.kind == FLOAT64:
            # One NaN makes the whole NaN; DuckDB takes NaN for the greatest number.
            plain = f"(CASE WHEN bool_or(isnan({value.sql})) THEN CAST('nan' AS DOUBLE) ELSE {plain} END)"
        return Scalar(plain, value.kind)

    return read


def _any_value(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value, _ = _argument(env, node)
    return Scalar(f"first({value.sql})", value.kind)


def _logical(name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this")
        value, distinct = _argument(env, node)
        return Scalar(f"{name}({distinct}{coerce(env.plan, value, BOOL, name).sql})", BOOL)

    return read


def _approximate_count(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value = operators.group_key(inner_env(env, node).expr(node.this))
    return Scalar(f"count(DISTINCT {value.sql})", INT64)


def _ordered(env: Env, node: Any, name: str) -> tuple[Scalar, str, str, str]:
    """Reads ``[DISTINCT] x [ORDER BY ...] [LIMIT n]``: value, distinct, order, limit."""
    inner = inner_env(env, node)
    limit = order = ""
    ordered: list[Any] = []
    body = node.this
    if isinstance(body, exp.Limit):
        only(body, "this", "expression")
        limit = inner.typed(body.expression, INT64, "LIMIT").sql
        body = body.this
    if isinstance(body, exp.Order):
        only(body, "this", "expressions")
        ordered = body.expressions
        order = " ORDER BY " + ", ".join(order_items(inner, ordered))
        body = body.this
    if isinstance(body, exp.Distinct):
        only(body, "expressions")
        own = all(item.this == body.expressions[0] for item in ordered)
        if len(body.expressions) != 1 or not own:
            raise unsupported(f"{name} with DISTINCT and ORDER BY of something else")
        return operators.group_key(inner.expr(body.expressions[0])), "DISTINCT ", order, limit
    if isinstance(body, exp.HavingMax):
        raise unsupported(f"HAVING MAX/MIN in {name}")
    return inner.expr(body), "", order, limit


def order_items(env: Env, items: Any) -> list[str]:
    """Returns the ORDER BY items of an aggregate or window."""
    keys = []
    for item in items:
        only(item, "this", "desc", "nulls_first")
        value = env.expr(item.this)
        keys += operators.sort_keys(
            value.sql,
            value.kind,
            descending=bool(item.args.get("desc")),
            nulls_first=bool(item.args.get("nulls_first")),
        )
    return keys


def _array_agg(env: Env, node: Any, ignore_nulls: bool = False) -> Scalar:
    only(node, "this", ignored=("nulls_excluded",))
    value, distinct, order, limit = _ordered(env, node, "ARRAY_AGG")
    kept = f" FILTER (WHERE {value.sql} IS NOT NULL)" if ignore_nulls else ""
    text = f"list({distinct}{value.sql}{order}){kept}"
    if limit:
        text = f"list_slice({text}, 1, {limit})"
    return Scalar(text, array_of(value.kind))


def _ignore_nulls(env: Env, node: Any) -> Scalar:
    only(node, "this")
    if isinstance(node.this, exp.ArrayAgg):
        return _array_agg(env, node.this, ignore_nulls=True)
    raise unsupported(f"IGNORE NULLS in {node.this.sql_name()}")


def _string_agg(env: Env, node: Any) -> Scalar:
    only(node, "this", "separator")
    value, distinct, order, limit = _ordered(env, node, "STRING_AGG")
    if value.kind != STRING or limit:
        raise unsupported("STRING_AGG of anything but STRING, or with LIMIT")
    separator = node.args.get("separator")
    text = (
        "','"
        if separator is None
        else inner_env(env, node).typed(separator, STRING, "STRING_AGG").sql
    )
    return Scalar(f"string_agg({distinct}{value.sql}, {text}{order})", STRING)


# --- windows ----------------------------------------------------------------------------

_RANKS = {exp.RowNumber: "row_number()", exp.Rank: "rank()", exp.DenseRank: "dense_rank()"}
_ORDERED = (exp.Rank, exp.DenseRank, exp.Lag, exp.Lead, exp.Ntile)
_NUMBERING = (exp.RowNumber, *_ORDERED)
_WINDOWED: dict[type, Callable[[Scalar], tuple[str, Kind]]] = {
    exp.Count: lambda value: (f"count({value.sql})", INT64),
    exp.Min: lambda value: (f"min({value.sql})", value.kind),
    exp.Max: lambda value: (f"max({value.sql})", value.kind),
    exp.FirstValue: lambda value: (f"first_value({value.sql})", value.kind),
    exp.LastValue: lambda value: (f"last_value({value.sql})", value.kind),
}


def _window(env: Env, node: Any) -> Scalar:
    only(node, "this", "partition_by", "order", "spec", ignored=("over",))
    if env.clause not in ("SELECT", "QUALIFY", "ORDER BY"):
        raise InvalidQuery(f"Analytic function not allowed in {env.clause}")
    rows = Env(env.plan, env.scope, env.subselect, env.grouped, env.aggregates, "a window")
    parts = [
        operators.group_key(value).sql for value in rows.exprs(node.args.get("partition_by") or ())
    ]
    over = f"PARTITION BY {', '.join(parts)} " if parts else ""
    if order := node.args.get("order"):
        only(order, "expressions")
        over += f"ORDER BY {', '.join(order_items(rows, order.expressions))} "
    if type(node.this) in _NUMBERING and node.args.get("spec") is not None:
        raise InvalidQuery(f"Window framing clause is not allowed for {node.this.sql_name()}")
    if type(node.this) in _ORDERED and order is None:
        raise InvalidQuery(f"Window ORDER BY is required for {node.this.sql_name()}")
    over += _frame(node.args.get("spec"))
    text, kind = _windowed(rows, node.this)
    call = f"{text} OVER ({over.strip()})"
    if kind == INT64 and text.startswith("sum("):
        call = f"CAST({call} AS BIGINT)"
    return Scalar(call, kind)


def _windowed(env: Env, node: Any) -> tuple[str, Kind]:
    if type(node) in _RANKS:
        only(node)
        return _RANKS[type(node)], INT64
    if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
        return "count(*)", INT64
    if isinstance(node, exp.Lag | exp.Lead):
        return _shifted(env, node)
    if isinstance(node, exp.Ntile):
        only(node, "this")
        return f"ntile({_constant(env, node.this, 'NTILE', 1)})", INT64
    only(node, "this", ignored=("big_int",))
    if isinstance(node.this, exp.Distinct) or type(node) not in (*_WINDOWED, exp.Sum):
        raise unsupported(f"{describe(node)} as an analytic function")
    value = env.expr(node.this)
    if isinstance(node, exp.Sum) and value.kind in (INT64, NUMERIC):
        return f"sum({value.sql})", value.kind
    if isinstance(node, exp.Sum) or value.kind == FLOAT64:
        raise unsupported(f"{describe(node)} as an analytic function of {value.kind}")
    return _WINDOWED[type(node)](value)


def _shifted(env: Env, node: Any) -> tuple[str, Kind]:
    """Reads ``LAG(x, offset, default)`` or LEAD."""
    only(node, "this", "offset", "default")
    name = node.sql_name()
    value, step, default = env.expr(node.this), node.args.get("offset"), node.args.get("default")
    count = 1 if step is None else _constant(env, step, name, 0)
    if default is None:
        return f"{name.lower()}({value.sql}, {count})", value.kind
    if default.find(exp.Column, exp.Query) is not None:
        raise InvalidQuery(
            f"The third argument (the default expression) to {name} must be constant"
        )
    (value, other), kind = unify(env.plan, [value, env.expr(default)], name)
    return f"{name.lower()}({value.sql}, {count}, {other.sql})", kind


def _constant(env: Env, node: Any, name: str, least: int) -> int:
    """Returns a whole number that a window function needs to know before it sees a row."""
    number = env.expr(node).literal
    if isinstance(number, bool) or not isinstance(number, int):
        raise unsupported(f"{name} with anything but a whole number ({describe(node)})")
    if number < least:
        raise InvalidQuery(f"The argument of {name} must be at least {least}, got {number}")
    return number


def _frame(spec: Any) -> str:
    if spec is None:
        return ""
    only(spec, "kind", "start", "start_side", "end", "end_side")
    if spec.args["kind"] != "ROWS":
        raise unsupported("A RANGE window frame")
    bounds = []
    for edge in ("start", "end"):
        bound, side = spec.args.get(edge), spec.args.get(f"{edge}_side") or ""
        if bound is None:
            bound = "CURRENT ROW"
        text = bound if isinstance(bound, str) else bound.name
        if text not in ("UNBOUNDED", "CURRENT ROW") and not text.isdigit():
            raise unsupported(f"Window frame bound {text}")
        bounds.append(f"{text} {side}".strip())
    return f"ROWS BETWEEN {bounds[0]} AND {bounds[1]}"


register(
    {
        exp.Count: _count,
        exp.CountIf: _count_if,
        exp.Sum: _sum,
        exp.Avg: _average,
        exp.Min: _extreme("min"),
        exp.Max: _extreme("max"),
        exp.AnyValue: _any_value,
        exp.LogicalAnd: _logical("bool_and"),
        exp.LogicalOr: _logical("bool_or"),
        exp.ApproxDistinct: _approximate_count,
        exp.ArrayAgg: _array_agg,
        exp.IgnoreNulls: _ignore_nulls,
        exp.GroupConcat: _string_agg,
        exp.Window: _window,
    }
)
