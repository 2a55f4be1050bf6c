"""Which append requests wait, fly or are held, and what an answer does to them.

Pure: no threads, no gRPC, no clock but the moments it is given. `append.Appends` calls
it under its lock.

A request is in one of three queues, in the order in which it was given::

    waiting --take--> flying --answer--> settled
       ^                | |
       |                | refused, to be sent again
       |   call broke   | v
       +----------------+ held      (until nothing flies any more)

Answers come in the order of the requests, one each, so that an answer always belongs
to the first that flies. When a request at an offset is refused, those behind it on the
stream are refused too, each by its own answer ("beyond the end"); they are held with it
and sent again behind it, so no answer has to be ignored. A call that breaks puts all
that flew back in front, in order, at the same offsets.
"""

import collections
from collections.abc import Callable, Sequence

from bqflink_beam.errors import (
    AlreadyWrittenError,
    BqflinkError,
    OffsetGapError,
    OutcomeUnknownError,
    PermanentError,
    TransientError,
)

_FRAMING_BYTES_PER_ROW = 4


class Ticket:
    """One request under way; `result` is what its sender waits for.

    `maybe_applied`: a call broke while this flew, so the service may have its rows.
    `passage`: the call, and the unbroken run of requests for one schema, it was last sent in.
    `refused_since_s`: when the service first refused it with an error worth another try.
    """

    __slots__ = (
        "_wait",
        "descriptor",
        "done",
        "error",
        "landed",
        "maybe_applied",
        "offset",
        "passage",
        "refused_since_s",
        "rows",
        "size",
        "stream",
    )

    def __init__(
        self,
        stream: str,
        descriptor: bytes,
        rows: Sequence[bytes],
        offset: int | None,
        wait: Callable[["Ticket", float | None], None],
    ) -> None:
        self.stream = stream
        self.descriptor = descriptor
        self.rows: Sequence[bytes] = rows
        self.offset = offset
        self.size = sum(map(len, rows)) + _FRAMING_BYTES_PER_ROW * len(rows)
        self.done = False
        self.error: BqflinkError | None = None
        self.landed: int | None = None
        self.maybe_applied = False
        self.passage = (0, 0)
        self.refused_since_s: float | None = None
        self._wait = wait

    def result(self, timeout_s: float | None = None) -> int | None:
        """See `service.base.AppendTicket`."""
        self._wait(self, timeout_s)
        if self.error is not None:
            raise self.error
        return self.landed

    def settle(self, *, error: BqflinkError | None = None, landed: int | None = None) -> None:
        self.error = error
        self.landed = landed
        self.rows = ()
        self.done = True


