"""Running compiled queries in DuckDB: one instance for each query under way, one thread.

An instance may touch neither files nor the network.
"""

import dataclasses
import datetime
import itertools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from bqflink_beam.emulator.sql.exact import FUNCTIONS, Exact, safe
from bqflink_beam.emulator.sql.expressions import Env, Subselect
from bqflink_beam.emulator.sql.invalid import InvalidQuery, Unsupported, only, unsupported
from bqflink_beam.emulator.sql.kinds import Kind, field_of_kind, inward, outward
from bqflink_beam.emulator.sql.operators import boolean
from bqflink_beam.emulator.sql.scope import (
    JSON_FIELD,
    Catalog,
    Plan,
    Scalar,
    Scope,
    TableInput,
    ViewInput,
    dig,
)
from bqflink_beam.emulator.sql.select import compile_query
from bqflink_beam.emulator.sql.sources import Names, parse
from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import TableSchema

_CONFIG = {
    "threads": "1",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "python_enable_replacements": "false",
}
_ENGINES_MAX = 8
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc).replace(tzinfo=None)


@dataclasses.dataclass(frozen=True)
class Query:
    """A compiled query: its result's schema, and the means to run it."""

    schema: TableSchema
    kinds: tuple[Kind, ...]
    compiled: Subselect
    plan: Plan

    def run(self) -> pa.Table:
        """Returns the result, in the Arrow types in which tables are stored.

        Raises:
            InvalidQuery: a value could not be computed, such as a quotient by zero.
        """
        table = execute(self.plan, self.compiled.sql)
        return outward(table, self.schema, self.kinds)


def compile_text(
    text: str,
    catalog: Catalog,
    *,
    now_s: float,
    named: Mapping[str, Scalar] | None = None,
    positional: Sequence[Scalar] = (),
) -> Query:
    """Compiles the text of one query.

    Raises:
        InvalidQuery: it is wrong, or not supported; Refused: a table is missing.
    """
    plan = new_plan(catalog, now_s=now_s, named=named, positional=positional)
    return compile_node(plan, parse(text))


def new_plan(
    catalog: Catalog,
    *,
    now_s: float,
    named: Mapping[str, Scalar] | None = None,
    positional: Sequence[Scalar] = (),
) -> Plan:
    """Returns an empty plan; `now_s` is the time that CURRENT_TIMESTAMP answers."""
    now = _EPOCH + datetime.timedelta(microseconds=round(now_s * 1e6))
    return Plan(catalog, now=now, named=named, positional=positional)


def compile_node(plan: Plan, node: Any, *, rename: bool = False) -> Query:
    """Compiles a parsed query; see `compile_text`.

    Args:
        rename: gives columns of the same name other ones: the second ``a`` is ``a_1``, as in
            results that go to no table of the caller's.
    """
    plan.moment_s = lambda moment: _moment_s(plan, moment)
    try:
        compiled = compile_query(plan, node, None, Names())
    except RecursionError:
        raise InvalidQuery("The query is nested too deep for the embedded BigQuery") from None
    compiled = _unwrapped(compiled)
    columns = _named(compiled, rename)
    kinds = tuple(kind for _, kind in columns)
    try:
        schema = TableSchema(tuple(field_of_kind(name, kind) for name, kind in columns))
    except ConfigError as error:
        raise InvalidQuery(f"The result is no table: {error}") from None
    return Query(schema, kinds, compiled, plan)


def _unwrapped(query: Subselect) -> Subselect:
    """A value table of STRUCTs at the top is a table of their fields."""
    if not query.value_table or query.columns[0][1].name != "STRUCT":
        return query
    (name,), ((_, kind),) = query.names, query.columns
    value = Scalar(name, kind)
    if any(not field for field, _ in kind.fields):
        raise InvalidQuery("SELECT AS STRUCT at the top needs a name for each column")
    outputs = tuple(f"{name}_{position}" for position in range(len(kind.fields)))
    columns = ", ".join(
        f"{dig(value, [field]).sql} AS {output}"
        for (field, _), output in zip(kind.fields, outputs, strict=True)
    )
    return Subselect(f"SELECT {columns} FROM ({query.sql})", outputs, kind.fields)


