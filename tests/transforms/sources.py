"""Sources for tests: rows that come as an unbounded PCollection, at the pace of a test."""

import threading

import apache_beam as beam
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.utils.timestamp import Duration

_NEVER = 2**60


class Tap:
    """How many rows each partition may give so far; a test opens it further.

    Workers must be threads of the test's process. Travels by name.
    """

    _rows: dict[str, int] = {}
    _lock = threading.Lock()

    def __init__(self, name: str, rows: int) -> None:
        self._name = name
        self.open_to(rows)

    def open_to(self, rows: int) -> None:
        with Tap._lock:
            Tap._rows[self._name] = rows

    @property
    def rows(self) -> int:
        with Tap._lock:
            return Tap._rows[self._name]

    def __reduce__(self):
        return _tap_of, (self._name,)


def _tap_of(name: str) -> Tap:
    tap = object.__new__(Tap)
    tap._name = name
    return tap


class _Ranges(RestrictionProvider):
    def initial_restriction(self, element):
        _, count = element
        return OffsetRange(0, _NEVER if isinstance(count, Tap) else count)

    def create_tracker(self, restriction):
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element, restriction):
        return min(restriction.size(), 1000)


class _ReplayFn(beam.DoFn):
    """Elements are (make_row, count); yields make_row(0), make_row(1), …

    With a `Tap` for a count the source stays open, as a real stream does.
    """

    def __init__(self, rows_per_pause: int, pause_s: float) -> None:
        self._rows_per_pause = rows_per_pause
        self._pause_s = pause_s

    @beam.DoFn.unbounded_per_element()
    def process(self, element, tracker=beam.DoFn.RestrictionParam(_Ranges())):  # noqa: B008
        make_row, count = element
        stop = count.rows if isinstance(count, Tap) else count
        start = tracker.current_restriction().start
        for index in range(start, start + self._rows_per_pause):
            if isinstance(count, Tap) and index >= stop:
                break
            if not tracker.try_claim(index):
                return
            yield make_row(index)
        tracker.defer_remainder(Duration(seconds=self._pause_s))


def replay(p, make_row, count, *, partitions=1, rows_per_pause=100, pause_s=1.0):
    """Returns an unbounded PCollection of ``make_row(partition, index)`` for each partition.

    Args:
        count: rows of each partition; a `Tap` to never end.
    """
    elements = [(_Partition(make_row, index), count) for index in range(partitions)]
    return (
        p
        | "Partitions" >> beam.Create(elements)
        | "Spread" >> beam.Reshuffle()
        | "Replay" >> beam.ParDo(_ReplayFn(rows_per_pause, pause_s))
    )


class _Partition:
    """``make_row`` of one partition; a class, so that the element pickles."""

    def __init__(self, make_row, partition: int) -> None:
        self._make_row = make_row
        self._partition = partition

    def __call__(self, index: int):
        return self._make_row(self._partition, index)
