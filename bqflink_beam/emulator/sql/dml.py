"""INSERT, UPDATE, DELETE, MERGE and TRUNCATE: a statement and a table's rows in, new rows out.

DuckDB says which rows are meant and computes the new values; the rows themselves are
taken over from Arrow as they are, so what a statement does not name cannot change.
"""

import dataclasses
import datetime
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from sqlglot import exp

from bqflink_beam.emulator.sql import operators
from bqflink_beam.emulator.sql.casts import coerce
from bqflink_beam.emulator.sql.expressions import Env, Subselect, path_of, struct_from
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported
from bqflink_beam.emulator.sql.kinds import duckdb_type, kind_of_field, outward
from bqflink_beam.emulator.sql.literals import typed_of
from bqflink_beam.emulator.sql.run import execute
from bqflink_beam.emulator.sql.scope import (
    Column,
    Plan,
    Scalar,
    Scope,
    Source,
    TableInput,
    dig,
    typed_null,
)
from bqflink_beam.emulator.sql.select import compile_query
from bqflink_beam.emulator.sql.sources import From, Names, check_partition_filter
from bqflink_beam.emulator.types import PARTITION_TIME
from bqflink_beam.schema.model import Field, TableSchema

_ROW = "_row_number_"
STATEMENTS = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.TruncateTable)


@dataclasses.dataclass(frozen=True)
class Target:
    """The table of a statement.

    `default` makes the value of a column that is left out. `filter_column` is the partition
    column that a statement must filter, if there is one.
    """

    name: str
    schema: TableSchema
    rows: pa.Table
    default: Callable[[Field], object]
    filter_column: str | None = None


@dataclasses.dataclass(frozen=True)
class Change:
    """What a statement does. `rows` take the place of all rows (None: these stay); `added` are new."""

    rows: pa.Table | None
    added: pa.Table | None
    inserted: int = 0
    updated: int = 0
    deleted: int = 0


def target_name(node: Any) -> tuple[str, ...]:
    """Returns the name of the table that a statement changes."""
    table = node.this
    if isinstance(node, exp.TruncateTable):
        table = node.expressions[0]
    elif isinstance(node, exp.Delete) and node.args.get("tables"):
        table = node.args["tables"][0]
    if isinstance(table, exp.Schema):
        table = table.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        raise InvalidQuery(f"A statement needs the name of a table, got {describe(node)}")
    parts = (table.args.get("catalog"), table.args.get("db"), table.this)
    return tuple(part.name for part in parts if part)


def run_statement(plan: Plan, node: Any, target: Target) -> Change:
    """Computes what a statement does to its table.

    Raises:
        InvalidQuery: it is wrong, or not supported.
    """
    if isinstance(node, exp.TruncateTable):
        only(node, "expressions", ignored=("is_database",))
        return Change(target.rows.slice(0, 0), None, deleted=target.rows.num_rows)
    return _Statement(plan, node, target).run()


