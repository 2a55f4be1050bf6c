"""The admin API: faults, counters, clock and oracle, for tests in another process.

Plain JSON over HTTP, off unless a port is asked for, and on loopback only:

    GET    /                                a page for people that shows it all
    GET    /counters                        calls by method
    GET    /tables                          names, kinds and sizes
    GET    /faults                          rules with their ids and hits
    POST   /faults        {Fault fields}    adds a rule: {"id": 1}
    DELETE /faults, /faults/1               removes all, or one
    GET    /streams?table=p.d.t             states of write streams
    GET    /rows?table=p.d.t                visible rows, as REST cells
    POST   /expire        {"name": ...}     makes a write stream or read session too old
    POST   /clock         {"advance_s": 1}  moves the server's time on

Only requests with a JSON content type and a loopback Host are served, so that no web
page can send one.
"""

import dataclasses
import http.server
import json
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any

from bqflink_beam.emulator import values
from bqflink_beam.emulator.console import PAGE
from bqflink_beam.emulator.faults import Fault
from bqflink_beam.emulator.moving_clock import MovingClock
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference

if TYPE_CHECKING:
    from bqflink_beam.emulator.server import EmulatorServer

_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
_ADVANCE_MAX_S = 1e9
_BODY_BYTES_MAX = 1 << 20


class AdminServer:
    """Serves the admin API of one server."""

    def __init__(self, emulator: "EmulatorServer", port: int) -> None:
        self._http = http.server.ThreadingHTTPServer(("127.0.0.1", port), _Handler)
        # The handler threads end with their one request; joined when the server closes.
        self._http.daemon_threads = False
        self._http.emulator = emulator  # type: ignore[attr-defined]
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.05,), name="bigquery-admin", daemon=True
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    """One request of the admin API."""

    timeout = 10

    def do_GET(self) -> None:
        self._serve("GET")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def log_message(self, format: str, *args: Any) -> None:
        """Keeps standard error clean."""

    def _serve(self, method: str) -> None:
        host = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host")
        if host not in _HOSTS:
            self._answer(403, {"error": "the admin API serves this machine only"})
            return
        url = urllib.parse.urlsplit(self.path)
        if (method, url.path) == ("GET", "/"):
            self._send(200, "text/html; charset=utf-8", PAGE.encode())
            return
        query = {key: found[-1] for key, found in urllib.parse.parse_qs(url.query).items()}
        try:
            body = self._body() if method == "POST" else {}
            answer = _route(self.server.emulator, method, url.path, query, body)  # type: ignore[attr-defined]
        except Refused as refused:
            self._answer(404 if refused.code == "NOT_FOUND" else 400, {"error": refused.message})
        except ConfigError as error:
            self._answer(400, {"error": str(error)})
        else:
            self._answer(200, answer)

    def _body(self) -> dict[str, Any]:
        if self.headers.get_content_type() != "application/json":
            raise ConfigError("the content type must be application/json")
        text = self.headers.get("Content-Length") or ""
        if not text.isdigit() or int(text) > _BODY_BYTES_MAX:
            raise ConfigError(f"the body must have a length of at most {_BODY_BYTES_MAX} bytes")
        length = int(text)
        try:
            body = json.loads(self.rfile.read(length) or b"{}")
        except ValueError as error:
            raise ConfigError(f"the body is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise ConfigError("the body must be a JSON object")
        return body

    def _answer(self, status: int, document: Any) -> None:
        self._send(status, "application/json", json.dumps(document).encode())

    def _send(self, status: int, content_type: str, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Frame-Options", "DENY")
        self.end_headers()
        self.wfile.write(data)


def _route(
    server: "EmulatorServer", method: str, path: str, query: dict[str, str], body: dict[str, Any]
) -> Any:
    if (method, path) == ("GET", "/counters"):
        return server.counters
    if (method, path) == ("GET", "/tables"):
        return _tables(server)
    if path == "/faults" or path.startswith("/faults/"):
        return _faults(server, method, path.removeprefix("/faults").strip("/"), body)
    if (method, path) == ("GET", "/streams"):
        return [dataclasses.asdict(state) for state in server.streams(query.get("table"))]
    if (method, path) == ("GET", "/rows"):
        table = server.store.require_table(TableReference.parse(query.get("table", "")))
        return values.rest_rows(table.schema, table.snapshot().chunks, int64_timestamps=True)
    if (method, path) == ("POST", "/expire"):
        name = str(body.get("name", ""))
        if not (server.write.streams.expire(name) or server.read.expire(name)):
            raise Refused(f"no such write stream or read session: {name!r}", code="NOT_FOUND")
        return {}
    if (method, path) == ("POST", "/clock"):
        if not isinstance(server.clock, MovingClock):
            raise ConfigError("this server's clock cannot be moved")
        advance_s = body.get("advance_s")
        if not isinstance(advance_s, (int, float)) or not 0 <= advance_s < _ADVANCE_MAX_S:
            raise ConfigError(f"advance_s must be a number of seconds, got {advance_s!r}")
        server.clock.advance(advance_s)
        return {"now_s": server.clock.now_s()}
    raise Refused(f"no such thing: {method} {path}", code="NOT_FOUND")


def _tables(server: "EmulatorServer") -> list[dict[str, Any]]:
    with server.store.lock:
        tables = sorted(server.store.tables.values(), key=lambda table: str(table.reference))
    found = []
    for table in tables:
        snapshot = table.snapshot()
        found.append(
            {
                "table": str(table.reference),
                "kind": table.kind,
                "rows": snapshot.row_count,
                "bytes": snapshot.nbytes,
            }
        )
    return found


def _faults(server: "EmulatorServer", method: str, number: str, body: dict[str, Any]) -> Any:
    faults = server.faults
    if method == "GET" and not number:
        return [
            {"id": at, "hits": faults.hits(at), **dataclasses.asdict(fault)}
            for at, fault in faults.rules().items()
        ]
    if method == "POST" and not number:
        return {"id": faults.add(Fault.from_json(body))}
    if method == "DELETE" and number.isdigit():
        faults.remove(int(number))
        return {}
    if method == "DELETE" and not number:
        faults.clear()
        return {}
    raise Refused(f"no such fault: {number!r}", code="NOT_FOUND")
