"""REST methods on tables and views, and on their rows (``tabledata.list``)."""

from collections.abc import Mapping
from typing import Any

from bqflink_beam.emulator import types
from bqflink_beam.emulator.api_errors import invalid, missing
from bqflink_beam.emulator.catalog import StoreCatalog
from bqflink_beam.emulator.cells import rest_rows
from bqflink_beam.emulator.datasets import check_etag, dataset_not_found, merge_patch
from bqflink_beam.emulator.pages import (
    etag_of,
    flag_of,
    integer_of,
    page,
    position_of,
    token_of,
)
from bqflink_beam.emulator.partitions import snapshot_named, without_partition
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import compile_text
from bqflink_beam.emulator.store import Snapshot, Store, StoredTable
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema

_READ_ONLY = (
    "kind", "id", "etag", "selfLink", "creationTime", "lastModifiedTime", "location", "type",
    "tableReference", "numRows", "numBytes", "numTotalLogicalBytes", "numLongTermBytes",
)  # fmt: skip
_LISTED = (
    "kind", "id", "tableReference", "type", "friendlyName", "labels", "creationTime",
    "expirationTime", "timePartitioning", "rangePartitioning", "clustering",
)  # fmt: skip
_PARTITION_TYPES = ("DATE", "DATETIME", "TIMESTAMP")
_CLUSTER_COLUMNS_MAX = 4
_PAGE_BYTES_MAX = 10 << 20
_PAGE_ROWS_MAX = 100_000


