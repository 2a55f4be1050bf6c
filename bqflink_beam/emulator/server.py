"""`EmulatorServer`: the embedded BigQuery as a whole, its ports and its oracle."""

import concurrent.futures
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import grpc

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.emulator import types, values
from bqflink_beam.emulator.admin import AdminServer
from bqflink_beam.emulator.faults import Faults
from bqflink_beam.emulator.files import Files
from bqflink_beam.emulator.journal import FileJournal
from bqflink_beam.emulator.objects import Objects
from bqflink_beam.emulator.read import ReadService
from bqflink_beam.emulator.rest import LOOPBACK, RestServer
from bqflink_beam.emulator.routes import make_jobs, serve
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.emulator.store import Store, StoredTable
from bqflink_beam.emulator.tls import TlsFront
from bqflink_beam.emulator.write import WriteService
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema

# One thread for each open call. They start when needed, and an idle call costs only its stack;
# fewer than there are calls, and a unary call would wait for a writer to hang up.
_THREADS_MAX = 2048
# By what name of the certificate a client on this machine reaches an address.
_LOCAL_NAMES = {"127.0.0.1": "localhost", "0.0.0.0": "localhost", "::": "[::1]"}
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)


@dataclasses.dataclass(frozen=True)
class StreamState:
    """A write stream as the oracle sees it. `flushed` counts rows, so it is exclusive."""

    name: str
    table: str
    kind: str
    rows: int
    flushed: int
    finalized: bool
    committed: bool
    expired: bool


