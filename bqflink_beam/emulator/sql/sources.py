"""FROM clauses: tables, views, common table expressions, subqueries, UNNEST and joins."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import exp

from bqflink_beam.emulator.sql import operators
from bqflink_beam.emulator.sql.expressions import Env, Subselect
from bqflink_beam.emulator.sql.invalid import STUMBLES, InvalidQuery, only, unsupported
from bqflink_beam.emulator.sql.kinds import INT64, TIMESTAMP
from bqflink_beam.emulator.sql.lexer import normalize
from bqflink_beam.emulator.sql.parser import DIALECT, statements_of
from bqflink_beam.emulator.sql.pivots import rewritten
from bqflink_beam.emulator.sql.scope import (
    PARTITION_DATE,
    Column,
    Plan,
    Scalar,
    Scope,
    Source,
    TableInput,
    ViewInput,
    dig,
)
from bqflink_beam.emulator.sql.signatures import check_counts
from bqflink_beam.emulator.types import PARTITION_TIME

_VIEW_DEPTH_MAX = 16

# It warns of every statement that it does not know, and those are refused here anyway.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


@dataclasses.dataclass(frozen=True)
class Names:
    """The common table expressions that are in sight, each with those in its own sight."""

    queries: Mapping[str, tuple[Any, "Names"]] = dataclasses.field(default_factory=dict)
    depth: int = 0


Compile = Callable[[Plan, Any, "Scope | None", Names], Subselect]


def parse(text: str) -> Any:
    """Returns the one statement of a text.

    Raises:
        InvalidQuery: a syntax error, or several statements.
    """
    try:
        plain = normalize(text)
        tokens = DIALECT.tokenize(plain)
        check_counts(tokens)
        statements = [s for s in statements_of(tokens, plain) if s is not None]
    except sqlglot.errors.SqlglotError as error:
        raise InvalidQuery(f"Syntax error: {_plain(str(error))}") from None
    except STUMBLES:
        raise InvalidQuery("Syntax error: a function call that is not understood") from None
    except RecursionError:
        raise unsupported("A query nested this deep") from None
    if not statements:
        raise InvalidQuery("Syntax error: Unexpected end of statement")
    if len(statements) > 1 or isinstance(statements[0], exp.Block):
        raise unsupported("A script of several statements")
    return statements[0]


def _plain(text: str) -> str:
    return text.replace("\x1b[4m", "").replace("\x1b[0m", "").partition("\n")[0][:300]


@dataclasses.dataclass
class From:
    """A FROM clause while it is read: its DuckDB text, and the names it gives."""

    plan: Plan
    scope: Scope
    names: Names
    compile: Compile
    sql: str = ""
    using: list[str] = dataclasses.field(default_factory=list)
    tables: list[TableInput] = dataclasses.field(default_factory=list)

    def start(self, node: Any) -> None:
        """Reads the first item."""
        text, source = self._item(node)
        self.sql = text
        self.scope.sources.append(source)

    def join(self, node: Any) -> None:
        """Reads one join, or what stands behind a comma."""
        only(node, "this", "kind", "side", "on", "using")
        side = (node.args.get("side") or "").upper()
        kind = (node.args.get("kind") or "").upper()
        if kind not in ("", "CROSS", "INNER", "OUTER") or side not in ("", "LEFT", "RIGHT", "FULL"):
            raise unsupported(f"{side} {kind} JOIN")
        before = list(self.scope.sources)
        text, source = self._item(node.this)
        self.scope.sources.append(source)
        word = f"{side} JOIN" if side else "JOIN"
        on, using = node.args.get("on"), node.args.get("using")
        if isinstance(node.this, exp.Unnest) and side in ("RIGHT", "FULL"):
            raise unsupported(f"{side} JOIN UNNEST")
        if on is not None:
            condition = operators.boolean(self.plan, self._env().expr(on), "JOIN")
        elif using:
            condition = self._using(using, before, source, side)
        elif kind == "CROSS" or isinstance(node.this, exp.Unnest):
            condition = "TRUE"
        else:
            raise InvalidQuery("Syntax error: a JOIN needs ON or USING")
        self.sql = f"{self.sql} {word} {text} ON {condition}"

    def _env(self) -> Env:
        return Env(self.plan, self.scope, self._subselect, clause="the FROM clause")

    def _subselect(self, node: Any, scope: Scope) -> Subselect:
        return self.compile(self.plan, node, scope, self.names)

    def _using(self, names: Any, before: list[Source], source: Source, side: str) -> str:
        tests = []
        for identifier in names:
            name = identifier.name
            left = self.scope.merged.get(name.lower()) or Scope(before).resolve([name])
            right = Scope([source]).resolve([name])
            tests.append(operators.compare(self.plan, "=", left, right).sql)
            if side == "FULL":
                merged = Scalar(f"coalesce({left.sql}, {right.sql})", left.kind)
            else:
                merged = right if side == "RIGHT" else left
            self.scope.merged[name.lower()] = merged
            if name.lower() not in (known.lower() for known in self.using):
                self.using.append(name)
        return " AND ".join(tests)

    def _item(self, node: Any) -> tuple[str, Source]:
        if node.args.get("pivots"):
            return self._pivot(node)
        if isinstance(node, exp.Table):
            return self._table(node)
        if isinstance(node, exp.Subquery):
            only(node, "this", "alias")
            if isinstance(node.this, exp.Table):
                raise unsupported("Parentheses round a join")
            return self._derived(
                self.compile(self.plan, node.this, self.scope.parent, self.names), _alias(node)
            )
        if isinstance(node, exp.Unnest):
            return self._unnest(node)
        raise unsupported(f"{type(node).__name__} in the FROM clause")

    def _pivot(self, node: Any) -> tuple[str, Source]:
        (pivot,) = node.args["pivots"] if len(node.args["pivots"]) == 1 else (None,)
        if pivot is None:
            raise unsupported("Several PIVOTs of one table")
        only(
            pivot, "expressions", "fields", "unpivot", "include_nulls", "alias",
            ignored=(
                "columns", "identify_pivot_strings", "prefixed_pivot_columns",
                "pivot_column_naming", "value_columns_first", "default_on_null",
            ),
        )  # fmt: skip
        item = node.copy()
        item.set("pivots", None)
        star = exp.Select(expressions=[exp.Star()], from_=exp.From(this=item.copy()))
        columns = self.compile(self.plan, star, self.scope.parent, self.names)
        query = rewritten(item, pivot, columns)
        alias = _alias(pivot) if pivot.args.get("alias") else _alias(node)
        return self._derived(self.compile(self.plan, query, self.scope.parent, self.names), alias)

    def _derived(self, query: Subselect, alias: str) -> tuple[str, Source]:
        name = self.plan.name("d")
        columns = tuple(
            Column(shown, _fixed(Scalar(f"{name}.{inner}", kind)))
            for inner, (shown, kind) in zip(query.names, query.columns, strict=True)
        )
        if query.value_table:
            whole = columns[0].scalar()
            return f"({query.sql}) AS {name}", _value_source(alias, whole)
        return f"({query.sql}) AS {name}", Source(alias, columns)

    def _table(self, node: Any) -> tuple[str, Source]:
        only(node, "this", "db", "catalog", "alias", "version")
        if not isinstance(node.this, exp.Identifier):
            raise unsupported(f"Table function {node.sql(dialect='bigquery')}")
        path = tuple(
            part.name for part in (node.args.get("catalog"), node.args.get("db"), node.this) if part
        )
        alias = _alias(node) or path[-1].rpartition(".")[2]
        if len(path) == 1 and path[0].lower() in self.names.queries:
            query, names = self.names.queries[path[0].lower()]
            return self._derived(self.compile(self.plan, query, None, names), alias)
        if len(path) > 1 and (array := self._correlated(path)) is not None:
            return self._unnested(array, alias, None)
        at_s = self._moment(node.args.get("version"))
        found = self.plan.catalog.table(path, at_s)
        if isinstance(found, ViewInput):
            if self.names.depth >= _VIEW_DEPTH_MAX:
                raise InvalidQuery(f"Views are nested more than {_VIEW_DEPTH_MAX} deep")
            names = Names(depth=self.names.depth + 1)
            return self._derived(self.compile(self.plan, parse(found.text), None, names), alias)
        self.tables.append(found)
        return self.plan.source(found, alias)

    def check_partition_filters(self, *conditions: Any) -> None:
        """Refuses a query over a table whose partitions must be filtered, and are not."""
        for table in self.tables:
            check_partition_filter(table.name, table.filter_column, conditions)

    def _correlated(self, path: tuple[str, ...]) -> Scalar | None:
        """Returns the array of ``FROM t, t.array``, which looks like a table's name."""
        first = path[0].lower()
        scope: Scope | None = self.scope
        while scope is not None:
            if any(source.alias.lower() == first for source in scope.sources):
                return scope.resolve(list(path))
            scope = scope.parent
        return None

    def _moment(self, version: Any) -> float | None:
        if version is None:
            return None
        if version.args.get("kind") != "AS OF" or version.name.upper() != "TIMESTAMP":
            raise unsupported("This FOR SYSTEM_TIME clause")
        env = Env(self.plan, Scope(), self._subselect, clause="FOR SYSTEM_TIME AS OF")
        moment = env.typed(version.expression, TIMESTAMP, "FOR SYSTEM_TIME AS OF")
        return self.plan.moment_s(moment)

    def _unnest(self, node: Any) -> tuple[str, Source]:
        only(node, "expressions", "alias", "offset", ignored=("explode_array",))
        if len(node.expressions) != 1:
            raise unsupported("UNNEST of several arrays")
        array = self._env().expr(node.expressions[0])
        alias_node = node.args.get("alias")
        alias = ""
        if alias_node is not None:
            alias = alias_node.columns[0].name if alias_node.columns else alias_node.name
        offset = node.args.get("offset")
        offset_name = None
        if offset:
            offset_name = "offset" if offset is True else offset.name
        return self._unnested(array, alias, offset_name)

    def _unnested(self, array: Scalar, alias: str, offset: str | None) -> tuple[str, Source]:
        if array.kind.element is None or array.kind.name != "ARRAY":
            raise InvalidQuery(f"Values referenced in UNNEST must be arrays, got {array.kind}")
        name, value, position = (self.plan.name(prefix) for prefix in ("u", "v", "o"))
        text = (
            f"LATERAL (SELECT unnest({array.sql}) AS {value}, "
            f"CAST(generate_subscripts({array.sql}, 1) - 1 AS BIGINT) AS {position}) AS {name}"
        )
        source = _value_source(alias, Scalar(f"{name}.{value}", array.kind.element))
        if offset is not None:
            column = Column(offset, _fixed(Scalar(f"{name}.{position}", INT64)))
            source = dataclasses.replace(source, columns=(*source.columns, column))
        return text, source