class Tables:
    """``tables.*`` and ``tabledata.list`` of one server."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def insert(self, project: str, dataset: str, body: Mapping[str, Any]) -> dict[str, Any]:
        name = (body.get("tableReference") or {}).get("tableId")
        if not name:
            raise missing("tableReference.tableId")
        reference = reference_of(project, dataset, name)
        return self._store.create_table(reference, self.prepared(reference, body)).resource

    def prepared(self, reference: TableReference, body: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the resource to store for a table that a caller describes.

        Raises:
            Refused: the description does not hold together.
        """
        resource = {key: value for key, value in body.items() if key not in _READ_ONLY}
        if view := body.get("view") or body.get("materializedView"):
            if view.get("useLegacySql", bool(body.get("view"))):
                raise invalid("Views in legacy SQL are not supported by the embedded BigQuery")
            query = compile_text(
                view.get("query", ""),
                StoreCatalog(self._store, reference.project),
                now_s=self._store.clock.now_s(),
            )
            resource["schema"] = types.schema_to_rest(query.schema)
        check_layout(types.schema_from_rest(resource.get("schema") or {}), resource)
        return resource

    def get(self, project: str, dataset: str, name: str) -> dict[str, Any]:
        table = self._require(project, dataset, name)
        resource = table.resource
        if "$" in name:
            rows = snapshot_named(table, name)
            resource["numRows"], resource["numBytes"] = str(rows.row_count), str(rows.nbytes)
        return resource

    def list(self, project: str, dataset: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        if self._store.get_dataset(project, dataset) is None:
            raise dataset_not_found(project, dataset)
        found = []
        for table in self._store.list_tables(project, dataset):
            resource = table.resource
            found.append({key: resource[key] for key in _LISTED if key in resource})
        items, token = page(found, parameters)
        answer: dict[str, Any] = {
            "kind": "bigquery#tableList",
            "tables": items,
            "totalItems": len(found),
        }
        answer["etag"] = etag_of(answer)
        return {**answer, "nextPageToken": token} if token else answer

    def patch(
        self,
        project: str,
        dataset: str,
        name: str,
        body: Mapping[str, Any],
        if_match: str | None,
    ) -> dict[str, Any]:
        """Changes what the body names; null takes away."""
        return self._change(project, dataset, name, body, if_match, whole=False)

    def update(
        self,
        project: str,
        dataset: str,
        name: str,
        body: Mapping[str, Any],
        if_match: str | None,
    ) -> dict[str, Any]:
        """Puts the body in the place of the table's metadata."""
        return self._change(project, dataset, name, body, if_match, whole=True)

    def _change(
        self,
        project: str,
        dataset: str,
        name: str,
        body: Mapping[str, Any],
        if_match: str | None,
        *,
        whole: bool,
    ) -> dict[str, Any]:
        with self._store.lock:
            table = self._require(project, dataset, name)
            have = table.resource
            check_etag(have, if_match)
            if whole:
                kept = {key: have[key] for key in _READ_ONLY if key in have}
                resource = {"schema": have.get("schema"), **body, **kept}
            else:
                resource = merge_patch(have, body, _READ_ONLY)
            if body.get("schema") is not None:
                wanted = types.schema_from_rest(body["schema"])
                check_evolution(table.schema, wanted)
                resource["schema"] = types.schema_to_rest(wanted)
            if view := body.get("view"):
                prepared = self.prepared(table.reference, {"view": {**have["view"], **view}})
                resource["schema"] = prepared["schema"]
            check_layout(types.schema_from_rest(resource.get("schema") or {}), resource)
            _refuse_new_layout(have, resource)
            return self._store.update_table(table, resource).resource

    def delete(self, project: str, dataset: str, name: str, if_match: str | None) -> None:
        with self._store.lock:
            table = self._require(project, dataset, name)
            check_etag(table.resource, if_match)
            if "$" not in name:
                self._store.delete_table(table.reference)
                return
            with self._store.transaction() as change:
                change.replace(table, without_partition(table, name))

    def rows(
        self, project: str, dataset: str, name: str, parameters: Mapping[str, str]
    ) -> dict[str, Any]:
        """``tabledata.list``: one page of a table's rows."""
        table = self._require(project, dataset, name)
        if table.kind not in ("TABLE", "SNAPSHOT"):
            raise invalid(f"Cannot list a table of type {table.kind}.")
        answer = rows_page(snapshot_named(table, name), parameters)
        return {"kind": "bigquery#tableDataList", "etag": table.etag, **answer}

    def _require(self, project: str, dataset: str, name: str) -> StoredTable:
        if self._store.get_dataset(project, dataset) is None:
            raise dataset_not_found(project, dataset)
        return self._store.require_table(reference_of(project, dataset, name))


def reference_of(project: str, dataset: str, name: str) -> TableReference:
    """Returns a reference made from the parts of a path.

    Raises:
        Refused: the name is none that a table can have.
    """
    if not name or len(name.encode()) > 1024 or any(c in name for c in "`./\\[]\n"):
        raise invalid(f'Invalid table ID "{name}".')
    return TableReference(project, dataset, name)


def rows_page(snapshot: Snapshot, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Returns ``rows``, ``totalRows`` and ``pageToken`` of one page of rows."""
    start = position_of(parameters.get("pageToken"))
    if not parameters.get("pageToken"):
        start = integer_of(parameters, "startIndex", 0) or 0
    size = integer_of(parameters, "maxResults", None)
    row_bytes = snapshot.nbytes // max(snapshot.row_count, 1) + 32 * len(snapshot.schema)
    size_max = max(1, min(_PAGE_ROWS_MAX, _PAGE_BYTES_MAX // max(row_bytes, 1)))
    size = size_max if size is None else min(size, size_max)
    stop = min(start + size, snapshot.row_count)
    schema, chunks = snapshot.schema, _between(snapshot, start, stop)
    if wanted := parameters.get("selectedFields"):
        names = {part.partition(".")[0].lower() for part in wanted.split(",")}
        for part in wanted.split(","):
            if "." in part:
                raise invalid("selectedFields of nested fields is not supported here")
            if part.lower() not in {field.name.lower() for field in schema}:
                raise invalid(f"Selected field {part} does not exist")
        schema = TableSchema(tuple(f for f in schema if f.name.lower() in names))
    answer: dict[str, Any] = {"totalRows": str(snapshot.row_count)}
    rows = rest_rows(
        schema, chunks, int64_timestamps=flag_of(parameters, "formatOptions.useInt64Timestamp")
    )
    if rows:
        answer["rows"] = rows
    if stop < snapshot.row_count:
        answer["pageToken"] = token_of(stop)
    return answer


def _between(snapshot: Snapshot, start: int, stop: int) -> list[Any]:
    found = []
    position = 0
    for chunk in snapshot.chunks:
        first, last = max(start - position, 0), min(stop - position, chunk.num_rows)
        if first < last:
            found.append(chunk.slice(first, last - first))
        position += chunk.num_rows
    return found


# --- what a table may be ------------------------------------------------------------------


def check_layout(schema: TableSchema, resource: Mapping[str, Any]) -> None:
    """Checks partitioning, clustering and primary key against the columns.

    Raises:
        Refused: they do not fit.
    """
    fields = {field.name.lower(): field for field in schema}
    time, ranges = resource.get("timePartitioning"), resource.get("rangePartitioning")
    if time and ranges:
        raise invalid("Only one of timePartitioning and rangePartitioning should be specified")
    if time:
        if time.get("type") not in ("DAY", "HOUR", "MONTH", "YEAR"):
            raise invalid(f"Invalid time partitioning type {time.get('type')!r}")
        if column := time.get("field"):
            _check_partition_column(fields.get(column.lower()), column, _PARTITION_TYPES)
    if ranges:
        _check_partition_column(
            fields.get(str(ranges.get("field")).lower()), ranges.get("field"), ("INT64",)
        )
        bounds = ranges.get("range") or {}
        if not all(key in bounds for key in ("start", "end", "interval")):
            raise missing("rangePartitioning.range.start, end, interval")
    clustering = (resource.get("clustering") or {}).get("fields") or ()
    if len(clustering) > _CLUSTER_COLUMNS_MAX:
        raise invalid(f"A table has at most {_CLUSTER_COLUMNS_MAX} clustering columns")
    for column in clustering:
        found = fields.get(column.lower())
        if found is None:
            raise invalid(
                "The field specified for clustering cannot be found in the schema. "
                f"Invalid field: {column}"
            )
        if found.repeated or found.type in ("STRUCT", "JSON", "FLOAT64"):
            raise invalid(f"The field specified for clustering cannot be used: {column}")
    constraints = (resource.get("tableConstraints") or {}).get("primaryKey") or {}
    for column in constraints.get("columns") or ():
        found = fields.get(column.lower())
        if found is None or found.repeated:
            raise invalid(f"Primary key column {column} cannot be used or found in the schema")


def _check_partition_column(found: Field | None, name: object, kinds: tuple[str, ...]) -> None:
    if found is None:
        raise invalid(
            "The field specified for partitioning cannot be found in the schema. "
            f"Invalid field: {name}"
        )
    if found.type not in kinds or found.repeated:
        raise invalid(
            f"The field specified for partitioning can only be of type {', '.join(kinds)}. "
            f"The type found is: {found.type}."
        )


def _refuse_new_layout(have: Mapping[str, Any], want: Mapping[str, Any]) -> None:
    for part, key in (("timePartitioning", "field"), ("rangePartitioning", "field")):
        before, after = have.get(part), want.get(part)
        if (before or {}).get(key) != (after or {}).get(key) or bool(before) != bool(after):
            raise invalid(f"Cannot change partitioning spec ({part}) for a table.")
    if (have.get("timePartitioning") or {}).get("type") != (want.get("timePartitioning") or {}).get(
        "type"
    ):
        raise invalid("Cannot change partitioning type for a table.")


def check_evolution(have: TableSchema, want: TableSchema) -> None:
    """Checks that a schema may take another's place: columns added or relaxed, no more.

    Raises:
        Refused: in the words of ``Provided Schema does not match``.
    """
    _check_fields(have.fields, want.fields, "")


def _check_fields(have: tuple[Field, ...], want: tuple[Field, ...], path: str) -> None:
    wanted = {field.name.lower(): field for field in want}
    for field in have:
        name = path + field.name
        new = wanted.pop(field.name.lower(), None)
        if new is None:
            raise _mismatch(f"Field {name} is missing in new schema")
        if new.type != field.type:
            raise _mismatch(f"Field {name} has changed type from {field.type} to {new.type}")
        if new.mode != field.mode and (field.mode, new.mode) != ("REQUIRED", "NULLABLE"):
            raise _mismatch(f"Field {name} has changed mode from {field.mode} to {new.mode}")
        for limit in ("max_length", "precision", "scale"):
            old, now = getattr(field, limit), getattr(new, limit)
            if old != now and now is not None and (old is None or now < old):
                raise _mismatch(f"Field {name} has narrowed {limit} from {old} to {now}")
        _check_fields(field.fields, new.fields, f"{name}.")
    for new in wanted.values():
        if new.required:
            raise invalid(
                "Provided Schema does not match. Cannot add required fields to an existing "
                f"schema. (field: {path}{new.name})"
            )


def _mismatch(what: str) -> Refused:
    return invalid(f"Provided Schema does not match Table. {what}")
