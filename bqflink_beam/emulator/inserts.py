"""``tabledata.insertAll``: rows one by one, with errors by row."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator import values
from bqflink_beam.emulator.api_errors import invalid, missing
from bqflink_beam.emulator.checks import Faulty, check_batch
from bqflink_beam.emulator.defaults import default_maker
from bqflink_beam.emulator.jsonvalues import BadValue, row_values
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store, StoredTable
from bqflink_beam.emulator.tables import reference_of
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import TableSchema

_DEDUPLICATION_S = 60.0
_REQUEST_BYTES_MAX = 10 << 20
_ROWS_MAX = 50_000


class Inserts:
    """Streaming inserts of one server. Insert ids are remembered for a minute, as a best effort."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen: dict[tuple[str, str], float] = {}

    def insert_all(
        self, project: str, dataset: str, name: str, body: Mapping[str, Any], size: int
    ) -> dict[str, Any]:
        """``tabledata.insertAll``.

        Raises:
            Refused: there is no such table, or the request as a whole is bad.
        """
        rows = body.get("rows")
        if not isinstance(rows, list) or not rows:
            raise missing("rows")
        if size > _REQUEST_BYTES_MAX or len(rows) > _ROWS_MAX:
            raise Refused(
                f"Request payload size exceeds the limit: {_REQUEST_BYTES_MAX} bytes.",
                reason="invalid",
            )
        table = self._table(project, dataset, name, body.get("templateSuffix"))
        target = reference_of(project, dataset, name + (body.get("templateSuffix") or ""))
        if table.kind != "TABLE":
            raise invalid(f"Cannot add rows to a table of type {table.kind}")
        ignore = bool(body.get("ignoreUnknownValues"))
        errors: dict[int, dict[str, Any]] = {}
        good: list[dict[str, Any]] = []
        indexes: list[int] = []
        for index, row in enumerate(rows):
            try:
                found = row_values(
                    table.schema.fields, row.get("json"), ignore_unknown=ignore, json_text=True
                )
                good.append(found)
                indexes.append(index)
            except BadValue as bad:
                errors[index] = _error(bad.path, str(bad))
        batch, faulty = _checked(table.schema, self._completed(table.schema, good))
        for position, message in faulty.messages.items():
            errors[indexes[position]] = _error(_column_in(message), message)
        if errors and not body.get("skipInvalidRows"):
            for index in range(len(rows)):
                errors.setdefault(index, _error("", "", "stopped"))
        else:
            kept = [p for p in range(len(good)) if indexes[p] not in errors]
            sound = batch.take(pa.array(kept, pa.int64()))
            self._append(table, target, sound, [rows[indexes[p]] for p in kept])
        answer: dict[str, Any] = {"kind": "bigquery#tableDataInsertAllResponse"}
        if errors:
            answer["insertErrors"] = [
                {"index": index, "errors": [error]} for index, error in sorted(errors.items())
            ]
        return answer

    def _table(self, project: str, dataset: str, name: str, suffix: str | None) -> StoredTable:
        table = self._store.require_table(reference_of(project, dataset, name))
        if not suffix:
            return self._decorated(table, name)
        reference = reference_of(project, dataset, name + suffix)
        with self._store.lock:
            found = self._store.get_table(reference)
            if found is None:
                template = {
                    key: value
                    for key, value in table.resource.items()
                    if key in ("schema", "timePartitioning", "clustering", "rangePartitioning")
                }
                found = self._store.create_table(reference, template)
        return found

    def _decorated(self, table: StoredTable, name: str) -> StoredTable:
        if "$" not in name or table.partitioned_by_ingestion:
            return table
        if table.time_partitioning or table.resource.get("rangePartitioning"):
            raise invalid(
                f"Streaming to metadata partition of column based partitioning table {name} "
                "is disallowed."
            )
        raise invalid(f"Table {name} has a partition decorator but is not partitioned")

    def _completed(self, schema: TableSchema, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Fills the defaults of columns that a row leaves out."""
        makers = {
            field.name: default_maker(field, self._store.clock)
            for field in schema
            if field.default_value_expression
        }
        return [
            {**{name: make() for name, make in makers.items() if name not in row}, **row}
            for row in rows
        ]

    def _append(
        self,
        table: StoredTable,
        target: TableReference,
        batch: pa.RecordBatch,
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        now_s = self._store.clock.now_s()
        with self._lock:
            self._seen = {k: at for k, at in self._seen.items() if now_s - at < _DEDUPLICATION_S}
            fresh: dict[int, tuple[str, str] | None] = {}
            for position, row in enumerate(rows):
                insert_id = row.get("insertId")
                key = (table.uid, str(insert_id)) if insert_id else None
                if key is None or (key not in self._seen and key not in fresh.values()):
                    fresh[position] = key
            kept = batch.take(pa.array(list(fresh), pa.int64()))
            if kept.num_rows:
                self._store.commit([(target, [kept], "append")])
            self._seen.update({key: now_s for key in fresh.values() if key is not None})


def _checked(schema: TableSchema, rows: list[dict[str, Any]]) -> tuple[pa.RecordBatch, Faulty]:
    faulty = Faulty()
    batch = values.batch_from_rows(schema, rows)
    return check_batch(schema, batch, faulty), faulty


def _column_in(message: str) -> str:
    """Returns the field that a check's message ends with (``... on field a.b.``)."""
    return message.rpartition(" on field ")[2].rstrip(".") if " on field " in message else ""


def _error(location: str, message: str, reason: str = "invalid") -> dict[str, Any]:
    return {"reason": reason, "location": location, "debugInfo": "", "message": message}
