"""`StreamRange`: which rows of a read stream are somebody's to read, and how to cut them."""

import dataclasses
import struct

from bqflink_beam.errors import BqflinkError

_FORMAT_VERSION = 1
_HEAD = struct.Struct(">BQQ")  # version, start, stop + 1 or 0 for "to the end"


@dataclasses.dataclass(frozen=True, slots=True)
class StreamRange:
    """Rows ``[start, stop)`` of one read stream; `stop` None goes to the stream's end.

    Carries the stream's name, so any worker can read it without asking the one
    that made it. Offsets count the rows that the stream delivers, filtered ones
    not included. Made by the planning step, cut by the restriction tracker, read
    by `read.rows`.
    """

    stream: str
    start: int = 0
    stop: int | None = None

    def __post_init__(self) -> None:
        assert self.stream, "a range belongs to a stream"
        assert self.start >= 0, self
        assert self.stop is None or self.stop >= self.start, self

    @property
    def empty(self) -> bool:
        """Whether there is certainly nothing to read."""
        return self.stop == self.start

    def take(self, offset: int, rows: int) -> int:
        """Returns how many of `rows` rows at `offset` lie before `stop`."""
        if self.stop is None:
            return rows
        return max(0, min(rows, self.stop - offset))

    def split(self, at: int) -> tuple["StreamRange", "StreamRange"]:
        """Cuts the range before row `at` into what is done and what is left.

        Both keep the stream and its numbering, so the cut costs no call and the
        rest is read with ``ReadRows(offset=at)``.
        """
        assert self.start <= at and (self.stop is None or at <= self.stop), (self, at)
        return (
            StreamRange(self.stream, self.start, at),
            StreamRange(self.stream, at, self.stop),
        )

    def to_bytes(self) -> bytes:
        """Returns a versioned form, which stands in checkpoints and savepoints."""
        stop = 0 if self.stop is None else self.stop + 1
        return _HEAD.pack(_FORMAT_VERSION, self.start, stop) + self.stream.encode()

    @staticmethod
    def from_bytes(data: bytes) -> "StreamRange":
        """Reads what `to_bytes` wrote."""
        if data[0] != _FORMAT_VERSION:
            raise BqflinkError(
                f"a stream range has format {data[0]}, this version reads {_FORMAT_VERSION}"
            )
        _, start, stop = _HEAD.unpack_from(data)
        return StreamRange(data[_HEAD.size :].decode(), start, stop - 1 if stop else None)
