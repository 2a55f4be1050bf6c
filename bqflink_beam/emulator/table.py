"""`StoredTable` and `Snapshot`: one table of the store, and its rows at one moment."""

import contextlib
import copy
import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import pyarrow as pa

from bqflink_beam.clock import Clock
from bqflink_beam.emulator import types
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.versions import Chunk, LazyChunk, VersionLog
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import TableSchema

DECORATOR_DAYS_BACK, DECORATOR_DAYS_AHEAD = 31, 16


class Home(Protocol):
    """What a table needs of its store."""

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def time_travel_s(self) -> float: ...

    def commit(
        self,
        changes: "Sequence[tuple[StoredTable, Sequence[pa.RecordBatch], Literal['append', 'replace']]]",
    ) -> None: ...


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The rows of a table at one moment. Immutable; holds its chunks for as long as it lives.

    `version` and `stop` find the same rows again; see `StoredTable.pinned`.
    """

    schema: TableSchema
    arrow_schema: pa.Schema
    chunks: tuple[pa.RecordBatch, ...]
    row_count: int
    version: int
    stop: int

    def to_table(self) -> pa.Table:
        return pa.Table.from_batches(self.chunks, self.arrow_schema)

    @property
    def nbytes(self) -> int:
        return sum(chunk.nbytes for chunk in self.chunks)


class StoredTable:
    """One table, for as long as it exists; a table made again under the name is another one.

    Do not change anything through it but by `append` and `replace`; metadata changes go
    through `Store.update_table`. `change_sequences` holds the newest sequence number of
    each primary key that changes have named.
    """

    def __init__(
        self, home: Home, reference: TableReference, resource: dict[str, Any], uid: str
    ) -> None:
        self._home = home
        self.reference = reference
        self.uid = uid
        self.log = VersionLog(int(resource["creationTime"]) / 1000, home.time_travel_s)
        self.change_sequences: dict[tuple[Any, ...], tuple[int, ...]] = {}
        self._latest: Snapshot | None = None
        self.set_resource(resource)

    def set_resource(self, resource: dict[str, Any]) -> None:
        """Takes new metadata; for the store alone."""
        self._resource = resource
        self.schema = types.schema_from_rest(resource.get("schema") or {})
        self.arrow_schema = types.arrow_schema(self.schema)
        self.storage_schema = self.arrow_schema
        if self.partitioned_by_ingestion:
            self.storage_schema = self.arrow_schema.append(
                pa.field(types.PARTITION_TIME, pa.timestamp("us", tz="UTC"))
            )
        self._latest = None

    @property
    def resource(self) -> dict[str, Any]:
        """A copy of the REST resource, with counts as of now."""
        snapshot = self.snapshot()
        resource = copy.deepcopy(self._resource)
        if self.kind in ("TABLE", "SNAPSHOT"):
            resource["numRows"] = str(snapshot.row_count)
            resource["numBytes"] = resource["numTotalLogicalBytes"] = str(snapshot.nbytes)
            resource["numLongTermBytes"] = "0"
        return resource

    @property
    def kind(self) -> str:
        """TABLE, VIEW, MATERIALIZED_VIEW, EXTERNAL or SNAPSHOT."""
        return str(self._resource["type"])

    @property
    def etag(self) -> str:
        return str(self._resource["etag"])

    @property
    def location(self) -> str:
        return str(self._resource["location"])

    @property
    def time_partitioning(self) -> Mapping[str, Any] | None:
        """The REST resource's ``timePartitioning``; not to be changed."""
        return self._resource.get("timePartitioning")

    @property
    def partitioned_by_ingestion(self) -> bool:
        return self.time_partitioning is not None and not self.time_partitioning.get("field")

    @property
    def required_partition_filter(self) -> str | None:
        """The column that every reader must filter, None if there is none."""
        partitioning = self.time_partitioning or self._resource.get("rangePartitioning") or {}
        required = self._resource.get("requirePartitionFilter") or partitioning.get(
            "requirePartitionFilter"
        )
        if not required or not partitioning:
            return None
        return str(partitioning.get("field") or types.PARTITION_TIME)

    @property
    def primary_key(self) -> tuple[str, ...]:
        constraints = self._resource.get("tableConstraints") or {}
        return tuple((constraints.get("primaryKey") or {}).get("columns") or ())

    @property
    def expires_s(self) -> float | None:
        expiration = self._resource.get("expirationTime")
        return int(expiration) / 1000 if expiration else None

    def snapshot(self, at_s: float | None = None, *, pseudo_columns: bool = False) -> Snapshot:
        """Returns the rows as they are, or were at `at_s`, in the schema of now.

        Args:
            at_s: seconds since the epoch; None for now.
            pseudo_columns: adds `_PARTITIONTIME` on tables partitioned by ingestion time.

        Raises:
            Refused: INVALID_ARGUMENT, `at_s` is outside of the time-travel window.
        """
        with self._home.lock:
            version = self.log.latest if at_s is None else self.log.at(at_s)
            oldest_s = self._home.clock.now_s() - self._home.time_travel_s
            if version is None or (at_s is not None and at_s < oldest_s):
                raise Refused(
                    f"Invalid snapshot time {at_s} for table {self.reference}: cannot read before "
                    "its creation or the time travel window",
                    reason="invalid",
                )
            if self._latest is not None and self._latest.version == version.number:
                stored = self._latest
            else:
                stored = Snapshot(
                    self.schema,
                    self.storage_schema,
                    tuple(types.conform(chunk, self.storage_schema) for chunk in version.chunks()),
                    version.row_count,
                    version.number,
                    version.stop,
                )
                if version is self.log.latest:
                    self._latest = stored
        if pseudo_columns or stored.arrow_schema is self.arrow_schema:
            return stored
        columns = list(range(len(self.arrow_schema)))
        return dataclasses.replace(
            stored,
            arrow_schema=self.arrow_schema,
            chunks=tuple(chunk.select(columns) for chunk in stored.chunks),
        )

    def pinned(self, version: int, stop: int) -> list[pa.RecordBatch] | None:
        """Returns the stored chunks of a version that a snapshot named; None if it is forgotten."""
        with self._home.lock:
            rows = self.log.rows_of(version)
            return rows.alive(stop, version) if rows is not None else None

    def append(self, chunks: Sequence[pa.RecordBatch]) -> None:
        """Adds rows, all at once."""
        self._home.commit([(self, chunks, "append")])

    def replace(self, chunks: Sequence[pa.RecordBatch]) -> None:
        """Puts other rows in the place of all rows, at once."""
        self._home.commit([(self, chunks, "replace")])


