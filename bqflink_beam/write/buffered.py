"""Unbounded writes: rows wait on BUFFERED streams until their checkpoint is complete."""

import dataclasses
from collections.abc import Callable

from bqflink_beam.clock import Clock
from bqflink_beam.errors import BqflinkError, NotFoundError
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import AppendConnection, StreamKind, WriteService
from bqflink_beam.write.appender import GiveUpStream, StreamAppender
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.position import FlushMark, Position
from bqflink_beam.write.sift import RejectedRow

# BigQuery drops a buffered stream after 7 days without traffic.
_STREAM_IDLE_MAX_S = 5 * 24 * 3600.0
# Each open connection costs two threads; one that was closed is opened again when needed.
_OPEN_STREAMS_MAX = 200


@dataclasses.dataclass(frozen=True)
class Appended:
    """What one batch did: the new position, what to flush, and the rows not taken.

    `flush` is None when nothing was appended.
    """

    position: Position | None
    flush: FlushMark | None
    rejected: list[RejectedRow]


class BufferedWriter:
    """Appends batches to the streams that positions name. One for each DoFn instance.

    A stream is given up, never flushed again and never finalized, as soon as its end is
    not where the position says: whoever wrote there was not this attempt. What the
    position covers has its flush under way already, emitted by the bundle that wrote it.
    """

    def __init__(
        self,
        write: WriteService,
        *,
        prepare_table: Callable[[TableReference], None],
        clock: Clock,
        budget_s: float,
        request_bytes_max: int,
    ) -> None:
        self._write = write
        self._prepare_table = prepare_table
        self._clock = clock
        self._budget_s = budget_s
        self._request_bytes_max = request_bytes_max
        self._made_in_bundle: set[str] = set()
        # By table, a stream made for rows that were all bad: it is empty, and nobody else
        # has heard of it.
        self._unused: dict[str, str] = {}
        # In order of use, the one used last at the end.
        self._open: dict[str, tuple[bytes, StreamAppender]] = {}
        self.streams_created = 0

    def start_bundle(self) -> None:
        """Forgets which streams are fresh: the last bundle may be repeated elsewhere."""
        self._made_in_bundle.clear()
        # Kept connections were opened for streams that are not fresh any more.
        for _, appender in self._open.values():
            appender.fresh = False

    def append(self, position: Position | None, batch: RowBatch) -> Appended:
        """Appends a batch at `position` (None: nothing was written for this key yet).

        Raises:
            NotFoundError: the table is missing, or was dropped since the position was written.
            BqflinkError: the bundle cannot go on.
        """
        stream, offset = self._start(position, batch)
        while True:
            try:
                appender, rejected = self._append(stream, offset, batch)
                break
            except GiveUpStream:
                stream, offset = self._new_stream(position, batch), 0
        if appender.next_offset == offset:
            if offset == 0:
                self._unused[batch.table] = stream
            return Appended(position, None, rejected)
        return Appended(
            Position(stream, appender.next_offset, self._clock.now_s()),
            FlushMark(stream, appender.next_offset),
            rejected,
        )

    def close(self) -> None:
        for stream in list(self._open):
            self._drop(stream)

    def _start(self, position: Position | None, batch: RowBatch) -> tuple[str, int]:
        if position is None or self._clock.now_s() - position.appended_s > _STREAM_IDLE_MAX_S:
            return self._new_stream(position, batch), 0
        return position.stream, position.next_offset

    def _new_stream(self, position: Position | None, batch: RowBatch) -> str:
        unused = self._unused.pop(batch.table, None)
        if unused is not None:
            return unused
        table = TableReference.parse(batch.table)
        if position is None:
            self._prepare_table(table)
        try:
            stream = self._write.create_stream(table, StreamKind.BUFFERED).name
        except NotFoundError as error:
            if position is None:
                raise
            raise NotFoundError(
                "the table was dropped while rows were being written to it; create it again, and "
                f"expect rows up to {position.next_offset} of {position.stream} to be reported as lost",
                table=batch.table,
            ) from error
        self._made_in_bundle.add(stream)
        self.streams_created += 1
        return stream

    def _append(
        self, stream: str, offset: int, batch: RowBatch
    ) -> tuple[StreamAppender, list[RejectedRow]]:
        appender = self._appender(stream, offset, batch.descriptor)
        try:
            appender.send(batch)
            return appender, appender.drain()
        except (BqflinkError, GiveUpStream):
            # Its offsets cannot be trusted any more; the position's can. Some rows may be
            # on it behind the position, so the next batch of this bundle gives it up.
            self._made_in_bundle.discard(stream)
            self._drop(stream)
            raise

    def _appender(self, stream: str, offset: int, descriptor: bytes) -> StreamAppender:
        known = self._open.get(stream)
        if known is not None and known[1].next_offset == offset:
            if known[0] != descriptor:
                known[1].switch(self._connect(stream, descriptor))
            del self._open[stream]
            self._open[stream] = (descriptor, known[1])
            return known[1]
        if known is not None:
            self._drop(stream)
        while len(self._open) >= _OPEN_STREAMS_MAX:
            self._drop(next(iter(self._open)))
        appender = StreamAppender(
            self._connect(stream, descriptor),
            stream,
            next_offset=offset,
            fresh=stream in self._made_in_bundle,
            request_bytes_max=self._request_bytes_max,
        )
        self._open[stream] = (descriptor, appender)
        return appender

    def _connect(self, stream: str, descriptor: bytes) -> AppendConnection:
        return self._write.open_append(stream, descriptor, budget_s=self._budget_s)

    def _drop(self, stream: str) -> None:
        self._open.pop(stream)[1].close()
