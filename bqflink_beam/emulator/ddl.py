"""DDL statements of query jobs: CREATE, DROP and ALTER of tables, views and datasets."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import sqlglot
from sqlglot import exp

from bqflink_beam.emulator import types
from bqflink_beam.emulator.catalog import StoreCatalog
from bqflink_beam.emulator.destinations import aligned
from bqflink_beam.emulator.jobs import Outcome
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql.casts import kind_of_type
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported
from bqflink_beam.emulator.sql.kinds import TIMESTAMP
from bqflink_beam.emulator.sql.lexer import normalize
from bqflink_beam.emulator.sql.literals import parse_constant
from bqflink_beam.emulator.sql.run import compile_node
from bqflink_beam.emulator.sql.scope import Plan
from bqflink_beam.emulator.store import Store, StoredTable, Transaction
from bqflink_beam.emulator.tables import Tables, check_layout
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema, canonical_type

STATEMENTS = (exp.Create, exp.Drop, exp.Alter)
_DAY_MS = 86_400_000
_WIDENINGS = {
    ("INT64", "NUMERIC"), ("INT64", "BIGNUMERIC"), ("INT64", "FLOAT64"),
    ("NUMERIC", "BIGNUMERIC"), ("NUMERIC", "FLOAT64"),
}  # fmt: skip


class Ddl:
    """Computes the outcome of DDL statements of one server."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def outcome(
        self, catalog: StoreCatalog, plan: Plan, node: Any, text: str, location: str
    ) -> Outcome:
        """Returns what a DDL job will do.

        Raises:
            Refused: it is wrong, or not supported.
        """
        statement = _Ddl(self._store, catalog, plan, node, text, location)
        if isinstance(node, exp.Create):
            return statement.create()
        if isinstance(node, exp.Drop):
            return statement.drop()
        return statement.alter()


