"""`ReadFromBigQueryStorage`: checks what can be checked, and wires the steps of a read."""

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.pvalue import PBegin
from apache_beam.transforms.display import DisplayDataItem

from bqflink_beam.errors import ConfigError
from bqflink_beam.filters import Predicate
from bqflink_beam.names import TableReference
from bqflink_beam.read.request import ReadRequest
from bqflink_beam.read.session import check
from bqflink_beam.service.connection import Connection
from bqflink_beam.transforms import arrow_coder as _arrow_coder  # noqa: F401  registers it
from bqflink_beam.transforms import read_coders as _read_coders  # noqa: F401  registers them
from bqflink_beam.transforms.pipeline_check import check_pipeline, check_step
from bqflink_beam.transforms.pipeline_options import billed_to, connection_from, default_project
from bqflink_beam.transforms.read_bundle import SelfCheckpoint
from bqflink_beam.transforms.read_fn import PlanReadFn, ReadStreamFn
from bqflink_beam.transforms.run_identity import (
    RunIdentityParDo,
    is_saved,
    refuse_saved_pipeline,
)
from bqflink_beam.transforms.streaming import streams
from bqflink_beam.write.preflight import Step, StepKind

_OUTPUTS = {"dict": dict[str, Any], "arrow": pa.RecordBatch}
# Stands in for a default project that only the pipeline's options know.
_NO_PROJECT = "default-project"


