"""`Transaction`: checked changes of the store, applied as a whole."""

import base64
import copy
import dataclasses
import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bqflink_beam.emulator import types
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.table import StoredTable, with_partition
from bqflink_beam.emulator.versions import Chunk
from bqflink_beam.names import TableReference

if TYPE_CHECKING:
    from bqflink_beam.emulator.store import Store


@dataclasses.dataclass(frozen=True)
class Operation:
    """One step of a transaction, in a form that a journal can keep.

    `key` names what it is about (a table by project, dataset, table and uid).
    """

    kind: str
    key: tuple[str, ...]
    at_s: float
    document: dict[str, Any] | None = None
    chunks: tuple[Chunk, ...] = ()


class Transaction:
    """Changes staged under the store's lock; see `Store.transaction`.

    Tables made or dropped here are known to the later steps of the same transaction.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._at_s = store.clock.now_s()
        self.operations: list[Operation] = []
        self._made: dict[tuple[str, str, str], StoredTable | None] = {}

    def create_dataset(
        self, project: str, dataset: str, resource: Mapping[str, Any]
    ) -> dict[str, Any]:
        if (project, dataset) in self._store.datasets:
            raise Refused(f"Already Exists: Dataset {project}:{dataset}", code="ALREADY_EXISTS")
        now_ms = str(int(self._at_s * 1000))
        document = {
            **copy.deepcopy(dict(resource)),
            "kind": "bigquery#dataset",
            "id": f"{project}:{dataset}",
            "datasetReference": {"projectId": project, "datasetId": dataset},
            "location": resource.get("location") or "US",
            "creationTime": now_ms,
            "lastModifiedTime": now_ms,
            "etag": _etag(uuid.uuid4().hex),
        }
        self._stage("put_dataset", (project, dataset), document)
        return copy.deepcopy(document)

    def update_dataset(
        self, project: str, dataset: str, resource: Mapping[str, Any]
    ) -> dict[str, Any]:
        if (project, dataset) not in self._store.datasets:
            raise Refused(f"Not found: Dataset {project}:{dataset}", code="NOT_FOUND")
        document = {
            **copy.deepcopy(dict(resource)),
            "lastModifiedTime": str(int(self._at_s * 1000)),
            "etag": _etag(uuid.uuid4().hex),
        }
        self._stage("put_dataset", (project, dataset), document)
        return copy.deepcopy(document)

    def delete_dataset(self, project: str, dataset: str, *, delete_contents: bool) -> None:
        if (project, dataset) not in self._store.datasets:
            raise Refused(f"Not found: Dataset {project}:{dataset}", code="NOT_FOUND")
        tables = [
            table for key, table in self._store.tables.items() if key[:2] == (project, dataset)
        ]
        if tables and not delete_contents:
            raise Refused(
                f"Dataset {project}:{dataset} is still in use",
                code="INVALID_ARGUMENT",
                reason="resourceInUse",
            )
        for table in tables:
            self.delete_table(table)
        self._stage("drop_dataset", (project, dataset))

    def create_table(self, reference: TableReference, resource: Mapping[str, Any]) -> StoredTable:
        """Stages a new table, and returns it for use in this transaction alone."""
        project, dataset, name = key = table_key(reference)
        reference = TableReference(project, dataset, name)
        home = self._store.datasets.get((project, dataset))
        if home is None:
            raise Refused(f"Not found: Dataset {project}:{dataset}", code="NOT_FOUND")
        if self._find(key) is not None:
            raise Refused(
                f"Already Exists: Table {project}:{dataset}.{name}", code="ALREADY_EXISTS"
            )
        uid = uuid.uuid4().hex
        document = _new_table(reference, resource, home, self._at_s, uid)
        table = StoredTable(self._store, reference, document, uid)
        self._made[key] = table
        self._stage("put_table", (*key, uid), document)
        return table

    def update_table(
        self, table: StoredTable | TableReference, resource: Mapping[str, Any]
    ) -> None:
        key, uid = self._key(table)
        document = {
            **copy.deepcopy(dict(resource)),
            "schema": types.schema_to_rest(types.schema_from_rest(resource.get("schema") or {})),
            "lastModifiedTime": str(int(self._at_s * 1000)),
            "etag": _etag(uuid.uuid4().hex),
        }
        self._stage("put_table", (*key, uid), document)

    def delete_table(self, table: StoredTable | TableReference) -> None:
        key, uid = self._key(table)
        self._made[key] = None
        self._stage("drop_table", (*key, uid))

    def drop_expired(self, table: StoredTable) -> None:
        """Drops a table that nobody can find any more."""
        self._stage("drop_table", (*table_key(table.reference), table.uid))

    def append(self, table: StoredTable | TableReference, chunks: Sequence[Chunk]) -> None:
        """Adds rows; a decorator in a `TableReference` names their partition."""
        self._rows("append", table, chunks)

    def replace(self, table: StoredTable | TableReference, chunks: Sequence[Chunk]) -> None:
        """Puts other rows in the place of all rows."""
        self._rows("replace", table, chunks)

    def merge(self, table: StoredTable, changes: pa.RecordBatch) -> None:
        """Applies upserts and deletes, rows with change columns; see `cdc.merge`."""
        key, uid = self._key(table)
        self._stage("merge", (*key, uid), chunks=(changes,))

    def put_document(self, kind: str, key: str, document: dict[str, Any]) -> None:
        """Stores a JSON document; it must not be changed afterwards."""
        self._stage("put_document", (kind, key), document)

    def drop_document(self, kind: str, key: str) -> None:
        self._stage("drop_document", (kind, key))

    def hold(self, key: str, chunks: Sequence[Chunk]) -> None:
        """Keeps rows that are in no table yet, under a key such as a stream's name."""
        self._stage("hold", (key,), chunks=tuple(chunks))

    def drop_held(self, key: str) -> None:
        self._stage("drop_held", (key,))

    def append_held(self, table: StoredTable, held: str, start: int, stop: int) -> None:
        """Moves rows ``[start, stop)`` of those held under a key to a table, the next in line."""
        key, uid = self._key(table)
        self._stage("append_held", (*key, uid), {"held": held, "start": start, "stop": stop})

    def _stage(
        self,
        kind: str,
        key: tuple[str, ...],
        document: dict[str, Any] | None = None,
        chunks: tuple[Chunk, ...] = (),
    ) -> None:
        self.operations.append(Operation(kind, key, self._at_s, document, chunks))

    def _rows(
        self, kind: str, table: StoredTable | TableReference, chunks: Sequence[Chunk]
    ) -> None:
        key, uid = self._key(table)
        found = self._find(key)
        assert found is not None
        reference = table.reference if isinstance(table, StoredTable) else table
        self._stage(
            kind,
            (*key, uid),
            chunks=tuple(with_partition(found, chunks, self._at_s, reference.table)),
        )

    def _key(self, table: StoredTable | TableReference) -> tuple[tuple[str, str, str], str]:
        reference = table.reference if isinstance(table, StoredTable) else table
        key = table_key(reference)
        found = self._find(key)
        if found is None or (isinstance(table, StoredTable) and table.uid != found.uid):
            raise not_found(reference)
        return key, found.uid

    def _find(self, key: tuple[str, str, str]) -> StoredTable | None:
        if key in self._made:
            return self._made[key]
        return self._store.get_table(TableReference(*key))


