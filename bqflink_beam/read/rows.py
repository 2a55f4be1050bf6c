"""Reads one range of a read stream: every row once, in order, through whatever breaks."""

import dataclasses
import functools
import logging
from collections.abc import Iterator

import pyarrow as pa

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import OutcomeUnknownError, PermanentError, TransientError
from bqflink_beam.read.prefetch import Prefetch, Signal
from bqflink_beam.read.stream_range import StreamRange
from bqflink_beam.retry import Backoff
from bqflink_beam.service.base import ReadResponse, ReadService

_LOG = logging.getLogger(__name__)
_FOREVER_S = 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadPolicy:
    """How patient a reader is, and how far it reads ahead.

    `backoff.budget_s` is the longest time without progress, counted from the first
    failure; progress makes all patience new. `idle_s` is how long one message may take: a watchdog, so that a
    dead connection is replaced, and never a deadline for the stream.
    """

    backoff: Backoff = Backoff(budget_s=900.0, wait_initial_s=0.1, wait_max_s=60.0)
    idle_s: float = 300.0
    prefetch_responses: int = 8
    prefetch_bytes: int = 32 << 20


@dataclasses.dataclass(slots=True)
class Tally:
    """What a reader did. Filled on the consumer's thread, published by whoever owns it.

    `rows` is counted by whoever delivers them: rows that were read ahead and then left
    to the next reader are not in it. `bytes` are all that came.
    """

    rows: int = 0
    bytes: int = 0
    retries: int = 0
    throttled_s: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class ReadBatch:
    """Rows ``[offset, stop)`` of a stream. `progress` is the fraction of the stream up to `stop`."""

    offset: int
    batch: pa.RecordBatch
    progress: float

    @property
    def rows(self) -> int:
        return int(self.batch.num_rows)

    @property
    def stop(self) -> int:
        return self.offset + self.rows

    def split(self, rows: int) -> tuple["ReadBatch", "ReadBatch | None"]:
        """Cuts after `rows` rows, without copying; the second part is None when empty."""
        if rows >= self.rows:
            return self, None
        return (
            ReadBatch(self.offset, self.batch.slice(0, rows), self.progress),
            ReadBatch(self.offset + rows, self.batch.slice(rows), self.progress),
        )


