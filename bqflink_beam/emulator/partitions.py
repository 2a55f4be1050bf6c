"""Which partition a row is in, by its table's partitioning."""

import dataclasses
import datetime

import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.emulator import types
from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.store import StoredTable
from bqflink_beam.emulator.table import Snapshot

_PATTERNS = {"HOUR": "%Y%m%d%H", "DAY": "%Y%m%d", "MONTH": "%Y%m", "YEAR": "%Y"}
NULL_PARTITION = "__NULL__"
UNPARTITIONED = "__UNPARTITIONED__"


def partition_ids(table: StoredTable, chunk: pa.RecordBatch) -> pa.Array:
    """Returns each row's partition id, as INFORMATION_SCHEMA and decorators write it.

    `chunk` has the pseudo column of tables that are partitioned by ingestion time.

    Raises:
        Refused: the table is not partitioned.
    """
    _require_partitions(table)
    ranges = table.resource.get("rangePartitioning")
    time = table.time_partitioning
    if ranges:
        return _range_ids(chunk.column(ranges["field"]), ranges["range"])
    assert time is not None
    column = chunk.column(time.get("field") or types.PARTITION_TIME)
    naive = column.cast(pa.timestamp("us"))
    return pc.fill_null(_formatted(naive, _PATTERNS[time["type"]]), NULL_PARTITION)


def _require_partitions(table: StoredTable) -> None:
    if not (table.time_partitioning or table.resource.get("rangePartitioning")):
        raise invalid(f"Table {table.reference} is not partitioned")


def _formatted(column: pa.Array, pattern: str) -> pa.Array:
    # Python's own strftime: Arrow's prints the year without leading zeros.
    texts = [None if at is None else _text(at, pattern) for at in column.to_pylist()]
    return pa.array(texts, pa.string())


def _text(at: datetime.datetime, pattern: str) -> str:
    return f"{at.year:04d}" + at.strftime(pattern[2:])


def _range_ids(column: pa.Array, bounds: dict[str, str]) -> pa.Array:
    start, end, step = (int(bounds[key]) for key in ("start", "end", "interval"))
    ids = []
    for value in column.to_pylist():
        if value is None:
            ids.append(NULL_PARTITION)
        elif start <= value < end:
            ids.append(str(start + (value - start) // step * step))
        else:
            ids.append(UNPARTITIONED)
    return pa.array(ids, pa.string())


def check_partition(table: StoredTable, name: str, batches: list[pa.RecordBatch]) -> None:
    """Checks that rows may be written to the partition that a decorator names.

    Raises:
        Refused: the table is not partitioned, or a row belongs to another partition.
    """
    wanted = name.partition("$")[2]
    _require_partitions(table)
    if table.partitioned_by_ingestion:
        return  # the decorator says where the rows belong
    for batch in batches:
        if pc.any(pc.not_equal(partition_ids(table, batch), pa.scalar(wanted))).as_py():
            raise invalid(
                "Some rows belong to different partitions rather than destination partition "
                f"{wanted}"
            )


def without_partition(table: StoredTable, name: str) -> list[pa.RecordBatch]:
    """Returns the rows of a table but for those of the partition that a decorator names."""
    wanted = name.partition("$")[2]
    _require_partitions(table)
    kept = []
    for chunk in table.snapshot(pseudo_columns=True).chunks:
        other = pc.not_equal(partition_ids(table, chunk), pa.scalar(wanted))
        kept.append(chunk.filter(other))
    return [chunk for chunk in kept if chunk.num_rows]


def snapshot_named(table: StoredTable, name: str) -> Snapshot:
    """Returns the rows of a table, or of the one partition that its name's decorator names.

    Raises:
        Refused: the table is not partitioned.
    """
    whole = table.snapshot()
    if "$" not in name:
        return whole
    chunks = tuple(only_partition(table, name))
    count = sum(chunk.num_rows for chunk in chunks)
    return dataclasses.replace(whole, chunks=chunks, row_count=count)


def only_partition(
    table: StoredTable, name: str, at_s: float | None = None
) -> list[pa.RecordBatch]:
    """Returns the rows of the partition that a decorator names, as of `at_s`."""
    wanted = name.partition("$")[2]
    _require_partitions(table)
    columns = list(range(len(table.arrow_schema)))
    found = []
    for chunk in table.snapshot(at_s, pseudo_columns=True).chunks:
        kept = chunk.filter(pc.equal(partition_ids(table, chunk), pa.scalar(wanted)))
        if kept.num_rows:
            found.append(kept.select(columns))
    return found
