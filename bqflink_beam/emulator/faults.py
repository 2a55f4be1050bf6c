"""Faults on demand: what goes wrong, at which call, before or after it takes effect.

    server.faults.add(Fault(method="AppendRows", code="UNAVAILABLE", when="after", nth=3))

makes the third append be applied and never acknowledged: the call ends with that
status. Rules count matching calls over the whole server, under a lock, so that "the
third" is exact whatever runs at once.
"""

import collections
import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

import grpc
from google.cloud.bigquery_storage_v1 import types as storage_types

from bqflink_beam.clock import Clock
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.errors import ConfigError

_ACTIONS = ("status", "delay", "cut", "expire", "duplicate", "hang", "kill")
_CODES = frozenset(code.name for code in grpc.StatusCode) - {"OK"}
_STORAGE_ERRORS = frozenset(storage_types.StorageError.StorageErrorCode.__members__)
_SECONDS_MAX = 1e9
_READS = frozenset({"ReadRows", "CreateReadSession", "GetWriteStream"})
Answer = TypeVar("Answer")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One rule.

    Attributes:
        method: ``AppendRows``, ``ReadRows``, ... or a REST method such as ``jobs.insert``.
            An AppendRows call is one request on a connection.
        action: ``status`` ends the call with `code`; ``cut`` ends it as a broken
            connection does (UNAVAILABLE); ``delay`` waits `delay_s`; ``hang`` never
            answers; ``expire`` makes the stream or read session too old, then goes on;
            ``duplicate`` lets the request arrive twice, and answers the first; ``kill`` sends SIGKILL to the
            caller (its ``x-bqflink-pid`` header, or `pid`) and never answers.
        when: before or after the call takes effect.
        code: gRPC status name.
        storage_error: name of a ``StorageError`` code to put in the status details.
        retry_after_s: gRPC only: the pause that the status asks for, as ``RetryInfo``.
        in_band: AppendRows only: answer the request with the error and keep the
            connection open.
        table: ``project.dataset.table``; None matches every table.
        stream: the stream's (or session's) name; None matches every one.
        nth: the first matching call it acts on, from 1.
        times: on how many matching calls from there; None for all.
        after_responses: ReadRows only, with ``when="before"``: acts when that many messages
            have been sent. ``when="after"`` acts at the end of the call.
    """

    method: str
    action: Literal["status", "delay", "cut", "expire", "duplicate", "hang", "kill"] = "status"
    when: Literal["before", "after"] = "before"
    code: str | None = None
    message: str = "injected fault"
    storage_error: str | None = None
    retry_after_s: float | None = None
    in_band: bool = False
    delay_s: float = 0.0
    table: str | None = None
    stream: str | None = None
    nth: int = 1
    times: int | None = 1
    after_responses: int = 0
    pid: int | None = None

    def __post_init__(self) -> None:
        if self.action not in _ACTIONS:
            raise ConfigError(f"action must be one of {_ACTIONS}, got {self.action!r}")
        if self.when not in ("before", "after"):
            raise ConfigError(f"when must be 'before' or 'after', got {self.when!r}")
        if (self.action == "status") != (self.code is not None):
            raise ConfigError(
                f"a status fault has a code and no other has, got {self.action!r}, {self.code!r}"
            )
        if self.code is not None and self.code not in _CODES:
            raise ConfigError(f"code must be one of {sorted(_CODES)}, got {self.code!r}")
        for name, seconds in (("delay_s", self.delay_s), ("retry_after_s", self.retry_after_s)):
            known = isinstance(seconds, (int, float)) and 0 <= seconds < _SECONDS_MAX
            if seconds is not None and not known:
                raise ConfigError(f"{name} must be a number of seconds, got {seconds!r}")
        if self.storage_error is not None and self.storage_error not in _STORAGE_ERRORS:
            raise ConfigError(
                f"storage_error must be one of {sorted(_STORAGE_ERRORS)}, got {self.storage_error!r}"
            )
        # What could never act would make a test that passes whatever happens.
        if self.in_band and (self.method != "AppendRows" or self.action != "status"):
            raise ConfigError("in_band goes with a status of AppendRows only")
        if self.after_responses and (self.method != "ReadRows" or self.when != "before"):
            raise ConfigError("after_responses goes with faults before messages of ReadRows only")
        if self.retry_after_s is not None and (self.action != "status" or "." in self.method):
            raise ConfigError("retry_after_s goes with a status of gRPC only")
        if self.action == "duplicate" and self.method in _READS:
            raise ConfigError(f"a {self.method} that arrives twice is no other than one")
        if self.nth < 1 or (self.times is not None and self.times < 1):
            raise ConfigError(f"nth and times count from 1, got {self.nth} and {self.times}")

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> "Fault":
        """Reads a rule as the admin API has it.

        Raises:
            ConfigError: an unknown field, or a value the rule cannot have.
        """
        names = {field.name for field in dataclasses.fields(Fault)}
        unknown = set(document) - names
        if unknown:
            raise ConfigError(f"a fault has no {sorted(unknown)}; it has {sorted(names)}")
        try:
            return Fault(**document)
        except TypeError as error:
            raise ConfigError(f"invalid fault: {error}") from error


class Injected(Refused):
    """A status that a rule asked for."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(
            fault.message,
            code=fault.code or "UNAVAILABLE",
            storage_error=fault.storage_error,
            entity=fault.stream or fault.table or "",
        )
        self.retry_after_s = fault.retry_after_s
        self.in_band = fault.in_band
        self.cut = fault.action == "cut"