class EmulatorServer:
    """A BigQuery of its own: store, gRPC and REST servers, faults, oracle.

    Any number of them run in one process. `start` it before use and `stop` it after, or
    use it as a context manager.

    Args:
        clock: what the server takes for time.
        settings: its limits.
        host: the address to listen at; loopback unless said otherwise.
        rest_port: port of REST, 0 for any.
        storage_port: port of gRPC, 0 for any.
        admin_port: port of the admin API, 0 for any; None for no such API.
        tls_port: port that serves REST and gRPC over TLS, 0 for any; None for no TLS.
        tls_names: hosts that its certificate is for besides ``localhost`` and `host`, for
            clients that come through a name of their own; ``*.googleapis.com`` is one.
        data_dir: folder that keeps everything, over kills too; None for memory only.

    Raises:
        ConfigError: the data folder is damaged, or another server's.
    """

    def __init__(
        self,
        *,
        clock: Clock = SYSTEM_CLOCK,
        settings: Settings | None = None,
        host: str = "127.0.0.1",
        rest_port: int = 0,
        storage_port: int = 0,
        admin_port: int | None = None,
        tls_port: int | None = None,
        tls_names: Sequence[str] = (),
        data_dir: pathlib.Path | str | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.clock = clock
        self._journal = FileJournal(pathlib.Path(data_dir)) if data_dir is not None else None
        self.store = Store(clock, journal=self._journal)
        self.faults = Faults(clock)
        self.write = WriteService(self.store, self.faults, self.settings)
        self.read = ReadService(self.store, self.faults, self.settings)
        self.objects = Objects(clock)
        files = Files(self.settings.files_root, self.settings.gcs_endpoint, self.objects)
        self.jobs = make_jobs(self.store, self.faults, files)
        self._host = host
        self._storage_port = storage_port
        self._rest_port = rest_port
        self._admin_port = admin_port
        self._admin: AdminServer | None = None
        self._tls_port = tls_port
        self._tls_names = tuple(tls_names)
        self._tls: TlsFront | None = None
        self._rest: RestServer | None = None
        self._rest_behind_tls: RestServer | None = None
        self._threads: concurrent.futures.ThreadPoolExecutor | None = None
        self._grpc: grpc.Server | None = None

    # --- life ---

    def start(self) -> "EmulatorServer":
        """Opens the ports.

        Raises:
            OSError: a port is taken.
        """
        try:
            self._start_grpc()
            self._rest = serve(
                self.store, self.jobs, self.faults, self._host, self._rest_port, self.objects
            )
            self._rest_port = self._rest.port
            self.jobs.resume()
            if self._tls_port is not None:
                self._start_tls(self._tls_port, self._rest)
            if self._admin_port is not None:
                self._admin = AdminServer(self, self._admin_port)
                self._admin.start()
        except OSError:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Breaks all calls and closes the ports; returns when no thread is left."""
        if self._admin is not None:
            self._admin.stop()
            self._admin = None
        if self._tls is not None:
            self._tls.stop()
            self._tls = None
        if self._rest_behind_tls is not None:
            self._rest_behind_tls.stop()
            self._rest_behind_tls = None
        if self._rest is not None:
            self._rest.stop()
            self._rest = None
        self.jobs.stop()
        if self._grpc is not None:
            self._grpc.stop(0).wait()
            self._grpc = None
        if self._threads is not None:
            self._threads.shutdown(wait=True)
            self._threads = None
        if self._journal is not None:
            self._journal.close()
            self._journal = None

    def _start_grpc(self) -> None:
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS_MAX, "bigquery-grpc")
        server = grpc.server(self._threads, options=_OPTIONS)
        server.add_generic_rpc_handlers((self.write.handlers(), self.read.handlers()))
        try:
            self._storage_port = server.add_insecure_port(self.storage_endpoint)
        except RuntimeError as error:
            raise OSError(f"cannot listen at {self.storage_endpoint}: {error}") from error
        server.start()
        self._grpc = server

    def _start_tls(self, port: int, rest: RestServer) -> None:
        behind = self._rest_behind_tls = rest.behind_tls()
        front = TlsFront(
            self._host,
            port,
            rest=(LOOPBACK, behind.port),
            grpc=(self._host, self._storage_port),
            names=self._tls_names,
        )
        front.start()
        self._tls = front

    def __enter__(self) -> "EmulatorServer":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def storage_endpoint(self) -> str:
        """``host:port`` of the Storage APIs."""
        return f"{_in_url(self._host)}:{self._storage_port}"

    @property
    def rest_endpoint(self) -> str:
        """URL of the REST API."""
        return f"http://{_in_url(self._host)}:{self._rest_port}"

    @property
    def tls_endpoint(self) -> str | None:
        """``localhost:port`` of REST and gRPC over TLS, None if there is none."""
        if self._tls is None:
            return None
        return f"{_LOCAL_NAMES.get(self._host) or _in_url(self._host)}:{self._tls.port}"

    @property
    def ca_certificate(self) -> str | None:
        """Path of the certificate that TLS clients must trust; it goes when the server stops."""
        return str(self._tls.ca_certificate) if self._tls is not None else None

    @property
    def admin_endpoint(self) -> str | None:
        """URL of the admin API, None if there is none."""
        return self._admin.endpoint if self._admin is not None else None

    # --- what tests prepare and ask ---

    def create_dataset(self, project: str, dataset: str, *, location: str = "US") -> None:
        """Makes a dataset; one that exists already is left as it is."""
        with self.store.lock:
            if self.store.get_dataset(project, dataset) is None:
                self.store.create_dataset(project, dataset, {"location": location})

    def create_table(
        self,
        table: str | TableReference,
        schema: TableSchema | Sequence[Field] | Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        rows: Sequence[Mapping[str, Any]] = (),
        **resource: Any,
    ) -> StoredTable:
        """Makes a table, and its dataset if there is none.

        Args:
            schema: a `TableSchema`, fields, or either as REST has them.
            rows: its first rows, Python values by exact column name.
            resource: more of the table's REST resource (``timePartitioning={...}``).
        """
        reference = TableReference.parse(table)
        self.create_dataset(reference.project, reference.dataset)
        model = _schema(schema)
        made = self.store.create_table(
            reference, {**resource, "schema": types.schema_to_rest(model)}
        )
        if rows:
            made.append([values.batch_from_rows(model, rows)])
        return made

    def visible_rows(self, table: str | TableReference) -> list[dict[str, Any]]:
        """Returns the rows that a reader would see now, as Python values.

        Raises:
            Refused: NOT_FOUND.
        """
        found = self.store.require_table(TableReference.parse(table))
        return values.python_rows(found.snapshot().chunks)

    def streams(self, table: str | TableReference | None = None) -> list[StreamState]:
        """Returns the write streams made so far, of one table or all."""
        wanted = str(TableReference.parse(table)) if table is not None else None
        states = [
            StreamState(
                name=state["name"],
                table=".".join(state["table"]),
                kind=state["kind"],
                rows=state["rows"],
                flushed=state["flushed"],
                finalized=state["finalized"],
                committed=state["kind"] == "PENDING" and state["commit_s"] is not None,
                expired=state["expired"],
            )
            for state in self.write.streams.states()
        ]
        return [state for state in states if wanted is None or state.table == wanted]

    @property
    def counters(self) -> dict[str, int]:
        """Calls by method, and rows and connections."""
        return self.faults.counters()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _schema(schema: Any) -> TableSchema:
    if isinstance(schema, TableSchema):
        return schema
    if isinstance(schema, Mapping):
        return types.schema_from_rest(schema)
    fields = tuple(schema)
    if fields and isinstance(fields[0], Field):
        return TableSchema(fields)
    return types.schema_from_rest({"fields": fields})
