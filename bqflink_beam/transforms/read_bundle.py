"""One bundle's part of a stream: what the tracker grants, until the bundle has had its share."""

import dataclasses
from collections.abc import Generator, Iterator

from apache_beam.runners.sdf_utils import RestrictionTrackerView

from bqflink_beam.clock import Clock
from bqflink_beam.errors import ConfigError
from bqflink_beam.read.read_stream import ReadStream
from bqflink_beam.read.rows import RangeReader, ReadBatch, ReadPolicy, Tally
from bqflink_beam.read.stream_range import StreamRange
from bqflink_beam.service.base import ReadService
from bqflink_beam.transforms.restriction import EndClaim, RowsClaim

_FOREVER_S = 3600.0
_POLICY = ReadPolicy()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelfCheckpoint:
    """How much a bundle reads before it hands the rest of the range back to the runner.

    A runner that streams takes no checkpoint while a bundle runs.
    """

    every_s: float
    every_rows: int | None = None

    def __post_init__(self) -> None:
        if not self.every_s > 0:
            raise ConfigError(f"checkpoint_every_s must be above 0, got {self.every_s}")
        if self.every_rows is not None and self.every_rows < 1:
            raise ConfigError(f"checkpoint_every_rows must be at least 1, got {self.every_rows}")


class BundleReader:
    """Iterates over the batches that one bundle may deliver of its range. `close` it.

    Args:
        checkpoint: after how much to hand back the rest; None reads all of the range.
        batch_rows_max: the largest batch to deliver, so how many rows go downstream
            between two looks at the clock.
    """

    def __init__(
        self,
        service: ReadService,
        element: ReadStream,
        tracker: RestrictionTrackerView,
        *,
        tally: Tally,
        checkpoint: SelfCheckpoint | None,
        batch_rows_max: int,
        clock: Clock,
        policy: ReadPolicy = _POLICY,
    ) -> None:
        self._service = service
        self._schema = element.arrow_schema
        self._tracker = tracker
        self._tally = tally
        self._checkpoint = checkpoint
        self._batch_rows_max = batch_rows_max
        self._clock = clock
        self._policy = policy
        self._start_s = clock.monotonic_s()
        self._rows = 0
        self._next_row = tracker.current_restriction().start
        self._reader: RangeReader | None = None
        self.checkpointed = False

    def __iter__(self) -> Iterator[ReadBatch]:
        try:
            refused = True
            while refused:
                current: StreamRange = self._tracker.current_restriction()
                if current.stop == self._next_row:
                    return  # empty from the start, or the runner cut off what was left
                refused = yield from self._read(current)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the call under way. Any number of times."""
        if self._reader is not None:
            self._reader.close()

    def _read(self, current: StreamRange) -> Generator[ReadBatch, None, bool]:
        """Returns whether a claim was refused, so that the range must be looked at again."""
        reader = self._reader = RangeReader(
            self._service,
            StreamRange(current.stream, self._next_row, current.stop),
            self._schema,
            tally=self._tally,
            policy=self._policy,
            clock=self._clock,
        )
        while not reader.done:
            batch = reader.poll(self._left_s())
            if batch is None and not reader.done and self._spent():
                return self._hand_back()
            while batch is not None:
                part, batch = batch.split(self._rows_left())
                claim = RowsClaim(current.stream, part.offset, part.rows, part.progress)
                if not self._tracker.try_claim(claim):
                    reader.close()
                    return True
                self._next_row = part.stop
                self._rows += part.rows
                self._tally.rows += part.rows
                yield part
                if self._spent() and not (batch is None and reader.done):
                    return self._hand_back()
        return not self._tracker.try_claim(EndClaim(current.stream))

    def _hand_back(self) -> bool:
        self._tracker.defer_remainder()
        self.checkpointed = True
        return False

    def _spent(self) -> bool:
        """Whether it is time to checkpoint.

        Not before there is a row: a filter may let the first one wait for longer than
        a share lasts, and handing back an untouched range would never get there.
        """
        limits = self._checkpoint
        if limits is None or self._rows == 0:
            return False
        if limits.every_rows is not None and self._rows >= limits.every_rows:
            return True
        return self._clock.monotonic_s() - self._start_s >= limits.every_s

    def _left_s(self) -> float:
        if self._checkpoint is None or self._rows == 0:
            return _FOREVER_S
        return max(0.0, self._start_s + self._checkpoint.every_s - self._clock.monotonic_s())

    def _rows_left(self) -> int:
        if self._checkpoint is None or self._checkpoint.every_rows is None:
            return self._batch_rows_max
        return max(1, min(self._batch_rows_max, self._checkpoint.every_rows - self._rows))
