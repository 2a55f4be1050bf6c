"""Appends batches, in order and at offsets, to one write stream."""

import collections
import dataclasses
import logging
from collections.abc import Sequence

from bqflink_beam.errors import BqflinkError, OffsetGapError
from bqflink_beam.service.base import AppendConnection, AppendTicket
from bqflink_beam.write.batching import RowBatch, fitting
from bqflink_beam.write.cursor import Move, answer_of, next_move
from bqflink_beam.write.sift import REFUSALS, RejectedRow, answer, sift

_LOG = logging.getLogger(__name__)
# Requests under way on one stream; enough to hide a round trip, few enough to keep in memory.
_WAITING_MAX = 16


class GiveUpStream(Exception):
    """Tells the owner of a stream that is not fresh to append the batch to a new one."""


@dataclasses.dataclass(frozen=True)
class _Request:
    """Rows ``indexes`` of a batch, sent at `offset`, with the answer to come."""

    batch: RowBatch
    indexes: Sequence[int]
    offset: int
    ticket: AppendTicket


class StreamAppender:
    """Keeps the offsets of one stream right, whatever the service answers.

    `send` queues, `drain` waits for everything. The rows on the stream are then those
    given to `send` without those that `drain` returned, in order.

    Args:
        connection: carries requests for this stream and the batches' descriptor.
        next_offset: rows that the stream has, as far as its owner knows.
        fresh: whether this bundle made the stream (see `write.cursor`).
        request_bytes_max: size at which a batch is cut into several requests.
    """

    def __init__(
        self,
        connection: AppendConnection,
        stream: str,
        *,
        next_offset: int,
        fresh: bool,
        request_bytes_max: int,
    ) -> None:
        self._connection = connection
        self.stream = stream
        self.next_offset = next_offset
        self.fresh = fresh
        self._request_bytes_max = request_bytes_max
        self._waiting: collections.deque[_Request] = collections.deque()
        self._rejected: list[RejectedRow] = []
        self._schema_fits = False

    def send(self, batch: RowBatch) -> None:
        """Queues a batch's rows; waits only while too much is under way.

        Raises:
            GiveUpStream: only when the stream is not fresh.
            BqflinkError: what the service answered; the bundle cannot go on.
        """
        parts, too_large = fitting(batch, self._request_bytes_max)
        self._rejected += [RejectedRow(batch, index, text) for index, text in too_large]
        for part in parts:
            self._queue(batch, part)
            if len(self._waiting) > _WAITING_MAX:
                self._settle(self._waiting.popleft())

    def drain(self) -> list[RejectedRow]:
        """Waits for every answer; returns the rows that were not taken. Raises as `send`."""
        while self._waiting:
            self._settle(self._waiting.popleft())
        return self.take_rejected()

    def take_rejected(self) -> list[RejectedRow]:
        """Returns the rows that were refused so far, without waiting. Each comes once."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def switch(self, connection: AppendConnection) -> None:
        """Goes on with another connection, made for another descriptor. Drain first."""
        assert not self._waiting
        self._connection.close()
        self._connection = connection
        self._schema_fits = False

    def reconnect(self, connection: AppendConnection) -> None:
        """Goes on after `close`, with a connection for the same descriptor."""
        assert not self._waiting
        self._connection = connection

    def close(self) -> None:
        self._connection.close()

    def _queue(self, batch: RowBatch, indexes: Sequence[int]) -> None:
        rows = [batch.rows[index] for index in indexes]
        ticket = self._connection.send(rows, self.next_offset)
        self._waiting.append(_Request(batch, indexes, self.next_offset, ticket))
        self.next_offset += len(rows)

    def _settle(self, request: _Request) -> None:
        error = answer(request.ticket)
        if not isinstance(error, REFUSALS):
            self._judge(request, error)
            return
        behind = self._take_back(request)
        self._rejected += sift(
            request.batch,
            request.indexes,
            error,
            lambda indexes: self._try(request.batch, indexes),
            schema_fits=self._schema_fits,
        )
        for follower in behind:
            self._queue(follower.batch, follower.indexes)

    def _judge(self, request: _Request, error: BqflinkError | None) -> None:
        move = next_move(answer_of(error), fresh=self.fresh)
        if move is Move.DONE:
            self._schema_fits = True
            return
        assert error is not None
        if move is Move.NEW_STREAM:
            _LOG.info("giving up stream %s at row %d: %s", self.stream, request.offset, error)
            raise GiveUpStream(str(error)) from error
        raise error

    def _take_back(self, request: _Request) -> list[_Request]:
        """Pulls back what was sent behind a refused request: its offsets are wrong now."""
        behind = list(self._waiting)
        self._waiting.clear()
        for follower in behind:
            error = answer(follower.ticket)
            if error is None:
                raise OffsetGapError(
                    f"rows at {follower.offset} were taken although those at {request.offset} were not",
                    stream=self.stream,
                )
            if not isinstance(error, (OffsetGapError, *REFUSALS)):
                raise error
        self.next_offset = request.offset
        return behind

    def _try(self, batch: RowBatch, indexes: Sequence[int]) -> BqflinkError | None:
        """Sends rows and waits; returns the refusal, None when they are in."""
        self._queue(batch, indexes)
        request = self._waiting.pop()
        error = answer(request.ticket)
        if isinstance(error, REFUSALS):
            self.next_offset = request.offset
            return error
        self._judge(request, error)
        return None
