"""What this process has just created: BigQuery may deny for a while that it exists."""

import threading

from bqflink_beam.clock import Clock

_GRACE_S = 60.0


class Recent:
    """Remembers the paths of tables and streams for a minute after their creation."""

    def __init__(self, clock: Clock, *, grace_s: float = _GRACE_S) -> None:
        self._clock = clock
        self._grace_s = grace_s
        self._lock = threading.Lock()
        self._until_s: dict[str, float] = {}

    def created(self, path: str) -> None:
        """Notes that a table (``projects/…/tables/t``) or a stream of it was made just now."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            self._until_s[path] = now_s + self._grace_s
            for old in [name for name, until_s in self._until_s.items() if until_s < now_s]:
                del self._until_s[old]

    def is_young(self, path: str) -> bool:
        """Tells whether "not found" may only mean "not yet" for this table, or stream, or its table."""
        table = path.partition("/streams/")[0]
        now_s = self._clock.monotonic_s()
        with self._lock:
            return any(self._until_s.get(name, now_s) > now_s for name in (path, table))
