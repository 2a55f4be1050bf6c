"""The version log: snapshots stay what they were, whatever is appended, merged or replaced."""

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bqflink_beam.emulator.versions import Rows, VersionLog

DAY_S = 86_400.0


def batch(start: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(start, start + count))})


def numbers(chunks: list[pa.RecordBatch]) -> list[int]:
    return [row["n"] for chunk in chunks for row in chunk.to_pylist()]


@given(sizes=st.lists(st.integers(0, 40), max_size=80), data=st.data())
@settings(max_examples=60, deadline=None)
def test_slices_are_the_rows_whatever_was_merged(sizes, data):
    rows, total = Rows(), 0
    for size in sizes:
        rows.append([batch(total, size)])
        total += size

    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total + 3))

    assert rows.row_count == total
    assert numbers(rows.slice(start, stop)) == list(range(start, min(stop, total)))


def test_small_appends_do_not_stay_small_chunks():
    rows = Rows()

    for number in range(5_000):
        rows.append([batch(number, 1)])

    assert len(rows.slice(0, 5_000)) < 50
    assert numbers(rows.slice(0, 5_000)) == list(range(5_000))


def test_released_rows_are_gone_and_the_others_keep_their_place():
    rows = Rows()
    for start in (0, 10, 20):
        rows.append([batch(start, 10)])

    rows.release(15)
    rows.append([batch(30, 10)])

    assert numbers(rows.slice(15, 40)) == list(range(15, 40))


def test_each_version_keeps_its_rows():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 3)], 10.0)
    log.append([batch(3, 3)], 20.0)
    log.replace([batch(100, 2)], 30.0)
    log.append([batch(102, 1)], 40.0)

    def at(moment: float) -> list[int]:
        version = log.at(moment)
        return numbers(version.rows.slice(0, version.row_count))

    assert at(5.0) == []
    assert at(10.0) == [0, 1, 2]
    assert at(29.9) == [0, 1, 2, 3, 4, 5]
    assert at(30.0) == [100, 101]
    assert at(99.0) == [100, 101, 102]
    assert log.at(-1.0) is None


def test_versions_beyond_time_travel_are_forgotten_but_the_newest_of_then():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 1)], 1 * DAY_S)
    log.append([batch(1, 1)], 2 * DAY_S)

    log.append([batch(2, 1)], 12 * DAY_S)

    assert log.at(1.5 * DAY_S) is None
    assert log.at(5 * DAY_S).row_count == 2


def test_a_version_that_was_overtaken_in_the_same_instant_still_knows_its_rows():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 2)], 10.0)
    pinned = log.latest
    log.append([batch(2, 2)], 10.0)

    found = log.rows_of(pinned.number)

    assert numbers(found.slice(0, pinned.row_count)) == [0, 1]


def test_a_clock_that_runs_back_breaks_no_order():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 1)], 50.0)

    log.append([batch(1, 1)], 40.0)

    assert log.at(50.0).row_count == 2
    assert log.at(49.0).row_count == 0