def with_partition(
    table: StoredTable, chunks: Sequence[Chunk], at_s: float, name: str = ""
) -> Sequence[Chunk]:
    """Returns chunks with the partition they belong to, on tables partitioned by ingestion time.

    Args:
        name: the table's name as the writer gave it; a ``$decorator`` names the partition.
    """
    if not table.partitioned_by_ingestion:
        return chunks
    micros = _partition_micros(table, at_s, name.partition("$")[2])
    kind = pa.timestamp("us", tz="UTC")
    loaded = [chunk.load() if isinstance(chunk, LazyChunk) else chunk for chunk in chunks]
    return [
        chunk
        if types.PARTITION_TIME in chunk.schema.names
        else chunk.append_column(
            pa.field(types.PARTITION_TIME, kind),
            pa.repeat(pa.scalar(micros, pa.int64()), chunk.num_rows).cast(kind),
        )
        for chunk in loaded
    ]


def check_decorator(table: StoredTable, name: str, now_s: float) -> None:
    """Refuses a partition decorator that cannot be written to through a default stream."""
    decorator = name.partition("$")[2]
    if "$" not in name:
        return
    partitioning = table.time_partitioning or {}
    if not table.partitioned_by_ingestion or partitioning.get("type", "DAY") != "DAY":
        raise Refused(
            f"Partition decorators go with tables that are partitioned by ingestion day: {name}"
        )
    days = (_partition_micros(table, now_s, decorator) / 1e6 - now_s) / 86_400
    if not -DECORATOR_DAYS_BACK - 1 <= days <= DECORATOR_DAYS_AHEAD:
        raise Refused(
            f"Partition {decorator} is not within {DECORATOR_DAYS_BACK} days back and "
            f"{DECORATOR_DAYS_AHEAD} days ahead"
        )


def _partition_micros(table: StoredTable, at_s: float, decorator: str) -> int:
    unit = (table.time_partitioning or {}).get("type") or "DAY"
    pattern = {"HOUR": "%Y%m%d%H", "DAY": "%Y%m%d", "MONTH": "%Y%m", "YEAR": "%Y"}[unit]
    utc = datetime.timezone.utc
    text = decorator or datetime.datetime.fromtimestamp(at_s, utc).strftime(pattern)
    try:
        start = datetime.datetime.strptime(text, pattern).replace(tzinfo=utc)
    except ValueError:
        raise Refused(
            f"Invalid partition decorator ${decorator} for table {table.reference}"
        ) from None
    return int(start.timestamp()) * 1_000_000