def table_key(reference: TableReference) -> tuple[str, str, str]:
    """Returns what a table is found by: its name without a partition decorator."""
    return reference.project, reference.dataset, reference.table.partition("$")[0]


def not_found(reference: TableReference) -> Refused:
    """Returns REST's refusal for a table that does not exist."""
    return Refused(
        f"Not found: Table {reference.project}:{reference.dataset}.{reference.table}",
        code="NOT_FOUND",
    )


def _new_table(
    reference: TableReference,
    resource: Mapping[str, Any],
    home: Mapping[str, Any],
    now_s: float,
    uid: str,
) -> dict[str, Any]:
    kind = next(
        (
            name
            for key, name in (
                ("view", "VIEW"),
                ("materializedView", "MATERIALIZED_VIEW"),
                ("externalDataConfiguration", "EXTERNAL"),
                ("snapshotDefinition", "SNAPSHOT"),
            )
            if resource.get(key)
        ),
        "TABLE",
    )
    now_ms = int(now_s * 1000)
    document = {
        **copy.deepcopy(dict(resource)),
        "kind": "bigquery#table",
        "id": f"{reference.project}:{reference.dataset}.{reference.table}",
        "tableReference": {
            "projectId": reference.project,
            "datasetId": reference.dataset,
            "tableId": reference.table,
        },
        "type": kind,
        "schema": types.schema_to_rest(types.schema_from_rest(resource.get("schema") or {})),
        "location": home["location"],
        "creationTime": str(now_ms),
        "lastModifiedTime": str(now_ms),
        "etag": _etag(uid),
    }
    default_ms = home.get("defaultTableExpirationMs")
    if default_ms and "expirationTime" not in document:
        document["expirationTime"] = str(now_ms + int(default_ms))
    return document


def _etag(uid: str) -> str:
    return base64.b64encode(hashlib.sha256(uid.encode()).digest()[:16]).decode()
