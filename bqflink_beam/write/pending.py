"""Bounded writes: one PENDING stream for each table and bundle, ended and counted."""

import dataclasses
import json
from collections.abc import Callable

from bqflink_beam.errors import BqflinkError, PermanentError
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import StreamKind, WriteService
from bqflink_beam.write.appender import StreamAppender
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.sift import RejectedRow

_FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True, order=True)
class StagedStream:
    """A finalized PENDING stream and its row count.

    Made by the appending step when its bundle ends; read by the commit step.
    """

    table: str
    stream: str
    rows: int

    def to_bytes(self) -> bytes:
        """Returns a versioned form that may cross steps."""
        return json.dumps([_FORMAT_VERSION, self.table, self.stream, self.rows]).encode()

    @staticmethod
    def from_bytes(data: bytes) -> "StagedStream":
        """Reads what `to_bytes` wrote.

        Raises:
            BqflinkError: the bytes are of a newer version of this package.
        """
        version, *fields = json.loads(data)
        if version != _FORMAT_VERSION:
            raise BqflinkError(
                f"staged stream has format {version}; this version reads {_FORMAT_VERSION}"
            )
        return StagedStream(*fields)


class PendingWriter:
    """Writes what one bundle brings. Make a new one for each bundle, and `close` it.

    Args:
        prepare_table: called once for each table before its stream is made.
    """

    def __init__(
        self,
        write: WriteService,
        *,
        prepare_table: Callable[[TableReference], None],
        budget_s: float,
        request_bytes_max: int,
    ) -> None:
        self._write = write
        self._prepare_table = prepare_table
        self._budget_s = budget_s
        self._request_bytes_max = request_bytes_max
        self._appenders: dict[tuple[str, bytes], StreamAppender] = {}

    def append(self, batch: RowBatch) -> None:
        """Queues a batch. Waits only while too much is under way.

        Raises:
            BqflinkError: the bundle cannot go on.
        """
        # Another descriptor gets another stream: streams are cheap beside reordered rows.
        key = (batch.table, batch.descriptor)
        if key not in self._appenders:
            self._appenders[key] = self._open(batch)
        self._appenders[key].send(batch)

    def finish(self) -> tuple[list[StagedStream], list[RejectedRow]]:
        """Waits for all answers and ends the streams; returns them and the bad rows.

        Raises:
            PermanentError: a stream holds another number of rows than were acknowledged.
            BqflinkError: the bundle cannot go on.
        """
        staged: list[StagedStream] = []
        rejected: list[RejectedRow] = []
        for appender in self._appenders.values():
            rejected += appender.drain()
        for (table, _), appender in self._appenders.items():
            # A stream without rows is left to expire: there is nothing to commit.
            if appender.next_offset:
                staged.append(self._finalize(table, appender))
        return staged, rejected

    def close(self) -> None:
        for appender in self._appenders.values():
            appender.close()
        self._appenders.clear()

    def _open(self, batch: RowBatch) -> StreamAppender:
        table = TableReference.parse(batch.table)
        self._prepare_table(table)
        stream = self._write.create_stream(table, StreamKind.PENDING).name
        return StreamAppender(
            self._write.open_append(stream, batch.descriptor, budget_s=self._budget_s),
            stream,
            next_offset=0,
            fresh=True,
            request_bytes_max=self._request_bytes_max,
        )

    def _finalize(self, table: str, appender: StreamAppender) -> StagedStream:
        rows = self._write.finalize(appender.stream)
        if rows != appender.next_offset:
            raise PermanentError(
                f"the stream holds {rows} rows, but {appender.next_offset} were acknowledged",
                table=table,
                stream=appender.stream,
            )
        return StagedStream(table, appender.stream, rows)
