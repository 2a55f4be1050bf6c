"""What this process has just created: BigQuery may deny for a while that it exists."""

import threading

from bqflink_beam.clock import Clock

_TABLE_GRACE_S = 60.0
_STREAM_GRACE_S = 10.0


class Recent:
    """Remembers tables and write streams from their creation until they have been seen.

    A path is ``projects/…/tables/t`` or a stream of it. Tables are given a minute to
    appear, streams ten seconds.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until_s: dict[str, float] = {}

    def created(self, path: str) -> None:
        """Notes that a table or stream was made just now."""
        now_s = self._clock.monotonic_s()
        grace_s = _STREAM_GRACE_S if "/streams/" in path else _TABLE_GRACE_S
        with self._lock:
            self._until_s[path] = now_s + grace_s
            for old in [name for name, until_s in self._until_s.items() if until_s < now_s]:
                del self._until_s[old]

    def seen(self, path: str) -> None:
        """Notes that the service knows a stream or table, and so its table: gone is gone now."""
        with self._lock:
            for name in (path, _table_of(path)):
                self._until_s.pop(name, None)

    def is_young(self, path: str) -> bool:
        """Tells whether "not found" may only mean "not yet"."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            return any(self._until_s.get(name, now_s) > now_s for name in (path, _table_of(path)))


def _table_of(path: str) -> str:
    return path.partition("/streams/")[0]
