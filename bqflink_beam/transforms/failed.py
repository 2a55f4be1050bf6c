"""Dead letters: rows that could not be written, and why."""

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from apache_beam.utils.timestamp import Timestamp

from bqflink_beam.codec.proto import RowDecoder
from bqflink_beam.errors import RowError
from bqflink_beam.schema import json as schema_json
from bqflink_beam.write.sift import RejectedRow

_DECODERS_MAX = 100


class FailedRow(NamedTuple):
    """A row that was not written.

    `row` is what the user gave; for rows that BigQuery itself refused, the same values as
    they were encoded. `column` is a path, or None when the service named none.
    `timestamp_us` is the row's event time in microseconds.
    """

    table: str
    row: Any
    error: str
    column: str | None
    timestamp_us: int

    @property
    def timestamp(self) -> Timestamp:
        """The row's event time."""
        return Timestamp(micros=self.timestamp_us)


def failed_row(rejected: RejectedRow) -> FailedRow:
    """Returns the dead letter for a row that was encoded before it was refused."""
    batch = rejected.batch
    decoder = _decoder(batch.schema, batch.descriptor)
    return FailedRow(
        table=batch.table,
        row=decoder.decode(batch.rows[rejected.index]),
        error=rejected.message,
        column=None,
        timestamp_us=batch.timestamps[rejected.index],
    )


def dead_letters(rejected: Iterable[RejectedRow], *, allowed: bool) -> Iterator[FailedRow]:
    """Yields the dead letters of refused rows.

    Raises:
        RowError: for the first of them, if no dead letters are `allowed`.
    """
    for row in rejected:
        failed = failed_row(row)
        if not allowed:
            raise row_error(failed)
        yield failed


@functools.lru_cache(maxsize=_DECODERS_MAX)
def _decoder(schema: bytes, descriptor: bytes) -> RowDecoder:
    return RowDecoder(schema_json.loads(schema), descriptor)


def row_error(failed: FailedRow) -> RowError:
    """Returns the error that stops a job which does not want dead letters."""
    return RowError(
        f"{failed.error}. To go on without such rows, set on_failed_row='output' and use "
        "result.failed_rows",
        table=failed.table,
        column=failed.column,
    )