def _named(query: Subselect, rename: bool) -> list[tuple[str, Kind]]:
    columns = []
    anonymous = 0
    seen = {name.lower() for name, _ in query.columns} if rename else set()
    used: set[str] = set()
    for name, kind in query.columns:
        if not name:
            name, anonymous = f"f{anonymous}_", anonymous + 1
        if name.lower() in used and not rename:
            raise InvalidQuery(
                "Duplicate column names in the result are not supported when a destination "
                f"table is present. Found duplicate(s): {name}"
            )
        if name.lower() in used:
            numbers = itertools.count(1)
            name = next(n for k in numbers if (n := f"{name}_{k}").lower() not in seen | used)
        used.add(name.lower())
        columns.append((name, kind))
    return columns


def execute(plan: Plan, sql: str) -> pa.Table:
    """Runs DuckDB text with the inputs and functions of a plan; returns inner Arrow types."""
    engine = _FREE_ENGINES.take()
    try:
        table = engine.run(plan, sql)
    except duckdb.Error as error:
        engine.close()
        raise InvalidQuery(_message(error)) from None
    except BaseException:
        engine.close()
        raise
    _FREE_ENGINES.give(engine)
    return table


class _Engines:
    """DuckDB instances that are free for the next query.

    Making one takes longer than most queries here. Each serves one query at a time, so
    that none can wait for another one while it holds the interpreter's lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[_Engine] = []

    def take(self) -> "_Engine":
        with self._lock:
            if self._free:
                return self._free.pop()
        return _Engine()

    def give(self, engine: "_Engine") -> None:
        with self._lock:
            if len(self._free) < _ENGINES_MAX:
                self._free.append(engine)
                return
        engine.close()


class _Engine:
    """One DuckDB instance, and the functions it knows by now."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(":memory:", config=_CONFIG)
        self._functions: set[str] = set()
        self._refusals: list[Unsupported] = []

    def run(self, plan: Plan, sql: str) -> pa.Table:
        for name in sorted((plan.functions | {JSON_FIELD}) - self._functions):
            self._add_function(name)
        try:
            for name, used in plan.inputs.items():
                self._connection.register(name, _input_table(used.table, used.columns))
            self._refusals.clear()
            table = self._connection.sql(sql).to_arrow_table()
            if plan.tries and self._refusals:
                raise self._refusals[0]
            return table
        finally:
            for name in plan.inputs:
                self._connection.unregister(name)

    def close(self) -> None:
        self._connection.close()

    def _add_function(self, name: str) -> None:
        prefix, _, key = name.partition("_")
        function: Exact = FUNCTIONS[key]
        if prefix == "bqs":
            function = safe(function)
        self._connection.create_function(
            name,
            _null_for_null(self._noting(function.body), len(function.arguments)),
            list(function.arguments),
            function.result,
            null_handling="special",
        )
        self._functions.add(name)

    def _noting(self, body: Callable[..., Any]) -> Callable[..., Any]:
        """Returns a function that keeps its refusals where no TRY can swallow them."""

        def run(*arguments: Any) -> Any:
            try:
                return body(*arguments)
            except Unsupported as refusal:
                self._refusals.append(refusal)
                raise

        return run


_FREE_ENGINES = _Engines()


def _null_for_null(body: Callable[..., Any], arity: int) -> Callable[..., Any]:
    # DuckDB does the same by itself, but then forbids a function to answer NULL. It counts
    # the parameters, so these cannot be *arguments.
    if arity == 1:
        return lambda a: None if a is None else body(a)
    if arity == 2:
        return lambda a, b: None if a is None or b is None else body(a, b)
    if arity == 3:
        return lambda a, b, c: None if a is None or b is None or c is None else body(a, b, c)
    return lambda a, b, c, d: None if None in (a, b, c, d) else body(a, b, c, d)