class _Ddl:
    def __init__(
        self,
        store: Store,
        catalog: StoreCatalog,
        plan: Plan,
        node: Any,
        text: str,
        location: str,
    ) -> None:
        self.store = store
        self.catalog = catalog
        self.plan = plan
        self.node = node
        self.text = text
        self.location = location

    def _reference(self, table: Any) -> TableReference:
        only(table, "this", "db", "catalog")
        parts = (table.args.get("catalog"), table.args.get("db"), table.this)
        return self.catalog.reference(tuple(part.name for part in parts if part))

    def _outcome(self, apply: Any, word: str, operation: str, **more: Any) -> Outcome:
        statistics = {"statementType": word, "ddlOperationPerformed": operation, **more}
        return Outcome(apply, statistics)

    def _table_outcome(
        self, apply: Any, word: str, operation: str, reference: TableReference
    ) -> Outcome:
        target = {
            "projectId": reference.project,
            "datasetId": reference.dataset,
            "tableId": reference.table,
        }
        return self._outcome(apply, word, operation, ddlTargetTable=target)

    # --- CREATE ---

    def create(self) -> Outcome:
        node = self.node
        kind = node.args.get("kind")
        if kind == "SCHEMA":
            return self._create_schema()
        if kind not in ("TABLE", "VIEW"):
            raise unsupported(f"CREATE {kind}")
        only(node, "this", "kind", "replace", "exists", "expression", "properties", "clone")
        schema_node = node.this if isinstance(node.this, exp.Schema) else None
        reference = self._reference(schema_node.this if schema_node else node.this)
        resource = self._resource(schema_node)
        rows: Any = None
        word = f"CREATE_{kind}"
        if kind == "VIEW":
            if schema_node is not None:
                raise unsupported("CREATE VIEW with a list of columns")
            query = _text_behind_as(self.text)
            resource["view"] = {"query": query, "useLegacySql": False}
        elif node.args.get("clone") is not None:
            resource, rows = self._copied(resource, node.args["clone"])
        elif node.expression is not None:
            word = "CREATE_TABLE_AS_SELECT"
            resource, rows = self._selected(resource, schema_node)
        exists = self.store.get_table(reference) is not None
        if exists and node.args.get("exists"):
            return self._table_outcome(_nothing, word, "SKIP", reference)
        prepared = Tables(self.store).prepared(reference, resource)
        replace = bool(node.args.get("replace"))

        def apply(change: Transaction) -> None:
            if replace and self.store.get_table(reference) is not None:
                change.delete_table(reference)
            table = change.create_table(reference, prepared)
            batches = [aligned(b, table.schema) for b in rows.to_batches()] if rows else []
            if batches:
                change.append(table, batches)

        return self._table_outcome(
            apply, word, "REPLACE" if replace and exists else "CREATE", reference
        )

    def _create_schema(self) -> Outcome:
        only(self.node, "this", "kind", "exists", "properties")
        project, dataset = self._dataset(self.node.this)
        resource = _dataset_options(self.node.args.get("properties"))
        resource.setdefault("location", self.location)
        exists = self.store.get_dataset(project, dataset) is not None
        if exists and self.node.args.get("exists"):
            return self._outcome(_nothing, "CREATE_SCHEMA", "SKIP")

        def apply(change: Transaction) -> None:
            change.create_dataset(project, dataset, resource)

        return self._outcome(apply, "CREATE_SCHEMA", "CREATE")

    def _dataset(self, table: Any) -> tuple[str, str]:
        only(table, "db", "catalog")
        reference = self.catalog.reference(
            tuple(p.name for p in (table.args.get("catalog"), table.args.get("db")) if p) + ("x",)
        )
        return reference.project, reference.dataset

    def _resource(self, schema_node: Any) -> dict[str, Any]:
        resource: dict[str, Any] = {}
        if schema_node is not None:
            fields, keys = _columns(schema_node.expressions)
            resource["schema"] = types.schema_to_rest(TableSchema(tuple(fields)))
            if keys:
                resource["tableConstraints"] = {"primaryKey": {"columns": keys}}
        properties = self.node.args.get("properties")
        for item in properties.expressions if properties is not None else ():
            if isinstance(item, exp.PartitionedByProperty):
                resource.update(_partitioning(item.this, resource))
            elif isinstance(item, exp.ClusterProperty):
                resource["clustering"] = {"fields": [column.name for column in item.expressions]}
            elif isinstance(item, exp.LikeProperty):
                like = self._source(item.this)
                resource = {**_definition(like), **resource}
            elif isinstance(item, exp.Property):
                _set_option(resource, item)
            else:
                raise unsupported(
                    f"{type(item).__name__.removesuffix('Property').upper()} in CREATE"
                )
        return resource

    def _source(self, table: Any) -> StoredTable:
        return self.store.require_table(self._reference(table))

    def _copied(self, resource: dict[str, Any], clone: Any) -> tuple[dict[str, Any], Any]:
        only(clone, "this", "copy")
        source = self._source(clone.this)
        return {**_definition(source), **resource}, source.snapshot().to_table()

    def _selected(self, resource: dict[str, Any], schema_node: Any) -> tuple[dict[str, Any], Any]:
        query = compile_node(self.plan, self.node.expression)
        rows = query.run()
        if schema_node is None:
            return {**resource, "schema": types.schema_to_rest(query.schema)}, rows
        wanted = types.schema_from_rest(resource["schema"])
        if [(f.type, f.repeated) for f in wanted] != [(f.type, f.repeated) for f in query.schema]:
            raise InvalidQuery("The columns of CREATE TABLE and of its query do not match")
        return resource, rows.rename_columns([field.name for field in wanted])

    # --- DROP ---

    def drop(self) -> Outcome:
        node = self.node
        only(node, "exists", "tables", "kind", "cascade", ignored=("restrict",))
        kind = node.args.get("kind")
        table = node.args["tables"][0]
        if kind == "SCHEMA":
            project, dataset = self._dataset(table)
            if self.store.get_dataset(project, dataset) is None and node.args.get("exists"):
                return self._outcome(_nothing, "DROP_SCHEMA", "SKIP")
            cascade = bool(node.args.get("cascade"))

            def drop_dataset(change: Transaction) -> None:
                change.delete_dataset(project, dataset, delete_contents=cascade)

            return self._outcome(drop_dataset, "DROP_SCHEMA", "DROP")
        if kind not in ("TABLE", "VIEW"):
            raise unsupported(f"DROP {kind}")
        reference = self._reference(table)
        found = self.store.get_table(reference)
        if found is None and node.args.get("exists"):
            return self._table_outcome(_nothing, f"DROP_{kind}", "SKIP", reference)
        found = self.store.require_table(reference)
        if (found.kind == "VIEW") != (kind == "VIEW"):
            raise InvalidQuery(f"{reference} is a {found.kind}; use DROP {found.kind}")

        def drop_table(change: Transaction) -> None:
            change.delete_table(reference)

        return self._table_outcome(drop_table, f"DROP_{kind}", "DROP", reference)

    # --- ALTER ---

    def alter(self) -> Outcome:
        node = self.node
        only(node, "this", "kind", "actions", "exists")
        if node.args.get("kind") not in ("TABLE", "VIEW"):
            raise unsupported(f"ALTER {node.args.get('kind')}")
        reference = self._reference(node.this)
        word = f"ALTER_{node.args['kind']}"
        if self.store.get_table(reference) is None and node.args.get("exists"):
            return self._table_outcome(_nothing, word, "SKIP", reference)
        self.store.require_table(reference)

        def apply(change: Transaction) -> None:
            table = self.store.require_table(reference)
            resource = table.resource
            for action in node.args["actions"]:
                _alter(resource, action)
            check_layout(types.schema_from_rest(resource.get("schema") or {}), resource)
            change.update_table(table, resource)
            _rewrite(change, table, resource, node.args["actions"])

        return self._table_outcome(apply, word, "ALTER", reference)