class RangeReader:
    """Iterates over the batches of one range.

    A broken or throttled call is made again at the next row, after a pause that
    grows until there is progress. An expired session is never tried again. The
    last batch is cut at the range's `stop`, so neighbours share no row. Use it
    from one thread, and `close` it.
    """

    def __init__(
        self,
        service: ReadService,
        rows: StreamRange,
        arrow_schema: bytes,
        *,
        tally: Tally,
        policy: ReadPolicy = ReadPolicy(),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._service = service
        self._range = rows
        self._schema = pa.ipc.read_schema(pa.py_buffer(arrow_schema))
        self._tally = tally
        self._policy = policy
        self._clock = clock
        self._next_row = rows.start
        self._prefetch: Prefetch | None = None
        self._attempt = 0
        self._resume_s = clock.monotonic_s()
        self._progress = 0.0
        self._broken_s = 0.0
        self.done = rows.empty

    def __iter__(self) -> Iterator[ReadBatch]:
        try:
            while not self.done:
                batch = self.poll(_FOREVER_S)
                if batch is not None:
                    yield batch
        finally:
            self.close()

    def poll(self, wait_s: float) -> ReadBatch | None:
        """Returns the next batch; None if none came within `wait_s`, or the range is `done`.

        Raises:
            TransientError: no progress for the whole budget.
            SessionExpiredError, PermanentError: reading on is no use.
        """
        deadline_s = self._clock.monotonic_s() + wait_s
        while not self.done:
            if not self._ready_to_call(deadline_s):
                return None
            try:
                batch = self._take(deadline_s)
            except (TransientError, OutcomeUnknownError) as error:
                self._plan_resume(error)
                continue
            if batch is not None:
                return batch
            if self._clock.monotonic_s() >= deadline_s:
                return None
        return None

    def close(self) -> None:
        """Ends the call under way. Any number of times; the reader is `done` after it."""
        self.done = True
        self._hang_up()

    def _ready_to_call(self, deadline_s: float) -> bool:
        """Sees to an open call; False when a pause lasts beyond the deadline."""
        if self._prefetch is not None:
            return True
        now_s = self._clock.monotonic_s()
        if self._resume_s > now_s:
            self._clock.sleep(max(0.0, min(self._resume_s, deadline_s) - now_s))
            if self._resume_s > deadline_s:
                return False
        self._prefetch = Prefetch(
            functools.partial(self._service.read_rows, self._range.stream, self._next_row),
            self._decode,
            responses_max=self._policy.prefetch_responses,
            bytes_max=self._policy.prefetch_bytes,
            clock=self._clock,
        )
        return True

    def _take(self, deadline_s: float) -> ReadBatch | None:
        """Returns a batch of rows in the range, None for a message without one or for silence."""
        assert self._prefetch is not None
        silence_left_s = self._policy.idle_s - self._prefetch.silent_s()
        left_s = deadline_s - self._clock.monotonic_s()
        taken = self._prefetch.take(max(0.0, min(silence_left_s, left_s)))
        if taken is Signal.END:
            self.close()
            return None
        if isinstance(taken, Signal):
            if self._prefetch.silent_s() >= self._policy.idle_s:
                raise TransientError(
                    f"no message for {self._policy.idle_s:g} s", stream=self._range.stream
                )
            return None
        response, batch = taken
        self._note_progress(response)
        return self._cut(response, batch)

    def _cut(self, response: ReadResponse, batch: pa.RecordBatch) -> ReadBatch | None:
        offset = self._next_row
        rows = self._range.take(offset, response.rows)
        self._next_row += rows
        self._tally.bytes += len(response.arrow_batch)
        if self._next_row == self._range.stop:
            self.close()
        if rows == 0:
            return None
        return ReadBatch(
            offset, batch if rows == response.rows else batch.slice(0, rows), self._progress
        )

    def _note_progress(self, response: ReadResponse) -> None:
        # The service's fractions have been seen to run backwards.
        if response.rows or response.progress_stop > self._progress:
            self._progress = max(self._progress, min(1.0, response.progress_stop))
            self._attempt = 0

    def _plan_resume(self, error: TransientError | OutcomeUnknownError) -> None:
        self._hang_up()
        now_s = self._clock.monotonic_s()
        if self._attempt == 0:  # what came before was the consumer's time, or progress
            self._broken_s = now_s
        self._attempt += 1
        asked_s = error.retry_after_s if isinstance(error, TransientError) else None
        wait_s = max(self._policy.backoff.wait_s(self._attempt, self._clock), asked_s or 0.0)
        stalled_s = now_s - self._broken_s
        if stalled_s + wait_s > self._policy.backoff.budget_s:
            raise TransientError(
                f"reading stopped at row {self._next_row}: {self._attempt} tries in "
                f"{stalled_s:.0f} s brought no row; the last one failed with: {error.message}",
                stream=self._range.stream,
                code=error.code,
            ) from error
        self._tally.retries += 1
        if asked_s is not None or error.code == "RESOURCE_EXHAUSTED":
            self._tally.throttled_s += wait_s
        self._resume_s = now_s + wait_s
        _LOG.debug(
            "%s: broken before row %d, again in %.2f s: %s",
            self._range.stream,
            self._next_row,
            wait_s,
            error,
        )

    def _hang_up(self) -> None:
        if self._prefetch is not None:
            self._prefetch.close()
            self._prefetch = None

    def _decode(self, response: ReadResponse) -> pa.RecordBatch:
        """Runs on the prefetching thread."""
        if not response.rows and not response.arrow_batch:  # a sign of life
            return pa.RecordBatch.from_pylist([], self._schema)
        try:
            batch = pa.ipc.read_record_batch(pa.py_buffer(response.arrow_batch), self._schema)
        except (pa.ArrowException, OSError) as error:
            raise PermanentError(
                f"a response is no Arrow record batch of the session's schema: {error}",
                stream=self._range.stream,
            ) from error
        if batch.num_rows != response.rows:
            raise PermanentError(
                f"a response says {response.rows} rows and holds {batch.num_rows}",
                stream=self._range.stream,
            )
        return batch
