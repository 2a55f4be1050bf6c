"""An HTTP server that answers what a script says, and remembers what it was asked."""

import collections
import dataclasses
import http.server
import json
import ssl
import threading
import urllib.parse


@dataclasses.dataclass(frozen=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    query: dict
    body: object
    headers: dict


DROP = "drop the connection without an answer"


class ScriptedRest:
    """`script` holds ``(code, value)``, ``(code, value, headers)`` or `DROP`; then ``200 {}``."""

    def __init__(self, tls=None):
        self.script = collections.deque()
        self.asked = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                outer._answer(self)

            do_GET = do_POST = do_PATCH = do_DELETE = handle_one

            def log_message(self, *args):
                return

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda request, address: None
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def close(self):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, handler):
        parts = urllib.parse.urlsplit(handler.path)
        size = int(handler.headers.get("content-length") or 0)
        text = handler.rfile.read(size)
        is_json = "json" in (handler.headers.get("content-type") or "")
        self.asked.append(
            Asked(
                handler.command,
                parts.path,
                dict(urllib.parse.parse_qsl(parts.query)),
                json.loads(text) if text and is_json else text or None,
                {name.lower(): value for name, value in handler.headers.items()},
            )
        )
        step = self.script.popleft() if self.script else (200, {})
        if step == DROP:
            handler.close_connection = True
            handler.connection.shutdown(2)
            return
        code, value, *headers = step
        content = value.encode() if isinstance(value, str) else json.dumps(value).encode()
        handler.send_response(code)
        handler.send_header("content-length", str(len(content)))
        for name, text in (headers[0] if headers else {}).items():
            handler.send_header(name, text)
        handler.end_headers()
        handler.wfile.write(content)


def error(code, reason, message="scripted"):
    """What BigQuery sends with an HTTP error."""
    detail = {"reason": reason, "message": message, "domain": "global"}
    return code, {"error": {"code": code, "message": message, "errors": [detail]}}