def _nothing(change: Transaction) -> None:
    """IF [NOT] EXISTS had the answer: nothing is changed."""


def _definition(table: StoredTable) -> dict[str, Any]:
    keys = ("schema", "timePartitioning", "rangePartitioning", "clustering", "tableConstraints")
    return {key: value for key, value in table.resource.items() if key in keys}


def _text_behind_as(text: str) -> str:
    """Returns the query of CREATE VIEW as it is written, comments left out."""
    plain = normalize(text)
    depth = 0
    for token in sqlglot.tokenize(plain, read="bigquery"):
        if token.text == "(":
            depth += 1
        elif token.text == ")":
            depth -= 1
        elif depth == 0 and token.text.upper() == "AS":
            return plain[token.end + 1 :].strip().rstrip(";").strip()
    raise InvalidQuery("CREATE VIEW needs AS and a query")


# --- columns ------------------------------------------------------------------------------


def _columns(nodes: Sequence[Any]) -> tuple[list[Field], list[str]]:
    fields, keys = [], []
    for node in nodes:
        if isinstance(node, exp.PrimaryKey):
            keys = [column.name for column in node.expressions]
        elif isinstance(node, exp.ColumnDef):
            fields.append(_column(node))
            if any(
                isinstance(c.args.get("kind"), exp.PrimaryKeyColumnConstraint)
                for c in node.args.get("constraints") or ()
            ):
                keys = [node.name]
        else:
            raise unsupported(f"{describe(node)} in CREATE TABLE")
    return fields, keys


def _column(node: Any) -> Field:
    only(node, "this", "kind", "constraints", "exists")
    field = _field(node.name, node.args["kind"])
    for item in node.args.get("constraints") or ():
        kind = item.args["kind"]
        if isinstance(kind, exp.NotNullColumnConstraint):
            only(kind)
            field = dataclasses.replace(field, mode="REQUIRED")
        elif isinstance(kind, exp.DefaultColumnConstraint):
            text = kind.this.sql(dialect="bigquery")
            field = dataclasses.replace(field, default_value_expression=text)
        elif isinstance(kind, exp.Properties):
            for option in kind.expressions:
                if option.name != "description":
                    raise unsupported(f"Column option {option.name}")
                field = dataclasses.replace(field, description=option.args["value"].name)
        elif not isinstance(kind, exp.PrimaryKeyColumnConstraint):
            raise unsupported(f"Column constraint {describe(item)}")
    return field


def _field(name: str, node: Any) -> Field:
    """Returns a column of a written type, parameters such as (10, 2) included."""
    only(node, "this", "expressions", "nested")
    inner = node.expressions
    if node.this == exp.DType.ARRAY:
        return dataclasses.replace(_field(name, inner[0]), mode="REPEATED")
    if node.this == exp.DType.STRUCT:
        if not inner or not all(isinstance(item, exp.ColumnDef) for item in inner):
            raise InvalidQuery(f"The fields of STRUCT column {name} need names")
        return Field(name=name, type="STRUCT", fields=tuple(_column(item) for item in inner))
    if node.this == exp.DType.RANGE:
        return Field(name=name, type="RANGE", range_element_type=kind_of_type(inner[0]).name)
    bare = node.copy()
    bare.set("expressions", [])
    kind = canonical_type(kind_of_type(bare).name)
    numbers = [int(parameter.name) for parameter in inner]
    if not numbers:
        return Field(name=name, type=kind)
    if kind in ("STRING", "BYTES"):
        return Field(name=name, type=kind, max_length=numbers[0])
    if kind in ("NUMERIC", "BIGNUMERIC"):
        scale = numbers[1] if len(numbers) > 1 else None
        return Field(name=name, type=kind, precision=numbers[0], scale=scale)
    if kind == "TIMESTAMP":
        return Field(name=name, type=kind, timestamp_precision=numbers[0])
    raise InvalidQuery(f"{kind} does not support type parameters")


