"""Bounded writes: one PENDING stream for each table and bundle, ended and counted."""

import dataclasses
import json
from collections.abc import Callable

from bqflink_beam.errors import BqflinkError, PermanentError
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import AppendConnection, StreamKind, WriteService
from bqflink_beam.write.appender import StreamAppender
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.sift import RejectedRow
from bqflink_beam.write.tables import is_about_one_table

_FORMAT_VERSION = 1
# Each open connection costs two threads; a bundle may have thousands of tables.
_CONNECTIONS_MAX = 100


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
        prepare_table: called for each table before its stream is made.
        forgives_tables: rows for a table that takes no stream are bad rows, not an error.
            Only then: when a table goes away later, rows that were taken went with it, and
            only a repetition of the bundle finds out what is to be done with them.
    """

    def __init__(
        self,
        write: WriteService,
        *,
        prepare_table: Callable[[TableReference], None],
        budget_s: float,
        request_bytes_max: int,
        forgives_tables: bool = False,
    ) -> None:
        self._write = write
        self._prepare_table = prepare_table
        self._budget_s = budget_s
        self._request_bytes_max = request_bytes_max
        self._forgives_tables = forgives_tables
        self._appenders: dict[tuple[str, bytes], StreamAppender] = {}
        # Those whose connection is open, the one used last at the end.
        self._connected: dict[tuple[str, bytes], StreamAppender] = {}
        self._refused: dict[str, PermanentError] = {}
        self._rejected: list[RejectedRow] = []
        self.streams_created = 0

    def append(self, batch: RowBatch) -> list[RejectedRow]:
        """Queues a batch. Waits only while too much is under way.

        Returns the bad rows that came to light, of this batch or earlier ones. They are
        told of at once, since a bundle may be too large to keep them.

        Raises:
            BqflinkError: the bundle cannot go on.
        """
        # Another descriptor gets another stream: streams are cheap beside reordered rows.
        key = (batch.table, batch.descriptor)
        if key not in self._connected:
            self._make_room()
        if key not in self._appenders:
            refusal = self._open(key)
            if refusal is not None:
                return [
                    RejectedRow(batch, index, refusal.message) for index in range(len(batch.rows))
                ]
        appender = self._connected_appender(key)
        appender.send(batch)
        rejected, self._rejected = self._rejected, []
        return rejected + appender.take_rejected()

    def finish(self) -> tuple[list[StagedStream], list[RejectedRow]]:
        """Waits for all answers and ends the streams; returns them and the bad rows.

        Raises:
            PermanentError: a stream holds another number of rows than were acknowledged.
            BqflinkError: the bundle cannot go on.
        """
        staged: list[StagedStream] = []
        rejected, self._rejected = self._rejected, []
        for appender in self._appenders.values():
            rejected += appender.drain()
        for (table, _), appender in self._appenders.items():
            # A stream without rows is left to expire: there is nothing to commit.
            if appender.next_offset:
                staged.append(self._finalize(table, appender))
        return staged, rejected

    def close(self) -> None:
        for appender in self._connected.values():
            appender.close()
        self._connected.clear()
        self._appenders.clear()

    def _make_room(self) -> None:
        while len(self._connected) >= _CONNECTIONS_MAX:
            key, appender = next(iter(self._connected.items()))
            self._rejected += appender.drain()
            appender.close()
            del self._connected[key]

    def _connected_appender(self, key: tuple[str, bytes]) -> StreamAppender:
        appender = self._appenders[key]
        if self._connected.pop(key, None) is None:
            appender.reconnect(self._connect(appender.stream, key[1]))
        self._connected[key] = appender
        return appender

    def _open(self, key: tuple[str, bytes]) -> PermanentError | None:
        """Makes a stream; returns why the table takes none, if that is forgiven."""
        name, descriptor = key
        if name in self._refused:
            return self._refused[name]
        table = TableReference.parse(name)
        try:
            self._prepare_table(table)
            stream = self._write.create_stream(table, StreamKind.PENDING).name
        except PermanentError as error:
            if not (self._forgives_tables and is_about_one_table(error)):
                raise
            self._refused[name] = error
            return error
        self.streams_created += 1
        self._appenders[key] = self._connected[key] = StreamAppender(
            self._connect(stream, descriptor),
            stream,
            next_offset=0,
            fresh=True,
            request_bytes_max=self._request_bytes_max,
        )
        return None

    def _connect(self, stream: str, descriptor: bytes) -> AppendConnection:
        return self._write.open_append(stream, descriptor, budget_s=self._budget_s)

    def _finalize(self, table: str, appender: StreamAppender) -> StagedStream:
        rows = self._write.finalize(appender.stream)
        if rows != appender.next_offset:
            raise PermanentError(
                f"the stream holds {rows} rows, but {appender.next_offset} were acknowledged",
                table=table,
                stream=appender.stream,
            )
        return StagedStream(table, appender.stream, rows)
