"""A clock that a test moves."""

import random


class FakeClock:
    """Starts at `start_s`; `sleep` returns at once and moves the time on.

    `slept` lists every pause that was asked for.
    """

    def __init__(self, start_s: float = 1_700_000_000.0) -> None:
        self._now_s = start_s
        self._chance = random.Random(0)
        self.slept: list[float] = []

    def now_s(self) -> float:
        return self._now_s

    def monotonic_s(self) -> float:
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._now_s += seconds

    def advance(self, seconds: float) -> None:
        self._now_s += seconds

    def random(self) -> float:
        return self._chance.random()