# --- options ------------------------------------------------------------------------------


def _partitioning(node: Any, resource: Mapping[str, Any]) -> dict[str, Any]:
    unit, column = "DAY", node
    if isinstance(node, exp.RangeBucket):
        bounds = node.expression
        return {
            "rangePartitioning": {
                "field": node.this.name,
                "range": {
                    "start": bounds.args["start"].name,
                    "end": bounds.args["end"].name,
                    "interval": bounds.args["step"].name if bounds.args.get("step") else "1",
                },
            }
        }
    if isinstance(node, exp.Date):
        column = node.this
    elif isinstance(node, exp.TimestampTrunc | exp.DatetimeTrunc | exp.DateTrunc):
        column, unit = node.this, node.args["unit"].name.upper()
    name = column.name
    if name.upper() in ("_PARTITIONDATE", "_PARTITIONTIME"):
        return {"timePartitioning": {"type": unit}}
    return {"timePartitioning": {"type": unit, "field": name}}


def _set_option(resource: dict[str, Any], item: Any) -> None:
    """Puts one item of OPTIONS(...) into a table's resource; NULL takes away."""
    name, value = item.name, item.args["value"]
    gone = isinstance(value, exp.Null)
    if name in ("description", "friendly_name", "kms_key_name"):
        _text_option(resource, name, None if gone else value.name)
    elif name == "labels":
        resource["labels"] = {} if gone else dict(_pairs(value))
    elif name == "max_staleness":
        resource["maxStaleness"] = "0-0 0 0:0:0" if gone else _interval(value)
    elif name == "expiration_timestamp":
        resource.pop("expirationTime", None)
        if not gone:
            resource["expirationTime"] = str(_millis(value))
    elif name in ("partition_expiration_days", "require_partition_filter"):
        partitioning = resource.get("timePartitioning")
        if name == "require_partition_filter":
            resource["requirePartitionFilter"] = not gone and bool(value.this)
        elif partitioning is None:
            raise InvalidQuery("partition_expiration_days needs a partitioned table")
        else:
            partitioning.pop("expirationMs", None)
            if not gone:
                partitioning["expirationMs"] = str(int(float(value.name) * _DAY_MS))
    else:
        raise unsupported(f"Table option {name}")


def _text_option(resource: dict[str, Any], name: str, text: str | None) -> None:
    key = {"description": "description", "friendly_name": "friendlyName"}.get(name)
    if key is None:
        resource["encryptionConfiguration"] = {"kmsKeyName": text} if text else None
    elif text is None:
        resource.pop(key, None)
    else:
        resource[key] = text


def _pairs(node: Any) -> list[tuple[str, str]]:
    return [(pair.expressions[0].name, pair.expressions[1].name) for pair in node.expressions]


def _interval(node: Any) -> str:
    """Returns an INTERVAL literal in the canonical form of ``maxStaleness``."""
    if not isinstance(node, exp.Interval) or not node.name.isdigit():
        raise unsupported(f"max_staleness {describe(node)}")
    count, unit = int(node.name), node.args["unit"].name.upper()
    seconds = {"SECOND": 1, "MINUTE": 60, "HOUR": 3600}
    if unit in seconds:
        minutes, second = divmod(count * seconds[unit], 60)
        hours, minute = divmod(minutes, 60)
        return f"0-0 0 {hours}:{minute}:{second}"
    if unit == "DAY":
        return f"0-0 {count} 0:0:0"
    raise unsupported(f"max_staleness in {unit}")


def _millis(node: Any) -> int:
    if not isinstance(node, exp.Cast):
        raise unsupported(f"expiration_timestamp {describe(node)}")
    moment = parse_constant(node.this.name, TIMESTAMP)
    assert isinstance(moment, datetime.datetime)
    return int(moment.replace(tzinfo=datetime.timezone.utc).timestamp() * 1000)


def _dataset_options(properties: Any) -> dict[str, Any]:
    resource: dict[str, Any] = {}
    for item in properties.expressions if properties is not None else ():
        if isinstance(item, exp.LocationProperty):
            resource["location"] = item.this.name
        elif item.name in ("description", "friendly_name"):
            _text_option(resource, item.name, item.args["value"].name)
        elif item.name == "labels":
            resource["labels"] = dict(_pairs(item.args["value"]))
        elif item.name == "default_table_expiration_days":
            days = float(item.args["value"].name)
            resource["defaultTableExpirationMs"] = str(int(days * _DAY_MS))
        else:
            raise unsupported(f"Dataset option {item.name}")
    return resource


# --- ALTER TABLE --------------------------------------------------------------------------