def _input_table(table: TableInput, columns: Mapping[int, Kind]) -> pa.Table:
    rows = table.read()
    if not columns:
        # No column is read, but the rows still count.
        return pa.table({"c": pa.nulls(rows.num_rows, pa.int8())})
    return pa.table(
        {
            f"c{position}": inward(rows.column(position), kind)
            for position, kind in sorted(columns.items())
        }
    )


def _message(error: Exception) -> str:
    """Returns the one line of an error that is for the user."""
    text = str(error)
    found = re.search(r"(?:InvalidQuery|Unsupported): (.*)", text)
    if found:
        return found[1]
    line = text.partition("\n")[0]
    if "window expressions cannot be volatile" in line:
        return unsupported("A window by an expression that may fail").message
    return re.sub(r"^[A-Za-z -]+ Error: ", "", line)


def _moment_s(plan: Plan, moment: Scalar) -> float:
    table = execute(plan, f"SELECT epoch_us({moment.sql}) AS at")
    micros = table.column(0)[0].as_py()
    if micros is None:
        raise InvalidQuery("FOR SYSTEM_TIME AS OF needs a time, got NULL")
    return int(micros) / 1e6


# --- predicates -----------------------------------------------------------------------------


class _OneTable:
    """The catalog of a row restriction: there is nothing but the table's own columns."""

    def table(self, path: tuple[str, ...], at_s: float | None) -> TableInput | ViewInput:
        raise InvalidQuery(f"A row restriction cannot read another table: {'.'.join(path)}")


def filter_rows(
    schema: TableSchema, rows: pa.Table | pa.RecordBatch, predicate: str
) -> pa.Table | pa.RecordBatch:
    """Returns the rows for which a SQL predicate is true, in their order, as they are.

    Args:
        schema: the columns the predicate may name; `rows` begins with these, in this order.
        rows: a table or batch; what comes back is of the same type.
        predicate: what stands behind WHERE. Empty keeps every row.

    Raises:
        InvalidQuery: it is wrong, or not supported. It is never left out.
    """
    if not predicate.strip():
        return rows
    compiled = RowFilter(schema, predicate)
    return compiled(rows)


class RowFilter:
    """A compiled predicate over the columns of one schema; may be used by many threads."""

    def __init__(self, schema: TableSchema, predicate: str, *, now_s: float = 0.0) -> None:
        """
        Args:
            now_s: what CURRENT_TIMESTAMP answers.
        """
        self._schema = schema
        self._now = _EPOCH + datetime.timedelta(microseconds=round(now_s * 1e6))
        self._node = parse_predicate(predicate)
        self._compile(None)

    def __call__(self, rows: pa.Table | pa.RecordBatch) -> pa.Table | pa.RecordBatch:
        if rows.num_rows == 0:
            return rows
        whole = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        plan, condition, source = self._compile(whole)
        mask = execute(plan, f"SELECT {condition} AS keep FROM {source}").column(0)
        if isinstance(rows, pa.RecordBatch):
            mask = mask.combine_chunks()
        return rows.filter(mask)

    def _compile(self, rows: pa.Table | None) -> tuple[Plan, str, str]:
        plan = Plan(_OneTable(), now=self._now)

        def read() -> pa.Table:
            assert rows is not None
            return rows

        name, source = plan.source(TableInput(self._schema, read), "")
        env = Env(plan, Scope([source]), _no_subquery, clause="a row restriction")
        condition = boolean(plan, env.expr(self._node), "a row restriction")
        return plan, condition, name


def _no_subquery(node: Any, scope: Scope) -> Subselect:
    raise InvalidQuery("A row restriction cannot have a subquery")


def parse_predicate(text: str) -> Any:
    """Returns the one expression of a predicate.

    Raises:
        InvalidQuery: there is more than one, or a clause behind it.
    """
    node = parse(f"SELECT 1 WHERE {text}\n")
    if not isinstance(node, exp.Select):
        raise InvalidQuery(f"A row restriction must be one expression, got {text!r}")
    only(node, "expressions", "where")
    return node.args["where"].this


__all__ = [
    "Query",
    "RowFilter",
    "compile_node",
    "compile_text",
    "execute",
    "filter_rows",
    "new_plan",
]
