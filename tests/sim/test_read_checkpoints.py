"""A runner that checkpoints, crashes and resumes a read at any moment: each row once."""

import pyarrow as pa
import pytest
from apache_beam.runners.sdf_utils import RestrictionTrackerView, ThreadsafeRestrictionTracker
from hypothesis import given, settings
from hypothesis import strategies as st

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.errors import TransientError
from bqflink_beam.names import TableReference
from bqflink_beam.read.read_stream import streams_of
from bqflink_beam.read.rows import ReadPolicy, Tally
from bqflink_beam.read.stream_range import StreamRange
from bqflink_beam.service.base import SessionRequest
from bqflink_beam.testing.clock import FakeClock
from bqflink_beam.testing.read_model import ReadFault, ReadModel
from bqflink_beam.transforms.read_bundle import BundleReader, SelfCheckpoint
from bqflink_beam.transforms.restriction import StreamRangeCoder, StreamRangeTracker

TABLE = TableReference("p", "d", "t")
ROWS = 120
PATIENT = ReadPolicy()


def open_model(*, response_rows=10, faults=(), rows=ROWS):
    model = ReadModel(
        {TABLE: pa.table({"id": pa.array(range(rows), pa.int64())})},
        response_rows=response_rows,
        faults=faults,
    )
    session = model.create_session(SessionRequest(table=TABLE))
    return model, streams_of(session, str(TABLE))[0]


class Runner:
    """Keeps the restriction of one element between bundles, and the rows of finished ones."""

    def __init__(self, model, element, *, checkpoint, batch_rows_max=1000, clock=None):
        self.model = model
        self.element = element
        self.checkpoint = checkpoint
        self.batch_rows_max = batch_rows_max
        self.clock = clock or FakeClock()
        self.tally = Tally()
        self.kept = StreamRangeCoder().encode(StreamRange(element.stream))
        self.rows = []
        self.bundles = 0

    def run_bundle(self, *, cut_after=None, crash_after=None, policy=PATIENT):
        """Runs one bundle; after some batches the runner cuts it short, or it crashes."""
        self.bundles += 1
        shared = ThreadsafeRestrictionTracker(
            StreamRangeTracker(StreamRangeCoder().decode(self.kept))
        )
        reader = BundleReader(
            self.model,
            self.element,
            RestrictionTrackerView(shared),
            tally=self.tally,
            checkpoint=self.checkpoint,
            batch_rows_max=self.batch_rows_max,
            clock=self.clock,
            policy=policy,
        )
        rows, residual = [], None
        for count, part in enumerate(reader):
            rows += part.batch.column("id").to_pylist()
            if count == crash_after:
                reader.close()
                return
            if count == cut_after:
                split = shared.try_split(0)
                residual = split and split[1]
        shared.check_done()
        deferred = shared.deferred_status()
        if deferred is not None:
            residual = deferred[0]
        self.rows += rows
        self.kept = None if residual is None else StreamRangeCoder().encode(residual)


transient = st.builds(
    ReadFault,
    st.integers(0, 30),
    st.integers(0, 4),
    st.sampled_from(
        [
            TransientError("cut"),
            TransientError("busy", code="RESOURCE_EXHAUSTED", retry_after_s=2.0),
        ]
    ),
)


@settings(deadline=None)
@given(
    every_rows=st.none() | st.integers(1, 40),
    batch_rows_max=st.integers(1, 50),
    response_rows=st.integers(1, 50),
    faults=st.lists(transient, max_size=6),
    events=st.lists(
        st.sampled_from([(None, None), (0, None), (1, None), (None, 0), (None, 2)]), max_size=40
    ),
)
def test_each_row_comes_once_whatever_is_checkpointed_cut_or_crashed(
    every_rows, batch_rows_max, response_rows, faults, events
):
    model, element = open_model(response_rows=response_rows, faults=faults)
    limits = SelfCheckpoint(every_s=1e9, every_rows=every_rows)
    runner = Runner(model, element, checkpoint=limits, batch_rows_max=batch_rows_max)

    for cut_after, crash_after in [*events, *[(None, None)] * (ROWS + 1)]:
        if runner.kept is not None:
            runner.run_bundle(cut_after=cut_after, crash_after=crash_after)

    assert runner.kept is None
    assert runner.rows == list(range(ROWS))


