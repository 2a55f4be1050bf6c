"""`Store`: datasets, tables, their rows, and the documents and rows of streams and jobs.

Every change goes through a `Transaction`: it is checked while it is staged, under the
store's one lock, and applied (and journaled) as a whole at the end, or not at all.

    with store.transaction() as change:
        change.append(table, chunks)
        change.put_document("write_stream", name, state)
"""

import contextlib
import copy
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

from bqflink_beam.clock import Clock
from bqflink_beam.emulator import cdc
from bqflink_beam.emulator.table import Snapshot, StoredTable, with_partition
from bqflink_beam.emulator.transaction import Operation, Transaction, not_found, table_key
from bqflink_beam.emulator.versions import Rows
from bqflink_beam.names import TableReference

__all__ = ["Operation", "Snapshot", "Store", "StoredTable", "Transaction", "not_found", "table_key"]

_TIME_TRAVEL_S = 7 * 86_400.0


class Journal(Protocol):
    """Where transactions are kept before they are applied."""

    def write(self, operations: Sequence[Operation]) -> None: ...

    def replay(self) -> Iterator[Sequence[Operation]]: ...


class Store:
    """Everything the embedded BigQuery remembers."""

    def __init__(
        self,
        clock: Clock,
        *,
        journal: Journal | None = None,
        time_travel_s: float = _TIME_TRAVEL_S,
    ) -> None:
        self.clock = clock
        self.time_travel_s = time_travel_s
        self.lock = threading.RLock()
        self.journal = journal
        self._open: Transaction | None = None
        self.datasets: dict[tuple[str, str], dict[str, Any]] = {}
        self.tables: dict[tuple[str, str, str], StoredTable] = {}
        self.documents: dict[str, dict[str, dict[str, Any]]] = {}
        self.held: dict[str, Rows] = {}
        if journal is not None:
            for operations in journal.replay():
                for operation in operations:
                    self.apply(operation)

    @contextlib.contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """Holds the store's lock for the block, and applies what it staged at the end.

        An exception in the block leaves the store as it was. Keep the block short: decode,
        convert and read files before it. Does not nest.
        """
        with self.lock:
            if self._open is not None:
                raise RuntimeError("a transaction of this store is open already")
            self._open = Transaction(self)
            try:
                yield self._open
                operations = self._open.operations
                if operations and self.journal is not None:
                    self.journal.write(operations)
            finally:
                self._open = None
            for operation in operations:
                self.apply(operation)

    def commit(
        self,
        changes: Sequence[
            tuple[
                "StoredTable | TableReference",
                Sequence[pa.RecordBatch],
                Literal["append", "replace"],
            ]
        ],
    ) -> None:
        """Changes the rows of several tables at once, all or none.

        Raises:
            Refused: NOT_FOUND, a table has been dropped.
        """
        with self.transaction() as change:
            for table, chunks, mode in changes:
                (change.append if mode == "append" else change.replace)(table, chunks)

    # --- datasets ---

    def create_dataset(
        self, project: str, dataset: str, resource: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Makes a dataset from a REST resource and returns the whole one.

        Raises:
            Refused: ALREADY_EXISTS.
        """
        with self.transaction() as change:
            return change.create_dataset(project, dataset, resource or {})

    def get_dataset(self, project: str, dataset: str) -> dict[str, Any] | None:
        """Returns a copy of the dataset's REST resource, None if there is none."""
        with self.lock:
            found = self.datasets.get((project, dataset))
            return copy.deepcopy(found) if found is not None else None

    def update_dataset(
        self, project: str, dataset: str, resource: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Puts a whole new resource in the dataset's place; returns it with its new etag."""
        with self.transaction() as change:
            return change.update_dataset(project, dataset, resource)

    def delete_dataset(self, project: str, dataset: str, *, delete_contents: bool = False) -> None:
        """Drops a dataset.

        Raises:
            Refused: NOT_FOUND, or it has tables and `delete_contents` is not set.
        """
        with self.transaction() as change:
            change.delete_dataset(project, dataset, delete_contents=delete_contents)

    def list_datasets(self, project: str) -> list[dict[str, Any]]:
        """Returns the resources of a project's datasets, in order of name."""
        with self.lock:
            keys = sorted(key for key in self.datasets if key[0] == project)
            return [copy.deepcopy(self.datasets[key]) for key in keys]

    # --- tables ---

    def create_table(self, reference: TableReference, resource: Mapping[str, Any]) -> StoredTable:
        """Makes a table (or view) from a REST resource.

        Raises:
            Refused: NOT_FOUND, no such dataset; ALREADY_EXISTS; INVALID_ARGUMENT, a bad schema.
        """
        with self.transaction() as change:
            change.create_table(reference, resource)
        return self.require_table(reference)

    def update_table(self, table: StoredTable, resource: Mapping[str, Any]) -> StoredTable:
        """Gives a table a whole new REST resource (schema included), and it a new etag.

        The caller checks that the change is one the service allows.
        """
        with self.transaction() as change:
            change.update_table(table, resource)
        return table

    def get_table(self, reference: TableReference) -> StoredTable | None:
        """Returns a table by name, a partition decorator left aside; None if there is none."""
        key = table_key(reference)
        with self.lock:
            found = self.tables.get(key)
            if found is None or found.expires_s is None or found.expires_s > self.clock.now_s():
                return found
            if self._open is None:
                with self.transaction() as change:
                    change.drop_expired(found)
            return None

    def require_table(self, reference: TableReference) -> StoredTable:
        """Returns a table by name.

        Raises:
            Refused: NOT_FOUND, in REST's words.
        """
        found = self.get_table(reference)
        if found is None:
            raise not_found(reference)
        return found

    def delete_table(self, reference: TableReference) -> None:
        """Drops a table.

        Raises:
            Refused: NOT_FOUND.
        """
        table = self.require_table(reference)
        with self.transaction() as change:
            change.delete_table(table)

    def list_tables(self, project: str, dataset: str) -> list[StoredTable]:
        """Returns a dataset's tables in order of name."""
        with self.lock:
            keys = sorted(key for key in self.tables if key[:2] == (project, dataset))
            found = [self.get_table(TableReference(*key)) for key in keys]
            return [table for table in found if table is not None]

    # --- documents (write streams, jobs, sessions) and rows that are held back ---

    def document(self, kind: str, key: str) -> dict[str, Any] | None:
        """Returns a document; treat it as frozen, and change it by `put_document`."""
        with self.lock:
            return self.documents.get(kind, {}).get(key)

    def list_documents(self, kind: str) -> dict[str, dict[str, Any]]:
        """Returns the documents of a kind by key, in the order they were first put."""
        with self.lock:
            return dict(self.documents.get(kind, {}))

    # --- applying ---

    def apply(self, operation: Operation) -> None:
        """Applies one checked operation; for transactions and the replay of a journal."""
        getattr(self, f"_apply_{operation.kind}")(operation)

    def _apply_put_dataset(self, operation: Operation) -> None:
        project, dataset = operation.key
        self.datasets[project, dataset] = operation.document or {}

    def _apply_drop_dataset(self, operation: Operation) -> None:
        project, dataset = operation.key
        del self.datasets[project, dataset]

    def _apply_put_table(self, operation: Operation) -> None:
        project, dataset, table, uid = operation.key
        found = self.tables.get((project, dataset, table))
        document = operation.document or {}
        if found is not None and found.uid == uid:
            found.set_resource(document)
        else:
            reference = TableReference(project, dataset, table)
            self.tables[project, dataset, table] = StoredTable(self, reference, document, uid)

    def _apply_drop_table(self, operation: Operation) -> None:
        project, dataset, table, _ = operation.key
        del self.tables[project, dataset, table]

    def _apply_append(self, operation: Operation) -> None:
        self._table_of(operation).log.append(operation.chunks, operation.at_s)

    def _apply_replace(self, operation: Operation) -> None:
        self._table_of(operation).log.replace(operation.chunks, operation.at_s)

    def _apply_merge(self, operation: Operation) -> None:
        table = self._table_of(operation)
        for changes in operation.chunks:
            dead, upserts = cdc.merge(table, changes)
            table.log.change(dead, upserts, operation.at_s)

    def _apply_put_document(self, operation: Operation) -> None:
        kind, key = operation.key
        self.documents.setdefault(kind, {})[key] = operation.document or {}

    def _apply_drop_document(self, operation: Operation) -> None:
        kind, key = operation.key
        self.documents.get(kind, {}).pop(key, None)

    def _apply_hold(self, operation: Operation) -> None:
        self.held.setdefault(operation.key[0], Rows()).append(operation.chunks)

    def _apply_drop_held(self, operation: Operation) -> None:
        self.held.pop(operation.key[0], None)

    def _apply_append_held(self, operation: Operation) -> None:
        document = operation.document or {}
        held = self.held[document["held"]]
        rows = held.slice(document["start"], document["stop"])
        held.release(document["stop"])
        table = self._table_of(operation)
        table.log.append(with_partition(table, rows, operation.at_s), operation.at_s)

    def _table_of(self, operation: Operation) -> StoredTable:
        project, dataset, table, _ = operation.key
        return self.tables[project, dataset, table]
