"""Comparisons: operators, IS, BETWEEN, IN and LIKE, each with three answers."""

from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import operators
from bqflink_beam.emulator.sql.casts import unify
from bqflink_beam.emulator.sql.expressions import Env, Reader, Subselect, construct, register
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported
from bqflink_beam.emulator.sql.kinds import BOOL, STRING
from bqflink_beam.emulator.sql.scope import Scalar


def _comparison(operator: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression")
        _refuse_chain(node)
        return operators.compare(env.plan, operator, env.expr(node.this), env.expr(node.expression))

    return read


def _refuse_chain(node: Any) -> None:
    """BigQuery's comparisons do not associate; the parser takes ``a = b = c`` somehow."""
    for side in (node.this, node.args.get("expression")):
        if isinstance(side, _COMPARISONS):
            raise InvalidQuery(f"Syntax error: comparisons need parentheses in {describe(node)}")


_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Is, exp.In, exp.Between, exp.Like,
    exp.NullSafeEQ, exp.NullSafeNEQ,
)  # fmt: skip


def _distinct(negate: bool) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression")
        _refuse_chain(node)
        a, b = env.expr(node.this), env.expr(node.expression)
        return operators.distinct(env.plan, a, b, negate=negate)

    return read


def _is(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression")
    _refuse_chain(node)
    value = env.expr(node.this)
    if isinstance(node.expression, exp.Null):
        return Scalar(f"({value.sql} IS NULL)", BOOL)
    if isinstance(node.expression, exp.Boolean):
        wanted = "TRUE" if node.expression.this else "FALSE"
        condition = operators.boolean(env.plan, value, "operator IS")
        return Scalar(f"({condition} IS NOT DISTINCT FROM {wanted})", BOOL)
    raise unsupported(construct(node))


def _between(env: Env, node: Any) -> Scalar:
    only(node, "this", "low", "high")
    _refuse_chain(node)
    value = env.expr(node.this)
    low = operators.compare(env.plan, ">=", value, env.expr(node.args["low"]))
    high = operators.compare(env.plan, "<=", value, env.expr(node.args["high"]))
    return Scalar(f"({low.sql} AND {high.sql})", BOOL)


def _in(env: Env, node: Any) -> Scalar:
    only(node, "this", "expressions", "unnest", "query")
    _refuse_chain(node)
    value = env.expr(node.this)
    if node.args.get("unnest"):
        only(node.args["unnest"], "expressions")
        (array,) = env.exprs(node.args["unnest"].expressions)
        return _in_array(env, value, array)
    if node.args.get("query"):
        query = node.args["query"]
        only(query, "this")
        return _in_query(env, value, env.subselect(query.this, env.scope))
    return operators.member(env.plan, value, env.exprs(node.expressions))


def _in_array(env: Env, value: Scalar, array: Scalar) -> Scalar:
    if array.kind.element is None:
        raise InvalidQuery(f"IN UNNEST needs an ARRAY, got {array.kind}")
    name = env.plan.name("x")
    test = operators.compare(env.plan, "=", value, Scalar(name, array.kind.element)).sql
    # An array of tests, then the three-valued OR over it: no element at all is FALSE.
    tests = f"list_transform({array.sql}, lambda {name}: {test})"
    return Scalar(
        f"(CASE WHEN {array.sql} IS NULL THEN FALSE "
        f"ELSE coalesce(list_bool_or({tests}), CASE WHEN len({array.sql}) = 0 THEN FALSE END) "
        f"OR (CASE WHEN list_contains(list_transform({tests}, lambda t: t IS NULL), TRUE) "
        f"THEN NULL ELSE FALSE END) END)",
        BOOL,
    )


def _in_query(env: Env, value: Scalar, query: Subselect) -> Scalar:
    if len(query.columns) != 1:
        raise InvalidQuery("Subquery of type IN must have only one output column")
    _, kind = query.columns[0]
    name = env.plan.name("q")
    item = Scalar(f"{name}.{query.names[0]}", kind)
    test = operators.compare(env.plan, "=", value, item).sql
    # EXISTS answers true or false; the third value is a NULL among the tests.
    return Scalar(
        f"(SELECT coalesce(bool_or({test}), CASE WHEN count(*) = 0 THEN FALSE END) "
        f"OR CASE WHEN bool_or(({test}) IS NULL) THEN NULL ELSE FALSE END "
        f"FROM ({query.sql}) AS {name})",
        BOOL,
    )


def _like(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression", "negate")
    _refuse_chain(node)
    if isinstance(node.expression, exp.Any | exp.All):
        raise unsupported("LIKE ANY/ALL")
    (value, pattern), _ = unify(
        env.plan, [env.expr(node.this), env.expr(node.expression)], "operator LIKE"
    )
    if value.kind != STRING:
        raise unsupported(f"LIKE on {value.kind}")
    if isinstance(pattern.literal, str):
        _check_pattern(pattern.literal)
    test = f"({value.sql} LIKE {pattern.sql} ESCAPE '\\')"
    return Scalar(f"(NOT {test})" if node.args.get("negate") else test, BOOL)


def _check_pattern(pattern: str) -> None:
    tail = len(pattern) - len(pattern.rstrip("\\"))
    if tail % 2:
        raise InvalidQuery("LIKE pattern ends with a backslash")


register(
    {
        exp.EQ: _comparison("="),
        exp.NEQ: _comparison("<>"),
        exp.LT: _comparison("<"),
        exp.LTE: _comparison("<="),
        exp.GT: _comparison(">"),
        exp.GTE: _comparison(">="),
        exp.NullSafeEQ: _distinct(negate=True),
        exp.NullSafeNEQ: _distinct(negate=False),
        exp.Is: _is,
        exp.Between: _between,
        exp.In: _in,
        exp.Like: _like,
    }
)
