"""A Flink in miniature: bundles, checkpoints, crashes and zombies around the buffered writer."""

import copy
import dataclasses

from bqflink_beam.clock import Clock
from bqflink_beam.errors import AlreadyWrittenError
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.buffered import BufferedWriter
from bqflink_beam.write.flush import flush_all
from bqflink_beam.write.position import FlushMark, Position
from tests.sim.model_bigquery import ModelWrite

TABLE = "p.d.t"


SOURCES = 2


@dataclasses.dataclass(frozen=True)
class Batch:
    """A batch to come: the next `size` rows of one source partition, for one shard.

    A replay may interleave the partitions otherwise and pick other shards, so that other
    rows come to the same offset.
    """

    size: int
    source: int
    shard: int


def row(source: int, index: int) -> bytes:
    return f"row {source} {index:04d}".encode()


def batch(rows: list[bytes]) -> RowBatch:
    return RowBatch(TABLE, b"[]", b"", rows, [0] * len(rows))


@dataclasses.dataclass
class _Checkpoint:
    """What a restore brings back. `marks` are flushes held until this checkpoint is complete."""

    next_rows: list[int] = dataclasses.field(default_factory=lambda: [0] * SOURCES)
    cells: dict[int, Position] = dataclasses.field(default_factory=dict)
    marks: list[FlushMark] = dataclasses.field(default_factory=list)


class MiniRunner:
    """Reads rows 0, 1, 2… of each source partition and writes them with `BufferedWriter`.

    `stable_input=False` flushes at once, as a runner does that holds nothing back: the
    control that must show duplicates.
    """

    def __init__(self, model: ModelWrite, clock: Clock, *, stable_input: bool = True) -> None:
        self.model = model
        self._clock = clock
        self._stable_input = stable_input
        self._now = _Checkpoint()
        self._snapshot: _Checkpoint | None = None
        self._completed = _Checkpoint()
        self._writer = self._new_writer()
        self._zombies: list[tuple[BufferedWriter, _Checkpoint]] = []

    @property
    def next_rows(self) -> list[int]:
        return list(self._now.next_rows)

    def bundle(self, batches: list[Batch]) -> None:
        self._writer.start_bundle()
        marks = self._process(self._writer, self._now, batches)
        if self._stable_input:
            self._now.marks += marks
        else:
            self._flush(marks)

    def snapshot(self) -> None:
        self._snapshot = copy.deepcopy(self._now)

    def complete(self) -> None:
        """The checkpoint is complete: what it held back is flushed."""
        if self._snapshot is None:
            return
        self._completed, self._snapshot = self._snapshot, None
        self._flush(self._completed.marks)
        held = len(self._completed.marks)
        self._now.marks = self._now.marks[held:]

    def complete_but_crash_before_flush(self) -> None:
        if self._snapshot is not None:
            self._completed, self._snapshot = self._snapshot, None
        self.crash()

    def crash(self) -> None:
        """Restores the last complete checkpoint; the old worker lives on as a zombie."""
        self._zombies.append((self._writer, copy.deepcopy(self._now)))
        self._now = copy.deepcopy(self._completed)
        self._snapshot = None
        self._writer = self._new_writer()

    def zombie_appends(self, batches: list[Batch]) -> None:
        """A worker that was given up goes on appending; nobody hears of its flushes.

        One that finds other rows where it was to write, on a stream it made itself, stops:
        its bundle fails.
        """
        alive = []
        for writer, state in self._zombies:
            try:
                self._process(writer, state, batches)
            except AlreadyWrittenError:
                continue
            alive.append((writer, state))
        self._zombies = alive

    def finish(self, rows: list[int]) -> None:
        """Brings each partition to its number of rows, and completes a checkpoint."""
        for source, stop in enumerate(rows):
            while self._now.next_rows[source] < stop:
                size = min(4, stop - self._now.next_rows[source])
                self.bundle([Batch(size, source, source)])
        self.snapshot()
        self.complete()

    def _process(
        self, writer: BufferedWriter, state: _Checkpoint, batches: list[Batch]
    ) -> list[FlushMark]:
        marks = []
        for each in batches:
            start = state.next_rows[each.source]
            rows = [row(each.source, start + index) for index in range(each.size)]
            result = writer.append(state.cells.get(each.shard), batch(rows))
            assert not result.rejected
            assert result.position is not None and result.flush is not None
            state.cells[each.shard] = result.position
            marks.append(result.flush)
            state.next_rows[each.source] += each.size
        return marks

    def _flush(self, marks: list[FlushMark]) -> None:
        stops: dict[str, int] = {}
        for mark in marks:
            stops[mark.stream] = max(mark.stop, stops.get(mark.stream, 0))
        assert flush_all(self.model, stops) == []

    def _new_writer(self) -> BufferedWriter:
        return BufferedWriter(
            self.model,
            prepare_table=lambda table: None,
            clock=self._clock,
            budget_s=1.0,
            request_bytes_max=50,
        )
