"""Makes appended rows visible, once the runner says that their checkpoint is complete."""

import concurrent.futures
import dataclasses
from collections.abc import Mapping

from bqflink_beam.errors import (
    BqflinkError,
    NotFoundError,
    StreamFinalizedError,
    StreamGoneError,
    StreamLostError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import WriteService

_THREADS_MAX = 16


@dataclasses.dataclass(frozen=True, order=True)
class LostStream:
    """A buffered stream that was gone before rows up to `last_offset` were known to be visible.

    They may be visible: the flush is repeated after a restart, and the stream may have
    been dropped after an earlier flush. At least once for each loss.
    """

    table: str
    stream: str
    last_offset: int


def flush_all(write: WriteService, stops: Mapping[str, int]) -> list[LostStream]:
    """Flushes rows ``[0, stop)`` of every stream, in parallel; returns those that are gone.

    Raises:
        BqflinkError: the first other error, after all streams were tried.
    """
    if not stops:
        return []
    with concurrent.futures.ThreadPoolExecutor(min(_THREADS_MAX, len(stops))) as pool:
        futures = {
            stream: pool.submit(write.flush, stream, stop) for stream, stop in sorted(stops.items())
        }
    lost: list[LostStream] = []
    failure: BqflinkError | None = None
    for stream, future in futures.items():
        try:
            future.result()
        except (StreamGoneError, StreamFinalizedError, NotFoundError):
            lost.append(
                LostStream(str(TableReference.from_path(stream)), stream, stops[stream] - 1)
            )
        except BqflinkError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    return lost


def lost_error(lost: list[LostStream]) -> StreamLostError:
    """Returns the error that tells of lost streams, and how to go on."""
    first = lost[0]
    more = f" and {len(lost) - 1} more streams" if len(lost) > 1 else ""
    return StreamLostError(
        f"rows up to offset {first.last_offset} of a buffered stream{more} may be lost: BigQuery has no "
        "such stream any more, so it expired before it was flushed, or its table was dropped. To go on "
        "without them, restart the job with on_lost_stream='report'",
        table=first.table,
        stream=first.stream,
    )
