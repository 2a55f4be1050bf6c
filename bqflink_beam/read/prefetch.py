"""Runs one ReadRows call in a thread, a bounded step ahead of whoever consumes it."""

import collections
import enum
import threading
from collections.abc import Callable

import pyarrow as pa

from bqflink_beam.clock import Clock
from bqflink_beam.service.base import ReadCall, ReadResponse

_JOIN_S = 5.0
"""How long `close` waits for the thread; a cancelled call ends in milliseconds."""


class Signal(enum.Enum):
    """What `Prefetch.take` says when it has no rows to give."""

    NOTHING_YET = "nothing yet"
    END = "end of stream"


class Prefetch:
    """The responses of one call, fetched and decoded while the consumer works.

    Network, decompression and the consumer's Python overlap, for gRPC and Arrow
    release the interpreter lock. The thread ends with the call, or when `close`
    is called; it never outlives its consumer by more than the call's own end.
    """

    def __init__(
        self,
        open_call: Callable[[], ReadCall],
        decode: Callable[[ReadResponse], pa.RecordBatch],
        *,
        responses_max: int,
        bytes_max: int,
        clock: Clock,
    ) -> None:
        self._open_call = open_call
        self._decode = decode
        self._responses_max = responses_max
        self._bytes_max = bytes_max
        self._clock = clock
        self._changed = threading.Condition()
        self._ready: collections.deque[tuple[ReadResponse, pa.RecordBatch]] = collections.deque()
        self._ready_bytes = 0
        self._call: ReadCall | None = None
        self._error: BaseException | None = None
        self._ended = False
        self._closed = False
        self._asked_s = clock.monotonic_s()
        self._thread = threading.Thread(target=self._run, name="bq-read-prefetch", daemon=True)
        self._thread.start()

    def take(self, timeout_s: float) -> tuple[ReadResponse, pa.RecordBatch] | Signal:
        """Returns the next response, waiting for it at most `timeout_s`.

        Raises whatever the call raised, after every response before it was taken.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._ended, timeout_s)
            if self._ready:
                response, batch = self._ready.popleft()
                self._ready_bytes -= batch.nbytes
                self._changed.notify_all()
                return response, batch
            if self._error is not None:
                raise self._error
            return Signal.END if self._ended else Signal.NOTHING_YET

    def silent_s(self) -> float:
        """Returns for how long the service has owed us a message, 0 if there is one to take."""
        with self._changed:
            if self._ready or self._ended:
                return 0.0
            return self._clock.monotonic_s() - self._asked_s

    def close(self) -> None:
        """Cancels the call and waits for the thread. Any number of times."""
        with self._changed:
            self._closed = True
            call = self._call
            self._changed.notify_all()
        if call is not None:
            call.close()
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        try:
            self._fetch()
        except BaseException as error:  # handed to the consumer, which would wait for ever
            self._error = error
        finally:
            if self._call is not None:
                self._call.close()
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def _fetch(self) -> None:
        call = self._open_call()
        with self._changed:
            self._call = call
            if self._closed:
                return
        for response in call:
            batch = self._decode(response)
            with self._changed:
                self._ready.append((response, batch))
                self._ready_bytes += batch.nbytes
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._closed or not self._full())
                if self._closed:
                    return
                self._asked_s = self._clock.monotonic_s()

    def _full(self) -> bool:
        return bool(self._ready) and (
            len(self._ready) >= self._responses_max or self._ready_bytes >= self._bytes_max
        )
