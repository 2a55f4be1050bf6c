"""Writing a job's rows into its destination table, by the job's dispositions."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator import types
from bqflink_beam.emulator.api_errors import invalid, missing
from bqflink_beam.emulator.partitions import check_partition, snapshot_named, without_partition
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store, StoredTable, Transaction, not_found
from bqflink_beam.emulator.tables import check_layout
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema

CREATE = ("CREATE_IF_NEEDED", "CREATE_NEVER")
WRITE = ("WRITE_APPEND", "WRITE_TRUNCATE", "WRITE_EMPTY", "WRITE_TRUNCATE_DATA")
_LAYOUT_PARTS = ("type", "field", "fields")
_UPDATES = ("ALLOW_FIELD_ADDITION", "ALLOW_FIELD_RELAXATION")


def table_reference(value: Mapping[str, Any] | None, what: str) -> TableReference:
    """Reads a REST table reference.

    Raises:
        Refused: it lacks a part.
    """
    parts = [(value or {}).get(key) for key in ("projectId", "datasetId", "tableId")]
    if not all(isinstance(part, str) and part for part in parts):
        raise missing(what)
    project, dataset, table = (str(part) for part in parts)
    return TableReference(project, dataset, table)


def check_known(configuration: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Refuses options that would not be obeyed. Those left empty or false ask for nothing."""
    for key, value in configuration.items():
        if key not in known and value not in (None, False, [], {}, ""):
            raise invalid(f"{what} option {key} is not supported by the embedded BigQuery")


def check_dispositions(configuration: Mapping[str, Any]) -> None:
    """Refuses words that are no dispositions."""
    for key, words in (("createDisposition", CREATE), ("writeDisposition", WRITE)):
        value = configuration.get(key)
        if value is not None and value not in words:
            raise invalid(f"Invalid value for {key}: {value} is not one of {', '.join(words)}")
    for option in configuration.get("schemaUpdateOptions") or ():
        if option not in _UPDATES:
            raise invalid(f"Invalid schema update option: {option}")
    _check_updates(configuration)


def _check_updates(configuration: Mapping[str, Any]) -> None:
    table = str((configuration.get("destinationTable") or {}).get("tableId", ""))
    mode = configuration.get("writeDisposition")
    allowed = mode in (None, "WRITE_APPEND") or (mode == "WRITE_TRUNCATE" and "$" in table)
    if configuration.get("schemaUpdateOptions") and not allowed:
        raise invalid(
            "Schema update options should only be specified with WRITE_APPEND disposition, "
            "or with WRITE_TRUNCATE disposition on a table partition."
        )


class Destination:
    """One job's destination table.

    `write` is called in the transaction that ends the job; until then nothing is changed.
    """

    def __init__(
        self,
        store: Store,
        reference: TableReference,
        configuration: Mapping[str, Any],
        *,
        default_write: str,
        location: str,
        inherited: Mapping[str, Any] | None = None,
    ) -> None:
        """
        Args:
            default_write: the write disposition of a job that names none.
            inherited: what a new table has beside its schema, where the job does not say.
        """
        self._store = store
        self.reference = reference
        self._create = configuration.get("createDisposition") or "CREATE_IF_NEEDED"
        self.mode = configuration.get("writeDisposition") or default_write
        self._updates = frozenset(configuration.get("schemaUpdateOptions") or ())
        self._layout = {
            key: configuration[key]
            for key in ("timePartitioning", "rangePartitioning", "clustering")
            if configuration.get(key)
        }
        if key := configuration.get("destinationEncryptionConfiguration"):
            self._layout["encryptionConfiguration"] = key
        self._layout.update(configuration.get("destinationTableProperties") or {})
        self._inherited = dict(inherited or {})
        self._location = location

    def current(self) -> StoredTable | None:
        """Returns the table if there is one.

        Raises:
            Refused: its dataset is missing or elsewhere, or it may not be made or written.
        """
        reference = self.reference
        dataset = self._store.get_dataset(reference.project, reference.dataset)
        if dataset is None or dataset["location"].upper() != self._location.upper():
            where = f" was not found in location {self._location}"
            raise Refused(
                f"Not found: Dataset {reference.project}:{reference.dataset}{where}",
                code="NOT_FOUND",
            )
        found = self._store.get_table(reference)
        if found is None:
            if self._create == "CREATE_NEVER":
                raise not_found(reference)
            return None
        if found.kind != "TABLE":
            raise invalid(
                f"{reference.project}:{reference.dataset}.{reference.table} is not allowed for "
                f"this operation because it is currently a {found.kind}."
            )
        self._check_layout(found)
        if self.mode == "WRITE_EMPTY" and snapshot_named(found, reference.table).row_count:
            raise Refused(
                f"Already Exists: Table {reference.project}:{reference.dataset}.{reference.table}",
                code="ALREADY_EXISTS",
            )
        return found

    def _check_layout(self, found: StoredTable) -> None:
        """Refuses a layout in the job's configuration that is not the table's."""
        keys = ["timePartitioning", "rangePartitioning"]
        keys += [] if self.mode == "WRITE_TRUNCATE" else ["clustering"]
        for key in keys:
            wanted = self._layout.get(key)
            have = found.resource.get(key) or {}
            if wanted and any(have.get(part) != wanted.get(part) for part in _LAYOUT_PARTS):
                raise invalid(
                    "Incompatible table partitioning specification. Expects partitioning "
                    f"specification {have or 'none'}, but input partitioning specification is {wanted}"
                )

    def schema_for(self, schema: TableSchema) -> TableSchema:
        """Returns the schema the table will have when rows of a schema have been written."""
        found = self.current()
        if found is None or (self.mode == "WRITE_TRUNCATE" and not self._decorated):
            return schema
        return evolved(found.schema, schema, self._updates, str(self.reference))

    @property
    def _decorated(self) -> bool:
        return "$" in self.reference.table

    def write(
        self, change: Transaction, schema: TableSchema, chunks: Sequence[pa.RecordBatch]
    ) -> None:
        """Stages the table and its rows, all checks made again under the store's lock."""
        found = self.current()
        if found is None:
            base = self.reference.table.partition("$")[0]
            reference = TableReference(self.reference.project, self.reference.dataset, base)
            resource = {**self._inherited, **self._layout, "schema": types.schema_to_rest(schema)}
            check_layout(schema, resource)
            table = change.create_table(reference, resource)
            target = schema
        else:
            table = found
            target = self.schema_for(schema)
            if target != found.schema:
                resource = {**found.resource, "schema": types.schema_to_rest(target)}
                change.update_table(found, resource)
        batches = [_placed(table, chunk, target) for chunk in chunks if chunk.num_rows]
        if self._decorated:
            batches = [aligned(batch, target) for batch in batches]
            check_partition(table, self.reference.table, batches)
        if self.mode.startswith("WRITE_TRUNCATE") and self._decorated:
            self._replace_partition(change, found, batches)
        elif self.mode.startswith("WRITE_TRUNCATE"):
            change.replace(self.reference, batches)
        elif batches:
            change.append(self.reference, batches)

    def _replace_partition(
        self, change: Transaction, found: StoredTable | None, batches: list[pa.RecordBatch]
    ) -> None:
        kept = without_partition(found, self.reference.table) if found is not None else []
        base = TableReference(
            self.reference.project, self.reference.dataset, self.reference.table.partition("$")[0]
        )
        change.replace(base, kept)
        change.append(self.reference, batches)


