"""Telling the good rows of a refused request from the bad ones."""

import dataclasses
from collections.abc import Callable, Sequence

from bqflink_beam.errors import BqflinkError, InvalidRequestError, RowsRejectedError
from bqflink_beam.service.base import AppendTicket
from bqflink_beam.write.batching import RowBatch

# Nothing of the request was applied, and the fault is in its rows (or in their schema).
REFUSALS = (RowsRejectedError, InvalidRequestError)


@dataclasses.dataclass(frozen=True)
class RejectedRow:
    """A row that cannot be written: row `index` of `batch`, and why."""

    batch: RowBatch
    index: int
    message: str


def sift(
    batch: RowBatch,
    indexes: Sequence[int],
    refusal: BqflinkError,
    attempt: Callable[[Sequence[int]], BqflinkError | None],
    *,
    schema_fits: bool,
) -> list[RejectedRow]:
    """Gets the good rows of a refused request in, in order; returns the bad ones.

    Rows that the service lists are bad. When it lists none, ever smaller halves find
    them; but if nothing at all goes through, it is not the rows: the writer's schema
    does not fit the table, and every row would look bad.

    Args:
        indexes: the rows of `batch` that the request held.
        attempt: sends these rows and waits; returns the refusal, None when they are in,
            and raises what is neither.
        schema_fits: whether rows of this schema have been taken before.

    Raises:
        InvalidRequestError: no row of the request goes through.
    """
    rejected: list[RejectedRow] = []
    by_elimination: BqflinkError | None = None
    parts: list[tuple[Sequence[int], BqflinkError | None]] = [(indexes, refusal)]
    while parts:
        part, error = parts.pop()
        if error is None:
            error = attempt(part)
            schema_fits = schema_fits or error is None
        if isinstance(error, RowsRejectedError):
            bad = dict(error.rows)
            if not bad or not all(0 <= position < len(part) for position in bad):
                raise error
            rejected += [RejectedRow(batch, part[at], bad[at]) for at in sorted(bad)]
            good = [index for position, index in enumerate(part) if position not in bad]
            if good:
                parts.append((good, None))
        elif error is not None and len(part) > 1:
            middle = len(part) // 2
            parts += [(part[middle:], None), (part[:middle], None)]
        elif error is not None:
            by_elimination = error
            rejected.append(RejectedRow(batch, part[0], error.message))
    if by_elimination is not None and not schema_fits:
        raise by_elimination
    return rejected


def answer(ticket: AppendTicket) -> BqflinkError | None:
    """Waits for a request; returns the error it ended with, None when its rows are in.

    The connection bounds the wait, so there is no time-out here.
    """
    try:
        ticket.result()
    except BqflinkError as error:
        return error
    return None