class _Statement:
    def __init__(self, plan: Plan, node: Any, target: Target) -> None:
        self.plan = plan
        self.node = node
        self.target = target
        self.scope = Scope()
        self.env = Env(plan, self.scope, self._subselect, clause="a DML statement")

    def run(self) -> Change:
        return {
            exp.Insert: self._insert,
            exp.Update: self._update,
            exp.Delete: self._delete,
            exp.Merge: self._merge,
        }[type(self.node)]()

    def _subselect(self, node: Any, scope: Scope) -> Subselect:
        return compile_query(self.plan, node, scope, Names())

    # --- INSERT ---

    def _insert(self) -> Change:
        node = self.node
        only(node, "this", "expression", "with_")
        fields = list(self.target.schema)
        if isinstance(node.this, exp.Schema):
            fields = [
                self.target.schema.field(i.name) for i in self._columns(node.this.expressions)
            ]
        body = node.expression
        if isinstance(body, exp.Values):
            only(body, "expressions")
            sql, names = self._values(body.expressions, fields)
        elif isinstance(body, exp.Query | exp.Subquery):
            query = compile_query(self.plan, body, None, Names())
            sql, names = self._aligned(query, fields)
        else:
            raise unsupported(f"INSERT of {describe(body)}")
        added = self._result(sql, names, fields)
        return Change(None, self._completed(added, fields), inserted=added.num_rows)

    def _columns(self, nodes: Sequence[Any]) -> list[Any]:
        seen: set[str] = set()
        for node in nodes:
            if node.name.lower() not in {f.name.lower() for f in self.target.schema}:
                raise InvalidQuery(f"Column {node.name} is not present in table {self.target.name}")
            if node.name.lower() in seen:
                raise InvalidQuery(f"INSERT has columns with duplicate name: {node.name}")
            seen.add(node.name.lower())
        return list(nodes)

    def _values(self, rows: Sequence[Any], fields: list[Field]) -> tuple[str, list[str]]:
        texts = []
        for row in rows:
            cells = row.expressions if isinstance(row, exp.Tuple) else [row.unnest()]
            if len(cells) != len(fields):
                raise InvalidQuery(
                    f"Inserted row has wrong column count; Has {len(cells)}, expected {len(fields)}"
                )
            values = [
                self._assigned(cell, field).sql for cell, field in zip(cells, fields, strict=True)
            ]
            texts.append(f"({', '.join(values)})")
        names = [self.plan.name("r") for _ in fields]
        return f"SELECT * FROM (VALUES {', '.join(texts)}) AS v({', '.join(names)})", names

    def _aligned(self, query: Subselect, fields: list[Field]) -> tuple[str, list[str]]:
        if len(query.columns) != len(fields):
            raise InvalidQuery(
                f"Inserted row has wrong column count; Has {len(query.columns)}, expected {len(fields)}"
            )
        names = [self.plan.name("r") for _ in fields]
        columns = [
            f"{self._fitted(Scalar(f'q.{inner}', kind), field).sql} AS {name}"
            for inner, (_, kind), field, name in zip(
                query.names, query.columns, fields, names, strict=True
            )
        ]
        return f"SELECT {', '.join(columns)} FROM ({query.sql}) AS q", names

    def _assigned(self, node: Any, field: Field, env: Env | None = None) -> Scalar:
        if isinstance(node, exp.Var | exp.Column) and node.name.upper() == "DEFAULT":
            return self._default(field)
        return self._fitted((env or self.env).expr(node), field)

    def _default(self, field: Field) -> Scalar:
        value = self.target.default(field)
        kind = kind_of_field(field)
        if value is None:
            return typed_null(kind)
        if isinstance(value, datetime.datetime):
            value = value.replace(tzinfo=None)
        return typed_of(value, kind)

    def _fitted(self, value: Scalar, field: Field) -> Scalar:
        return coerce(self.plan, value, kind_of_field(field), f"column {field.name}")

    def _result(self, sql: str, names: Sequence[str], fields: Sequence[Field]) -> pa.Table:
        """Runs text and returns its columns `names` as those of `fields`."""
        table = execute(self.plan, sql).select(list(names))
        return _stored(table, fields)

    def _completed(self, rows: pa.Table, fields: Sequence[Field]) -> pa.Table:
        """Returns rows with the columns that a statement leaves out at their defaults."""
        missing = [f for f in self.target.schema if f.name not in {g.name for g in fields}]
        if not missing:
            return rows
        names = [self.plan.name("r") for _ in missing]
        columns = [f"{self._default(f).sql} AS {n}" for f, n in zip(missing, names, strict=True)]
        one = self._result(f"SELECT {', '.join(columns)}", names, missing)
        for field, column in zip(missing, one.columns, strict=True):
            filled = column.combine_chunks().take(pa.array([0] * rows.num_rows, pa.int64()))
            rows = rows.append_column(one.schema.field(field.name), filled)
        return rows.select([field.name for field in self.target.schema])

    # --- the target as a source ---

    def _target_source(self, table_node: Any) -> str:
        """Puts the target in scope, with the number of each row; returns its FROM text."""
        alias = table_node.alias or table_node.name
        numbered = Field(name=_ROW, type="INT64")
        fields = list(self.target.schema)
        rows = self.target.rows
        if PARTITION_TIME in rows.schema.names:
            fields.append(Field(name=PARTITION_TIME, type="TIMESTAMP"))
        rows = rows.append_column(_ROW, pa.array(range(rows.num_rows), pa.int64()))
        table = TableInput(TableSchema((*fields, numbered)), lambda: rows)
        text, source = self.plan.source(table, alias)
        self._number = next(c.scalar for c in source.columns if c.name == _ROW)
        shown = tuple(column for column in source.columns if column.name != _ROW)
        self.scope.sources.append(Source(alias, shown))
        return text

    def _where(self) -> str:
        where = self.node.args.get("where")
        if where is None:
            word = self.node.key.upper()
            raise InvalidQuery(f"{word} must have a WHERE clause")
        only(where, "this")
        self._check_partition_filter(where)
        return operators.boolean(self.plan, self.env.expr(where.this), "the WHERE clause")

    def _check_partition_filter(self, *conditions: Any) -> None:
        check_partition_filter(self.target.name, self.target.filter_column, conditions)

    # --- DELETE ---

    def _delete(self) -> Change:
        only(self.node, "this", "tables", "where")
        table = self.node.args["tables"][0] if self.node.args.get("tables") else self.node.this
        only(table, "this", "db", "catalog", "alias")
        source = self._target_source(table)
        condition = self._where()
        found = execute(
            self.plan, f"SELECT {self._number().sql} AS n FROM {source} WHERE {condition}"
        )
        gone = set(found.column("n").to_pylist())
        return Change(self._without(gone), None, deleted=len(gone))

    def _without(self, gone: set[int]) -> pa.Table:
        kept = [n for n in range(self.target.rows.num_rows) if n not in gone]
        return self.target.rows.take(pa.array(kept, pa.int64()))

    # --- UPDATE ---

    def _update(self) -> Change:
        node = self.node
        only(node, "this", "expressions", "where", "from_")
        only(node.this, "this", "db", "catalog", "alias")
        text = self._target_source(node.this)
        if node.args.get("from_"):
            joined = From(self.plan, self.scope, Names(), compile_query, sql=text)
            first = node.args["from_"].this
            joins = first.args.pop("joins", None) or []
            joined.join(exp.Join(this=first, kind="CROSS"))
            for join in joins:
                joined.join(join)
            joined.check_partition_filters(node.args.get("where"))
            text = joined.sql
        condition = self._where()
        fields, values = self._assignments(node.expressions)
        names = [self.plan.name("r") for _ in fields]
        columns = [f"{self._number().sql} AS n"]
        columns += [f"{value.sql} AS {name}" for value, name in zip(values, names, strict=True)]
        found = execute(self.plan, f"SELECT {', '.join(columns)} FROM {text} WHERE {condition}")
        numbers = _once(found.column("n").to_pylist())
        new = _stored(found.select(names), fields)
        return Change(self._replaced(numbers, new), None, updated=len(numbers))

    def _assignments(
        self, nodes: Sequence[Any], env: Env | None = None
    ) -> tuple[list[Field], list[Scalar]]:
        """Returns the columns that are set, and their new values; SET s.f = 1 sets all of s."""
        changed: dict[str, Scalar] = {}
        fields: dict[str, Field] = {}
        for node in nodes:
            if not isinstance(node, exp.EQ):
                raise unsupported(f"SET {describe(node)}")
            path = path_of(node.this)
            alias = self.scope.sources[0].alias.lower()
            known = {f.name.lower(): f for f in self.target.schema}
            if path[0].lower() not in known and path[0].lower() == alias:
                path = path[1:]
            field = known.get(path[0].lower())
            if field is None:
                raise InvalidQuery(f"Column {path[0]} is not present in table {self.target.name}")
            before = changed.get(field.name)
            if before is not None and len(path) == 1:
                raise InvalidQuery(f"Update item {field.name} assigned more than once")
            old = before or Scope(self.scope.sources[:1]).resolve([field.name])
            changed[field.name] = self._set(old, field, path[1:], node.expression, env)
            fields[field.name] = field
        return list(fields.values()), list(changed.values())

    def _set(
        self, old: Scalar, field: Field, path: Sequence[str], node: Any, env: Env | None
    ) -> Scalar:
        if not path:
            return self._assigned(node, field, env)
        if field.type != "STRUCT" or field.repeated:
            raise InvalidQuery(f"Cannot set {path[0]} of {field.name}, which is no STRUCT")
        values = []
        inner_fields = {inner.name.lower(): inner for inner in field.fields}
        if path[0].lower() not in inner_fields:
            raise InvalidQuery(f"Field {path[0]} does not exist in {field.name}")
        for inner in field.fields:
            value = dig(old, [inner.name])
            if inner.name.lower() == path[0].lower():
                value = self._set(value, inner, path[1:], node, env)
            values.append(value)
        new = struct_from([inner.name for inner in field.fields], values)
        bad = f"CAST(error('Cannot set field of NULL {field.name}') AS {duckdb_type(new.kind)})"
        return Scalar(f"(CASE WHEN {old.sql} IS NULL THEN {bad} ELSE {new.sql} END)", new.kind)

    def _replaced(self, numbers: Sequence[int], new: pa.Table) -> pa.Table:
        """Returns the target's rows with other values in the numbered ones."""
        rows = self.target.rows
        indices = list(range(rows.num_rows))
        for position, number in enumerate(numbers):
            indices[number] = rows.num_rows + position
        order = pa.array(indices, pa.int64())
        for name in new.schema.names:
            field = rows.schema.field(name)
            pool = pa.chunked_array(
                [*rows.column(name).chunks, *new.column(name).chunks], field.type
            )
            rows = rows.set_column(rows.schema.get_field_index(name), field, pool.take(order))
        return rows

    # --- MERGE ---

    def _merge(self) -> Change:
        node = self.node
        only(node, "this", "using", "on", "whens")
        only(node.this, "this", "db", "catalog", "alias")
        target_text = self._target_source(node.this)
        whens = node.args["whens"].expressions
        conditions = [node.args["on"], *(when.args.get("condition") for when in whens)]
        self._check_partition_filter(*conditions)
        source_text, source, source_number = self._merge_source(node.args["using"], conditions)
        self.scope.sources.append(source)
        on = operators.boolean(self.plan, self.env.expr(node.args["on"]), "MERGE")
        tests = [self._when_test(when, source, source_number) for when in whens]
        chosen = "CASE " + " ".join(f"WHEN {t} THEN {i}" for i, t in enumerate(tests)) + " END"
        columns = [f"{self._number().sql} AS n", f"{chosen} AS w"]
        actions = []
        for position, when in enumerate(whens):
            fields, values = self._when_values(when, source)
            names = [self.plan.name("r") for _ in fields]
            for value, name in zip(values, names, strict=True):
                guarded = f"CASE WHEN ({chosen}) = {position} THEN {value.sql} END"
                columns.append(f"{guarded} AS {name}")
            actions.append((when, fields, names))
        text = f"SELECT {', '.join(columns)} FROM {target_text} FULL JOIN {source_text} ON {on}"
        found = execute(self.plan, f"SELECT * FROM ({text}) WHERE w IS NOT NULL")
        return self._merged(found, actions)

    def _merge_source(self, node: Any, conditions: Sequence[Any]) -> tuple[str, Source, str]:
        scope = Scope()
        inner = From(self.plan, scope, Names(), compile_query)
        inner.start(node)
        inner.check_partition_filters(*conditions)
        columns = scope.sources[0].columns
        name = self.plan.name("m")
        scalars = [column.scalar() for column in columns]
        names = [self.plan.name("c") for _ in columns]
        picked = [f"{s.sql} AS {n}" for s, n in zip(scalars, names, strict=True)]
        picked.append("TRUE AS there")
        source = Source(
            scope.sources[0].alias,
            tuple(
                Column(column.name, _fixed(Scalar(f"{name}.{n}", scalar.kind)))
                for column, scalar, n in zip(columns, scalars, names, strict=True)
            ),
        )
        return f"(SELECT {', '.join(picked)} FROM {inner.sql}) AS {name}", source, f"{name}.there"

    def _sees(self, when: Any, source: Source) -> Env:
        """Returns what a WHEN clause may name: a side that has no row has no columns either."""
        sides = list(self.scope.sources)
        if not when.args.get("matched"):
            sides = sides[:1] if when.args.get("source") else [source]
        return dataclasses.replace(self.env, scope=Scope(sides))

    def _when_test(self, when: Any, source: Source, there: str) -> str:
        only(when, "matched", "source", "condition", "then")
        in_target = f"{self._number().sql} IS NOT NULL"
        in_source = f"{there} IS NOT NULL"
        if when.args.get("matched"):
            test = f"({in_target} AND {in_source})"
        elif when.args.get("source"):
            test = f"({in_target} AND NOT {in_source})"
        else:
            test = f"(NOT {in_target} AND {in_source})"
        if (condition := when.args.get("condition")) is not None:
            seen = self._sees(when, source)
            extra = operators.boolean(self.plan, seen.expr(condition), "MERGE")
            test = f"({test} AND {extra})"
        return test

    def _when_values(self, when: Any, source: Source) -> tuple[list[Field], list[Scalar]]:
        then, seen = when.args["then"], self._sees(when, source)
        if isinstance(then, exp.Update):
            only(then, "expressions")
            return self._assignments(then.expressions, seen)
        if isinstance(then, exp.Insert):
            only(then, "this", "expression")
            if isinstance(then.this, exp.Var) and then.this.name.upper() == "ROW":
                by_name = {column.name.lower(): column for column in source.columns}
                fields = list(self.target.schema)
                if not all(field.name.lower() in by_name for field in fields):
                    raise InvalidQuery("INSERT ROW needs a source with the columns of the target")
                return fields, [self._fitted(by_name[f.name.lower()].scalar(), f) for f in fields]
            if isinstance(then.this, exp.Tuple):
                fields = [
                    self.target.schema.field(c.name) for c in self._columns(then.this.expressions)
                ]
            elif then.this is None:
                fields = list(self.target.schema)
            else:
                raise unsupported(f"INSERT {describe(then)}")
            cells = then.expression
            values = cells.expressions if isinstance(cells, exp.Tuple) else [cells.unnest()]
            if len(values) != len(fields):
                raise InvalidQuery("Inserted row has wrong column count")
            return fields, [self._assigned(v, f, seen) for v, f in zip(values, fields, strict=True)]
        if isinstance(then, exp.Var) and then.name.upper() == "DELETE":
            return [], []
        raise unsupported(f"THEN {describe(then)}")

    def _merged(self, found: pa.Table, actions: list[tuple[Any, list[Field], list[str]]]) -> Change:
        which = found.column("w").to_pylist()
        numbers = found.column("n").to_pylist()
        _once([n for n in numbers if n is not None])
        statement = _Statement(self.plan, self.node, self.target)
        gone: set[int] = set()
        added: list[pa.Table] = []
        updated = 0
        for position, (when, fields, names) in enumerate(actions):
            at = [row for row, w in enumerate(which) if w == position]
            part = found.take(pa.array(at, pa.int64()))
            if isinstance(when.args["then"], exp.Insert):
                rows = _stored(part.select(names), fields)
                added.append(self._completed(rows, fields).combine_chunks())
            elif fields:
                new = _stored(part.select(names), fields)
                touched = [numbers[row] for row in at]
                rows = statement._replaced(touched, new)
                statement.target = dataclasses.replace(statement.target, rows=rows)
                updated += len(touched)
            else:
                gone |= {numbers[row] for row in at}
        rows = statement._without(gone)
        new_rows = pa.concat_tables(added) if added else None
        inserted = new_rows.num_rows if new_rows is not None else 0
        return Change(rows, new_rows, inserted, updated, len(gone))


def _stored(table: pa.Table, fields: Sequence[Field]) -> pa.Table:
    """Returns result columns under the names and with the Arrow types of table columns."""
    schema = TableSchema(tuple(fields))
    return outward(table, schema, tuple(kind_of_field(field) for field in fields))


def _once(numbers: list[int]) -> list[int]:
    if len(set(numbers)) != len(numbers):
        raise InvalidQuery("UPDATE/MERGE must match at most one source row for each target row")
    return numbers


def _fixed(value: Scalar) -> Callable[[], Scalar]:
    return lambda: value
