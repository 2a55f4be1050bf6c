"""DML statements of query jobs: computed and applied in one transaction of the store."""

from typing import Any

import pyarrow as pa

from bqflink_beam.emulator.catalog import StoreCatalog
from bqflink_beam.emulator.checks import Faulty, check_batch
from bqflink_beam.emulator.defaults import default_maker
from bqflink_beam.emulator.destinations import aligned
from bqflink_beam.emulator.jobs import Outcome
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql.dml import Change, Target, run_statement, target_name
from bqflink_beam.emulator.sql.invalid import InvalidQuery
from bqflink_beam.emulator.sql.scope import Plan
from bqflink_beam.emulator.store import Store, StoredTable, Transaction
from bqflink_beam.schema.model import TableSchema

_WORDS = {
    "Insert": "INSERT",
    "Update": "UPDATE",
    "Delete": "DELETE",
    "Merge": "MERGE",
    "TruncateTable": "TRUNCATE_TABLE",
}


def dml_outcome(store: Store, catalog: StoreCatalog, plan: Plan, node: Any) -> Outcome:
    """Returns what a DML job will do.

    It is computed under the store's lock when the job is finished: a row that is written
    meanwhile must be neither overlooked nor lost. So these are for small tables.

    Raises:
        Refused: there is no such table.
    """
    reference = catalog.reference(target_name(node))
    store.require_table(reference)
    statistics: dict[str, Any] = {"statementType": _WORDS[type(node).__name__]}

    def apply(change: Transaction) -> None:
        table = store.require_table(reference)
        if table.kind != "TABLE":
            raise InvalidQuery(f"DML over a {table.kind} is not supported: {reference}")
        done = run_statement(plan, node, _target(store, table))
        _stage(change, table, done)
        statistics["numDmlAffectedRows"] = str(done.inserted + done.updated + done.deleted)
        statistics["dmlStats"] = {
            "insertedRowCount": str(done.inserted),
            "updatedRowCount": str(done.updated),
            "deletedRowCount": str(done.deleted),
        }

    return Outcome(apply, statistics)


def _target(store: Store, table: StoredTable) -> Target:
    def default(field: Any) -> object:
        return default_maker(field, store.clock)()

    rows = table.snapshot(pseudo_columns=True).to_table()
    return Target(
        str(table.reference), table.schema, rows, default, table.required_partition_filter
    )


def _stage(change: Transaction, table: StoredTable, done: Change) -> None:
    if done.rows is not None:
        names = list(range(len(table.arrow_schema)))
        batches = done.rows.combine_chunks().to_batches()
        if done.updated:
            for batch in batches:
                _check(table.schema, batch.select(names))
        change.replace(table, batches)
    if done.added is not None and done.added.num_rows:
        batches = [aligned(b, table.schema) for b in done.added.combine_chunks().to_batches()]
        change.append(table, [_check(table.schema, batch) for batch in batches])


def _check(schema: TableSchema, batch: pa.RecordBatch) -> pa.RecordBatch:
    faulty = Faulty()
    checked = check_batch(schema, batch, faulty)
    for message in faulty.messages.values():
        raise Refused(message, reason="invalidQuery")
    return checked
