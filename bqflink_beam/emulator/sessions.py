"""Read sessions: a table frozen at one moment, cut into streams of rows.

A stream is a range of the table's rows before the filter, as in the service: splits
divide that range, while offsets count the rows that come out. Rows are Arrow chunks of
the table itself wherever no filter or nested projection makes new ones.
"""

import collections
import dataclasses
import itertools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator.avrorows import AvroEncoder
from bqflink_beam.emulator.projection import Projection
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.versions import Rows

Keep = Callable[[Sequence[pa.RecordBatch]], list[pa.RecordBatch]]
"""Keeps the rows of chunks for which a predicate is true, in order."""


@dataclasses.dataclass
class Stream:
    """One stream of a session: rows ``[start, stop)`` of the table, before the filter."""

    name: str
    start: int
    stop: int


class RowCache:
    """The rows of the streams that were read last; those of others are made again.

    Args:
        bytes_max: how much to keep; the last stream's rows are kept whatever their size.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._kept: collections.OrderedDict[str, tuple[Rows, int]] = collections.OrderedDict()
        self._bytes = 0

    def rows(self, stream: str, make: Callable[[], Rows]) -> Rows:
        """Returns the rows of a stream, made by `make` unless they are there."""
        with self._lock:
            if stream in self._kept:
                self._kept.move_to_end(stream)
                return self._kept[stream][0]
        made = make()
        size = sum(chunk.nbytes for chunk in made.slice(0, made.row_count))
        with self._lock:
            if stream not in self._kept:
                self._kept[stream] = made, size
                self._bytes += size
                while self._bytes > self._bytes_max and len(self._kept) > 1:
                    self._bytes -= self._kept.popitem(last=False)[1][1]
        return made


class Session:
    """One read session."""

    def __init__(
        self,
        name: str,
        table: str,
        base: Rows,
        projection: Projection,
        keep: Keep | None,
        options: Any,
        expire_s: float,
        avro: AvroEncoder | None,
        cache: RowCache,
    ) -> None:
        self.name = name
        self.table = table
        self.projection = projection
        self.options = options
        self.expire_s = expire_s
        self.avro = avro
        self._streams: dict[str, Stream] = {}
        self._base: Rows = base
        self._keep = keep
        self._cache = cache
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @property
    def row_count(self) -> int:
        """Rows of the table, before the filter."""
        return self._base.row_count

    @property
    def filtered(self) -> bool:
        return self._keep is not None

    @property
    def streams(self) -> dict[str, Stream]:
        """Its streams by name, as they are now."""
        with self._lock:
            return dict(self._streams)

    def find(self, name: str) -> Stream | None:
        return self._streams.get(name)

    def drop_streams(self) -> None:
        """Leaves no stream, since none of them has rows."""
        self._streams.clear()

    def add_streams(self, count: int) -> None:
        """Cuts the whole table into `count` streams."""
        rows = self._base.row_count
        cuts = [rows * index // count for index in range(count + 1)] if count else []
        for start, stop in itertools.pairwise(cuts):
            self.add_stream(start, stop)

    def add_stream(self, start: int, stop: int, name: str | None = None) -> Stream:
        with self._lock:
            number = next(self._numbers)
            stream = Stream(name or f"{self.name}/streams/{number}", start, stop)
            self._streams[stream.name] = stream
            return stream

    def rows(self, stream: Stream) -> Rows:
        """Returns the rows that come out of a stream."""

        def make() -> Rows:
            chunks = self._base.slice(stream.start, stream.stop)
            if self._keep is not None:
                chunks = self._keep(chunks)
            rows = Rows(merge=False)
            rows.append([self.projection.apply(chunk) for chunk in chunks])
            return rows

        return self._cache.rows(stream.name, make)

    def split(self, stream: Stream, fraction: float, rows_min: int) -> tuple[Stream, Stream] | None:
        """Splits a stream in two that together are the same; None when it is too small."""
        length = stream.stop - stream.start
        first = round(length * fraction)
        if length < rows_min or not 0 < first < length:
            return None
        middle = stream.start + first
        return self.add_stream(stream.start, middle), self.add_stream(middle, stream.stop)

    def check_age(self, now_s: float, stamp: str) -> None:
        """Refuses a session that is too old."""
        if now_s >= self.expire_s:
            raise Refused(
                f"session expired at {stamp}", code="FAILED_PRECONDITION", entity=self.name
            )
