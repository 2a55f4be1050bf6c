"""What the engines ask of BigQuery: protocols, and the values that cross them.

The engines (``read/``, ``write/``, ``load/``) know these and nothing of Google's
clients. `service.connection.Connection.open` returns the real thing; every method
raises errors of `bqflink_beam.errors` only.
"""

import dataclasses
import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import TableSchema

# --- reading ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """A read session to be made: one table, frozen at one moment.

    `columns` are dotted paths, empty for all. `row_filter` is a SQL predicate, empty
    for none. `streams_max` 0 lets the service choose. `snapshot_s` is a time in
    seconds since the epoch, None for now.
    """

    table: TableReference
    columns: tuple[str, ...] = ()
    row_filter: str = ""
    streams_max: int = 0
    snapshot_s: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadSession:
    """A read session as the service made it. `arrow_schema` is a bare IPC schema message."""

    name: str
    table: TableReference
    arrow_schema: bytes
    streams: tuple[str, ...]
    expire_s: float
    estimated_rows: int = 0
    estimated_bytes: int = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadResponse:
    """One message of a read stream: `rows` rows in `arrow_batch`, a bare IPC record batch.

    `progress_start` and `progress_stop` are fractions of the stream before and after it.
    """

    rows: int
    arrow_batch: bytes
    progress_start: float = 0.0
    progress_stop: float = 0.0
    throttle_percent: int = 0


class ReadCall(Iterator[ReadResponse], Protocol):
    """One open ReadRows call: responses in order. Not a generator, for two threads use it."""

    def close(self) -> None:
        """Cancels the call. From any thread, any number of times; a `next` that waits ends
        soon after, with `StopIteration` or any error of our tree."""


class ReadService(Protocol):
    """Storage Read. Nothing here retries but session creation; resuming is `read/rows.py`'s."""

    def create_session(self, request: SessionRequest) -> ReadSession:
        """Makes a session; a table with no rows gives one with no streams."""

    def read_rows(self, stream: str, offset: int) -> ReadCall:
        """Yields the responses of a stream from row `offset` on; `close` it when done.

        Raises, here or while iterating:
            TransientError: broken or throttled; call again at the next row.
            SessionExpiredError: the session is too old.
            InvalidRequestError: `offset` lies beyond the stream's rows.
        """

    def split_stream(
        self, stream: str, fraction: float, *, deadline_s: float
    ) -> tuple[str, str] | None:
        """Splits a stream into (primary, remainder); None when it cannot be split. No retry."""


# --- writing ---------------------------------------------------------------------------


class StreamKind(enum.Enum):
    """When rows of an application-made stream become visible."""

    COMMITTED = "COMMITTED"
    PENDING = "PENDING"
    BUFFERED = "BUFFERED"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WriteStream:
    """A write stream; `commit_s` is when a pending one was committed, `schema` the table's."""

    name: str
    kind: StreamKind
    location: str = ""
    commit_s: float | None = None
    schema: TableSchema | None = None


@dataclasses.dataclass(frozen=True)
class StreamProblem:
    """Why one stream of a commit was refused. `kind` is the `StorageError` code's name."""

    kind: str
    stream: str
    message: str = ""


@dataclasses.dataclass(frozen=True)
class CommitAnswer:
    """The answer to a commit: `commit_s` is set exactly when it was applied."""

    commit_s: float | None
    problems: tuple[StreamProblem, ...] = ()


class AppendTicket(Protocol):
    """One request under way."""

    def result(self, timeout_s: float | None = None) -> int | None:
        """Waits for the answer; returns the offset the rows landed at (None on a default stream).

        Raises:
            RowsRejectedError: the listed rows are bad; nothing was applied.
            AlreadyWrittenError, OffsetGapError, StreamGoneError, StreamFinalizedError:
                the stream is not where the caller thought.
            SchemaMismatchError, InvalidRequestError, NotFoundError, AccessDeniedError: stop.
            TransientError: refused, nothing applied, resends used up.
            OutcomeUnknownError: no answer within the budget.
        """


class AppendConnection(Protocol):
    """One AppendRows call, reopened as needed.

    In-flight requests are limited (1,000 or 100 MiB) and `send` waits for room.
    When the call breaks, everything unanswered is sent again in order at the same
    offsets; an `AlreadyWrittenError` that answers such a resend says `resent=True`.
    """

    def send(self, rows: Sequence[bytes], offset: int | None) -> AppendTicket:
        """Queues one request: serialized proto rows at `offset` (None on the default stream)."""

    @property
    def updated_schema(self) -> TableSchema | None:
        """The newest schema the service has told of on this connection, if any."""

    def close(self) -> None:
        """Ends the call; tickets without an answer raise `OutcomeUnknownError`."""


