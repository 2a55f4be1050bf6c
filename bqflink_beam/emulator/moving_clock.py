"""`MovingClock`: the machine's time, which an operator may push forward."""

import threading

from bqflink_beam.clock import Clock


class MovingClock:
    """Runs with another clock, ahead of it by what it has been advanced."""

    def __init__(self, base: Clock) -> None:
        self._base = base
        self._ahead_s = 0.0
        self._lock = threading.Lock()

    def now_s(self) -> float:
        return self._base.now_s() + self._ahead_s

    def monotonic_s(self) -> float:
        return self._base.monotonic_s() + self._ahead_s

    def sleep(self, seconds: float) -> None:
        self._base.sleep(seconds)

    def random(self) -> float:
        return self._base.random()

    def advance(self, seconds: float) -> None:
        """Moves the time on. It never goes back."""
        with self._lock:
            self._ahead_s += max(seconds, 0.0)
