"""`VersionLog`: the rows of one table, and every state they have been in.

A table's rows are a list of immutable Arrow chunks. Appending adds chunks; replacing
starts a new list. A version is (time, list, number of rows), so a snapshot costs
nothing to keep and memory stays linear in the data. Small chunks are merged in place:
that moves no row, so a version, which counts rows and not chunks, stays true.
"""

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

_MERGE_FAN = 16
_MERGED_ROWS_MAX = 65_536
_MERGED_BYTES_MAX = 16 << 20


@dataclasses.dataclass(frozen=True)
class LazyChunk:
    """Rows that become Arrow when somebody reads them: proto rows that nobody checks."""

    num_rows: int
    load: Callable[[], pa.RecordBatch]


Chunk: TypeAlias = pa.RecordBatch | LazyChunk


class Rows:
    """An append-only sequence of rows, in chunks.

    Args:
        merge: whether small chunks become larger ones, which copies them.
    """

    def __init__(self, *, merge: bool = True) -> None:
        self._merge = merge
        self._chunks: list[Chunk] = []
        self._starts: list[int] = []
        self.row_count = 0

    def append(self, chunks: Sequence[Chunk]) -> None:
        """Adds rows at the end."""
        for chunk in chunks:
            if chunk.num_rows:
                self._starts.append(self.row_count)
                self._chunks.append(chunk)
                self.row_count += chunk.num_rows
                if self._merge:
                    self._merge_tail()

    def slice(self, start: int, stop: int) -> list[pa.RecordBatch]:
        """Returns rows ``[start, stop)`` as chunks, without copying."""
        stop = min(stop, self.row_count)
        found = []
        position = max(bisect.bisect_right(self._starts, start) - 1, 0)
        while start < stop:
            chunk, first = self._loaded(position), self._starts[position]
            end = min(stop, first + chunk.num_rows)
            whole = start == first and end == first + chunk.num_rows
            found.append(chunk if whole else chunk.slice(start - first, end - start))
            start = end
            position += 1
        return found

    def _loaded(self, position: int) -> pa.RecordBatch:
        chunk = self._chunks[position]
        if isinstance(chunk, LazyChunk):
            chunk = self._chunks[position] = chunk.load()
        return chunk

    def release(self, stop: int) -> None:
        """Forgets whole chunks before row `stop`; positions stay as they are."""
        gone = 0
        while gone < len(self._chunks) and self._starts[gone] + self._chunks[gone].num_rows <= stop:
            gone += 1
        del self._chunks[:gone], self._starts[:gone]

    def _merge_tail(self) -> None:
        # Like carrying in addition: sixteen neighbours of one size class become one of the
        # next, so each row is copied a few times however small the appends are.
        while len(self._chunks) >= _MERGE_FAN:
            last = self._chunks[-_MERGE_FAN:]
            tail = [chunk for chunk in last if not isinstance(chunk, LazyChunk)]
            if len(tail) < len(last):
                return
            size = _size_class(tail[-1])
            if any(_size_class(chunk) != size for chunk in tail):
                return
            rows = sum(chunk.num_rows for chunk in tail)
            if rows > _MERGED_ROWS_MAX or sum(chunk.nbytes for chunk in tail) > _MERGED_BYTES_MAX:
                return
            if any(not chunk.schema.equals(tail[0].schema) for chunk in tail[1:]):
                return
            self._chunks[-_MERGE_FAN:] = [_concat(tail)]
            del self._starts[-_MERGE_FAN + 1 :]


def _size_class(chunk: pa.RecordBatch) -> int:
    return (int(chunk.num_rows).bit_length() - 1) // 4


def _concat(chunks: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    (merged,) = pa.Table.from_batches(chunks).combine_chunks().to_batches()
    return merged


@dataclasses.dataclass(frozen=True)
class Version:
    """One state of a table: the first `row_count` of `rows`, true from `at_s` on."""

    number: int
    at_s: float
    rows: Rows
    row_count: int


class VersionLog:
    """Every state of one table's rows within the time-travel window."""

    def __init__(self, at_s: float, time_travel_s: float) -> None:
        self._time_travel_s = time_travel_s
        self._versions = [Version(0, at_s, Rows(), 0)]

    @property
    def latest(self) -> Version:
        return self._versions[-1]

    def append(self, chunks: Sequence[Chunk], at_s: float) -> None:
        """Adds rows: a new version that shares the older rows with the last one."""
        rows = self.latest.rows
        rows.append(chunks)
        self._push(rows, at_s)

    def replace(self, chunks: Sequence[pa.RecordBatch], at_s: float) -> None:
        """Puts other rows in the place of all rows."""
        rows = Rows()
        rows.append(chunks)
        self._push(rows, at_s)

    def at(self, at_s: float) -> Version | None:
        """Returns the version that was true then; None if it is no longer, or not yet, known."""
        position = bisect.bisect_right(self._versions, at_s, key=lambda version: version.at_s)
        return self._versions[position - 1] if position else None

    def rows_of(self, number: int) -> Rows | None:
        """Returns what version `number` counted rows of; None if it is no longer known.

        A version that another took the place of counted the same rows, fewer of them.
        """
        position = bisect.bisect_left(self._versions, number, key=lambda version: version.number)
        return self._versions[position].rows if position < len(self._versions) else None

    def _push(self, rows: Rows, at_s: float) -> None:
        at_s = max(at_s, self.latest.at_s)
        version = Version(self.latest.number + 1, at_s, rows, rows.row_count)
        if at_s == self.latest.at_s and rows is self.latest.rows:
            # No reader can name a moment between the two.
            self._versions[-1] = version
        else:
            self._versions.append(version)
        horizon = at_s - self._time_travel_s
        if self._versions[0].at_s < horizon and len(self._versions) > 1:
            keep = bisect.bisect_right(self._versions, horizon, key=lambda each: each.at_s)
            del self._versions[: max(keep - 1, 0)]
