"""`ReadRequest`: what to read, as plain values that were checked."""

import dataclasses
import datetime

from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference

_FILTER_BYTES_MAX = 1 << 20
_STREAMS_MAX = 10_000
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadRequest:
    """A table, a view or a query's result; some of its columns; some of its rows.

    Args:
        table: what to read; exactly one of `table` and `query`.
        query: a SELECT in GoogleSQL.
        columns: names or dotted paths (``address.city``); empty means all. They come
            in the table's order, whatever order they are named in.
        row_filter: a SQL predicate as in WHERE; empty means all rows.
        streams_max: at most so many parallel streams; 0 leaves it to BigQuery.
        snapshot_time: the moment to read the table at; None means now.
        location: where the query runs, if BigQuery cannot tell from its tables.
        labels: put on the query's job.
    """

    table: TableReference | None = None
    query: str | None = None
    columns: tuple[str, ...] = ()
    row_filter: str = ""
    streams_max: int = 0
    snapshot_time: datetime.datetime | None = None
    location: str | None = None
    labels: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        if (self.table is None) == (self.query is None):
            raise ConfigError("give exactly one of table and query")
        if self.query is not None and not self.query.strip():
            raise ConfigError("query must not be empty")
        if self.table is not None and "$" in self.table.table:
            raise ConfigError(
                "a partition cannot be read by its decorator; read the table with a row_filter "
                "on its partitioning column",
                table=str(self.table),
            )
        self._check_columns()
        if len(self.row_filter.encode()) > _FILTER_BYTES_MAX:
            raise ConfigError(f"row_filter may have {_FILTER_BYTES_MAX} bytes", table=self.source)
        if not 0 <= self.streams_max <= _STREAMS_MAX:
            raise ConfigError(
                f"streams_max must be in [0, {_STREAMS_MAX}], got {self.streams_max}",
                table=self.source,
            )
        self._check_snapshot()
        if self.table is not None and (self.location or self.labels):
            raise ConfigError("location and labels are for query=", table=self.source)

    @property
    def source(self) -> str:
        """What is read, short enough for a message or a label."""
        return "query" if self.table is None else str(self.table)

    @property
    def snapshot_s(self) -> float | None:
        """`snapshot_time` as seconds since the epoch."""
        if self.snapshot_time is None:
            return None
        return (self.snapshot_time - _EPOCH).total_seconds()

    def _check_columns(self) -> None:
        seen: set[str] = set()
        for column in self.columns:
            if not isinstance(column, str) or not all(column.split(".")):
                raise ConfigError(f"columns must be names, got {column!r}", table=self.source)
            if column.lower() in seen:
                raise ConfigError(f"columns names {column!r} twice", table=self.source)
            seen.add(column.lower())

    def _check_snapshot(self) -> None:
        if self.snapshot_time is None:
            return
        if self.query is not None:
            raise ConfigError(
                "snapshot_time is for table=; in a query say FOR SYSTEM_TIME AS OF TIMESTAMP '...'"
            )
        if not isinstance(self.snapshot_time, datetime.datetime) or not self.snapshot_time.tzinfo:
            raise ConfigError(
                f"snapshot_time must be a datetime with a time zone, got {self.snapshot_time!r}",
                table=self.source,
            )
        if self.snapshot_time < _EPOCH:
            raise ConfigError(
                f"snapshot_time must not be before 1970, got {self.snapshot_time}",
                table=self.source,
            )
