"""`StreamRange`: which rows of a read stream are somebody's to read, and how to cut them."""

import dataclasses


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
