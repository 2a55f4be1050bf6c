"""Time, sleep and chance, behind one seam so that tests own them."""

import random
import time
from typing import Protocol


class Clock(Protocol):
    """What the package knows of time. `testing.FakeClock` is the other implementation."""

    def now_s(self) -> float:
        """Seconds since the epoch: for comparing with times that the service names."""

    def monotonic_s(self) -> float:
        """Seconds that never run backwards: for measuring how long something takes."""

    def sleep(self, seconds: float) -> None:
        """Waits, and is the only thing in the package that does."""

    def random(self) -> float:
        """A number in [0, 1), for jitter."""


class SystemClock:
    """The machine's clock."""

    def now_s(self) -> float:
        return time.time()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def random(self) -> float:
        return random.random()


SYSTEM_CLOCK = SystemClock()
