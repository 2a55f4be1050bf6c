"""The runner's buffers for stable input: with as many as the checks ask for, none is let go too early.

The model is of how Beam's Flink runner does it: checkpoint after checkpoint takes the next of
``buffers + 1`` buffers, round and round; a snapshot holds what is in them and which of them wait
for a checkpoint to complete; one that completes empties all that wait for it or for an earlier one.
"""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bqflink_beam.write.preflight import buffers_for


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """What checkpoint `number` holds."""

    number: int = 0
    buffers: tuple = ()
    waiting: tuple = ()


class _Operator:
    """One task with stable input. Elements are the number of the checkpoint that first holds them."""

    def __init__(self, count: int, restored: _Snapshot) -> None:
        self._buffers = {index: list(elements) for index, elements in restored.buffers}
        self._waiting = list(restored.waiting)
        highest = max((index for _, index in self._waiting), default=0)
        self._count = max(count, highest) + 1
        self._current = self._waiting[-1][1] if self._waiting else -1
        self._rotate()

    def take(self, element: int) -> None:
        self._buffers.setdefault(self._current, []).append(element)

    def snapshot(self, number: int) -> _Snapshot:
        self._waiting.append((number, self._current))
        self._rotate()
        held = tuple((index, tuple(elements)) for index, elements in self._buffers.items())
        return _Snapshot(number, held, tuple(self._waiting))

    def let_go(self, completed: int) -> list[int]:
        released = []
        for _, index in [each for each in self._waiting if each[0] <= completed]:
            released += self._buffers.pop(index, [])
        self._waiting = [each for each in self._waiting if each[0] > completed]
        return released

    def _rotate(self) -> None:
        self._current = (self._current + 1) % self._count


class _Job:
    """Runs until a buffer is let go whose element no completed checkpoint holds."""

    def __init__(self, buffers: int, side_by_side: int, restarts: int) -> None:
        self._count = buffers
        self._side_by_side = side_by_side
        self._restarts = restarts
        self._number = 0
        self._completed = _Snapshot()
        self._under_way: list[_Snapshot] = []
        self._operator = _Operator(buffers, self._completed)
        self.too_early = 0

    def element(self) -> None:
        self._operator.take(self._number + 1)

    def checkpoint(self) -> None:
        if len(self._under_way) < self._side_by_side:
            self._number += 1
            self._under_way.append(self._operator.snapshot(self._number))

    def complete(self, which: int, *, crash: bool) -> None:
        """One of those under way completes; with `crash` the operator never hears of it."""
        if not self._under_way or (crash and not self._restarts):
            return
        which = min(which, len(self._under_way) - 1)
        self._completed = self._under_way[which]
        self._under_way = self._under_way[which + 1 :]
        if not crash:
            released = self._operator.let_go(self._completed.number)
            self.too_early += sum(element > self._completed.number for element in released)
            return
        self._restarts -= 1
        self._under_way = []
        self._operator = _Operator(self._count, self._completed)


_EVENTS = st.lists(
    st.one_of(
        st.just(("element",)),
        st.just(("checkpoint",)),
        st.tuples(st.just("complete"), st.integers(0, 5), st.booleans()),
    ),
    max_size=120,
)


def _run(job, events):
    for name, *arguments in events:
        if name == "complete":
            job.complete(arguments[0], crash=arguments[1])
        else:
            getattr(job, name)()
    return job.too_early


@settings(max_examples=500, deadline=None)
@given(_EVENTS, st.integers(0, 6), st.integers(1, 5))
def test_buffers_for_every_restart_and_every_checkpoint_let_nothing_go_too_early(
    events, restarts, side_by_side
):
    """Without the smallest number that the checks accept, which would hide the rule."""
    job = _Job((restarts + 1) * side_by_side, side_by_side, restarts)

    assert _run(job, events) == 0


@pytest.mark.parametrize(("restarts", "side_by_side"), [(30, 13), (31, 1), (15, 3), (7, 10)])
def test_the_checks_ask_for_as_many_buffers_as_the_worst_case_needs_and_no_more(
    restarts, side_by_side
):
    buffers = buffers_for(restarts=restarts, side_by_side=side_by_side)
    worst = _worst(restarts, side_by_side)

    assert _run(_Job(buffers, side_by_side, restarts), worst) == 0
    assert _run(_Job(buffers - 1, side_by_side, restarts), worst) > 0


def _worst(restarts, side_by_side):
    """Restart after restart from the newest of all that were under way, and then a commit."""
    under_way = [("element",), ("checkpoint",)] * side_by_side
    before = [*under_way, ("complete", side_by_side, True)] * restarts
    return [*before, *under_way, ("element",), ("complete", 0, False)]
