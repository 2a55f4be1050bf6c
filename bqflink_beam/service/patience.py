"""How long to go on calling: an endpoint that has never answered is probably a wrong one."""

import dataclasses
import logging
from collections.abc import Callable
from typing import TypeVar

from bqflink_beam import retry
from bqflink_beam.clock import Clock
from bqflink_beam.errors import OutcomeUnknownError, TransientError
from bqflink_beam.retry import Backoff

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")

_FIRST_ANSWER_S = 20.0


class Patience:
    """What one client knows about its endpoint: whether it has ever answered."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._answered = False
        self._warned = False

    def answered(self) -> None:
        """The endpoint has said something, if only no."""
        self._answered = True

    def unreachable(self, error: Exception) -> None:
        """Nothing could be sent. Warns once, for the user may be waiting for a typing error."""
        if not self._answered and not self._warned:
            self._warned = True
            _LOG.warning(
                "cannot reach %s, trying for %g s: %s", self._endpoint, _FIRST_ANSWER_S, error
            )

    def retried(
        self, function: Callable[[], _T], *, what: str, backoff: Backoff, clock: Clock
    ) -> _T:
        """Makes a call that may be repeated until it works, for as long as makes sense.

        Raises:
            TransientError, OutcomeUnknownError: the last one, when the budget is used up;
                the budget is short as long as the endpoint has not answered once.
        """
        if not self._answered:
            short = dataclasses.replace(backoff, budget_s=min(backoff.budget_s, _FIRST_ANSWER_S))
            try:
                return retry.call(function, idempotent=True, what=what, backoff=short, clock=clock)
            except (TransientError, OutcomeUnknownError):
                if not self._answered or short == backoff:
                    raise
        return retry.call(function, idempotent=True, what=what, backoff=backoff, clock=clock)
