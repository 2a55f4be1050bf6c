"""A token bucket: how often something may be done, shared by all threads of a process."""

import threading

from bqflink_beam.clock import SYSTEM_CLOCK, Clock


class TokenBucket:
    """Lets `burst` calls pass at once and `per_second` from then on.

    Each `take` books its own moment under the lock and sleeps outside it, so that
    callers are served in order and one that waits does not hold up the arithmetic.
    """

    def __init__(self, *, per_second: float, burst: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._interval_s = 1.0 / per_second
        self._burst_s = (burst - 1) * self._interval_s
        self._clock = clock
        self._lock = threading.Lock()
        # When the bucket would be full again if nobody took any more.
        self._full_s = clock.monotonic_s()

    def take(self) -> None:
        """Waits for a token."""
        with self._lock:
            now_s = self._clock.monotonic_s()
            moment_s = max(now_s, self._full_s - self._burst_s)
            self._full_s = max(now_s, self._full_s) + self._interval_s
            wait_s = moment_s - now_s
        if wait_s > 0:
            self._clock.sleep(wait_s)
