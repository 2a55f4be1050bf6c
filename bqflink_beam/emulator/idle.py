"""`Patience`: how long an AppendRows connection may be silent before the service closes it."""

import contextlib
import queue
import threading
from collections.abc import Iterator

import grpc

from bqflink_beam.clock import Clock
from bqflink_beam.emulator.refused import Refused

# A clock that is pushed forward wakes nobody, so the time is looked at this often.
_LOOK_S = 0.05


class Patience:
    """The silence of one connection, by the server's clock.

    Args:
        idle_s: how long it may last; None for ever.
    """

    def __init__(self, clock: Clock, idle_s: float | None) -> None:
        self._clock = clock
        self._idle_s = idle_s
        self._heard_s = clock.monotonic_s()

    def heard(self) -> None:
        """Says that the connection was used until now."""
        self._heard_s = self._clock.monotonic_s()

    def requests(self, requests: Iterator[bytes]) -> Iterator[bytes]:
        """Yields requests while the connection is not silent for too long.

        Raises:
            Refused: ABORTED, in the service's words.
        """
        if self._idle_s is None:
            yield from requests
            return
        # gRPC's iterator has no time-out, so another thread waits in it; it ends with the call.
        waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

        def feed() -> None:
            with contextlib.suppress(grpc.RpcError):
                for data in requests:
                    waiting.put(data)
            waiting.put(None)

        threading.Thread(target=feed, name="bigquery-append", daemon=True).start()
        while (data := self._next(waiting, self._idle_s)) is not None:
            yield data

    def _next(self, waiting: "queue.SimpleQueue[bytes | None]", idle_s: float) -> bytes | None:
        while True:
            data = None
            with contextlib.suppress(queue.Empty):
                if (data := waiting.get(timeout=_LOOK_S)) is None:
                    return None
            # What comes too late comes to a connection that is closed already.
            if self._clock.monotonic_s() - self._heard_s >= idle_s:
                raise Refused(
                    "Closing the stream because connection has been inactive for "
                    f"{idle_s:g} seconds.",
                    code="ABORTED",
                )
            if data is not None:
                return data