class Window:
    """The requests of one connection.

    Args:
        budget_s: longest time without progress, and longest time a request may be
            refused again and again.
        requests_max, bytes_max: beyond these `has_room` says no.
    """

    def __init__(self, *, budget_s: float, requests_max: int, bytes_max: int) -> None:
        self._budget_s = budget_s
        self._requests_max = requests_max
        self._bytes_max = bytes_max
        self._waiting: collections.deque[Ticket] = collections.deque()
        self._flying: collections.deque[Ticket] = collections.deque()
        self._held: collections.deque[Ticket] = collections.deque()
        self._progress_s = 0.0
        self._resume_s = 0.0
        self._singly = 0
        self.bytes = 0

    @property
    def count(self) -> int:
        """Requests without a final answer."""
        return len(self._waiting) + len(self._flying) + len(self._held)

    @property
    def first_flying(self) -> Ticket | None:
        """The request that the next answer is for."""
        return self._flying[0] if self._flying else None

    @property
    def first_waiting(self) -> Ticket | None:
        return self._waiting[0] if self._waiting else None

    @property
    def resume_s(self) -> float:
        """The moment before which nothing is sent."""
        return self._resume_s

    @property
    def stalled_s(self) -> float:
        """The moment at which the budget is used up, unless something is settled before."""
        return self._progress_s + self._budget_s

    def has_room(self, size: int) -> bool:
        """Tells whether one more request fits; one always does."""
        if not self.count:
            return True
        return self.count < self._requests_max and self.bytes + size <= self._bytes_max

    def add(self, ticket: Ticket, now_s: float) -> None:
        if not self.count:
            self._progress_s = now_s
        self._waiting.append(ticket)
        self.bytes += ticket.size

    def sendable_in_s(self, now_s: float) -> float | None:
        """Returns how long until `take` gives something; None: not before an answer or an `add`."""
        if not self._waiting or self._held or (self._singly and self._flying):
            return None
        return max(0.0, self._resume_s - now_s)

    def take(self) -> Ticket:
        """Moves the next request to those that fly; ask `sendable_in_s` first."""
        ticket = self._waiting.popleft()
        self._flying.append(ticket)
        return ticket

    def pause(self, until_s: float) -> None:
        """Sends nothing before that moment."""
        self._resume_s = max(self._resume_s, until_s)

    def appended(self, offset: int | None, now_s: float) -> None:
        """The first request that flies is in, at `offset`."""
        ticket = self._flying.popleft()
        if ticket.offset is not None and offset is not None and offset != ticket.offset:
            error = PermanentError(
                f"rows sent to offset {ticket.offset} landed at {offset}", stream=ticket.stream
            )
            self._settle(ticket, now_s, error=error)
        else:
            landed = offset if ticket.offset is None else ticket.offset
            self._settle(ticket, now_s, landed=landed)
        self._release()

    def refused(self, error: BqflinkError, now_s: float, *, again: bool) -> bool:
        """The first request that flies is not in. Returns whether it will be sent again.

        Args:
            again: whether another try may succeed.
        """
        ticket = self._flying.popleft()
        gap_behind_held = isinstance(error, OffsetGapError) and any(
            held.stream == ticket.stream for held in self._held
        )
        if again and ticket.refused_since_s is None:
            ticket.refused_since_s = now_s
        in_time = now_s - (ticket.refused_since_s or now_s) < self._budget_s
        held = gap_behind_held or (again and in_time)
        if held:
            self._held.append(ticket)
        else:
            self._settle(ticket, now_s, error=self._marked(error, ticket))
        self._release()
        return held

    def broke(self, *, sent: bool) -> int:
        """The call is over. Returns how many requests flew.

        Args:
            sent: whether what flew may have reached the service.
        """
        flew = len(self._flying)
        for ticket in self._flying:
            ticket.maybe_applied = ticket.maybe_applied or sent
        self._waiting.extendleft(reversed(self._flying))
        self._flying.clear()
        self._release()
        return flew

    def send_singly(self, count: int) -> None:
        """Sends the next `count` requests one at a time, to learn which of them ends the call."""
        self._singly = count

    def fail_first(self, error: BqflinkError, now_s: float, *, whole_stream: bool) -> None:
        """Settles the first waiting request, or all of its stream, with an error for good."""
        if not self._waiting:
            return
        first = self._waiting[0]
        failed = [
            ticket
            for ticket in self._waiting
            if ticket is first or (whole_stream and ticket.stream == first.stream)
        ]
        gone = set(map(id, failed))
        self._waiting = collections.deque(t for t in self._waiting if id(t) not in gone)
        for ticket in failed:
            self._settle(ticket, now_s, error=self._marked(error, ticket))

    def fail_all(self, make: Callable[[Ticket, bool], BqflinkError], now_s: float) -> None:
        """Settles everything; `make(ticket, maybe_applied)` gives each its error."""
        flew = set(map(id, self._flying))
        everything = [*self._held, *self._flying, *self._waiting]
        for queue in (self._held, self._flying, self._waiting):
            queue.clear()
        for ticket in everything:
            error = make(ticket, ticket.maybe_applied or id(ticket) in flew)
            self._settle(ticket, now_s, error=error)

    def _release(self) -> None:
        """Puts what is held back in front once nothing flies that might have to follow it."""
        if not self._flying and self._held:
            self._waiting.extendleft(reversed(self._held))
            self._held.clear()

    def _settle(
        self,
        ticket: Ticket,
        now_s: float,
        *,
        error: BqflinkError | None = None,
        landed: int | None = None,
    ) -> None:
        self.bytes -= ticket.size
        self._progress_s = now_s
        self._singly = max(0, self._singly - 1)
        ticket.settle(error=error, landed=landed)

    @staticmethod
    def _marked(error: BqflinkError, ticket: Ticket) -> BqflinkError:
        """Returns the error as it is true for a request that an earlier call may have brought in."""
        if not ticket.maybe_applied:
            return error
        if isinstance(error, AlreadyWrittenError):
            return AlreadyWrittenError(
                error.message, table=error.table, stream=error.stream, resent=True
            )
        if isinstance(error, TransientError):
            return OutcomeUnknownError(
                error.message, table=error.table, stream=error.stream, code=error.code
            )
        return error