@dataclasses.dataclass(eq=False)
class ReadFromBigQueryStorage(beam.PTransform):
    """Reads a table, a view or a query's result through the Storage Read API.

        rows = pipeline | ReadFromBigQueryStorage("project.dataset.table", columns=["id"])

    All rows come from one snapshot, each once. Their order is not that of the table.
    The output is bounded. A stream is read in pieces that a runner can checkpoint, and
    resumed at the next row. A view, and a table whose rows lie elsewhere, is read by
    way of a query, which costs what the query costs.

    Args:
        table: ``project.dataset.table`` or any other form of a name. Exactly one of
            `table` and `query`.
        query: a SELECT in GoogleSQL. It runs once per run, into a result that BigQuery
            drops after about a day.
        columns: names or dotted paths (``address.city``); None means all.
        row_filter: a SQL predicate, as after WHERE, or one made with `col`; None means all
            rows.
        output: ``"dict"``, a dict per row, or ``"arrow"``, `pa.RecordBatch`es.
        connection: how to reach BigQuery; by default what the pipeline's options say.
        streams_max: at most so many streams are read in parallel; 0 lets BigQuery choose.
        snapshot_time: the moment to read the table at; None means now.
        location: where the query runs, if BigQuery cannot tell from its tables.
        labels: put on the query's job.
        checkpoint_every_s: in streaming, the longest that one bundle reads.
        checkpoint_every_rows: in streaming, the most rows that one bundle reads.
        validate: ask BigQuery, while the pipeline is built, whether all this exists and
            is allowed. Nothing is read. Turn it off when the machine that builds the
            pipeline cannot reach BigQuery.

    Raises:
        ConfigError: while the pipeline is built, for anything that cannot work.
        ServiceError: while the pipeline is built, for what BigQuery says otherwise.
    """

    table: str | TableReference | Mapping[str, str] | None = None
    _: dataclasses.KW_ONLY
    query: str | None = None
    columns: Sequence[str] | None = None
    row_filter: str | Predicate | None = None
    output: str = "dict"
    connection: Connection | None = None
    streams_max: int = 0
    snapshot_time: datetime.datetime | None = None
    location: str | None = None
    labels: Mapping[str, str] | None = None
    checkpoint_every_s: float = 5.0
    checkpoint_every_rows: int | None = None
    validate: bool = True

    def __post_init__(self) -> None:
        super().__init__()
        if self.output == "row":
            raise ConfigError("output='row' is not there yet; take 'dict' or 'arrow'")
        if self.output not in _OUTPUTS:
            raise ConfigError(f"output must be 'dict' or 'arrow', got {self.output!r}")
        if isinstance(self.columns, str) or self.columns is not None and not self.columns:
            raise ConfigError(
                f"columns must be a list of names, or None for all, got {self.columns!r}"
            )
        if not isinstance(self.row_filter, str | Predicate | None):
            raise ConfigError(
                f"row_filter must be SQL text or made with col, got {self.row_filter!r}"
            )
        self._row_filter = "" if self.row_filter is None else str(self.row_filter)
        self._limits = SelfCheckpoint(
            every_s=self.checkpoint_every_s, every_rows=self.checkpoint_every_rows
        )
        self._request(_NO_PROJECT)

    def default_label(self) -> str:
        return f"ReadFromBigQueryStorage({self._source()})"

    def display_data(self) -> dict[str, Any]:
        items = {
            "source": DisplayDataItem(self.query or self._source(), label="Source"),
            "columns": DisplayDataItem(", ".join(self.columns or ()), label="Columns"),
            "row_filter": DisplayDataItem(self._row_filter, label="Row filter"),
            "output": DisplayDataItem(self.output, label="Output"),
            "streams_max": DisplayDataItem(self.streams_max, label="Streams at most"),
        }
        if self.snapshot_time is not None:
            items["snapshot_time"] = DisplayDataItem(str(self.snapshot_time), label="Snapshot time")
        return items

    def expand(self, pbegin: PBegin) -> beam.PCollection:
        if not isinstance(pbegin, PBegin):
            raise ConfigError("ReadFromBigQueryStorage begins a pipeline; apply it to that")
        pipeline = pbegin.pipeline
        project = default_project(pipeline.options)
        request = self._request(project)
        connection = billed_to(
            self.connection or connection_from(pipeline.options), project, request.table
        )
        saved = is_saved(pipeline.options) is not None
        if request.query is not None:
            refuse_saved_pipeline(
                pipeline.options,
                "later ones would read what the query gave the first. Build the pipeline anew for each "
                "start, or read a view with table=",
            )
        label = pipeline._current_transform().full_label
        check_step(pipeline, Step(label=label, kind=StepKind.READ, bounded=True))
        if self.validate:
            _ask(request, connection)
        read = _ReadStreams(connection, self.output == "dict", self._limits, pipeline)
        return (
            pbegin
            | "Start" >> beam.Impulse()
            | "PlanRead" >> RunIdentityParDo(PlanReadFn(request, connection, saved=saved))
            | "SpreadStreams" >> beam.Reshuffle()  # one stream is one unit of work
            | "ReadStreams" >> read.with_output_types(_OUTPUTS[self.output])
        )

    def _source(self) -> str:
        return "query" if self.query is not None else str(self.table)

    def _request(self, project: str | None) -> ReadRequest:
        table = None
        if self.table is not None:
            table = TableReference.parse(self.table, default_project=project)
        return ReadRequest(
            table=table,
            query=self.query,
            columns=tuple(self.columns or ()),
            row_filter=self._row_filter,
            streams_max=self.streams_max,
            snapshot_time=self.snapshot_time,
            location=self.location,
            labels=tuple((self.labels or {}).items()),
        )


class _ReadStreams(beam.ParDo):
    """The reading step. It checkpoints itself if the pipeline, when it is translated, streams."""

    def __init__(
        self,
        connection: Connection,
        as_dicts: bool,
        limits: SelfCheckpoint,
        pipeline: beam.Pipeline,
    ) -> None:
        super().__init__(ReadStreamFn(connection, as_dicts=as_dicts, checkpoint=limits))
        self._limits = limits
        self._pipeline = pipeline

    def to_runner_api_parameter(self, context: Any, **kwargs: Any) -> Any:
        check_pipeline(self._pipeline)
        self.fn.checkpoint = self._limits if streams(self._pipeline) else None
        return super().to_runner_api_parameter(context, **kwargs)


def _ask(request: ReadRequest, connection: Connection) -> None:
    client = connection.open()
    try:
        check(request, client)
    finally:
        client.close()
