"""SELECT and the set operations: a parsed query in, one DuckDB query out."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import (
    aggregates,
    codes,
    comparisons,
    dateformats,
    dates,
    formats,
    functions,
    jsonfunctions,
    operators,
    regexps,
    safe,
    texts,
    tojson,
)
from bqflink_beam.emulator.sql.casts import coerce, common_kind
from bqflink_beam.emulator.sql.expressions import Env, Subselect, path_of, struct_from
from bqflink_beam.emulator.sql.groupings import TOTAL_OF_ROWS, groupings, is_groupings
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported
from bqflink_beam.emulator.sql.kinds import INT64, Kind
from bqflink_beam.emulator.sql.scope import (
    PSEUDO_COLUMNS,
    Column,
    Plan,
    Scalar,
    Scope,
    bare_null,
    dig,
)
from bqflink_beam.emulator.sql.sources import From, Names

# Imported for the readers they add to the table of expressions.
_READERS = (
    aggregates,
    codes,
    comparisons,
    dateformats,
    dates,
    formats,
    functions,
    jsonfunctions,
    regexps,
    safe,
    texts,
    tojson,
)


@dataclasses.dataclass(frozen=True)
class _Item:
    """One output column: its name ("" if it has none), its value, and its node if it has one."""

    name: str
    value: Scalar
    node: Any = None


def compile_query(plan: Plan, node: Any, parent: Scope | None, names: Names) -> Subselect:
    """Compiles a query expression.

    Args:
        plan: collects what the query needs when it runs.
        node: the parsed query.
        parent: names of the query around it, for correlated subqueries.
        names: common table expressions in sight.

    Raises:
        InvalidQuery: it is wrong, or not supported.
    """
    with_node = node.args.get("with_")
    if with_node is not None:
        names = _with(with_node, names)
    if isinstance(node, exp.Subquery):
        only(node, "this", "order", "limit", "offset", "with_")
        inner = compile_query(plan, node.this, parent, names)
        return _arranged(plan, node, inner, parent, names)
    if isinstance(node, exp.SetOperation):
        return _arranged(plan, node, _set_operation(plan, node, parent, names), parent, names)
    if isinstance(node, exp.Select):
        return _Select(plan, node, parent, names).compile()
    if isinstance(node, exp.Condition):
        raise InvalidQuery(f"Syntax error: Unexpected {describe(node)}; expected SELECT or WITH")
    raise unsupported(f"{type(node).__name__} as a query")


def _with(node: Any, names: Names) -> Names:
    only(node, "expressions")
    queries = dict(names.queries)
    for item in node.expressions:
        only(item, "this", "alias")
        only(item.args["alias"], "this")
        queries[item.alias.lower()] = (item.this, Names(dict(queries), names.depth))
    return Names(queries, names.depth)


def _is_aggregate(node: Any) -> bool:
    """Whether an expression has an aggregate in it that belongs to the query around it."""
    if isinstance(node, exp.Query | exp.Subquery):
        return False
    if isinstance(node, exp.Window):
        inner = [
            *node.this.args.values(),
            *node.args.get("partition_by", ()),
            node.args.get("order"),
        ]
        return any(_is_aggregate(part) for part in _flat(inner))
    if isinstance(node, exp.AggFunc):
        return True
    return any(_is_aggregate(part) for part in _flat(node.args.values()))


def _flat(parts: Any) -> list[Any]:
    out = []
    for part in parts:
        out += [
            p for p in (part if isinstance(part, list) else [part]) if isinstance(p, exp.Expression)
        ]
    return out


class _Select:
    """One SELECT while it is compiled."""

    def __init__(self, plan: Plan, node: Any, parent: Scope | None, names: Names) -> None:
        only(
            node, "expressions", "from_", "joins", "where", "group", "having", "qualify",
            "distinct", "order", "limit", "offset", "kind", "with_", ignored=("operation_modifiers",),
        )  # fmt: skip
        self.plan = plan
        self.node = node
        self.names = names
        self.scope = Scope(parent=parent)
        self.source = From(plan, self.scope, names, compile_query)
        self.totals = False  # whether one of the groups is all of the rows

    def compile(self) -> Subselect:
        node = self.node
        if node.args.get("from_"):
            self.source.start(node.args["from_"].this)
        for join in node.args.get("joins") or ():
            self.source.join(join)
        where = self._condition("where", "the WHERE clause", rows=True)
        self.source.check_partition_filters(node.args.get("where"))
        aggregating = self._aggregating()
        keys, grouped = self._group()
        env = Env(self.plan, self.scope, self._subselect, grouped if aggregating else None, True)
        items = self._items(env)
        having = self._condition("having", "HAVING", env)
        if self.totals:
            having = f"{having} AND {TOTAL_OF_ROWS}" if having else f" HAVING {TOTAL_OF_ROWS}"
        qualify = self._condition("qualify", "QUALIFY", env)
        items = self._shaped(items)
        outputs = [self.plan.name("r") for _ in items]
        order = self._order(env, items, outputs)
        if node.args.get("distinct"):
            only(node.args["distinct"])
            values = [operators.group_key(item.value).sql for item in items]
        else:
            values = [item.value.sql for item in items]
        columns = [f"{value} AS {name}" for value, name in zip(values, outputs, strict=True)]
        columns += [f"{text} AS {name}" for name, text in order.hidden]
        text = "SELECT " + ("DISTINCT " if node.args.get("distinct") else "") + ", ".join(columns)
        text += f" FROM {self.source.sql}" if self.source.sql else ""
        text += where
        text += f" GROUP BY {', '.join(keys)}" if keys else ""
        text += having + qualify
        text = _finish(text, outputs, order, _limits(env, node))
        shown = tuple((item.name, item.value.kind) for item in items)
        value_table = node.args.get("kind") is not None
        nulls = frozenset(at for at, item in enumerate(items) if item.value.is_null)
        return Subselect(text, tuple(outputs), shown, value_table, nulls)

    def _subselect(self, node: Any, scope: Scope) -> Subselect:
        return compile_query(self.plan, node, scope, self.names)

    def _condition(self, part: str, clause: str, env: Env | None = None, rows: bool = False) -> str:
        node = self.node.args.get(part)
        if node is None:
            return ""
        only(node, "this")
        if rows or env is None:
            env = Env(self.plan, self.scope, self._subselect, clause=clause)
        else:
            env = dataclasses.replace(env, clause=clause)
            node = node.transform(self._unaliased)
        return f" {part.upper()} {operators.boolean(self.plan, env.expr(node.this), clause)}"

    def _aggregating(self) -> bool:
        node = self.node
        if node.args.get("group") or node.args.get("having"):
            return True
        parts = [*node.expressions, node.args.get("order"), node.args.get("qualify")]
        return any(_is_aggregate(part) for part in _flat(parts))

    # --- GROUP BY ---

    def _group(self) -> tuple[list[str], dict[Any, Scalar]]:
        group = self.node.args.get("group")
        if group is None:
            return [], {}
        only(group, "expressions", "all")
        env = Env(self.plan, self.scope, self._subselect, clause="GROUP BY")
        grouped: dict[Any, Scalar] = {}

        def key_of(item: Any) -> str:
            target = self._group_target(item)
            value = operators.group_key(env.expr(target))
            # Not by the item: the 1 of GROUP BY 1 is a 1 everywhere else.
            grouped[target] = value
            if self.totals and target.find(exp.Column) is None:
                raise unsupported("GROUP BY ROLLUP, CUBE or GROUPING SETS with a constant")
            return value.sql

        if group.args.get("all"):
            return list(dict.fromkeys(map(key_of, self._all_keys()))), grouped
        if not any(is_groupings(item) for item in group.expressions):
            return list(dict.fromkeys(map(key_of, group.expressions))), grouped
        if len(group.expressions) > 1:
            raise InvalidQuery("GROUP BY has ROLLUP, CUBE or GROUPING SETS and something else")
        self.totals = True
        compiled = groupings(group.expressions[0], key_of)
        self.totals = compiled.total
        return [compiled.text], grouped

    def _all_keys(self) -> list[Any]:
        """Returns what GROUP BY ALL groups by: the columns among the items."""
        keys = []
        for item in self.node.expressions:
            inner = item.unalias()
            if isinstance(inner, exp.Column) and not _is_star(inner):
                keys.append(inner)
            elif not isinstance(inner, exp.AggFunc):
                raise unsupported(f"GROUP BY ALL with {describe(inner)}")
        return keys

    def _group_target(self, item: Any) -> Any:
        if isinstance(item, exp.Literal):
            return self._numbered(item, "GROUP BY")
        if isinstance(item, exp.Column) and len(path_of(item)) == 1:
            aliased = self._aliased(item.name)
            if aliased is not None and aliased != item:
                if self._in_from(item.name):
                    raise unsupported(
                        f"GROUP BY {item.name}, which is a column and an alias of another expression"
                    )
                return aliased
        return item

    def _in_from(self, name: str) -> bool:
        return any(
            column.name.lower() == name.lower()
            for source in self.scope.sources
            for column in source.columns
        )

    def _aliased(self, name: str) -> Any:
        for item in self.node.expressions:
            if isinstance(item, exp.Alias) and item.alias.lower() == name.lower():
                return item.this
        return None

    def _numbered(self, item: Any, clause: str) -> Any:
        if item.is_string or not item.this.isdigit():
            raise InvalidQuery(f"{clause} by a literal: {item.this}")
        number = int(item.this)
        if not 1 <= number <= len(self.node.expressions) or any(
            _is_star(e) for e in self.node.expressions
        ):
            raise InvalidQuery(f"{clause} column number {number} is out of range")
        return self.node.expressions[number - 1].unalias()

    # --- the select list ---

    def _items(self, env: Env) -> list[_Item]:
        items: list[_Item] = []
        for node in self.node.expressions:
            if _is_star(node):
                items += self._star(env, node)
                continue
            inner = node.this if isinstance(node, exp.Alias) else node
            name = node.alias if isinstance(node, exp.Alias) else _implied_name(node)
            items.append(_Item(name, env.expr(inner), inner))
        if not items:
            raise InvalidQuery("SELECT has no columns")
        return items

    def _star(self, env: Env, node: Any) -> list[_Item]:
        star = node.this if isinstance(node, exp.Column) else node
        only(star, "except_", "replace")
        columns = self._star_columns(node)
        if not columns:
            raise InvalidQuery("SELECT * must have a FROM clause")
        dropped = {c.name.lower() for c in star.args.get("except_") or ()}
        replaced = {a.alias.lower(): a.this for a in star.args.get("replace") or ()}
        known = {column.name.lower() for column in columns}
        for name in (dropped | set(replaced)) - known:
            raise InvalidQuery(f"Column {name} in SELECT * EXCEPT/REPLACE list does not exist")
        items = []
        for column in columns:
            name = column.name.lower()
            if name in dropped:
                continue
            value = env.expr(replaced[name]) if name in replaced else column.scalar()
            items.append(_Item(column.name, value))
        return items

    def _star_columns(self, node: Any) -> list[Column]:
        if isinstance(node, exp.Column):
            path = [
                part.name for part in (node.args.get(k) for k in ("catalog", "db", "table")) if part
            ]
            for source in self.scope.sources:
                if len(path) == 1 and source.alias.lower() == path[0].lower():
                    return [c for c in source.columns if c.name not in PSEUDO_COLUMNS]
            value = self.scope.resolve(path)
            if value.kind.name != "STRUCT":
                raise InvalidQuery(f"Dot-star is not supported for type {value.kind}")
            return [Column(name, _digger(value, name)) for name, _ in value.kind.fields]
        merged = self.source.using
        hidden = {name.lower() for name in merged}
        columns = [Column(name, _constant(self.scope.merged[name.lower()])) for name in merged]
        for source in self.scope.sources:
            columns += [
                column
                for column in source.columns
                if column.name.lower() not in hidden and column.name not in PSEUDO_COLUMNS
            ]
        return columns

    def _shaped(self, items: list[_Item]) -> list[_Item]:
        kind = self.node.args.get("kind")
        if kind is None:
            return items
        if kind == "STRUCT":
            value = struct_from([item.name for item in items], [item.value for item in items])
            return [_Item("", value)]
        if len(items) != 1:
            raise InvalidQuery("SELECT AS VALUE query must have exactly one column")
        return items

    # --- ORDER BY ---

    def _order(self, env: Env, items: list[_Item], outputs: list[str]) -> "_Order":
        order = self.node.args.get("order")
        result = _Order()
        if order is None:
            return result
        only(order, "expressions")
        env = dataclasses.replace(env, clause="ORDER BY")
        for ordered in order.expressions:
            only(ordered, "this", "desc", "nulls_first")
            target = ordered.this
            position = self._output_of(target, items)
            if position is not None:
                result.add(ordered, outputs[position], items[position].value.kind)
                continue
            if self.node.args.get("distinct"):
                raise InvalidQuery("ORDER BY of SELECT DISTINCT must name columns of its output")
            value = env.expr(target.transform(self._unaliased))
            name = self.plan.name("s")
            result.hidden.append((name, value.sql))
            result.add(ordered, name, value.kind)
        return result

    def _output_of(self, node: Any, items: list[_Item]) -> int | None:
        if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
            number = int(node.this)
            if not 1 <= number <= len(items):
                raise InvalidQuery(f"ORDER BY column number {number} is out of range")
            return number - 1
        if self.node.args.get("kind") is not None:
            return None
        if isinstance(node, exp.Column) and len(path_of(node)) == 1:
            found = [p for p, item in enumerate(items) if item.name.lower() == node.name.lower()]
            if len(found) > 1:
                raise InvalidQuery(f"Column name {node.name} is ambiguous")
            return found[0] if found else None
        for position, item in enumerate(items):
            if item.node is not None and item.node == node:
                return position
        return None

    def _unaliased(self, node: Any) -> Any:
        if isinstance(node, exp.Column) and len(path_of(node)) == 1:
            aliased = self._aliased(node.name)
            if aliased is not None and aliased != node:
                if self._in_from(node.name):
                    raise unsupported(
                        f"{node.name}, which is a column and an alias of another expression, in an expression"
                    )
                return exp.Paren(this=aliased.copy())
        return node


@dataclasses.dataclass
class _Order:
    """ORDER BY keys over output and hidden columns."""

    keys: list[str] = dataclasses.field(default_factory=list)
    hidden: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    def add(self, ordered: Any, name: str, kind: Kind) -> None:
        self.keys += operators.sort_keys(
            name,
            kind,
            descending=bool(ordered.args.get("desc")),
            nulls_first=bool(ordered.args.get("nulls_first")),
        )


def _is_star(node: Any) -> bool:
    return isinstance(node, exp.Star) or (
        isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
    )


def _implied_name(node: Any) -> str:
    if isinstance(node, exp.Column):
        return str(node.name)
    return str(node.expression.name) if isinstance(node, exp.Dot) else ""


def _constant(value: Scalar) -> Any:
    return lambda: value


def _digger(value: Scalar, name: str) -> Any:
    return lambda: dig(value, [name])


def _limits(env: Env, node: Any) -> str:
    text = ""
    for part in ("limit", "offset"):
        clause = node.args.get(part)
        if clause is None:
            continue
        only(clause, "expression")
        value = env.expr(clause.expression)
        count = value.literal if value.is_literal else None
        if value.kind != INT64 or (value.is_literal and not isinstance(count, int)):
            raise InvalidQuery(f"{part.upper()} expects an integer literal or parameter")
        if isinstance(count, int) and count < 0:
            raise InvalidQuery(f"{part.upper()} must not be negative")
        text += f" {part.upper()} {value.sql}"
    return text


def _finish(text: str, outputs: Sequence[str], order: _Order, limits: str) -> str:
    if not order.keys:
        return text + limits
    return f"SELECT {', '.join(outputs)} FROM ({text}) ORDER BY {', '.join(order.keys)}{limits}"


def _arranged(
    plan: Plan, node: Any, query: Subselect, parent: Scope | None, names: Names
) -> Subselect:
    """Returns a query with the ORDER BY and LIMIT that stand behind its parentheses."""
    order = _Order()
    if ordering := node.args.get("order"):
        only(ordering, "expressions")
        for ordered in ordering.expressions:
            only(ordered, "this", "desc", "nulls_first")
            position = _position(ordered.this, query)
            order.add(ordered, query.names[position], query.columns[position][1])
    env = Env(plan, Scope(parent=parent), lambda n, s: compile_query(plan, n, s, names))
    limits = _limits(env, node)
    if not order.keys and not limits:
        return query
    return dataclasses.replace(
        query, sql=_finish(f"SELECT * FROM ({query.sql})", query.names, order, limits)
    )


def _position(node: Any, query: Subselect) -> int:
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        if 1 <= int(node.this) <= len(query.names):
            return int(node.this) - 1
    elif isinstance(node, exp.Column) and len(path_of(node)) == 1:
        found = [
            p for p, (name, _) in enumerate(query.columns) if name.lower() == node.name.lower()
        ]
        if len(found) == 1:
            return found[0]
    raise InvalidQuery(f"ORDER BY of a set operation must name an output column, got {node.sql()}")


def _set_operation(plan: Plan, node: Any, parent: Scope | None, names: Names) -> Subselect:
    only(node, "this", "expression", "distinct", "order", "limit", "offset", "with_")
    _refuse_mixture(node)
    sides = [compile_query(plan, side, parent, names) for side in _operands(node)]
    distinct = bool(node.args.get("distinct"))
    if not isinstance(node, exp.Union) and not distinct:
        raise unsupported("EXCEPT ALL and INTERSECT ALL")
    word = {exp.Union: "UNION", exp.Except: "EXCEPT", exp.Intersect: "INTERSECT"}[type(node)]
    widths = {len(side.columns) for side in sides}
    if len(widths) != 1:
        raise InvalidQuery(f"Queries in {word} have mismatched column count")
    kinds = [
        common_kind([_output(side, position, "") for side in sides], word)
        for position in range(widths.pop())
    ]
    outputs = [plan.name("r") for _ in kinds]
    texts = [_aligned(plan, side, kinds, outputs, distinct) for side in sides]
    joiner = f" {word} " if distinct else f" {word} ALL "
    shown = tuple((name, kind) for (name, _), kind in zip(sides[0].columns, kinds, strict=True))
    nulls = frozenset.intersection(*(side.nulls for side in sides))
    return Subselect(joiner.join(texts), tuple(outputs), shown, nulls=nulls)


def _refuse_mixture(node: Any) -> None:
    for side in (node.this, node.expression):
        if isinstance(side, exp.SetOperation) and (
            type(side) is not type(node)
            or bool(side.args.get("distinct")) != bool(node.args.get("distinct"))
        ):
            raise InvalidQuery(
                "Syntax error: Different set operations cannot be used in the same query "
                "without using parentheses for grouping"
            )


def _output(side: Subselect, position: int, text: str) -> Scalar:
    if position in side.nulls:
        return bare_null()
    return Scalar(text, side.columns[position][1])


def _operands(node: Any) -> list[Any]:
    """Returns the queries of a chain of the same operation; UNION chains may be long."""
    operands = [node.expression]
    left = node.this
    plain = isinstance(node, exp.Union)
    while (
        plain
        and type(left) is type(node)
        and bool(left.args.get("distinct")) == bool(node.args.get("distinct"))
        and not any(left.args.get(part) for part in ("order", "limit", "offset", "with_"))
    ):
        operands.append(left.expression)
        left = left.this
    operands.append(left)
    return operands[::-1]


def _aligned(
    plan: Plan, side: Subselect, kinds: list[Kind], outputs: list[str], distinct: bool
) -> str:
    name = plan.name("d")
    columns = []
    for position, (want, output) in enumerate(zip(kinds, outputs, strict=True)):
        item = _output(side, position, f"{name}.{side.names[position]}")
        value = coerce(plan, item, want, "a set operation")
        value = operators.group_key(value) if distinct else value
        columns.append(f"{value.sql} AS {output}")
    return f"(SELECT {', '.join(columns)} FROM ({side.sql}) AS {name})"
