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
        return numbers(version.chunks())

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

    assert numbers(found.alive(pinned.stop, pinned.number)) == [0, 1]


def test_a_version_keeps_the_rows_that_die_in_the_same_instant():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 4)], 10.0)
    pinned = log.latest

    log.change([1, 3], [batch(9, 1)], 10.0)

    found = log.rows_of(pinned.number)
    assert numbers(found.alive(pinned.stop, pinned.number)) == [0, 1, 2, 3]
    assert numbers(log.latest.chunks()) == [0, 2, 9]
    assert log.latest.row_count == 3


def test_a_version_that_is_forgotten_is_not_taken_for_a_later_one():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 2)], 1 * DAY_S)
    pinned = log.latest
    log.replace([batch(50, 9)], 2 * DAY_S)

    log.append([batch(60, 1)], 20 * DAY_S)

    assert log.rows_of(pinned.number) is None


def test_rows_that_change_again_and_again_do_not_pile_up():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 100)], 0.0)
    held = []

    for moment in range(1, 200):
        rows = log.latest.rows
        gone = [at for at in range(log.latest.stop) if at not in set(rows.dead(log.latest.number))]
        log.change(gone, [batch(0, 100)], float(moment))
        held.append(log.latest.stop)

    # A list is left behind when it is half dead: never more than that, and not at each change.
    assert max(held) < 2 * 100 + 1_000 + 100
    assert 15 < len({id(version.rows) for version in log._versions}) < 25
    assert log.latest.row_count == 100


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["append", "change", "change", "replace"]),
        st.integers(0, 5),
        st.sampled_from([0.0, 0.0, 1.0]),
        st.randoms(use_true_random=False),
    ),
    max_size=40,
)


@given(steps=_STEPS)
@settings(max_examples=150, deadline=None)
def test_every_state_stays_what_it_was(steps):
    log, now, fresh = VersionLog(0.0, 7 * DAY_S), 0.0, 0
    states = [(log.latest, [])]
    for kind, count, later, chance in steps:
        now += later
        added, before = [batch(fresh, count)], states[-1][1]
        new = list(range(fresh, fresh + count))
        fresh += count
        if kind == "append":
            log.append(added, now)
            after = before + new
        elif kind == "replace":
            log.replace(added, now)
            after = new
        else:
            latest = log.latest
            dead = set(latest.rows.dead(latest.number).tolist())
            alive = [at for at in range(latest.stop) if at not in dead]
            chosen = set(chance.sample(range(len(alive)), min(count, len(alive))))
            log.change([alive[at] for at in chosen], added, now)
            after = [each for at, each in enumerate(before) if at not in chosen] + new
        states.append((log.latest, after))

    for version, expected in states:
        found = log.rows_of(version.number)
        assert numbers(found.alive(version.stop, version.number)) == expected
        assert version.row_count == len(expected)


def test_a_clock_that_runs_back_breaks_no_order():
    log = VersionLog(0.0, 7 * DAY_S)
    log.append([batch(0, 1)], 50.0)

    log.append([batch(1, 1)], 40.0)

    assert log.at(50.0).row_count == 2
    assert log.at(49.0).row_count == 0
