"""The ground the sinks stand on: Flink runs our shapes of pipeline and keeps every row."""

import collections

import apache_beam as beam
from apache_beam.coders import VarIntCoder
from apache_beam.io.restriction_trackers import OffsetRange, OffsetRestrictionTracker
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.core import RestrictionProvider
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.utils.timestamp import Duration

from bqflink_beam.flink import local_flink_options

# LOOPBACK workers are threads of this process, so they and the test see the same list.
_ARRIVED = collections.defaultdict(list)

_ROWS_PER_RANGE = 300
_ROWS_PER_CHECKPOINT = 60


class _RangeProvider(RestrictionProvider):
    def initial_restriction(self, element):
        return OffsetRange(*element)

    def create_tracker(self, restriction):
        return OffsetRestrictionTracker(restriction)

    def restriction_size(self, element, restriction):
        return restriction.size()


_RANGES = _RangeProvider()


class _CountFn(beam.DoFn):
    """Emits the numbers of a range, giving the rest back to the runner every few rows."""

    def process(self, element, tracker=beam.DoFn.RestrictionParam(_RANGES)):
        number = tracker.current_restriction().start
        stop_at = number + _ROWS_PER_CHECKPOINT
        while tracker.try_claim(number):
            yield number % 3, number
            number += 1
            if number == stop_at:
                tracker.defer_remainder(Duration(seconds=1))
                return


class _NumberFn(beam.DoFn):
    """Numbers the rows of a key."""

    SEEN = ReadModifyWriteStateSpec("seen", VarIntCoder())

    def process(self, keyed, seen=beam.DoFn.StateParam(SEEN)):
        count = (seen.read() or 0) + 1
        seen.write(count)
        yield keyed[0], count, keyed[1]


class _ArriveFn(beam.DoFn):
    def __init__(self, run):
        self.run = run

    def process(self, element):
        _ARRIVED[self.run].append(element)


def _run(run, flags):
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        (
            pipeline
            | beam.Create([(start, start + _ROWS_PER_RANGE) for start in (0, 1000, 2000)])
            | "Spread" >> beam.Reshuffle()
            | "Count" >> beam.ParDo(_CountFn())
            | "Number" >> beam.ParDo(_NumberFn())
            | "Shuffle" >> beam.Reshuffle()
            | "Arrive" >> beam.ParDo(_ArriveFn(run))
        )
    return _ARRIVED.pop(run, [])


def _assert_each_row_once(arrived):
    expected = [n for start in (0, 1000, 2000) for n in range(start, start + _ROWS_PER_RANGE)]
    by_key = collections.defaultdict(list)
    for key, count, _ in arrived:
        by_key[key].append(count)

    assert sorted(row for _, _, row in arrived) == expected
    for key, counts in by_key.items():
        assert sorted(counts) == list(range(1, len(counts) + 1)), f"state of key {key}"


def test_batch_with_state_and_splittable_dofn_keeps_every_row(flink):
    arrived = _run("batch", local_flink_options(flink.job_endpoint))

    _assert_each_row_once(arrived)


def test_streaming_with_state_and_splittable_dofn_keeps_every_row_across_checkpoints(flink):
    before = flink.log_text().count("Completed checkpoint")
    flags = local_flink_options(
        flink.job_endpoint,
        streaming=True,
        interval_ms=500,
        shutdown_sources_after_idle_ms=10_000,
    )

    arrived = _run("streaming", flags)

    _assert_each_row_once(arrived)
    assert flink.log_text().count("Completed checkpoint") - before >= 3
