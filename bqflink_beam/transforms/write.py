"""`WriteToBigQueryStorage`: checks what can be checked, and wires the steps of a method."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
from apache_beam.transforms.display import DisplayDataItem

from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference
from bqflink_beam.schema import json as schema_json
from bqflink_beam.service.base import DEFAULT_STREAM_BUDGET_S
from bqflink_beam.service.connection import Connection
from bqflink_beam.transforms import coders as _coders  # noqa: F401  registers them
from bqflink_beam.transforms.failed import FailedRow
from bqflink_beam.transforms.pipeline_check import check_step
from bqflink_beam.transforms.pipeline_options import (
    billed_to,
    connection_from,
    default_project,
    make_embedded_dataset,
)
from bqflink_beam.transforms.result import WriteToBigQueryStorageResult
from bqflink_beam.transforms.run_identity import refuse_saved_pipeline
from bqflink_beam.transforms.runner_kind import runner_kind
from bqflink_beam.transforms.stable_input import needs_stable_input
from bqflink_beam.transforms.write_at_least_once import WriteAtLeastOnce
from bqflink_beam.transforms.write_bounded import COMMITTED, WriteExactlyOnceBounded
from bqflink_beam.transforms.write_encode import (
    BATCHES,
    FAILED,
    PARTITION_REFUSED,
    Destination,
    EncodeBatches,
    Front,
)
from bqflink_beam.transforms.write_unbounded import LOST, WriteExactlyOnceUnbounded
from bqflink_beam.write.options import AtLeastOnce, CreateTable, ExactlyOnce
from bqflink_beam.write.preflight import Step, StepKind
from bqflink_beam.write.tables import schema_for

Table = str | TableReference | Mapping[str, str] | Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class _Known:
    """What the service told about a constant table while the pipeline was built."""

    schema: bytes | None = None
    location: str | None = None


@dataclasses.dataclass(eq=False)
class WriteToBigQueryStorage(beam.PTransform):
    """Writes rows to BigQuery tables through the Storage Write API.

        rows | WriteToBigQueryStorage("project.dataset.table")

    Rows are dicts, `beam.Row`s or NamedTuples. Each row is written once, whatever the
    input's windows. No row vanishes: one that cannot be written fails the job, or with
    ``on_failed_row="output"`` comes out of ``result.failed_rows``.

    Args:
        table: ``project.dataset.table`` or any other form of a name, or a function from a
            row to one.
        connection: how to reach BigQuery; by default what the pipeline's options say.
        method: the guarantee, `ExactlyOnce` (default) or `AtLeastOnce`.
        create: how to make a missing table; None: it must exist.
        on_failed_row: ``"raise"`` or ``"output"``.
        validate: ask BigQuery for the table while the pipeline is built. Turn it off when
            the machine that builds the pipeline cannot reach BigQuery.

    Raises:
        ConfigError: while the pipeline is built, for anything that cannot work, or on
            Flink for every option without which rows could be lost or doubled.
        NotFoundError: the table is missing and `create` is None.
    """

    table: Table
    _: dataclasses.KW_ONLY
    connection: Connection | None = None
    method: ExactlyOnce | AtLeastOnce = ExactlyOnce()
    create: CreateTable | None = None
    on_failed_row: str = "raise"
    validate: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        self._error_handler: Any = None
        if self.on_failed_row not in ("raise", "output"):
            raise ConfigError(
                f"on_failed_row must be 'raise' or 'output', got {self.on_failed_row!r}"
            )
        if not isinstance(self.method, (ExactlyOnce, AtLeastOnce)):
            raise ConfigError(
                f"method must be ExactlyOnce(...) or AtLeastOnce(...), got {self.method!r}"
            )

    def with_exception_handling(self, *, error_handler: Any = None) -> "WriteToBigQueryStorage":
        """Sends failed rows to a Beam error handler; implies ``on_failed_row="output"``.

        None changes nothing, as everywhere in Beam.
        """
        if error_handler is not None:
            self.on_failed_row = "output"
            self._error_handler = error_handler
        return self

    def default_label(self) -> str:
        return f"WriteToBigQueryStorage({self._shown()})"

    def display_data(self) -> dict[str, Any]:
        return {
            "table": DisplayDataItem(self._shown(), label="Table"),
            "method": DisplayDataItem(type(self.method).__name__, label="Method"),
            "create": DisplayDataItem(self.create is not None, label="Creates missing tables"),
            "on_failed_row": DisplayDataItem(self.on_failed_row, label="On a failed row"),
        }

    def _shown(self) -> str:
        if callable(self.table):
            return "<function>"
        if isinstance(self.table, Mapping):
            parts = (self.table.get(name) for name in ("projectId", "datasetId", "tableId"))
            return ".".join(filter(None, parts))
        return str(self.table)

    def expand(self, rows):
        options = rows.pipeline.options
        project = default_project(options)
        destination = self._destination(project)
        connection = billed_to(
            self.connection or connection_from(options),
            project,
            TableReference.parse(destination.table) if destination.table else None,
        )
        if destination.table is not None and self.connection is None:
            make_embedded_dataset(options, TableReference.parse(destination.table))
        known = self._ask(connection, destination) if self.validate else _Known()
        step = self._step(rows, known.location)
        check_step(rows.pipeline, step)
        front = Front(
            destination=destination,
            connection=connection,
            create=self.create,
            schema=known.schema,
            batch_rows_max=self.method.batch_rows_max,
            batch_bytes_max=self.method.batch_bytes_max,
            dead_letters=self.on_failed_row == "output",
        )
        encoded = rows | "EncodeBatches" >> EncodeBatches(front)
        written = self._write(encoded[BATCHES], front, step, known)
        failed = (encoded[FAILED], written[FAILED]) | "FailedRows" >> beam.Flatten()
        failed.element_type = FailedRow
        if self._error_handler is not None:
            self._error_handler.add_error_pcollection(failed)
        return WriteToBigQueryStorageResult(
            failed=failed,
            committed=written.get(COMMITTED),
            lost=written.get(LOST),
            dead_letters=front.dead_letters,
        )

    def _write(self, batches: beam.PCollection, front: Front, step: Step, known: _Known) -> Any:
        if isinstance(self.method, AtLeastOnce):
            return {FAILED: batches | "AtLeastOnce" >> WriteAtLeastOnce(front, self.method)}
        if not step.bounded:
            stable = needs_stable_input(runner_kind(batches.pipeline))
            return batches | "ExactlyOnce" >> WriteExactlyOnceUnbounded(
                front, self.method, stable_input=stable
            )
        if self.method.run_id is None:
            refuse_saved_pipeline(
                batches.pipeline.options,
                "only the first would write. Name the run with ExactlyOnce(run_id=...), or use "
                "AtLeastOnce",
            )
        location = self.method.register_location or known.location
        if location is None and self.method.register is not None:
            raise ConfigError(
                "a bounded exactly-once write records its commit in a job, whose location must be the same "
                "after a restart: set ExactlyOnce(register_location=...) to the location of the datasets"
            )
        if front.connection.billing_project is None and self.method.register is not None:
            raise ConfigError(
                "a bounded exactly-once write records its commit in a job, and no project pays for it: "
                "set --project, --bq_billing_project or Connection(billing_project=...)"
            )
        return batches | "ExactlyOnce" >> WriteExactlyOnceBounded(
            front, self.method, location, step.label
        )

    def _destination(self, project: str | None) -> Destination:
        partitions = isinstance(self.method, AtLeastOnce)
        if callable(self.table):
            return Destination(None, self.table, project, partitions)
        table = TableReference.parse(self.table, default_project=project)
        if "$" in table.table and not partitions:
            raise ConfigError(PARTITION_REFUSED, table=str(table))
        return Destination(str(table), None, project, partitions)

    def _step(self, rows: beam.PCollection, location: str | None) -> Step:
        label = rows.pipeline._current_transform().full_label
        if isinstance(self.method, AtLeastOnce):
            return Step(
                label=label,
                kind=StepKind.AT_LEAST_ONCE,
                bounded=rows.is_bounded,
                location=location,
                append_budget_s=DEFAULT_STREAM_BUDGET_S,
            )
        return Step(
            label=label,
            kind=StepKind.EXACTLY_ONCE,
            bounded=rows.is_bounded,
            shards=None if rows.is_bounded else self.method.shards_unbounded,
            location=location,
            append_budget_s=self.method.append_budget_s,
        )

    def _ask(self, connection: Connection, destination: Destination) -> _Known:
        if destination.table is None:
            return _Known()
        table = TableReference.parse(destination.table)
        client = connection.open()
        try:
            schema = schema_for(client.tables, table, self.create)
            return _Known(schema_json.dumps(schema), client.tables.dataset_location(table))
        finally:
            client.close()
