"""Cutting a range of rows: nothing lost, nothing shared."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bqflink_beam.read.stream_range import StreamRange

_STREAM_ROWS = 60


@st.composite
def ranges(draw):
    start = draw(st.integers(0, _STREAM_ROWS))
    stop = draw(st.none() | st.integers(start, _STREAM_ROWS))
    return StreamRange("s", start, stop)


def rows_of(part: StreamRange) -> list[tuple[str, int]]:
    stop = _STREAM_ROWS if part.stop is None else part.stop
    return [(part.stream, row) for row in range(part.start, stop)]


@given(ranges(), st.data())
def test_split_loses_nothing_and_shares_nothing(whole, data):
    stop = _STREAM_ROWS if whole.stop is None else whole.stop
    at = data.draw(st.integers(whole.start, stop))

    done, left = whole.split(at)

    assert rows_of(done) + rows_of(left) == rows_of(whole)


@given(ranges(), st.lists(st.integers(0, _STREAM_ROWS), max_size=8))
def test_splitting_the_rest_again_and_again_loses_nothing(whole, cuts):
    done, left = [], whole
    for at in sorted(cuts):
        if left.start <= at and (left.stop is None or at <= left.stop):
            part, left = left.split(at)
            done += rows_of(part)

    assert done + rows_of(left) == rows_of(whole)


@given(ranges(), st.lists(st.integers(1, 9), min_size=1, max_size=30))
def test_take_delivers_the_range_and_not_one_row_more(whole, response_sizes):
    taken, offset = [], whole.start
    for rows in response_sizes:
        rows = min(rows, _STREAM_ROWS - offset)
        taken += [(whole.stream, offset + row) for row in range(whole.take(offset, rows))]
        offset += rows

    assert taken == rows_of(whole)[: len(taken)]
    assert len(taken) == min(sum(response_sizes), len(rows_of(whole)))


def test_only_a_range_with_an_end_can_be_known_to_be_empty():
    assert StreamRange("s", 5, 5).empty
    assert not StreamRange("s", 5).empty
    assert not StreamRange("s", 5, 6).empty


@pytest.mark.parametrize("at", [4, 11])
def test_a_cut_outside_the_range_is_our_bug(at):
    with pytest.raises(AssertionError):
        StreamRange("s", 5, 10).split(at)
