"""Change data capture: upserts and deletes by primary key, ordered by sequence numbers.

The service keeps changes beside the table and merges them when it is read; here each
request is merged as it arrives, so every reader sees the merged table at once.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.emulator import types
from bqflink_beam.emulator.checks import Faulty, check_batch
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.table import StoredTable
from bqflink_beam.schema.model import Field, TableSchema

CHANGE_FIELDS = (
    Field(name=types.CHANGE_TYPE, type="STRING"),
    Field(name=types.CHANGE_SEQUENCE, type="STRING"),
)
_NAMES = frozenset(field.name.lower() for field in CHANGE_FIELDS)
_SEQUENCE = re.compile(r"[0-9A-Fa-f]{1,16}(/[0-9A-Fa-f]{1,16}){0,3}")
_KEY_COLUMNS_MAX = 16
_COLUMNS_MAX = 2_000


def wants_changes(descriptor: Any) -> bool:
    """Whether a writer's descriptor has change columns."""
    return any(field.name.lower() in _NAMES for field in descriptor.field)


def check_table(table: StoredTable, *, is_default: bool) -> None:
    """Refuses changes where the service takes none."""
    key = table.primary_key
    if not is_default:
        raise Refused("Change data capture is supported on the default stream only")
    if not key or len(key) > _KEY_COLUMNS_MAX:
        raise Refused(
            f"Table {table.reference} needs a primary key of 1 to {_KEY_COLUMNS_MAX} columns to "
            f"take {types.CHANGE_TYPE} rows"
        )
    if len(table.schema) > _COLUMNS_MAX:
        raise Refused(f"A table that takes changes has at most {_COLUMNS_MAX} columns")
    if table.partitioned_by_ingestion:
        raise Refused("A table partitioned by ingestion time takes no changes here")


def check_changes(table: StoredTable, batch: pa.RecordBatch, faulty: Faulty) -> pa.RecordBatch:
    """Checks decoded rows with change columns; a DELETE needs no more than its key."""
    kinds = batch.column(batch.schema.get_field_index(types.CHANGE_TYPE)).to_pylist()
    sequences = batch.column(batch.schema.get_field_index(types.CHANGE_SEQUENCE)).to_pylist()
    for row, (kind, sequence) in enumerate(zip(kinds, sequences, strict=True)):
        if kind not in ("UPSERT", "DELETE"):
            faulty.add(
                row,
                f"The given value is not a valid CHANGE_TYPE: {kind!r} "
                f"on field {types.CHANGE_TYPE}.",
            )
        if sequence is not None and not _SEQUENCE.fullmatch(sequence):
            faulty.add(
                row,
                f"The given value is not a valid CHANGE_SEQUENCE_NUMBER: {sequence!r} "
                f"on field {types.CHANGE_SEQUENCE}.",
            )
    loose = _nullable(batch)
    parts, order = [], []
    for deleting, schema in ((False, table.schema), (True, _key_only(table))):
        positions = [row for row, kind in enumerate(kinds) if (kind == "DELETE") == deleting]
        if positions:
            found = Faulty()
            parts.append(check_batch(schema, loose.take(pa.array(positions)), found))
            order.extend(positions)
            for at, message in found.messages.items():
                faulty.add(positions[at], message)
    together = pa.Table.from_batches(parts).combine_chunks()
    back = pc.sort_indices(pa.array(order))
    (checked,) = together.take(back).combine_chunks().to_batches()
    return checked


def merge(table: StoredTable, changes: pa.RecordBatch) -> tuple[list[int], list[pa.RecordBatch]]:
    """Returns what a batch of changes does to a table, and remembers their sequence.

    Returns:
        The positions of the rows that go, and the rows that come.
    """
    key = table.primary_key
    columns = [changes.column(_position(changes.schema, name)).to_pylist() for name in key]
    kinds = changes.column(_position(changes.schema, types.CHANGE_TYPE)).to_pylist()
    sequences = changes.column(_position(changes.schema, types.CHANGE_SEQUENCE)).to_pylist()
    final: dict[tuple[Any, ...], int] = {}
    for row, value in enumerate(zip(*columns, strict=True)):
        sequence = _parse(sequences[row])
        known = table.change_sequences.get(value)
        if sequence is not None:
            # A tie goes to what arrives later.
            if known is not None and sequence < known:
                continue
            table.change_sequences[value] = sequence
        final[value] = row
    gone = _rows_with(table, key, final)
    upserts = sorted(row for row in final.values() if kinds[row] == "UPSERT")
    if not upserts:
        return gone, []
    rows = changes.take(pa.array(upserts)).select(range(len(table.schema)))
    return gone, [pa.RecordBatch.from_arrays(rows.columns, schema=table.arrow_schema)]


def _rows_with(
    table: StoredTable, key: Sequence[str], wanted: Mapping[tuple[Any, ...], int]
) -> list[int]:
    """Returns the positions of a table's rows that have one of some keys."""
    latest = table.log.latest
    dead = set(latest.rows.dead(latest.number).tolist())
    found: list[int] = []
    first = 0
    for stored in latest.rows.slice(0, latest.stop):
        chunk = types.conform(stored, table.storage_schema)
        found.extend(first + at for at in _matches(chunk, key, wanted) if first + at not in dead)
        first += chunk.num_rows
    return found


def _matches(
    chunk: pa.RecordBatch, key: Sequence[str], wanted: Mapping[tuple[Any, ...], int]
) -> list[int]:
    columns = [chunk.column(_position(chunk.schema, name)) for name in key]
    # Column by column first: few rows are left to be compared whole.
    may = None
    for at, column in enumerate(columns):
        found = pc.is_in(column, pa.array({value[at] for value in wanted}, column.type))
        may = found if may is None else pc.and_(may, found)
    positions = pc.indices_nonzero(may).to_pylist()
    if not positions:
        return []
    values = zip(*(column.take(pa.array(positions)).to_pylist() for column in columns), strict=True)
    return [at for at, value in zip(positions, values, strict=True) if value in wanted]


def _position(schema: pa.Schema, name: str) -> int:
    lowered = [each.lower() for each in schema.names]
    return lowered.index(name.lower())


def _parse(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else tuple(int(part, 16) for part in text.split("/"))


def _key_only(table: StoredTable) -> TableSchema:
    key = {name.lower() for name in table.primary_key}
    return TableSchema(
        tuple(
            field if field.name.lower() in key else _relaxed(field) for field in table.schema.fields
        )
    )


def _relaxed(field: Field) -> Field:
    return dataclasses.replace(field, mode="NULLABLE") if field.required else field


def _nullable(batch: pa.RecordBatch) -> pa.RecordBatch:
    fields = [field.with_nullable(True) for field in batch.schema]
    return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))
