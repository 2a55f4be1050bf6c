"""The REST v2 server: HTTP, routes, error bodies. What the methods do is elsewhere.

``/bigquery/v2/...`` and its upload twin, over HTTP/1.1 with connections kept open.
"""

import contextlib
import dataclasses
import gzip
import http.server
import json
import logging
import re
import select
import socket
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

from bqflink_beam.emulator.api_errors import error_body, http_status, invalid
from bqflink_beam.emulator.faults import Call, Faults, Injected
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rpc import PID_HEADER
from bqflink_beam.emulator.shapes import check_shape

_LOG = logging.getLogger(__name__)
_PREFIXES = ("/bigquery/v2", "/upload/bigquery/v2", "/resumable/upload/bigquery/v2")
_POLL_S = 0.2
LOOPBACK = "127.0.0.1"


@dataclasses.dataclass(frozen=True)
class Request:
    """One HTTP request, taken apart. `path` holds the parts that the route names."""

    method: str
    path: Mapping[str, str]
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    uploading: bool = False
    scheme: str = "http"

    @property
    def origin(self) -> str:
        """The URL of this server as the caller knows it, for URLs in answers."""
        return f"{self.scheme}://{self.headers.get('host', '')}"

    def json(self) -> dict[str, Any]:
        """Returns the body as a JSON object, {} if there is none.

        Raises:
            Refused: it is none.
        """
        if not self.body:
            return {}
        try:
            value = json.loads(self.body, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise invalid(f"Parse Error: {error}") from None
        if not isinstance(value, dict):
            raise invalid("Parse Error: the body must be a JSON object")
        check_shape(value)
        return value


@dataclasses.dataclass(frozen=True)
class Response:
    """What a method answers: a JSON value (None for no body), or `data` of another type."""

    value: Any = None
    status: int = 200
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    data: bytes | None = None
    content_type: str = "application/json; charset=UTF-8"


Handler = Callable[[Request], Any]


@dataclasses.dataclass(frozen=True)
class Route:
    """One method of the API. `template` has ``{name}`` for parts of the path."""

    verb: str
    template: str
    name: str
    handler: Handler

    def match(self, path: str) -> dict[str, str] | None:
        pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", self.template)
        found = re.fullmatch(pattern, path)
        if found is None:
            return None
        return {key: urllib.parse.unquote(value) for key, value in found.groupdict().items()}


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


class RestServer:
    """A running server. `port` is where it listens.

    Args:
        scheme: of the URLs by which clients reach it: https where TLS ends in front of it.
    """

    def __init__(
        self, routes: list[Route], faults: Faults, host: str, port: int, scheme: str = "http"
    ) -> None:
        server_class = _HttpServer6 if ":" in host else _HttpServer
        self._server = server_class((host, port), routes, faults, scheme)
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="bigquery-rest", daemon=True
        )
        self._thread.start()

    def behind_tls(self) -> "RestServer":
        """Starts a second port of the same methods, on loopback, for what arrives through TLS."""
        return RestServer(self._server.routes, self._server.faults, LOOPBACK, 0, "https")

    def stop(self) -> None:
        """Breaks all connections and closes the port; returns when no thread is left."""
        self._server.shutdown()
        self._thread.join()
        self._server.break_connections()
        self._server.server_close()


class RestCall(Call):
    """One HTTP request as faults see it; over when the client has gone."""

    def __init__(self, connection: socket.socket, pid: str | None) -> None:
        super().__init__(int(pid) if pid and pid.isdigit() else None)
        self._connection = connection

    def wait_until_over(self) -> None:
        while not self._over.wait(0):
            readable, _, _ = select.select([self._connection], [], [], _POLL_S)
            if readable and not _peek(self._connection):
                self.finish()


def _peek(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1, socket.MSG_PEEK)
    except OSError:
        return b""


class _HttpServer(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = True
    request_queue_size = 256

    def __init__(
        self, address: tuple[str, int], routes: list[Route], faults: Faults, scheme: str
    ) -> None:
        self.routes = routes
        self.faults = faults
        self.scheme = scheme
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, _HttpHandler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._connections.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._connections.discard(request)

    def break_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.debug("connection of %s broke", client_address, exc_info=True)


class _HttpServer6(_HttpServer):
    address_family = socket.AF_INET6


class _Cut(Exception):
    """The connection is to be broken without an answer."""


class _HttpHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _HttpServer
    disable_nagle_algorithm = True
    wbufsize = -1

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except _Cut:
            self.close_connection = True

    def _serve(self) -> None:
        url = urllib.parse.urlsplit(self.path)
        try:
            response = self._answer(url)
        except Refused as refused:
            response = Response(error_body(refused), http_status(refused))
        except (_Cut, OSError):
            raise
        except Exception as error:
            # The caller must get an answer, and the bug a trace.
            _LOG.exception("%s %s failed", self.command, self.path)
            internal = Refused(f"{type(error).__name__}: {error}", code="INTERNAL")
            response = Response(error_body(internal), http_status(internal))
        self._send(response)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _answer(self, url: urllib.parse.SplitResult) -> Response:
        body = self._body()
        prefix = next((p for p in _PREFIXES if url.path.startswith(p + "/")), None)
        path = url.path[len(prefix) :] if prefix is not None else url.path
        verb = self.headers.get("X-HTTP-Method-Override", self.command).upper()
        uploading = prefix is not None and "upload" in prefix
        for route in self.server.routes:
            parts = route.match(path) if route.verb == verb else None
            if parts is not None:
                parameters = dict(urllib.parse.parse_qsl(url.query, keep_blank_values=True))
                headers = {key.lower(): value for key, value in self.headers.items()}
                request = Request(
                    verb, parts, parameters, headers, body, uploading, self.server.scheme
                )
                return self._call(route, request)
        raise Refused(f"Not found: {self.command} {url.path}", code="NOT_FOUND")

    def _call(self, route: Route, request: Request) -> Response:
        call = RestCall(self.connection, self.headers.get(PID_HEADER))
        try:
            acting = self.server.faults.arrive(route.name, table=_table_of(request), call=call)
            acting.before()
            value = route.handler(request)
            if acting.duplicate:
                value = route.handler(request)
            acting.after()
        except Injected as injected:
            if injected.cut:
                raise _Cut from None
            raise
        finally:
            call.finish()
        if isinstance(value, Response):
            return value
        return Response(value, 204 if value is None else 200)

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            body = self._chunks()
        else:
            length = self.headers.get("Content-Length") or "0"
            if not length.isdigit():
                raise invalid(f"Invalid Content-Length: {length}")
            body = self.rfile.read(int(length))
        if self.headers.get("Content-Encoding", "").lower() == "gzip":
            try:
                return gzip.decompress(body)
            except (OSError, EOFError):
                raise invalid("The body is not gzip as its Content-Encoding says") from None
        return body

    def _chunks(self) -> bytes:
        pieces = []
        while size := int(self.rfile.readline().partition(b";")[0].strip() or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return b"".join(pieces)

    def _send(self, response: Response) -> None:
        data = response.data
        if data is None:
            data = b"" if response.value is None else json.dumps(response.value).encode()
        self.send_response(response.status)
        for key, value in response.headers.items():
            self.send_header(key, value)
        if data:
            self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        _LOG.debug(format, *args)


def _table_of(request: Request) -> str:
    """Returns the table of a request for fault rules, "" if its path names none."""
    parts = [request.path.get(key) for key in ("project", "dataset", "table")]
    return ".".join(part for part in parts if part) if all(parts) else ""
