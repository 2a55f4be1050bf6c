"""`VersionLog`: the rows of one table, and every state they have been in.

A table's rows are a list of immutable Arrow chunks. Appending adds chunks; replacing
starts a new list; removing notes which rows are dead from a version on. A version is
(time, list, number of rows), so a snapshot costs nothing to keep and memory stays linear
in what was written. Small chunks are merged in place: that moves no row, so a version,
which counts rows and not chunks, stays true.
"""

import bisect
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

Positions: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_DEAD_MAX = 1_000
_NONE: Positions = np.empty(0, np.int64)
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
        self._dead: list[tuple[int, Positions]] = []
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

    def kill(self, positions: Sequence[int], number: int) -> None:
        """Makes rows dead from version `number` on; their place stays theirs."""
        self._dead.append((number, np.array(sorted(positions), np.int64)))

    def dead(self, number: int) -> Positions:
        """Returns the positions of the rows that are dead in version `number`, in order."""
        found = [positions for since, positions in self._dead if since <= number]
        return np.sort(np.concatenate(found)) if found else _NONE

    def alive(self, stop: int, number: int) -> list[pa.RecordBatch]:
        """Returns the rows before `stop` that are not dead in version `number`."""
        dead = self.dead(number)
        if not len(dead):
            return self.slice(0, stop)
        kept, first = [], 0
        for chunk in self.slice(0, stop):
            end = first + chunk.num_rows
            inside = dead[np.searchsorted(dead, first) : np.searchsorted(dead, end)]
            if len(inside):
                mask = np.ones(chunk.num_rows, bool)
                mask[inside - first] = False
                chunk = chunk.filter(pa.array(mask))
            kept.append(chunk)
            first = end
        return kept

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
    """One state of a table, true from `at_s` on: the first `stop` of `rows` but for the dead."""

    number: int
    at_s: float
    rows: Rows
    stop: int
    row_count: int

    def chunks(self) -> list[pa.RecordBatch]:
        return self.rows.alive(self.stop, self.number)


class VersionLog:
    """Every state of one table's rows within the time-travel window."""

    def __init__(self, at_s: float, time_travel_s: float) -> None:
        self._time_travel_s = time_travel_s
        self._versions = [Version(0, at_s, Rows(), 0, 0)]
        self._forgotten = -1

    @property
    def latest(self) -> Version:
        return self._versions[-1]

    def append(self, chunks: Sequence[Chunk], at_s: float) -> None:
        """Adds rows: a new version that shares the older rows with the last one."""
        before = self.latest
        before.rows.append(chunks)
        self._push(before.rows, at_s, before.row_count + before.rows.row_count - before.stop)

    def change(self, dead: Sequence[int], chunks: Sequence[pa.RecordBatch], at_s: float) -> None:
        """Removes the rows at some positions, none of them dead, and adds others at the end."""
        before = self.latest
        rows = before.rows
        if dead:
            rows.kill(dead, before.number + 1)
        rows.append(chunks)
        count = before.row_count - len(dead) + rows.row_count - before.stop
        self._push(rows, at_s, count)
        if rows.row_count - count > count + _DEAD_MAX:
            # Half of it is dead, so a copy of the rest costs no more than what was written.
            self.replace(self.latest.chunks(), at_s)

    def replace(self, chunks: Sequence[pa.RecordBatch], at_s: float) -> None:
        """Puts other rows in the place of all rows."""
        rows = Rows()
        rows.append(chunks)
        self._push(rows, at_s, rows.row_count)

    def at(self, at_s: float) -> Version | None:
        """Returns the version that was true then; None if it is no longer, or not yet, known."""
        position = bisect.bisect_right(self._versions, at_s, key=lambda version: version.at_s)
        return self._versions[position - 1] if position else None

    def rows_of(self, number: int) -> Rows | None:
        """Returns what version `number` counted rows of; None if it is no longer known.

        A version that another took the place of counted the same rows, fewer of them.
        """
        if number <= self._forgotten:
            return None
        position = bisect.bisect_left(self._versions, number, key=lambda version: version.number)
        return self._versions[position].rows if position < len(self._versions) else None

    def _push(self, rows: Rows, at_s: float, row_count: int) -> None:
        at_s = max(at_s, self.latest.at_s)
        version = Version(self.latest.number + 1, at_s, rows, rows.row_count, row_count)
        if at_s == self.latest.at_s and rows is self.latest.rows:
            # No reader can name a moment between the two.
            self._versions[-1] = version
        else:
            self._versions.append(version)
        horizon = at_s - self._time_travel_s
        if self._versions[0].at_s < horizon and len(self._versions) > 1:
            keep = bisect.bisect_right(self._versions, horizon, key=lambda each: each.at_s)
            if keep > 1:
                self._forgotten = self._versions[keep - 2].number
                del self._versions[: keep - 1]