def test_a_bundle_ends_after_its_rows_and_the_next_goes_on_at_the_next_row():
    model, element = open_model()
    runner = Runner(model, element, checkpoint=SelfCheckpoint(every_s=1e9, every_rows=7))

    while runner.kept is not None:
        runner.run_bundle()

    assert runner.rows == list(range(ROWS))
    assert [offset for _, offset in model.calls] == list(range(0, ROWS, 7))
    assert runner.tally.rows == ROWS


def test_a_bundle_ends_after_its_time():
    model, element = open_model()
    clock = FakeClock()
    runner = Runner(
        model,
        element,
        checkpoint=SelfCheckpoint(every_s=5.0),
        batch_rows_max=10,
        clock=Slow(clock),
    )

    while runner.kept is not None:
        runner.run_bundle()

    assert runner.rows == list(range(ROWS))
    assert runner.bundles >= 10


class Slow:
    """A clock on which each look takes three seconds, as with a slow step downstream."""

    def __init__(self, clock):
        self._clock = clock

    def now_s(self):
        return self._clock.now_s()

    def monotonic_s(self):
        self._clock.advance(3.0)
        return self._clock.monotonic_s()

    def sleep(self, seconds):
        self._clock.sleep(seconds)

    def random(self):
        return self._clock.random()


def test_a_bundle_that_has_rows_does_not_wait_for_a_silent_stream():
    model, element = open_model(faults=[ReadFault(0, 3, None)])
    runner = Runner(model, element, checkpoint=SelfCheckpoint(every_s=0.05), clock=SYSTEM_CLOCK)

    runner.run_bundle(policy=ReadPolicy(idle_s=60.0))

    assert runner.rows == list(range(30))
    assert StreamRangeCoder().decode(runner.kept) == StreamRange(element.stream, 30)


def test_a_bundle_without_a_row_waits_on_instead_of_starting_over():
    """A filter may keep a stream silent for longer than a share; restarting would never end."""
    model, element = open_model(faults=[ReadFault(0, 0, None)])
    runner = Runner(model, element, checkpoint=SelfCheckpoint(every_s=0.01), clock=SYSTEM_CLOCK)

    runner.run_bundle(policy=ReadPolicy(idle_s=0.2))

    assert runner.rows != []
    assert model.calls[:2] == [(element.stream, 0), (element.stream, 0)]


def test_in_batch_one_bundle_reads_all():
    model, element = open_model()
    runner = Runner(model, element, checkpoint=None)

    runner.run_bundle()

    assert (runner.rows, runner.kept, len(model.calls)) == (list(range(ROWS)), None, 1)


def test_the_last_row_is_not_followed_by_an_empty_bundle_when_the_stop_is_known():
    model, element = open_model()
    runner = Runner(model, element, checkpoint=SelfCheckpoint(every_s=1e9, every_rows=10))
    runner.kept = StreamRangeCoder().encode(StreamRange(element.stream, 0, 20))

    while runner.kept is not None:
        runner.run_bundle()

    assert (runner.rows, runner.bundles) == (list(range(20)), 2)


def test_a_stream_that_is_replaced_is_reopened_at_the_next_row():
    """What a split ahead of the reader will do: the stream changes, the offsets stay."""
    model, element = open_model()
    tracker = StreamRangeTracker(StreamRange(element.stream))
    reader = BundleReader(
        model,
        element,
        RestrictionTrackerView(ThreadsafeRestrictionTracker(tracker)),
        tally=Tally(),
        checkpoint=None,
        batch_rows_max=1000,
        clock=FakeClock(),
    )
    twin = element.stream + "-primary"
    model._streams[twin] = model._streams[element.stream].slice(0, 55)

    rows = []
    for part in reader:
        rows += part.batch.column("id").to_pylist()
        if part.stop == 30:
            tracker._range = StreamRange(twin, 0)

    assert rows == list(range(55))
    assert model.calls == [(element.stream, 0), (twin, 30)]
    assert tracker.check_done()


@pytest.mark.parametrize("limits", [{"every_s": 0}, {"every_s": 1, "every_rows": 0}])
def test_a_checkpoint_that_could_never_advance_is_refused(limits):
    with pytest.raises(ValueError, match="checkpoint_every_"):
        SelfCheckpoint(**limits)
