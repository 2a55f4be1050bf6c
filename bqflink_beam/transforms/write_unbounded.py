"""`ExactlyOnce`, unbounded: append to BUFFERED streams, flush what a checkpoint holds.

    key (table, shard) -> Append (stateful) -> FreezeFlushes (Reshuffle) -> Flush (stable input)

Appended rows are invisible. The flush that shows them leaves Append in the same bundle
that writes the new position into state, so a checkpoint has both or neither; and Flush
sees it only when that checkpoint is complete. Rows appended after the checkpoint a job
is restored from are on a stream, or beyond an offset, that nobody will flush.

The Reshuffle is a fusion break: without it Flush would run inside Append's stage, whose
state calls deadlock under stable input.
"""

import apache_beam as beam
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindows

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.errors import PermanentError
from bqflink_beam.transforms import metrics
from bqflink_beam.transforms.coders import PositionCoder
from bqflink_beam.transforms.failed import FailedRow, dead_letters
from bqflink_beam.transforms.stable_input import StableInputParDo
from bqflink_beam.transforms.write_encode import FAILED, Front
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.buffered import BufferedWriter
from bqflink_beam.write.flush import LostStream, flush_all, lost_error
from bqflink_beam.write.options import ExactlyOnce
from bqflink_beam.write.position import FlushMark
from bqflink_beam.write.sift import RejectedRow
from bqflink_beam.write.tables import is_about_one_table, prepare

LOST = "lost"
_MARKS = "marks"
_FLUSHED = "flushed"


class WriteExactlyOnceUnbounded(beam.PTransform):
    """Batches in; results in the dead letters and the lost streams.

    Step names, key coder and state cell are what savepoints are made of: a test pins them.
    """

    def __init__(self, front: Front, method: ExactlyOnce, *, stable_input: bool) -> None:
        super().__init__()
        self._front = front
        self._method = method
        self._stable_input = stable_input

    def expand(self, batches):
        keyed = batches | "Shard" >> beam.ParDo(
            _ShardFn(self._method.shards_unbounded)
        ).with_output_types(tuple[tuple[str, int], RowBatch])
        append = beam.ParDo(_AppendFn(self._front, self._method))
        appended = keyed | "Append" >> append.with_outputs(FAILED, main=_MARKS)
        appended[_MARKS].element_type = FlushMark
        appended[FAILED].element_type = FailedRow
        par_do = StableInputParDo if self._stable_input else beam.ParDo
        flush = par_do(_FlushFn(self._front, fail_on_loss=self._method.on_lost_stream == "fail"))
        flushed = (
            appended[_MARKS]
            | "FreezeFlushes" >> beam.Reshuffle()
            | "Flush" >> flush.with_outputs(LOST, main=_FLUSHED)
        )
        flushed[LOST].element_type = LostStream
        return {FAILED: appended[FAILED], LOST: flushed[LOST]}


class _ShardFn(beam.DoFn):
    """Deals each table's batches to its shards in turn.

    Which shard a batch goes to may differ when it is replayed: what the first attempt
    appended for it is never flushed.
    """

    def __init__(self, shards: int) -> None:
        self._shards = shards

    def start_bundle(self) -> None:
        self._next = int(SYSTEM_CLOCK.random() * self._shards)

    def process(self, batch):
        self._next = (self._next + 1) % self._shards
        yield (batch.table, self._next), batch


class _AppendFn(beam.DoFn):
    """Appends each batch at its key's position, and waits for the answer inside `process`.

    State is not usable when the bundle ends, so nothing may be left for then.
    """

    POSITION = ReadModifyWriteStateSpec("position", PositionCoder())

    def __init__(self, front: Front, method: ExactlyOnce) -> None:
        self._front = front
        self._method = method

    def setup(self) -> None:
        self._client = self._front.connection.open()
        self._writer = BufferedWriter(
            self._client.write,
            prepare_table=lambda table: prepare(
                self._client.tables, table, self._front.create, SYSTEM_CLOCK
            ),
            clock=SYSTEM_CLOCK,
            budget_s=self._method.append_budget_s,
            request_bytes_max=self._method.batch_bytes_max,
        )
        self._created = metrics.counter(metrics.STREAMS_CREATED)
        self._appended = metrics.counter(metrics.ROWS_APPENDED)
        self._failed = metrics.counter(metrics.ROWS_FAILED)

    def start_bundle(self) -> None:
        self._writer.start_bundle()
        self._created_before = self._writer.streams_created

    def finish_bundle(self) -> None:
        self._created.inc(self._writer.streams_created - self._created_before)

    def process(self, keyed, position=beam.DoFn.StateParam(POSITION)):
        batch = keyed[1]
        try:
            result = self._writer.append(position.read(), batch)
        except PermanentError as error:
            if not (self._front.forgives_tables and is_about_one_table(error)):
                raise
            rejected = [
                RejectedRow(batch, index, error.message) for index in range(len(batch.rows))
            ]
            yield from self._dead_letters(rejected)
            return
        if result.flush is not None:
            position.write(result.position)
            self._appended.inc(len(batch.rows) - len(result.rejected))
            yield result.flush
        yield from self._dead_letters(result.rejected)

    def teardown(self) -> None:
        self._writer.close()
        self._client.close()

    def _dead_letters(self, rejected: list[RejectedRow]):
        for failed in dead_letters(rejected, allowed=self._front.dead_letters):
            self._failed.inc()
            yield beam.pvalue.TaggedOutput(FAILED, failed)


class _FlushFn(beam.DoFn):
    """Flushes the highest mark of each stream in the bundle. Stateless, and repeatable.

    Both settings of `on_lost_stream` build the same graph, so that a job stuck on a lost
    stream can be resumed from its checkpoint with the other.
    """

    def __init__(self, front: Front, *, fail_on_loss: bool) -> None:
        self._front = front
        self._fail_on_loss = fail_on_loss

    def setup(self) -> None:
        self._client = self._front.connection.open()
        self._flushed = metrics.counter(metrics.STREAMS_FLUSHED)
        self._lost = metrics.counter(metrics.STREAMS_LOST)

    def start_bundle(self) -> None:
        self._stops: dict[str, int] = {}

    def process(self, mark):
        self._stops[mark.stream] = max(mark.stop, self._stops.get(mark.stream, 0))

    def finish_bundle(self):
        lost = flush_all(self._client.write, self._stops)
        if lost and self._fail_on_loss:
            raise lost_error(lost)
        self._flushed.inc(len(self._stops) - len(lost))
        self._lost.inc(len(lost))
        for stream in lost:
            yield beam.pvalue.TaggedOutput(LOST, GlobalWindows.windowed_value(stream))

    def teardown(self) -> None:
        self._client.close()
