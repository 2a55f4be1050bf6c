"""Exactly once, whatever order crashes, zombies, lost answers and checkpoints come in."""

from hypothesis import given, settings
from hypothesis import strategies as st

from bqflink_beam.testing.clock import FakeClock
from tests.sim.model_bigquery import ModelWrite
from tests.sim.runner import SOURCES, Batch, MiniRunner, row

_BATCHES = st.lists(
    st.builds(Batch, st.integers(1, 9), st.integers(0, SOURCES - 1), st.integers(0, 1)),
    min_size=1,
    max_size=4,
)
_EVENTS = st.one_of(
    st.tuples(st.just("bundle"), _BATCHES),
    st.tuples(st.just("zombie_appends"), _BATCHES),
    st.tuples(
        st.sampled_from(["snapshot", "complete", "crash", "complete_but_crash_before_flush"])
    ),
    st.tuples(st.just("lose_answers"), st.integers(1, 3)),
    st.tuples(st.just("wait_days"), st.integers(1, 6)),
)


def run(events, *, stable_input=True):
    model, clock = ModelWrite(), FakeClock()
    runner = MiniRunner(model, clock, stable_input=stable_input)
    for name, *arguments in events:
        if name == "lose_answers":
            model.lost_answers = arguments[0]
        elif name == "wait_days":
            clock.advance(arguments[0] * 24 * 3600.0)
        else:
            getattr(runner, name)(*arguments)
    rows = [count + 5 for count in runner.next_rows]
    runner.finish(rows)
    return model.visible_rows, [row(s, index) for s in range(SOURCES) for index in range(rows[s])]


@settings(max_examples=500, deadline=None)
@given(st.lists(_EVENTS, max_size=25))
def test_every_row_is_visible_once(events):
    visible, expected = run(events)

    assert visible == expected


def test_a_flush_that_waits_for_no_checkpoint_doubles_rows():
    """The control: the same writer without stable input fails, so the test above can."""
    visible, expected = run([("bundle", [Batch(3, 0, 0)]), ("crash",)], stable_input=False)

    assert visible != expected
    assert sorted(set(visible)) == expected