def check_partition_filter(name: str, column: str | None, conditions: Sequence[Any]) -> None:
    """Refuses a table whose partitions must be filtered, where none of the conditions does.

    Args:
        column: the partitioning column; None if nothing has to be filtered.
        conditions: parsed conditions, any of which may do it; None for one that is not there.
    """
    if column is None:
        return
    names = {column.upper()}
    if column.upper() == PARTITION_TIME:
        names.add(PARTITION_DATE)
    if not any(node is not None and _filters(node, names) for node in conditions):
        raise InvalidQuery(
            f"Cannot query over table '{name}' without a filter over column(s) "
            f"'{column}' that can be used for partition elimination"
        )


def _filters(node: Any, names: set[str]) -> bool:
    """Whether every row that a condition lets through has one of the columns looked at."""
    if isinstance(node, exp.Where | exp.Paren):
        return _filters(node.this, names)
    if isinstance(node, exp.And):
        return _filters(node.this, names) or _filters(node.expression, names)
    if isinstance(node, exp.Or):
        return _filters(node.this, names) and _filters(node.expression, names)
    return any(column.name.upper() in names for column in node.find_all(exp.Column))


def _value_source(alias: str, whole: Scalar) -> Source:
    """Returns the names of a table whose rows are single values."""
    if whole.kind.name == "STRUCT":
        columns = tuple(
            Column(name, _digging(whole, name)) for name, _ in whole.kind.fields if name
        )
        return Source(alias, columns, _fixed(whole))
    return Source(
        alias,
        (Column(alias, _fixed(whole)),) if alias else (Column("", _fixed(whole)),),
        _fixed(whole),
    )


def _fixed(value: Scalar) -> Callable[[], Scalar]:
    return lambda: value


def _digging(whole: Scalar, name: str) -> Callable[[], Scalar]:
    return lambda: dig(whole, [name])


def _alias(node: Any) -> str:
    alias = node.args.get("alias")
    if alias is None:
        return ""
    only(alias, "this")
    return str(alias.name)
