"""Open clients: one set of channels, sessions and append connections per connection and process."""

import threading
from collections.abc import Callable
from typing import Any

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.errors import ConfigError
from bqflink_beam.service import credentials as credentials_module
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.jobs import RestJobs
from bqflink_beam.service.pool import AppendPool
from bqflink_beam.service.read import StorageRead
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.rest import Rest
from bqflink_beam.service.tables import RestTables
from bqflink_beam.service.write import StorageWrite

_LOCK = threading.Lock()
_SHARED: dict[Connection, "_Shared"] = {}


class OpenClient:
    """One owner's hold on the services of a connection. The last one to close ends them."""

    def __init__(self, shared: "_Shared") -> None:
        self._shared: _Shared | None = shared

    @property
    def read(self) -> StorageRead:
        return self._open().read

    @property
    def write(self) -> StorageWrite:
        return self._open().write

    @property
    def jobs(self) -> RestJobs:
        return self._open().jobs

    @property
    def tables(self) -> RestTables:
        return self._open().tables

    @property
    def pool(self) -> AppendPool:
        """The default-stream connections of this process."""
        return self._open().pool

    def close(self) -> None:
        """Lets go. May be repeated."""
        shared, self._shared = self._shared, None
        if shared is not None:
            _release(shared)

    def _open(self) -> "_Shared":
        if self._shared is None:
            raise ConfigError("this client is closed; open the connection again")
        return self._shared


def open_client(connection: Connection) -> OpenClient:
    """Returns a client of `connection`, sharing what this process has open already.

    Raises:
        ConfigError: a credentials file is missing or unusable.
    """
    with _LOCK:
        shared = _SHARED.get(connection)
        if shared is None:
            shared = _SHARED[connection] = _Shared(connection)
        shared.holders += 1
        return OpenClient(shared)


class _Shared:
    """What all clients of one connection share."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.holders = 0
        load = _loader(connection)
        self._channels = Channels(connection, load)
        self._rest = Rest(connection, load)
        recent = Recent(SYSTEM_CLOCK)
        self.read = StorageRead(self._channels, connection, recent)
        self.write = StorageWrite(self._channels, recent)
        self.pool = AppendPool(self.write)
        self.jobs = RestJobs(self._rest, connection)
        self.tables = RestTables(self._rest, recent)

    def close(self) -> None:
        self.pool.close()
        self._channels.close()
        self._rest.close()


def _release(shared: _Shared) -> None:
    with _LOCK:
        shared.holders -= 1
        if shared.holders:
            return
        del _SHARED[shared.connection]
    shared.close()


def _loader(connection: Connection) -> Callable[[], Any]:
    """Returns a function that loads the credentials once.

    Those that lie in a file or a text are loaded here and now, so that what is wrong
    with them is said at `open`; asking the machine for its own may need the network.
    """
    lock = threading.Lock()
    loaded: list[Any] = []

    def load() -> Any:
        with lock:
            if not loaded:
                loaded.append(
                    credentials_module.load(
                        connection.credentials, quota_project=connection.quota_project
                    )
                )
            return loaded[0]

    if not credentials_module.may_ask_network(connection.credentials):
        load()
    return load
