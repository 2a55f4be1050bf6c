"""What a user may ask of a write: one frozen dataclass for each guarantee, and `CreateTable`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema import json as schema_json
from bqflink_beam.schema.model import TableSchema

# The service takes 20 MB, with the schema in it: ten thousand columns have 0.8 MB.
REQUEST_BYTES_LIMIT = 19_000_000
_BATCH_BYTES_DEFAULT = 2_000_000
_BATCH_ROWS_DEFAULT = 10_000
_APPEND_BUDGET_S = 60.0
# One stream and one connection for each shard and table.
_SHARDS_DEFAULT = 8
_SHARDS_LIMIT = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class AtLeastOnce:
    """Append to the table's default stream. At least once; visible at once.

    A bundle that the runner repeats is written again: use it where doubled rows do no
    harm, or are removed later.

    Args:
        batch_rows_max: rows in one request.
        batch_bytes_max: bytes of rows in one request; a row larger than the service's
            limit alone is a failed row.
    """

    batch_rows_max: int = _BATCH_ROWS_DEFAULT
    batch_bytes_max: int = _BATCH_BYTES_DEFAULT

    def __post_init__(self) -> None:
        _check_batching(self.batch_rows_max, self.batch_bytes_max)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExactlyOnce:
    """Every row once, whatever crashes.

    Bounded input goes to PENDING streams that one commit makes visible at the end;
    unbounded input to BUFFERED streams that are flushed after each checkpoint.

    Args:
        shards: how many writers each table gets. Unbounded: 8 when None. Bounded: None
            lets each bundle write for itself.
        batch_rows_max: rows in one request.
        batch_bytes_max: bytes of rows in one request.
        append_budget_s: longest time without an answer before the bundle fails; must stay
            below half the runner's checkpoint timeout.
        run_id: names this run of a bounded write. The same id never writes twice; without
            one, each submission has its own.
        register: ``"job"`` records what a bounded run commits in a job of the billing
            project, so that a restart commits the same; None for users who may not create
            jobs: a restart that comes after the commit can then double the rows.
        register_location: where that job lives; by default the destination's location.
            Needed when the destination is computed from the rows.
        on_lost_stream: what to do when a buffered stream is gone before its rows were
            flushed: ``"fail"`` stops with an error that says which rows may be lost,
            ``"report"`` puts a `LostStream` into ``result.lost_streams`` and goes on.
    """

    shards: int | None = None
    batch_rows_max: int = _BATCH_ROWS_DEFAULT
    batch_bytes_max: int = _BATCH_BYTES_DEFAULT
    append_budget_s: float = _APPEND_BUDGET_S
    run_id: str | None = None
    register: str | None = "job"
    register_location: str | None = None
    on_lost_stream: str = "fail"

    def __post_init__(self) -> None:
        _check_batching(self.batch_rows_max, self.batch_bytes_max)
        if self.append_budget_s <= 0:
            raise ConfigError(f"append_budget_s must be positive, got {self.append_budget_s}")
        if self.shards is not None and not 0 < self.shards <= _SHARDS_LIMIT:
            raise ConfigError(f"shards must be in [1, {_SHARDS_LIMIT}], got {self.shards}")
        if self.run_id is not None and not 0 < len(self.run_id) <= 1024:
            raise ConfigError(f"run_id must have 1 to 1024 characters, got {len(self.run_id)}")
        if self.register not in ("job", None):
            raise ConfigError(f"register must be 'job' or None, got {self.register!r}")
        if self.register is None and self.run_id is not None:
            raise ConfigError(
                "run_id needs a register: without one nobody knows that this run has written before"
            )
        if self.on_lost_stream not in ("fail", "report"):
            raise ConfigError(
                f"on_lost_stream must be 'fail' or 'report', got {self.on_lost_stream!r}"
            )

    @property
    def shards_unbounded(self) -> int:
        """How many writers an unbounded write has for each table."""
        return self.shards or _SHARDS_DEFAULT


Method = AtLeastOnce | ExactlyOnce


@dataclasses.dataclass(frozen=True, kw_only=True)
class CreateTable:
    """Make the table when it is missing. Safe when many workers try at once.

    Args:
        schema: a `TableSchema`, or a list of REST field mappings.
        time_partitioning: ``DAY``, ``HOUR``, ``MONTH`` or ``YEAR``; by `partition_field`, or by
            the time of ingestion when that is None.
        range_partitioning: ``(start, stop, interval)`` of the INT64 column `partition_field`.
        partition_expiration_s: age at which a partition is dropped.
        require_partition_filter: refuse queries that would read every partition.
        clustering: up to four column names.
        primary_key: column names; BigQuery does not enforce it.
        expiration_s: age at which the table itself is dropped; counted from creation.
        description, labels, kms_key_name: as in the table's resource.
        max_staleness: an INTERVAL literal, for tables with change data.
    """

    schema: TableSchema | Sequence[Mapping[str, Any]]
    time_partitioning: str | None = None
    range_partitioning: tuple[int, int, int] | None = None
    partition_field: str | None = None
    partition_expiration_s: float | None = None
    require_partition_filter: bool = False
    clustering: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    expiration_s: float | None = None
    description: str | None = None
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    kms_key_name: str | None = None
    max_staleness: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.schema, TableSchema):
            object.__setattr__(self, "schema", schema_json.from_json(list(self.schema)))
        object.__setattr__(self, "clustering", tuple(self.clustering))
        object.__setattr__(self, "primary_key", tuple(self.primary_key))
        if self.time_partitioning not in (None, "DAY", "HOUR", "MONTH", "YEAR"):
            raise ConfigError(
                f"time_partitioning must be DAY, HOUR, MONTH or YEAR, got {self.time_partitioning!r}"
            )
        if self.time_partitioning and self.range_partitioning:
            raise ConfigError("a table is partitioned by time or by range, not both")
        if self.range_partitioning and not self.partition_field:
            raise ConfigError("range_partitioning needs partition_field")
        if self.partition_field and not (self.time_partitioning or self.range_partitioning):
            raise ConfigError("partition_field needs time_partitioning or range_partitioning")
        if len(self.clustering) > 4:
            raise ConfigError(f"clustering takes at most 4 columns, got {len(self.clustering)}")
        if len(self.primary_key) > 16:
            raise ConfigError(f"primary_key takes at most 16 columns, got {len(self.primary_key)}")
        for name in (*self.clustering, *self.primary_key, *filter(None, [self.partition_field])):
            self.table_schema.field(name)

    @property
    def table_schema(self) -> TableSchema:
        """The schema as the model, whichever form it was given in."""
        assert isinstance(self.schema, TableSchema)
        return self.schema

    def resource(self, now_s: float) -> dict[str, Any]:
        """Returns the REST resource to create the table from, without its reference."""
        made: dict[str, Any] = {"schema": {"fields": schema_json.to_json(self.table_schema)}}
        expiration_ms = (
            None if self.partition_expiration_s is None else _millis(self.partition_expiration_s)
        )
        if self.time_partitioning:
            made["timePartitioning"] = _without_none(
                type=self.time_partitioning, field=self.partition_field, expirationMs=expiration_ms
            )
        if self.range_partitioning:
            start, stop, interval = self.range_partitioning
            made["rangePartitioning"] = {
                "field": self.partition_field,
                "range": {"start": str(start), "end": str(stop), "interval": str(interval)},
            }
        if self.clustering:
            made["clustering"] = {"fields": list(self.clustering)}
        if self.primary_key:
            made["tableConstraints"] = {"primaryKey": {"columns": list(self.primary_key)}}
        if self.require_partition_filter:
            made["requirePartitionFilter"] = True
        if self.expiration_s is not None:
            made["expirationTime"] = _millis(now_s + self.expiration_s)
        if self.kms_key_name:
            made["encryptionConfiguration"] = {"kmsKeyName": self.kms_key_name}
        made.update(
            _without_none(
                description=self.description,
                labels=dict(self.labels) or None,
                maxStaleness=self.max_staleness,
            )
        )
        return made


def _check_batching(rows_max: int, bytes_max: int) -> None:
    if rows_max <= 0:
        raise ConfigError(f"batch_rows_max must be positive, got {rows_max}")
    if not 0 < bytes_max <= REQUEST_BYTES_LIMIT:
        raise ConfigError(f"batch_bytes_max must be in [1, {REQUEST_BYTES_LIMIT}], got {bytes_max}")


def _millis(seconds: float) -> str:
    return str(round(seconds * 1000))


def _without_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