def _placed(table: StoredTable, chunk: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Returns a chunk with the columns of a schema, each row in the partition it had."""
    batch = aligned(chunk, schema)
    at = chunk.schema.get_field_index(types.PARTITION_TIME)
    if table.partitioned_by_ingestion and at >= 0:
        batch = batch.append_column(chunk.schema.field(at), chunk.column(at))
    return batch


def aligned(chunk: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Returns a chunk with the columns of a schema, found by name without case; NULL for others."""
    target = types.arrow_schema(schema)
    have = {name.lower(): position for position, name in enumerate(chunk.schema.names)}
    columns = []
    for field in target:
        position = have.get(field.name.lower())
        if position is None:
            columns.append(_missing_column(field, chunk.num_rows))
        else:
            columns.append(_fitted(chunk.column(position), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _missing_column(field: pa.Field, count: int) -> pa.Array:
    if pa.types.is_list(field.type):
        return pa.array([[]] * count, field.type)
    return pa.nulls(count, field.type)


def _fitted(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type.equals(kind):
        return array
    return pa.array(array.to_pylist(), kind)


def evolved(
    have: TableSchema, new: TableSchema, updates: frozenset[str], table: str
) -> TableSchema:
    """Returns a table's schema after rows of another schema were written to it.

    Raises:
        Refused: a column would be added, relaxed or retyped without leave.
    """
    return TableSchema(_evolved(have.fields, new.fields, updates, table, ""))


def _evolved(
    have: tuple[Field, ...],
    new: tuple[Field, ...],
    updates: frozenset[str],
    table: str,
    path: str,
) -> tuple[Field, ...]:
    fields = []
    given = {field.name.lower(): field for field in new}
    for field in have:
        other = given.pop(field.name.lower(), None)
        name = path + field.name
        if other is None:
            if field.required:
                if "ALLOW_FIELD_RELAXATION" not in updates:
                    raise _mismatch(table, f"Field {name} is missing in new schema")
                field = dataclasses.replace(field, mode="NULLABLE")
            fields.append(field)
            continue
        if other.type != field.type or other.range_element_type != field.range_element_type:
            raise _mismatch(
                table, f"Field {name} has changed type from {field.type} to {other.type}"
            )
        if other.repeated != field.repeated:
            raise _mismatch(
                table, f"Field {name} has changed mode from {field.mode} to {other.mode}"
            )
        if field.required and not other.required and "ALLOW_FIELD_RELAXATION" in updates:
            field = dataclasses.replace(field, mode="NULLABLE")
        inner = _evolved(field.fields, other.fields, updates, table, f"{name}.")
        fields.append(dataclasses.replace(field, fields=inner))
    for field in given.values():
        if "ALLOW_FIELD_ADDITION" not in updates:
            raise _mismatch(table, f"Cannot add fields (field: {path}{field.name})")
        mode = "NULLABLE" if field.required else field.mode
        fields.append(dataclasses.replace(field, mode=mode))
    return tuple(fields)


def _mismatch(table: str, what: str) -> Refused:
    return invalid(f"Provided Schema does not match Table {table}. {what}")
