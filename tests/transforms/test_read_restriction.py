"""The tracker of a stream's rows: nothing granted twice, nothing forgotten."""

import pytest
from apache_beam.io.iobase import RestrictionProgress
from apache_beam.runners.sdf_utils import ThreadsafeRestrictionTracker
from hypothesis import given
from hypothesis import strategies as st

from bqflink_beam.errors import BqflinkError
from bqflink_beam.read.read_stream import ReadStream
from bqflink_beam.read.stream_range import StreamRange
from bqflink_beam.transforms.read_coders import ReadStreamCoder
from bqflink_beam.transforms.restriction import (
    EndClaim,
    RowsClaim,
    StreamRangeCoder,
    StreamRangeProvider,
    StreamRangeTracker,
)

ELEMENT = ReadStream(
    stream="s", source="p.d.t", expire_s=1.5, estimated_rows=100, arrow_schema_zlib=b"\n\x00z"
)

actions = st.lists(
    st.one_of(st.tuples(st.just("claim"), st.integers(1, 9)), st.just(("checkpoint", 0))),
    max_size=20,
)


@given(st.integers(0, 30), st.none() | st.integers(0, 60), actions)
def test_claimed_rows_and_residuals_make_up_the_range(start, length, steps):
    whole = StreamRange("s", start, None if length is None else start + length)
    tracker, next_row, residual = StreamRangeTracker(whole), start, None

    for action, rows in steps:
        if action == "claim":
            if tracker.try_claim(RowsClaim("s", next_row, rows)):
                next_row += rows
        elif residual is None:
            split = tracker.try_split(0)
            if split is not None:
                primary, residual = split
                assert primary == tracker.current_restriction()

    if residual is not None:
        assert tracker.check_done()
        assert tracker.current_restriction() == StreamRange("s", start, next_row)
        assert residual == StreamRange("s", next_row, whole.stop)
    else:
        assert tracker.current_restriction() == whole
        assert whole.stop is None or next_row <= whole.stop


def test_rows_behind_a_checkpoint_are_refused():
    tracker = StreamRangeTracker(StreamRange("s"))
    assert tracker.try_claim(RowsClaim("s", 0, 5))

    tracker.try_split(0)

    assert not tracker.try_claim(RowsClaim("s", 5, 1))


def test_a_checkpoint_before_the_first_claim_hands_back_everything():
    tracker = StreamRangeTracker(StreamRange("s", 7))

    assert tracker.try_split(0) == (StreamRange("s", 7, 7), StreamRange("s", 7))
    assert not tracker.try_claim(RowsClaim("s", 7, 1))
    assert tracker.check_done()


def test_a_claim_that_reaches_beyond_the_stop_is_refused_whole():
    tracker = StreamRangeTracker(StreamRange("s", 0, 10))

    assert not tracker.try_claim(RowsClaim("s", 0, 11))
    assert tracker.try_claim(RowsClaim("s", 0, 10))
    assert tracker.check_done()


@pytest.mark.parametrize("claim", [RowsClaim("old", 0, 1), EndClaim("old")])
def test_a_claim_for_a_stream_that_is_no_longer_current_is_refused(claim):
    tracker = StreamRangeTracker(StreamRange("new"))

    assert not tracker.try_claim(claim)
    with pytest.raises(ValueError, match="rows from 0 on were not read"):
        tracker.check_done()


def test_a_range_without_an_end_is_done_only_when_the_stream_has_ended():
    tracker = StreamRangeTracker(StreamRange("s", 3))
    tracker.try_claim(RowsClaim("s", 3, 4))
    with pytest.raises(ValueError, match="rows from 7 on were not read"):
        tracker.check_done()

    assert tracker.try_claim(EndClaim("s"))

    assert tracker.check_done()
    assert tracker.try_split(0) is None


def test_a_stream_that_ends_before_the_stop_is_done():
    tracker = StreamRangeTracker(StreamRange("s", 0, 100))
    tracker.try_claim(RowsClaim("s", 0, 50))

    tracker.try_claim(EndClaim("s"))

    assert tracker.check_done()


def test_a_gap_between_claims_is_our_bug_and_never_passes():
    tracker = StreamRangeTracker(StreamRange("s"))

    with pytest.raises(AssertionError):
        tracker.try_claim(RowsClaim("s", 1, 1))


def test_a_split_ahead_is_refused_and_changes_nothing():
    tracker = StreamRangeTracker(StreamRange("s", 0, 100))
    tracker.try_claim(RowsClaim("s", 0, 10))

    assert tracker.try_split(0.5) is None
    assert tracker.current_restriction() == StreamRange("s", 0, 100)


def test_defer_remainder_leaves_the_rest_as_residual():
    tracker = ThreadsafeRestrictionTracker(StreamRangeTracker(StreamRange("s", 5)))
    tracker.try_claim(RowsClaim("s", 5, 10))

    tracker.defer_remainder()

    assert tracker.check_done()
    assert tracker.deferred_status()[0] == StreamRange("s", 15)


@given(st.lists(st.tuples(st.integers(1, 9), st.floats(-1, 2)), max_size=30), st.booleans())
def test_progress_never_runs_backwards_and_stays_a_fraction(claims, bounded):
    tracker = StreamRangeTracker(StreamRange("s", 4, 400 if bounded else None))
    next_row, seen = 4, [0.0]

    for rows, fraction in claims:
        tracker.try_claim(RowsClaim("s", next_row, rows, fraction))
        next_row += rows
        seen.append(tracker.current_progress().fraction_completed)

    assert seen == sorted(seen)
    assert 0 <= seen[-1] <= 1


def test_progress_of_a_resumed_range_counts_from_where_it_begins():
    tracker = StreamRangeTracker(StreamRange("s", 50))

    tracker.try_claim(RowsClaim("s", 50, 25, progress=0.75))

    progress: RestrictionProgress = tracker.current_progress()
    assert progress.fraction_completed == pytest.approx(0.5)


@given(
    st.text(st.characters(codec="utf-8"), min_size=1),
    st.integers(0, 2**63 - 1),
    st.none() | st.integers(0, 2**62),
)
def test_a_restriction_survives_its_coder(stream, start, length):
    rows = StreamRange(stream, start, None if length is None else start + length)
    coder = StreamRangeCoder()

    assert coder.decode(coder.encode(rows)) == rows


def test_what_checkpoints_hold_does_not_change():
    restriction = StreamRangeCoder().encode(StreamRange("s/1", 7, 9))
    element = ReadStreamCoder().encode(ELEMENT)

    assert restriction == b"\x01" + (7).to_bytes(8, "big") + (10).to_bytes(8, "big") + b"s/1"
    assert element == b'\x01["s","p.d.t",1.5,100]\n\n\x00z'
    assert ReadStreamCoder().decode(element) == ELEMENT


@pytest.mark.parametrize(
    ("coder", "value"), [(StreamRangeCoder(), StreamRange("s")), (ReadStreamCoder(), ELEMENT)]
)
def test_bytes_of_another_version_are_refused(coder, value):
    encoded = bytearray(coder.encode(value))
    encoded[0] = 9

    with pytest.raises(BqflinkError, match="format 9"):
        coder.decode(bytes(encoded))


def test_the_size_of_what_is_left_needs_no_call():
    provider = StreamRangeProvider()

    sizes = [
        provider.restriction_size(ELEMENT, part)
        for part in (
            provider.initial_restriction(ELEMENT),
            StreamRange("s", 30),
            StreamRange("s", 30, 35),
            StreamRange("s", 30, 30),
            StreamRange("s", 500),
        )
    ]

    assert sizes == [100, 70, 5, 0, 1]
