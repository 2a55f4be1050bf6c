"""At-least-once writes: requests to default streams, in no order."""

import collections
from collections.abc import Callable, Sequence

from bqflink_beam.errors import BqflinkError, PermanentError
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import AppendTicket
from bqflink_beam.write.batching import RowBatch, fitting
from bqflink_beam.write.sift import REFUSALS, RejectedRow, answer, sift
from bqflink_beam.write.tables import is_about_one_table

_WAITING_MAX = 64

Send = Callable[[str, bytes, Sequence[bytes]], AppendTicket]
"""Sends rows of a descriptor to a default stream: (stream, descriptor, rows) -> ticket."""


class DefaultWriter:
    """Writes batches to default streams. One for each DoFn instance; `finish` each bundle.

    Which tables are there, and which schemas fit, is remembered over bundles.

    Args:
        send: queues one request.
        prepare_table: called once for each table before its first request.
        forgives_tables: rows for a table that takes none at all are bad rows, not an error.
    """

    def __init__(
        self,
        send: Send,
        *,
        prepare_table: Callable[[TableReference], None],
        request_bytes_max: int,
        forgives_tables: bool = False,
    ) -> None:
        self._forgives_tables = forgives_tables
        self._send = send
        self._prepare_table = prepare_table
        self._request_bytes_max = request_bytes_max
        self._prepared: set[str] = set()
        self._schemas_that_fit: set[tuple[str, bytes]] = set()
        self._waiting: collections.deque[tuple[RowBatch, Sequence[int], AppendTicket]] = (
            collections.deque()
        )
        self._rejected: list[RejectedRow] = []

    def start_bundle(self) -> None:
        """Forgets what a bundle that failed has left: it is repeated as a whole."""
        self._waiting.clear()
        self._rejected = []

    def append(self, batch: RowBatch) -> list[RejectedRow]:
        """Queues a batch. Waits only while too much is under way.

        Returns the bad rows that came to light, of this batch or earlier ones. They are
        told of at once, since a bundle may be too large to keep them.

        Raises:
            BqflinkError: the bundle cannot go on.
        """
        try:
            self._prepare(batch.table)
        except PermanentError as error:
            self._reject_all(batch, range(len(batch.rows)), error)
            return self._take_rejected()
        parts, too_large = fitting(batch, self._request_bytes_max)
        self._rejected += [RejectedRow(batch, index, text) for index, text in too_large]
        for part in parts:
            try:
                self._waiting.append((batch, part, self._request(batch, part)))
            except PermanentError as error:
                self._reject_all(batch, part, error)
            if len(self._waiting) > _WAITING_MAX:
                self._settle(*self._waiting.popleft())
        return self._take_rejected()

    def finish(self) -> list[RejectedRow]:
        """Waits for all answers; returns the bad rows. Raises as `append`."""
        while self._waiting:
            self._settle(*self._waiting.popleft())
        return self._take_rejected()

    def _take_rejected(self) -> list[RejectedRow]:
        rejected, self._rejected = self._rejected, []
        return rejected

    def _request(self, batch: RowBatch, indexes: Sequence[int]) -> AppendTicket:
        stream = TableReference.parse(batch.table).default_stream
        return self._send(stream, batch.descriptor, [batch.rows[index] for index in indexes])

    def _settle(self, batch: RowBatch, indexes: Sequence[int], ticket: AppendTicket) -> None:
        error = answer(ticket)
        schema = (batch.table, batch.descriptor)
        if error is None:
            self._schemas_that_fit.add(schema)
        elif isinstance(error, REFUSALS):
            self._rejected += sift(
                batch,
                indexes,
                error,
                lambda part: self._try(batch, part),
                schema_fits=schema in self._schemas_that_fit,
            )
        elif isinstance(error, PermanentError):
            self._reject_all(batch, indexes, error)
        else:
            raise error

    def _prepare(self, table: str) -> None:
        if table not in self._prepared:
            self._prepare_table(TableReference.parse(table))
            self._prepared.add(table)

    def _reject_all(self, batch: RowBatch, indexes: Sequence[int], error: PermanentError) -> None:
        if not (self._forgives_tables and is_about_one_table(error)):
            raise error
        self._rejected += [RejectedRow(batch, index, error.message) for index in indexes]

    def _try(self, batch: RowBatch, indexes: Sequence[int]) -> BqflinkError | None:
        error = answer(self._request(batch, indexes))
        if error is not None and not isinstance(error, REFUSALS):
            raise error
        return error
