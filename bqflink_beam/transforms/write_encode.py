"""The front of every write: rows in, encoded batches and dead letters out."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.trigger import AccumulationMode, DefaultTrigger
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.errors import (
    BqflinkError,
    ConfigError,
    PermanentError,
    RowError,
    UnfitTableError,
    shorten,
)
from bqflink_beam.names import TableReference
from bqflink_beam.schema import json as schema_json
from bqflink_beam.service.connection import Connection
from bqflink_beam.transforms import metrics
from bqflink_beam.transforms.failed import FailedRow, row_error
from bqflink_beam.transforms.rows import mapping_of
from bqflink_beam.write.batching import BatchBuilder, RowBatch
from bqflink_beam.write.options import CreateTable
from bqflink_beam.write.tables import is_about_one_table, schema_for

# Rows kept back while a bundle lasts, over all its tables.
_HELD_BYTES_MAX = 64_000_000
# What a type hint may say that is never a row; pairs are those of a GroupByKey.
_NO_ROWS = (int, float, str, bytes, pa.RecordBatch, pa.Table)
_NO_ROW_HINTS = (typehints.TupleConstraint, typehints.ListConstraint)
FAILED = "failed"
BATCHES = "batches"
PARTITION_REFUSED = "a partition decorator works with AtLeastOnce only, for BigQuery takes it on default streams only"


@dataclasses.dataclass(frozen=True)
class Destination:
    """Where rows go: one `table`, or what `table_of` says of each row.

    `partitions`: a table may be named with a partition decorator (``t$20260101``).
    """

    table: str | None
    table_of: Callable[[Any], Any] | None
    default_project: str | None
    partitions: bool

    def of(self, row: Any) -> str:
        """Returns ``project.dataset.table`` for a row.

        Raises:
            RowError: the user's function raised, or what it returned is no table.
        """
        if self.table is not None:
            return self.table
        assert self.table_of is not None
        try:
            named = self.table_of(row)
        except Exception as error:  # the user's code, which fails on this row
            raise RowError(
                f"the function that names the table raised {type(error).__name__}: {error}"
            ) from error
        try:
            table = TableReference.parse(named, default_project=self.default_project)
        except ConfigError as error:
            raise RowError(
                f"the function that names the table returned {shorten(named)}: {error.message}"
            ) from error
        if "$" in table.table and not self.partitions:
            raise RowError(PARTITION_REFUSED, table=str(table))
        return str(table)


@dataclasses.dataclass(frozen=True)
class Front:
    """What the encoding step needs to know; plain values, for it travels to workers.

    `schema` is the constant table's, as JSON, None to ask for it. `dead_letters`: failed
    rows are an output; otherwise the first one fails the job.
    """

    destination: Destination
    connection: Connection
    create: CreateTable | None
    schema: bytes | None
    batch_rows_max: int
    batch_bytes_max: int
    dead_letters: bool

    @property
    def forgives_tables(self) -> bool:
        """Whether a table that cannot be written to costs its rows only, not the job."""
        return self.dead_letters and self.destination.table is None


class EncodeBatches(beam.PTransform):
    """Encodes rows into batches, each with its table, whatever their windows.

    Results in ``(batches, failed)``, both in global windows: state and gathers are kept
    for each window, so any other would split streams and lose commits.
    """

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front

    def expand(self, rows):
        _check_element_type(rows.element_type)
        encoded = rows | "Encode" >> beam.ParDo(_EncodeFn(self._front)).with_outputs(
            FAILED, main=BATCHES
        )
        encoded[BATCHES].element_type = RowBatch
        encoded[FAILED].element_type = FailedRow
        batches = encoded[BATCHES] | "BatchesInGlobalWindows" >> _global_windows()
        failed = encoded[FAILED] | "FailedInGlobalWindows" >> _global_windows()
        return {BATCHES: batches, FAILED: failed}


def _check_element_type(hint: Any) -> None:
    """Refuses an input whose every element would be refused.

    Raises:
        ConfigError: its elements are known, and are no rows.
    """
    known = isinstance(hint, type) and issubclass(hint, _NO_ROWS)
    if known or isinstance(hint, _NO_ROW_HINTS):
        shown = hint.__name__ if isinstance(hint, type) else hint
        raise ConfigError(
            f"rows are dicts, beam.Rows or NamedTuples, and the elements of the input are of type {shown}"
        )


def _global_windows() -> beam.WindowInto:
    return beam.WindowInto(
        GlobalWindows(), trigger=DefaultTrigger(), accumulation_mode=AccumulationMode.DISCARDING
    )


class _EncodeFn(beam.DoFn):
    """Takes `WindowedValueParam`, so that a row of five sliding windows comes once, not five times."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def setup(self) -> None:
        self._client = self._front.connection.open()
        self._tables: dict[str, tuple[RowEncoder, bytes]] = {}
        self._encoders: dict[bytes, tuple[RowEncoder, bytes]] = {}
        self._encoded = metrics.counter(metrics.ROWS_ENCODED)
        self._failed = metrics.counter(metrics.ROWS_FAILED)

    def start_bundle(self) -> None:
        self._builders: dict[str, BatchBuilder] = {}
        self._refused: dict[str, BqflinkError] = {}
        self._held_bytes = 0
        self._rows = 0
        self._last: WindowedValue | None = None

    def process(self, row, windowed=beam.DoFn.WindowedValueParam):
        self._last = windowed
        timestamp = windowed.timestamp_micros  # `timestamp` would make an object for each row
        table = None
        try:
            table = self._front.destination.of(row)
            encoder, schema = self._table(table)
            encoded = encoder.encode(_mapping(row))
        except RowError as error:
            yield self._fail(row, table, error, windowed)
            return
        except (ConfigError, PermanentError) as error:
            if not (self._front.forgives_tables and is_about_one_table(error)):
                raise
            yield self._fail(row, table, error, windowed)
            return
        builder = self._builders.get(table)
        if builder is None:
            builder = self._builders[table] = BatchBuilder(
                table,
                schema,
                encoder.descriptor,
                rows_max=self._front.batch_rows_max,
                bytes_max=self._front.batch_bytes_max,
            )
        before = builder.size
        batch = builder.add(encoded, timestamp)
        self._rows += 1
        self._held_bytes += builder.size - before
        if batch is not None:
            yield _in_one_window(batch, windowed)
        if self._held_bytes > _HELD_BYTES_MAX:
            for held in self._take_all():
                yield _in_one_window(held, windowed)

    def finish_bundle(self):
        for batch in self._take_all():
            yield _in_one_window(batch, self._last)
        self._encoded.inc(self._rows)

    def teardown(self) -> None:
        self._client.close()

    def _table(self, table: str) -> tuple[RowEncoder, bytes]:
        known = self._tables.get(table)
        if known is not None:
            return known
        if table in self._refused:
            # A million rows for a missing table are one question in each bundle.
            raise self._refused[table]
        schema = self._front.schema
        try:
            if schema is None:
                reference = TableReference.parse(table)
                schema = schema_json.dumps(
                    schema_for(self._client.tables, reference, self._front.create)
                )
            # Thousands of tables, one for each customer and day, mostly have one schema.
            known = self._encoders.get(schema)
            if known is None:
                known = self._encoders[schema] = (_encoder(table, schema), schema)
        except (ConfigError, PermanentError) as error:
            self._refused[table] = error
            raise
        self._tables[table] = known
        return known

    def _take_all(self) -> list[RowBatch]:
        batches = [batch for builder in self._builders.values() if (batch := builder.take())]
        self._held_bytes = 0
        return batches

    def _fail(self, row: Any, table: str | None, error: BqflinkError, windowed: WindowedValue):
        failed = FailedRow(
            table=table or "",
            row=row,
            error=error.message,
            column=error.column,
            timestamp_us=windowed.timestamp.micros,
        )
        if not self._front.dead_letters:
            raise row_error(failed) from error
        self._failed.inc()
        return beam.pvalue.TaggedOutput(FAILED, _in_one_window(failed, windowed))


def _encoder(table: str, schema: bytes) -> RowEncoder:
    try:
        return RowEncoder(schema_json.loads(schema))
    except ConfigError as error:
        raise UnfitTableError(error.message, table=table, column=error.column) from error


class _OneWindow(tuple):
    """The windows of an output that is in one window, whatever its input is in.

    Beam multiplies the windows of what `process` yields by the number of the input's
    windows, meaning to tell of as many outputs: one row would be written five times.
    """

    __slots__ = ()

    def __mul__(self, times):
        return self


def _in_one_window(value: Any, origin: WindowedValue) -> WindowedValue:
    return WindowedValue(value, origin.timestamp, _OneWindow(origin.windows[:1]))


def _mapping(row: Any) -> Mapping[str, Any]:
    """Returns a dict row as it is, and the fields of a `beam.Row` or a NamedTuple, nested ones too.

    Raises:
        RowError: it is none of these.
    """
    if type(row) is dict or isinstance(row, Mapping):  # an ABC is slow to ask
        return row
    if isinstance(row, beam.Row) or hasattr(row, "_asdict"):
        return mapping_of(row)
    raise RowError(f"a row must be a dict, a beam.Row or a NamedTuple, got {type(row).__name__}")
