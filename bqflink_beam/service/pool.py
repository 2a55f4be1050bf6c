"""The default-stream connections of a process: few, shared by all tables, more under load."""

import threading
from collections.abc import Sequence

from bqflink_beam.errors import PermanentError
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import TableSchema
from bqflink_beam.service.append import Appends, UpdatedSchemas
from bqflink_beam.service.append_window import Ticket
from bqflink_beam.service.base import DEFAULT_STREAM_BUDGET_S
from bqflink_beam.service.write import StorageWrite

_CONNECTIONS_MAX = 10
# A connection is busy at a fifth of what it may have under way.
_BUSY_BYTES = 20 * 1024 * 1024
_BUSY_REQUESTS = 200


class AppendPool:
    """Sends rows to default streams over the least loaded of a few connections.

    At least once: a request whose call broke is sent again. Rows of one table may go
    over several connections, so their order is not kept.
    """

    def __init__(
        self,
        write: StorageWrite,
        *,
        connections_max: int = _CONNECTIONS_MAX,
        budget_s: float = DEFAULT_STREAM_BUDGET_S,
    ) -> None:
        self._write = write
        self._connections_max = connections_max
        self._budget_s = budget_s
        self._lock = threading.Lock()
        self._routing: dict[str, str] = {}
        self._connections: dict[str, list[Appends]] = {}
        self._schemas = UpdatedSchemas()
        self._closed = False

    def send(self, stream: str, descriptor: bytes, rows: Sequence[bytes]) -> Ticket:
        """Queues rows for a default stream; waits while all connections are full.

        Raises:
            NotFoundError, AccessDeniedError: of a table used for the first time.
        """
        routing = self._routing.get(stream) or self._found(stream)
        return self._least_loaded(routing).append(stream, descriptor, rows, None)

    def updated_schema(self, stream: str) -> TableSchema | None:
        """Returns the newest schema that the service has told of for a default stream's table."""
        return self._schemas.newest(stream)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return sum(map(len, self._connections.values()))

    def close(self) -> None:
        """Ends all calls; what has no answer raises `OutcomeUnknownError`."""
        with self._lock:
            self._closed = True
            everyone = [appends for group in self._connections.values() for appends in group]
            self._connections.clear()
        for appends in everyone:
            appends.close()

    def _found(self, stream: str) -> str:
        """Asks where a table is: a shared call is routed by region, not by stream."""
        # Only an emulator names no location, and it routes nothing.
        location = self._write.get_stream(stream).location or "us"
        project = TableReference.from_path(stream).project
        routing = f"write_location=projects/{project}/locations/{location}"
        self._routing[stream] = routing
        return routing

    def _least_loaded(self, routing: str) -> Appends:
        with self._lock:
            if self._closed:
                raise PermanentError("this pool of append connections is closed")
            group = [it for it in self._connections.get(routing, []) if not it.closed]
            self._connections[routing] = group
            least = min(group, key=lambda appends: appends.bytes_under_way, default=None)
            if least is None or (_busy(least) and len(group) < self._connections_max):
                least = self._write.open_appends(
                    routing=routing, budget_s=self._budget_s, schemas=self._schemas
                )
                group.append(least)
            return least


def _busy(appends: Appends) -> bool:
    return appends.bytes_under_way >= _BUSY_BYTES or appends.requests_under_way >= _BUSY_REQUESTS
