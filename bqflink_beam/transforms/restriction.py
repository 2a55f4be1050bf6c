"""What Beam calls a restriction: a `StreamRange`, with the tracker that hands out its rows."""

import dataclasses

from apache_beam.coders import Coder
from apache_beam.io.iobase import RestrictionProgress, RestrictionTracker
from apache_beam.transforms.core import RestrictionProvider

from bqflink_beam.read.read_stream import ReadStream
from bqflink_beam.read.stream_range import StreamRange


@dataclasses.dataclass(frozen=True, slots=True)
class RowsClaim:
    """A wish to deliver `rows` rows at `offset`; `progress` is the stream's fraction behind them."""

    stream: str
    offset: int
    rows: int
    progress: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True)
class EndClaim:
    """The news that the stream has no more rows."""

    stream: str


class StreamRangeTracker(RestrictionTracker):
    """Says which rows the running bundle may deliver; what it has claimed cannot be cut off.

    Beam calls it from several threads, one at a time.
    """

    def __init__(self, rows: StreamRange) -> None:
        self._range = rows
        self._next_row = rows.start
        self._ended = False
        self._fraction = 0.0

    def current_restriction(self) -> StreamRange:
        return self._range

    def try_claim(self, position: RowsClaim | EndClaim) -> bool:
        """Grants all of a claim or nothing.

        False means that the range has changed, or its stream been replaced, since the
        caller looked: it asks for `current_restriction` and goes on at its next row,
        if that is still inside.
        """
        if position.stream != self._range.stream:
            return False
        if isinstance(position, EndClaim):
            self._ended = True
            return True
        assert position.offset == self._next_row, (position, self._next_row)
        if self._range.take(position.offset, position.rows) < position.rows:
            return False
        self._next_row += position.rows
        self._note_progress(position.progress)
        return True

    def check_done(self) -> bool:
        if not self._done:
            raise ValueError(f"{self._range}: the rows from {self._next_row} on were not read")
        return True

    def try_split(self, fraction_of_remainder: float) -> tuple[StreamRange, StreamRange] | None:
        """Cuts behind the claimed rows: a checkpoint, without any call to the service.

        A split further ahead (fraction above 0) is refused. It needs SplitReadStream,
        which replaces the stream and lets the new one count from 0.
        """
        if fraction_of_remainder > 0 or self._done:
            return None
        self._range, residual = self._range.split(self._next_row)
        return self._range, residual

    def current_progress(self) -> RestrictionProgress:
        return RestrictionProgress(fraction=1.0 if self._done else self._fraction)

    def is_bounded(self) -> bool:
        return True

    @property
    def _done(self) -> bool:
        return self._ended or self._next_row == self._range.stop

    def _note_progress(self, stream_fraction: float) -> None:
        start, stop = self._range.start, self._range.stop
        if stop is not None:
            fraction = (self._next_row - start) / (stop - start)
        elif stream_fraction > 0:
            # The service counts the whole stream; this range begins at `start`.
            stream_rows = self._next_row / min(1.0, stream_fraction)
            fraction = (self._next_row - start) / (stream_rows - start)
        else:
            return
        self._fraction = max(self._fraction, fraction)


class StreamRangeCoder(Coder):
    """Versioned, for checkpoints outlive the version that wrote them."""

    def encode(self, value: StreamRange) -> bytes:
        return value.to_bytes()

    def decode(self, encoded: bytes) -> StreamRange:
        return StreamRange.from_bytes(encoded)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return StreamRange


class StreamRangeProvider(RestrictionProvider):
    """One stream is one restriction to begin with. Never calls the service."""

    def initial_restriction(self, element: ReadStream) -> StreamRange:
        return StreamRange(element.stream)

    def create_tracker(self, restriction: StreamRange) -> StreamRangeTracker:
        return StreamRangeTracker(restriction)

    def restriction_size(self, element: ReadStream, restriction: StreamRange) -> int:
        """Returns rows: exact for a range with an end, the service's estimate otherwise."""
        if restriction.stop is not None:
            return restriction.stop - restriction.start
        return max(1, element.estimated_rows - restriction.start)

    def restriction_coder(self) -> Coder:
        return StreamRangeCoder()