class Call:
    """What a fault may do to the call it acts on. The REST server has its own kind."""

    def __init__(self, pid: int | None = None) -> None:
        self.pid = pid
        self._over = threading.Event()

    def finish(self) -> None:
        """Says that the call is over; whoever hangs in it goes on."""
        self._over.set()

    def wait_until_over(self) -> None:
        self._over.wait()


class Acting:
    """The rules that act on one call."""

    def __init__(self, faults: list[Fault], clock: Clock, call: Call) -> None:
        self._faults = faults
        self._clock = clock
        self._call = call

    @property
    def duplicate(self) -> bool:
        """Whether the request arrives twice."""
        return any(fault.action == "duplicate" for fault in self._faults)

    def deliver(self, apply: Callable[[], Answer]) -> Answer:
        """Applies a request, twice if it arrives twice; returns the first answer."""
        answer = apply()
        if self.duplicate:
            with contextlib.suppress(Refused):
                apply()
        return answer

    def before(self, expire: Callable[[], object] | None = None, *, responses: int = 0) -> None:
        """Acts before the call takes effect; for ReadRows, before each message.

        Args:
            expire: makes the stream or session of the call too old.
            responses: how many messages have been sent.

        Raises:
            Injected: the call ends here.
        """
        self._act("before", expire, responses)

    def after(self, expire: Callable[[], object] | None = None) -> None:
        """Acts after the call has taken effect. Raises as `before`."""
        self._act("after", expire, None)

    def _act(self, when: str, expire: Callable[[], object] | None, responses: int | None) -> None:
        for fault in self._faults:
            if fault.when != when or responses not in (None, fault.after_responses):
                continue
            if fault.delay_s:
                self._clock.sleep(fault.delay_s)
            if fault.action == "expire" and expire is not None:
                expire()
            elif fault.action == "kill":
                self._kill(fault.pid or self._call.pid)
                self._call.wait_until_over()
            elif fault.action == "hang":
                self._call.wait_until_over()
            elif fault.action in ("status", "cut"):
                raise Injected(fault)

    def _kill(self, pid: int | None) -> None:
        if pid is None:
            raise Refused(
                "a kill fault needs a pid, or a caller that sends x-bqflink-pid",
                code="FAILED_PRECONDITION",
            )
        try:
            os.kill(pid, signal.SIGKILL)
        except (OSError, OverflowError) as error:
            raise Refused(f"cannot kill {pid}: {error}", code="FAILED_PRECONDITION") from error


class Faults:
    """The rules of one server, and the count of what was called. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rules: dict[int, Fault] = {}
        self._seen: collections.Counter[int] = collections.Counter()
        self._hits: collections.Counter[int] = collections.Counter()
        self._calls: collections.Counter[str] = collections.Counter()
        self._next = 1

    def add(self, fault: Fault) -> int:
        """Adds a rule; returns its id. Its count of calls begins now."""
        with self._lock:
            number = self._next
            self._next += 1
            self._rules[number] = fault
            return number

    def remove(self, number: int) -> None:
        with self._lock:
            self._rules.pop(number, None)

    def clear(self) -> None:
        """Removes all rules; counters stay."""
        with self._lock:
            self._rules.clear()

    def hits(self, number: int) -> int:
        """Returns how often a rule has acted."""
        with self._lock:
            return self._hits[number]

    def rules(self) -> dict[int, Fault]:
        with self._lock:
            return dict(self._rules)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a counter."""
        with self._lock:
            self._calls[name] += by

    def counters(self) -> dict[str, int]:
        """Returns calls by method, and what else is counted (rows, resumes, connections)."""
        with self._lock:
            return dict(self._calls)

    def arrive(self, method: str, *, table: str = "", stream: str = "", call: Call) -> Acting:
        """Counts a call and returns the rules that act on it."""
        with self._lock:
            self._calls[method] += 1
            acting = []
            for number, fault in self._rules.items():
                if fault.method != method:
                    continue
                if fault.table is not None and fault.table != table:
                    continue
                if fault.stream is not None and fault.stream != stream:
                    continue
                self._seen[number] += 1
                position = self._seen[number] - fault.nth
                if position >= 0 and (fault.times is None or position < fault.times):
                    self._hits[number] += 1
                    acting.append(fault)
        return Acting(acting, self._clock, call)
