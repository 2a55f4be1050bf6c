"""`ExactlyOnce`, bounded: PENDING streams in parallel, one commit at the end."""

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.errors import BqflinkError
from bqflink_beam.names import TableReference
from bqflink_beam.transforms import metrics
from bqflink_beam.transforms.failed import FailedRow, dead_letters
from bqflink_beam.transforms.run_identity import RunIdentityParDo, identity_of
from bqflink_beam.transforms.write_encode import FAILED, Front
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.commit import CommitReport, commit_run
from bqflink_beam.write.manifest import RunIdentity
from bqflink_beam.write.options import ExactlyOnce
from bqflink_beam.write.pending import PendingWriter, StagedStream
from bqflink_beam.write.register import JobRegister, NoRegister
from bqflink_beam.write.sift import RejectedRow
from bqflink_beam.write.tables import prepare

COMMITTED = "committed"
_STAGED = "staged"
# Stands in the gather for a run without rows, so that it commits, and is registered, too.
_SENTINEL = StagedStream("", "", 0)


class WriteExactlyOnceBounded(beam.PTransform):
    """Batches in; results in the dead letters, and one `CommitReport`."""

    def __init__(self, front: Front, method: ExactlyOnce, location: str | None, label: str) -> None:
        super().__init__()
        self._front = front
        self._method = method
        self._location = location
        self._sink_label = label

    def expand(self, batches):
        if self._method.shards is not None:
            batches = batches | "Shard" >> _Shard(self._method.shards)
        stage = beam.ParDo(_StageFn(self._front, self._method))
        outputs = batches | "Stage" >> stage.with_outputs(FAILED, main=_STAGED)
        outputs[_STAGED].element_type = StagedStream
        outputs[FAILED].element_type = FailedRow
        sentinel = batches.pipeline | "Sentinel" >> beam.Create([_SENTINEL]).with_output_types(
            StagedStream
        )
        committed = (
            (outputs[_STAGED], sentinel)
            | "StagedAndSentinel" >> beam.Flatten()
            | "OneKey" >> beam.Map(_one_key).with_output_types(tuple[bytes, StagedStream])
            | "Gather" >> beam.GroupByKey()
            | "Commit" >> RunIdentityParDo(self._commit_fn())
        )
        committed.element_type = CommitReport
        return {FAILED: outputs[FAILED], COMMITTED: committed}

    def _commit_fn(self) -> "_CommitFn":
        return _CommitFn(self._front, self._method, self._location, self._sink_label)


class _Shard(beam.PTransform):
    """Brings batches together in `shards` groups, so that there are as many streams at most."""

    def __init__(self, shards: int) -> None:
        super().__init__()
        self._shards = shards

    def expand(self, batches):
        grouped = (
            batches
            | "Assign"
            >> beam.ParDo(_AssignFn(self._shards)).with_output_types(tuple[int, RowBatch])
            | "Group" >> beam.GroupByKey()
            | "Ungroup" >> beam.FlatMap(_values)
        )
        grouped.element_type = RowBatch
        return grouped


class _AssignFn(beam.DoFn):
    """Deals batches to shards in turn."""

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def start_bundle(self) -> None:
        self._next = int(SYSTEM_CLOCK.random() * self._shards)

    def process(self, batch):
        self._next = (self._next + 1) % self._shards
        yield self._next, batch


class _StageFn(beam.DoFn):
    """Appends a bundle's batches to streams of its own, and ends them with the bundle."""

    def __init__(self, front: Front, method: ExactlyOnce) -> None:
        self._front = front
        self._method = method

    def setup(self) -> None:
        self._client = self._front.connection.open()
        self._appended = metrics.counter(metrics.ROWS_APPENDED)
        self._created = metrics.counter(metrics.STREAMS_CREATED)
        self._failed = metrics.counter(metrics.ROWS_FAILED)

    def start_bundle(self) -> None:
        self._writer = PendingWriter(
            self._client.write,
            prepare_table=lambda table: prepare(
                self._client.tables, table, self._front.create, SYSTEM_CLOCK
            ),
            budget_s=self._method.append_budget_s,
            request_bytes_max=self._method.batch_bytes_max,
            forgives_tables=self._front.forgives_tables,
        )

    def process(self, batch):
        for failed in self._dead_letters(self._writer.append(batch)):
            yield beam.pvalue.TaggedOutput(FAILED, failed)

    def finish_bundle(self):
        staged, rejected = self._writer.finish()
        self._writer.close()
        self._created.inc(self._writer.streams_created)
        for failed in self._dead_letters(rejected):
            yield beam.pvalue.TaggedOutput(FAILED, GlobalWindows.windowed_value(failed))
        for stream in staged:
            self._appended.inc(stream.rows)
            yield GlobalWindows.windowed_value(stream)

    def teardown(self) -> None:
        if hasattr(self, "_writer"):
            self._writer.close()
        self._client.close()

    def _dead_letters(self, rejected: list[RejectedRow]) -> Iterator[FailedRow]:
        for failed in dead_letters(rejected, allowed=self._front.dead_letters):
            self._failed.inc()
            yield failed


class _CommitFn(beam.DoFn):
    """Gets every staged stream of the run in one element, and commits them."""

    def __init__(self, front: Front, method: ExactlyOnce, location: str | None, label: str) -> None:
        self._front = front
        self._method = method
        self._location = location
        self._label = label
        self.run_id = method.run_id
        self.identity: RunIdentity | None = None

    def setup(self) -> None:
        self._client = self._front.connection.open()
        self._committed = metrics.counter(metrics.ROWS_COMMITTED)
        self._reused = metrics.counter(metrics.RUNS_REUSED)

    def process(self, gathered):
        identity = identity_of(self)
        everything = list(gathered[1])
        staged = [stream for stream in everything if stream != _SENTINEL]
        if len(everything) - len(staged) != 1:
            # A second part, in whatever bundle or worker, would look like a restart.
            raise BqflinkError(
                "the runner delivered what was staged in parts, and one part alone must not be committed: "
                f"{len(staged)} streams with {sum(stream.rows for stream in staged)} rows came by themselves"
            )
        if self._front.destination.table is not None:
            # A run without rows leaves a table behind too.
            table = TableReference.parse(self._front.destination.table)
            prepare(self._client.tables, table, self._front.create, SYSTEM_CLOCK)
        report = commit_run(
            self._client.write, self._register(), identity, self._label, staged, SYSTEM_CLOCK
        )
        if report.reused:
            self._reused.inc()
        else:
            self._committed.inc(sum(report.rows.values()))
        yield report

    def teardown(self) -> None:
        self._client.close()

    def _register(self) -> JobRegister | NoRegister:
        if self._method.register is None:
            return NoRegister()
        assert self._location is not None, "checked when the pipeline was built"
        return JobRegister(self._client.jobs, self._location)


def _one_key(stream: StagedStream) -> tuple[bytes, StagedStream]:
    return b"", stream


def _values(group):
    return group[1]
