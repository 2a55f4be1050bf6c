"""Wildcard tables: ``FROM d.events_*`` reads all tables of a prefix as one."""

from collections.abc import Sequence

import pyarrow as pa

from bqflink_beam.emulator import types
from bqflink_beam.emulator.sql.invalid import InvalidQuery
from bqflink_beam.emulator.sql.scope import TABLE_SUFFIX, TableInput
from bqflink_beam.emulator.store import Store, StoredTable
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema

_SUFFIX = Field(name=TABLE_SUFFIX, type="STRING")


def matching_tables(store: Store, prefix: TableReference) -> list[StoredTable]:
    """Returns the tables whose names begin like that of `prefix`.

    Raises:
        InvalidQuery: there is none, or a view is among them.
    """
    found = [
        table
        for table in store.list_tables(prefix.project, prefix.dataset)
        if table.reference.table.startswith(prefix.table)
    ]
    if not found:
        raise InvalidQuery(
            f"{prefix.project}:{prefix.dataset}.{prefix.table}* does not match any table."
        )
    for table in found:
        if table.kind != "TABLE":
            raise InvalidQuery(f"Views cannot be queried through prefix: {table.reference}")
    return found


def wildcard_input(tables: Sequence[StoredTable], prefix: str) -> TableInput:
    """Returns the rows of the tables, with the schema of the newest, frozen now.

    Raises:
        InvalidQuery: a column of that schema has another type in another table.
    """
    # Of those made in the same moment the last one by name, which max() finds first.
    newest = max(reversed(tables), key=lambda table: int(table.resource["creationTime"]))
    schema = newest.schema
    for table in tables:
        _check_types(schema, table)
    snapshots = [(table.reference.table[len(prefix) :], table.snapshot()) for table in tables]

    def read() -> pa.Table:
        batches = [
            _with_suffix(batch, schema, suffix)
            for suffix, snapshot in snapshots
            for batch in snapshot.to_table().to_batches()
        ]
        return pa.Table.from_batches(batches, _nullable(schema))

    name = f"{newest.reference} and others"
    filtered = next(
        (t.required_partition_filter for t in tables if t.required_partition_filter), None
    )
    return TableInput(TableSchema((*schema.fields, _SUFFIX)), read, name, filtered)


def _check_types(schema: TableSchema, table: StoredTable) -> None:
    wanted = {field.name.lower(): field for field in types.arrow_schema(schema)}
    for field in types.arrow_schema(table.schema):
        other = wanted.get(field.name.lower())
        if other is not None and other.type != field.type:
            raise InvalidQuery(
                f"Cannot read field of type {field.type} as {other.type}. Field: {field.name} "
                f"of table {table.reference}"
            )


def _with_suffix(batch: pa.RecordBatch, schema: TableSchema, suffix: str) -> pa.RecordBatch:
    have = {name.lower(): position for position, name in enumerate(batch.schema.names)}
    columns = []
    for field in list(_nullable(schema))[:-1]:
        position = have.get(field.name.lower())
        if position is not None:
            columns.append(batch.column(position))
        elif pa.types.is_list(field.type):
            columns.append(pa.array([[]] * batch.num_rows, field.type))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    columns.append(pa.array([suffix] * batch.num_rows, pa.string()))
    return pa.RecordBatch.from_arrays(columns, schema=_nullable(schema))


def _nullable(schema: TableSchema) -> pa.Schema:
    """What is REQUIRED in the newest table may be missing in another."""
    target = types.arrow_schema(TableSchema((*schema.fields, _SUFFIX)))
    return pa.schema([field.with_nullable(True) for field in target])