DEFAULT_STREAM_BUDGET_S = 120.0
"""Longest time without progress on default streams before their requests fail."""


class AppendPool(Protocol):
    """The default-stream connections of this process, shared by all tables. At least once."""

    def send(self, stream: str, descriptor: bytes, rows: Sequence[bytes]) -> AppendTicket:
        """Queues rows for a default stream; waits for room. The pool is not the caller's to close.

        Raises:
            NotFoundError, AccessDeniedError: of a table used for the first time.
        """

    def updated_schema(self, stream: str) -> TableSchema | None:
        """The newest schema the service has told of for the stream's table, if any."""


class WriteService(Protocol):
    """Storage Write."""

    def create_stream(self, table: TableReference, kind: StreamKind) -> WriteStream:
        """Makes a stream. Rate limited, for the service allows few per second."""

    def get_stream(self, name: str) -> WriteStream:
        """Returns a stream with its table's schema; works for default streams too."""

    def open_append(self, stream: str, descriptor: bytes, *, budget_s: float) -> AppendConnection:
        """Opens a connection for rows of a serialized ``DescriptorProto``.

        `budget_s` is the longest time without progress before tickets fail.
        """

    def finalize(self, stream: str) -> int:
        """Ends a stream; returns its row count. May be repeated."""

    def commit(self, table: TableReference, streams: Sequence[str]) -> CommitAnswer:
        """Makes the rows of finalized pending streams visible at once, all or none.

        One attempt: what to do without an answer is `write/commit.py`'s to decide.
        """

    def flush(self, stream: str, stop: int) -> None:
        """Makes rows ``[0, stop)`` of a buffered stream visible. May be repeated: a flush
        that is behind an earlier one is success.

        Raises:
            StreamGoneError, StreamFinalizedError: `on_lost_stream` decides.
        """


# --- jobs and tables -------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the service tells of it; `resource` is its whole REST resource."""

    id: str
    location: str
    done: bool
    error: str | None
    resource: Mapping[str, Any]


class JobService(Protocol):
    """Jobs, over REST."""

    def insert(
        self,
        job_id: str,
        configuration: Mapping[str, Any],
        *,
        location: str | None,
        labels: Mapping[str, str] | None = None,
    ) -> Job:
        """Inserts a job under an id; repeatable because the id is the fence.

        Raises:
            ConflictError: a job with that id exists (`get` it).
        """

    def get(self, job_id: str, *, location: str | None) -> Job | None:
        """Returns the job, None if there is none."""

    def wait(self, job_id: str, *, location: str | None, budget_s: float) -> Job:
        """Polls until the job is done. A job that failed is returned, not raised."""

    def query_rows(self, job_id: str, *, location: str | None) -> Iterator[Mapping[str, Any]]:
        """Yields the rows of a finished query as plain REST values; for small results."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A table as the service tells of it; `resource` is its whole REST resource.

    `kind` is TABLE, VIEW, MATERIALIZED_VIEW, EXTERNAL or SNAPSHOT.
    """

    reference: TableReference
    schema: TableSchema
    kind: str
    location: str
    etag: str
    resource: Mapping[str, Any]


class TableService(Protocol):
    """Datasets and tables, over REST."""

    def get(self, table: TableReference) -> Table | None:
        """Returns the table, None if it or its dataset does not exist."""

    def create(self, table: TableReference, resource: Mapping[str, Any]) -> None:
        """Creates a table from a REST resource; one that exists already is success."""

    def patch(self, table: TableReference, resource: Mapping[str, Any], *, etag: str) -> None:
        """Changes a table. Raises `ConflictError` when it changed since `etag`."""

    def delete(self, table: TableReference) -> None:
        """Deletes a table; one that is gone is success."""

    def dataset_location(self, table: TableReference) -> str:
        """Returns the location of the table's dataset.

        Raises:
            NotFoundError: there is no such dataset.
        """


class Client(Protocol):
    """An open connection: its services, and an end."""

    @property
    def read(self) -> ReadService: ...

    @property
    def write(self) -> WriteService: ...

    @property
    def pool(self) -> AppendPool: ...

    @property
    def jobs(self) -> JobService: ...

    @property
    def tables(self) -> TableService: ...

    def close(self) -> None: ...