def _alter(resource: dict[str, Any], action: Any) -> None:
    schema = types.schema_from_rest(resource.get("schema") or {})
    fields = list(schema)
    if isinstance(action, exp.ColumnDef):
        _add_column(fields, action)
    elif isinstance(action, exp.Drop) and action.args.get("kind") == "COLUMN":
        field = _existing(fields, action.args["tables"][0].name, bool(action.args.get("exists")))
        if field is not None:
            fields.remove(field)
    elif isinstance(action, exp.RenameColumn):
        field = _existing(fields, action.this.name)
        assert field is not None
        fields[fields.index(field)] = dataclasses.replace(field, name=action.args["to"].name)
    elif isinstance(action, exp.AlterColumn):
        field = _existing(fields, action.name)
        assert field is not None
        fields[fields.index(field)] = _altered_column(field, action)
    elif isinstance(action, exp.AlterSet):
        for properties in action.expressions:
            for item in properties.expressions:
                _set_option(resource, item)
        return
    elif isinstance(action, exp.AddConstraint):
        _add_key(resource, action)
        return
    elif isinstance(action, exp.Command) and _words(action) == "DROP PRIMARY KEY":
        resource.pop("tableConstraints", None)
        return
    else:
        raise unsupported(f"ALTER TABLE {describe(action)}")
    resource["schema"] = types.schema_to_rest(TableSchema(tuple(fields)))


def _words(action: Any) -> str:
    return " ".join(f"{action.this} {action.expression}".upper().split())


def _existing(fields: list[Field], name: str, optional: bool = False) -> Field | None:
    for field in fields:
        if field.name.lower() == name.lower():
            return field
    if optional:
        return None
    raise InvalidQuery(f"Column not found: {name}")


def _add_column(fields: list[Field], action: Any) -> None:
    field = _column(action)
    if _existing(fields, field.name, optional=True) is not None:
        if action.args.get("exists"):
            return
        raise InvalidQuery(f"Column already exists: {field.name}")
    if field.required:
        raise InvalidQuery(f"Cannot add required column {field.name} to an existing table")
    fields.append(field)


def _altered_column(field: Field, action: Any) -> Field:
    only(action, "this", "drop", "allow_null", "dtype", "default")
    if action.args.get("allow_null") and action.args.get("drop"):
        return dataclasses.replace(field, mode="NULLABLE" if field.required else field.mode)
    if action.args.get("default") is not None:
        text = action.args["default"].sql(dialect="bigquery")
        return dataclasses.replace(field, default_value_expression=text)
    if action.args.get("drop"):
        return dataclasses.replace(field, default_value_expression=None)
    new = _field(field.name, action.args["dtype"])
    if new.type != field.type and (field.type, new.type) not in _WIDENINGS:
        raise InvalidQuery(
            f"ALTER TABLE ALTER COLUMN SET DATA TYPE requires that the existing column type "
            f"({field.type}) is assignable to the new type ({new.type})"
        )
    if new.type != field.type:
        raise unsupported(f"SET DATA TYPE from {field.type} to {new.type}")
    return dataclasses.replace(
        field, max_length=new.max_length, precision=new.precision, scale=new.scale
    )


def _add_key(resource: dict[str, Any], action: Any) -> None:
    (constraint,) = action.expressions
    if isinstance(constraint, exp.Constraint):
        (constraint,) = constraint.expressions
    if not isinstance(constraint, exp.PrimaryKey):
        raise unsupported(f"Constraint {describe(constraint)}")
    if (resource.get("tableConstraints") or {}).get("primaryKey"):
        raise Refused("Already Exists: the table has a primary key", code="ALREADY_EXISTS")
    columns = [column.name for column in constraint.expressions]
    resource["tableConstraints"] = {"primaryKey": {"columns": columns}}


def _rewrite(
    change: Transaction, table: StoredTable, resource: Mapping[str, Any], actions: Sequence[Any]
) -> None:
    """Renames stored columns; they are found by name, so a rename without this would empty them."""
    renames = {
        a.this.name.lower(): a.args["to"].name for a in actions if isinstance(a, exp.RenameColumn)
    }
    dropped = {a.args["tables"][0].name.lower() for a in actions if isinstance(a, exp.Drop)}
    if not renames and not dropped:
        return
    batches = []
    for chunk in table.snapshot(pseudo_columns=True).chunks:
        kept = [name for name in chunk.schema.names if name.lower() not in dropped]
        chunk = chunk.select(kept)
        batches.append(
            chunk.rename_columns([renames.get(name.lower(), name) for name in chunk.schema.names])
        )
    change.replace(table, batches)
