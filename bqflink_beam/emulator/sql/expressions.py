"""Scalar expressions: a parsed node in, DuckDB text with a BigQuery type out.

Each kind of node has one reader in a table. A node that is in no table is refused, and
so is a part of a node that its reader does not look at (`only`).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import operators
from bqflink_beam.emulator.sql.casts import cast, coerce, kind_of_type, unify
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported
from bqflink_beam.emulator.sql.kinds import (
    BOOL,
    BYTES,
    FLOAT64,
    INT64,
    JSON,
    STRING,
    Kind,
    array_of,
    duckdb_type,
    quote_name,
)
from bqflink_beam.emulator.sql.literals import literal_of, parsed_text, value_sql
from bqflink_beam.emulator.sql.scope import NOT_LITERAL, Plan, Scalar, Scope, bare_null, dig
from bqflink_beam.emulator.sql.signatures import called, check_name


@dataclasses.dataclass(frozen=True)
class Subselect:
    """A compiled query in a query: its text, and the types of its columns.

    `nulls` are the positions of columns that are the bare word NULL, and so of no type.
    """

    sql: str
    names: tuple[str, ...]
    columns: tuple[tuple[str, Kind], ...]
    value_table: bool = False
    nulls: frozenset[int] = frozenset()


@dataclasses.dataclass(frozen=True)
class Env:
    """What an expression is compiled in.

    `subselect` compiles a query that stands inside. `grouped` holds the GROUP BY
    expressions by their node; None outside an aggregating query. `clause` is for messages.
    """

    plan: Plan
    scope: Scope
    subselect: Callable[[Any, Scope], Subselect]
    grouped: Mapping[Any, Scalar] | None = None
    aggregates: bool = False
    clause: str = "SELECT"

    def expr(self, node: Any) -> Scalar:
        """Compiles one node.

        Raises:
            InvalidQuery: it is wrong, or not supported.
        """
        if self.grouped is not None and node in self.grouped:
            return self.grouped[node]
        reader = _READERS.get(type(node))
        if reader is None:
            raise unsupported(construct(node))
        check_name(node)
        return reader(self, node)

    def exprs(self, nodes: Any) -> list[Scalar]:
        return [self.expr(node) for node in nodes]

    def typed(self, node: Any, kind: Kind, what: str) -> Scalar:
        """Compiles a node that must be, or turn into, a type."""
        return coerce(self.plan, self.expr(node), kind, what)


Reader = Callable[[Env, Any], Scalar]
_READERS: dict[type, Reader] = {}


def register(readers: Mapping[type, Reader]) -> None:
    """Adds readers of other modules to the table; each node has one."""
    assert not set(readers) & set(_READERS), set(readers) & set(_READERS)
    _READERS.update(readers)


def construct(node: Any) -> str:
    """Returns the name of a construct for a message: a function's, or the node's SQL."""
    if isinstance(node, exp.Anonymous):
        return f"Function {node.name}"
    if isinstance(node, exp.Func):
        return f"Function {called(node) or node.sql_name()} ({describe(node)})"
    return f"{type(node).__name__} ({describe(node)})"


# --- literals and names -----------------------------------------------------------------


def _literal(env: Env, node: Any) -> Scalar:
    only(node, "this", "is_string")
    if node.is_string:
        return literal_of(node.this, STRING)
    text = node.this
    if any(mark in text for mark in ".eE"):
        if math.isinf(float(text)):
            raise InvalidQuery(f"Invalid floating point literal: {text}")
        return Scalar(value_sql(float(text), FLOAT64), FLOAT64, Decimal(text))
    return _integer(int(text))


def _integer(number: int) -> Scalar:
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidQuery(f"Invalid integer literal: {number}")
    return literal_of(number, INT64)


def _hex(env: Env, node: Any) -> Scalar:
    only(node, "this", "is_integer")
    return _integer(int(node.this, 16))


def _negative(env: Env, node: Any) -> Scalar:
    only(node, "this")
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        if not any(mark in inner.this for mark in ".eE"):
            return _integer(-int(inner.this))
        value = -Decimal(inner.this)
        return Scalar(value_sql(-float(inner.this), FLOAT64), FLOAT64, value)
    return operators.negate(env.plan, env.expr(inner))


def _null(env: Env, node: Any) -> Scalar:
    return bare_null()


def _boolean(env: Env, node: Any) -> Scalar:
    return literal_of(bool(node.this), BOOL)


def _column(env: Env, node: Any) -> Scalar:
    return env.scope.resolve(path_of(node))


def path_of(node: Any) -> list[str]:
    """Returns the parts of a dotted name."""
    if isinstance(node, exp.Dot):
        return [*path_of(node.this), node.name]
    only(node, "this", "table", "db", "catalog")
    parts = [node.args.get(part) for part in ("catalog", "db", "table", "this")]
    if any(isinstance(part, exp.Star) for part in parts):
        raise InvalidQuery("A star cannot stand inside an expression")
    return [part.name for part in parts if part is not None]


def _dot(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression")
    if isinstance(node.this, exp.Column | exp.Dot) and _is_path(node):
        return env.scope.resolve(path_of(node))
    if not isinstance(node.expression, exp.Identifier):
        raise unsupported(construct(node.expression))
    return dig(env.expr(node.this), [node.expression.name])


def _is_path(node: Any) -> bool:
    while isinstance(node, exp.Dot):
        if not isinstance(node.expression, exp.Identifier):
            return False
        node = node.this
    return isinstance(node, exp.Column)


def _parameter(env: Env, node: Any) -> Scalar:
    only(node, "this")
    if not isinstance(node.this, exp.Var):
        raise unsupported("A system variable (@@)")
    return env.plan.parameter(node.this.name)


def _placeholder(env: Env, node: Any) -> Scalar:
    only(node)
    return env.plan.parameter(None)


def _paren(env: Env, node: Any) -> Scalar:
    only(node, "this")
    return env.expr(node.this)


# --- logic and comparison -----------------------------------------------------------------


def _logic(word: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression")
        # A chain of a thousand ORs is a tree a thousand deep: walk it, do not recurse.
        operands = []
        pending = [node]
        while pending:
            item = pending.pop()
            if type(item) is type(node):
                pending += [item.expression, item.this]
            else:
                operands.append(operators.boolean(env.plan, env.expr(item), f"operator {word}"))
        return Scalar("(" + f" {word} ".join(operands) + ")", BOOL)

    return read


def _not(env: Env, node: Any) -> Scalar:
    only(node, "this")
    return Scalar(f"(NOT {operators.boolean(env.plan, env.expr(node.this), 'operator NOT')})", BOOL)


# --- choosing -----------------------------------------------------------------------------


def _case(env: Env, node: Any) -> Scalar:
    only(node, "this", "ifs", "default")
    subject = env.expr(node.this) if node.this is not None else None
    tests, results = [], []
    for branch in node.args["ifs"]:
        only(branch, "this", "true")
        when = env.expr(branch.this)
        if subject is not None:
            tests.append(operators.compare(env.plan, "=", subject, when).sql)
        else:
            tests.append(operators.boolean(env.plan, when, "CASE"))
        results.append(env.expr(branch.args["true"]))
    default = node.args.get("default")
    results.append(env.expr(default) if default is not None else bare_null())
    return _choose(env, tests, results, "CASE")


def _choose(env: Env, tests: list[str], results: list[Scalar], what: str) -> Scalar:
    values, kind = unify(env.plan, results, what)
    branches = " ".join(
        f"WHEN {test} THEN {value.sql}" for test, value in zip(tests, values[:-1], strict=True)
    )
    return Scalar(f"(CASE {branches} ELSE {values[-1].sql} END)", kind)


def _if(env: Env, node: Any) -> Scalar:
    only(node, "this", "true", "false")
    test = operators.boolean(env.plan, env.expr(node.this), "IF")
    otherwise = node.args.get("false")
    if otherwise is None:
        raise InvalidQuery("IF needs three arguments")
    return _choose(env, [test], [env.expr(node.args["true"]), env.expr(otherwise)], "IF")


def _coalesce(env: Env, node: Any) -> Scalar:
    only(node, "this", "expressions")
    values, kind = unify(env.plan, env.exprs([node.this, *node.expressions]), "COALESCE")
    return Scalar(f"coalesce({', '.join(value.sql for value in values)})", kind)


def _nullif(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression")
    (a, b), kind = unify(env.plan, env.exprs([node.this, node.expression]), "NULLIF")
    same = operators.compare(env.plan, "=", a, b).sql
    return Scalar(f"(CASE WHEN {same} THEN NULL ELSE {a.sql} END)", kind)


# --- casts --------------------------------------------------------------------------------


def _cast(env: Env, node: Any) -> Scalar:
    only(node, "this", "to", "safe", ignored=("_type",))
    kind = kind_of_type(node.args["to"])
    inner = node.this
    if isinstance(inner, exp.Literal) and inner.is_string and kind != STRING:
        if kind in (BYTES, JSON):
            return cast(env.plan, env.expr(inner), kind)
        if not isinstance(node, exp.TryCast):
            return parsed_text(inner.this, kind)
    if isinstance(inner, exp.Array) and kind.element:
        items = [
            coerce(env.plan, item, kind.element, str(kind)) for item in env.exprs(inner.expressions)
        ]
        return _array_of(items, kind.element)
    value = _with_doubles(env.expr(inner))
    return cast(env.plan, value, kind, safe=isinstance(node, exp.TryCast))


def _with_doubles(value: Scalar) -> Scalar:
    """Returns a STRUCT whose decimals are FLOAT64: in a CAST only a bare one is what it says."""
    parts = tuple(
        dataclasses.replace(part, literal=NOT_LITERAL)
        if isinstance(part.literal, Decimal)
        else _with_doubles(part)
        for part in value.parts
    )
    return dataclasses.replace(value, parts=parts)


def _json_literal(env: Env, node: Any) -> Scalar:
    only(node, "this", "is_literal")
    value = env.expr(node.this)
    if isinstance(value.literal, str):
        return parsed_text(value.literal, JSON)
    return Scalar(
        env.plan.call("parse_json_text", coerce(env.plan, value, STRING, "PARSE_JSON").sql), JSON
    )


# --- structs, arrays, subqueries --------------------------------------------------------------


def _struct(env: Env, node: Any) -> Scalar:
    only(node, "expressions")
    names, values = [], []
    for item in node.expressions:
        if isinstance(item, exp.PropertyEQ):
            names.append(item.this.name)
            values.append(env.expr(item.expression))
        else:
            names.append(item.name if isinstance(item, exp.Column | exp.Dot) else "")
            values.append(env.expr(item))
    return struct_from(names, values)


def _tuple(env: Env, node: Any) -> Scalar:
    only(node, "expressions")
    return struct_from([""] * len(node.expressions), env.exprs(node.expressions))


def struct_from(names: list[str], values: list[Scalar]) -> Scalar:
    """Returns a STRUCT; fields without a name get one inside DuckDB only."""
    if not values:
        raise unsupported("An empty STRUCT")
    kind = Kind("STRUCT", None, tuple((n, v.kind) for n, v in zip(names, values, strict=True)))
    inner = ", ".join(
        f"{quote_name(name or f'_field_{position}')} := {value.sql}"
        for position, (name, value) in enumerate(zip(names, values, strict=True), 1)
    )
    return Scalar(f"struct_pack({inner})", kind, parts=tuple(values))


def _array(env: Env, node: Any) -> Scalar:
    only(node, "expressions", ignored=("struct_name_inheritance", "value_constructor"))
    inner = node.expressions
    if len(inner) == 1 and isinstance(inner[0], exp.Query):
        return _array_query(env, env.subselect(inner[0], env.scope))
    if not inner:
        return Scalar("CAST([] AS BIGINT[])", array_of(INT64))
    values, kind = unify(env.plan, env.exprs(inner), "ARRAY")
    return _array_of(values, kind)


def _array_of(values: list[Scalar], element: Kind) -> Scalar:
    text = f"[{', '.join(value.sql for value in values)}]"
    return literal_array(text, element)


def literal_array(text: str, element: Kind) -> Scalar:
    """Returns an ARRAY of a DuckDB list text, with its type said aloud."""
    kind = array_of(element)
    return Scalar(f"CAST({text} AS {duckdb_type(kind)})", kind)


def _array_query(env: Env, query: Subselect) -> Scalar:
    if len(query.columns) != 1:
        raise InvalidQuery("ARRAY subquery must have only one output column")
    return Scalar(f"ARRAY({query.sql})", array_of(query.columns[0][1]))


def _subquery(env: Env, node: Any) -> Scalar:
    only(node, "this")
    query = env.subselect(node.this, env.scope)
    if len(query.columns) != 1:
        raise InvalidQuery("Scalar subquery must have only one output column")
    return Scalar(f"({query.sql})", query.columns[0][1])


def _exists(env: Env, node: Any) -> Scalar:
    only(node, "this")
    return Scalar(f"EXISTS({env.subselect(node.this, env.scope).sql})", BOOL)


def _bracket(env: Env, node: Any) -> Scalar:
    only(node, "this", "expressions", "offset", "safe")
    array = env.expr(node.this)
    if array.kind == JSON and len(node.expressions) == 1 and not node.args.get("offset"):
        return _json_bracket(env, array, env.expr(node.expressions[0]))
    if array.kind.element is None or len(node.expressions) != 1:
        raise InvalidQuery(f"Element access using [] is not supported on type {array.kind}")
    index = env.typed(node.expressions[0], INT64, "an array index").sql
    # The parser has counted back to zero for ORDINAL(n), where n is a literal.
    base = node.args.get("offset") or 0
    position = f"({index} - {base} + 1)"
    inside = f"({position} >= 1 AND {position} <= len({array.sql}))"
    element = f"list_extract({array.sql}, {position})"
    miss = "NULL" if node.args.get("safe") else _outside(array.kind.element)
    nothing = f"{array.sql} IS NULL OR {index} IS NULL"
    return Scalar(
        f"(CASE WHEN {nothing} THEN NULL WHEN {inside} THEN {element} ELSE {miss} END)",
        array.kind.element,
    )


def _json_bracket(env: Env, value: Scalar, index: Scalar) -> Scalar:
    if index.kind == STRING:
        return Scalar(env.plan.call("json_field", value.sql, index.sql), JSON)
    number = coerce(env.plan, index, INT64, "a JSON subscript")
    return Scalar(env.plan.call("json_element", value.sql, number.sql), JSON)


def _outside(kind: Kind) -> str:
    return f"CAST(error('Array index is out of bounds') AS {duckdb_type(kind)})"


def _arithmetic(operator: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression", ignored=("typed", "safe"))
        a, b = env.expr(node.this), env.expr(node.expression)
        return operators.arithmetic(env.plan, operator, a, b)

    return read


def _bitwise(operator: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression")
        for side in (node.this, node.expression):
            # BigQuery binds & before ^ before |, the parser all alike: say which is meant.
            if isinstance(side, exp.BitwiseAnd | exp.BitwiseOr | exp.BitwiseXor) and not isinstance(
                side, type(node)
            ):
                raise unsupported("Mixing bitwise operators without parentheses")
        return operators.bitwise(env.plan, operator, env.expr(node.this), env.expr(node.expression))

    return read


def _bitwise_not(env: Env, node: Any) -> Scalar:
    only(node, "this")
    return Scalar(f"(~ {env.typed(node.this, INT64, 'operator ~').sql})", INT64)


def _pipes(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression", ignored=("safe",))
    values = env.exprs([node.this, node.expression])
    for value in values:
        # Unlike CONCAT it casts nothing; that also keeps `'a' || 1 + 2` from being misread.
        if value.kind.name not in ("STRING", "BYTES", "ARRAY") and not value.is_null:
            raise InvalidQuery(f"No matching signature for operator || for type {value.kind}")
    return operators.concatenate(env.plan, values)


def _concat(env: Env, node: Any) -> Scalar:
    only(node, "expressions", ignored=("safe",))
    return operators.concatenate(env.plan, env.exprs(node.expressions))


register(
    {
        exp.Literal: _literal,
        exp.HexString: _hex,
        exp.Neg: _negative,
        exp.Null: _null,
        exp.Boolean: _boolean,
        exp.Column: _column,
        exp.Dot: _dot,
        exp.Parameter: _parameter,
        exp.Placeholder: _placeholder,
        exp.Paren: _paren,
        exp.And: _logic("AND"),
        exp.Or: _logic("OR"),
        exp.Not: _not,
        exp.Case: _case,
        exp.If: _if,
        exp.Coalesce: _coalesce,
        exp.Nullif: _nullif,
        exp.Cast: _cast,
        exp.TryCast: _cast,
        exp.ParseJSON: _json_literal,
        exp.Struct: _struct,
        exp.Tuple: _tuple,
        exp.Array: _array,
        exp.Subquery: _subquery,
        exp.Exists: _exists,
        exp.Bracket: _bracket,
        exp.Mul: _arithmetic("*"),
        exp.Div: _arithmetic("/"),
        exp.BitwiseAnd: _bitwise("&"),
        exp.BitwiseOr: _bitwise("|"),
        exp.BitwiseXor: _bitwise("^"),
        exp.BitwiseNot: _bitwise_not,
        exp.DPipe: _pipes,
        exp.Concat: _concat,
    }
)
