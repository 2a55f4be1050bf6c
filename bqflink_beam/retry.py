"""One way to call a service again: round one RPC, with one predicate."""

import dataclasses
import logging
from collections.abc import Callable
from typing import TypeVar

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import OutcomeUnknownError, TransientError

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Backoff:
    """How long to go on, and how long to wait between tries: doubling, with full jitter."""

    budget_s: float = 120.0
    wait_initial_s: float = 0.1
    wait_max_s: float = 10.0

    def wait_s(self, attempt: int, clock: Clock) -> float:
        """Returns the pause after failed try number `attempt` (the first is 1)."""
        longest = min(self.wait_max_s, self.wait_initial_s * 2.0 ** min(attempt - 1, 30))
        return longest * (0.5 + clock.random() / 2)


DEFAULT_BACKOFF = Backoff()


def call(
    function: Callable[[], _T],
    *,
    idempotent: bool,
    what: str,
    backoff: Backoff = DEFAULT_BACKOFF,
    clock: Clock = SYSTEM_CLOCK,
) -> _T:
    """Calls `function` until it returns, fails for good, or the budget is used up.

    Args:
        function: one RPC that raises errors of our tree.
        idempotent: whether a call without an answer may be made again.
        what: names the call in the log, with the identifier to look up.

    Raises:
        TransientError, OutcomeUnknownError: the last one, when the budget is used up.
    """
    start_s = clock.monotonic_s()
    attempt = 0
    while True:
        attempt += 1
        try:
            return function()
        except (TransientError, OutcomeUnknownError) as error:
            if isinstance(error, OutcomeUnknownError) and not idempotent:
                raise
            wait_s = backoff.wait_s(attempt, clock)
            if isinstance(error, TransientError) and error.retry_after_s is not None:
                wait_s = max(wait_s, error.retry_after_s)
            if clock.monotonic_s() - start_s + wait_s > backoff.budget_s:
                raise
            _LOG.debug("%s: try %d failed, again in %.2f s: %s", what, attempt, wait_s, error)
            clock.sleep(wait_s)
