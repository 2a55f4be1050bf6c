"""What Google's clients send and are sent, as bytes: they talk to these, and nothing parses.

`Storage` stands in for the Storage API. It keeps the requests of AppendRows as they came, and
answers the calls of a reader with bytes that it was given. `Http` stands in for the REST API.
"""

import concurrent.futures
import contextlib
import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
import requests
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery
from google.cloud.bigquery_storage_v1 import types

from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import Emulator

T = TableReference("p", "d", "t")
_READ = "google.cloud.bigquery.storage.v1.BigQueryRead"
_WRITE = "google.cloud.bigquery.storage.v1.BigQueryWrite"


class Storage:
    """Raw bytes over gRPC.

    Attributes:
        appended: the requests of AppendRows, as bytes.
    """

    def __init__(self, *, session: bytes = b"", rows: bytes = b"") -> None:
        """
        Args:
            session: what CreateReadSession answers.
            rows: the one message that ReadRows answers.
        """
        self.appended: list[bytes] = []
        self._session = session
        self._rows = rows

    @contextlib.contextmanager
    def channel(self) -> Iterator[grpc.Channel]:
        """Serves on a free port for a block; yields a channel to it."""
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            server = grpc.server(threads)
            reads = {
                "CreateReadSession": grpc.unary_unary_rpc_method_handler(
                    lambda request, call: self._session
                ),
                "ReadRows": grpc.unary_stream_rpc_method_handler(
                    lambda request, call: iter([self._rows])
                ),
            }
            writes = {"AppendRows": grpc.stream_stream_rpc_method_handler(self._append)}
            server.add_generic_rpc_handlers(
                (
                    grpc.method_handlers_generic_handler(_READ, reads),
                    grpc.method_handlers_generic_handler(_WRITE, writes),
                )
            )
            port = server.add_insecure_port("127.0.0.1:0")
            server.start()
            try:
                with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                    yield channel
            finally:
                server.stop(0).wait()

    def _append(self, requests: Iterator[bytes], call: Any) -> Iterator[bytes]:
        for request in requests:
            self.appended.append(request)
            answer = types.AppendRowsResponse.pb()()
            answer.append_result.SetInParent()
            yield answer.SerializeToString()


def stored(server: Emulator, schema: TableSchema, *requests: bytes) -> list[dict[str, Any]]:
    """Sends requests as they are to `T`, made anew; returns the rows that it then holds."""
    if server.store.get_table(T) is not None:
        server.store.delete_table(T)
    server.create_table(T, schema)
    with grpc.insecure_channel(server.storage_endpoint) as channel:
        call = channel.stream_stream(
            f"/{_WRITE}/AppendRows",
            response_deserializer=types.AppendRowsResponse.pb().FromString,
        )
        for answer in call(iter(requests), timeout=30):
            assert answer.WhichOneof("response") == "append_result", answer
    return [as_ours(schema.fields, row) for row in server.visible_rows(T)]


def as_ours(fields: Sequence[Field], row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row of the server, or of Google's reader, with the types that ours have."""
    return {field.name: _as_ours(field, row[field.name]) for field in fields}


def _as_ours(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_as_ours(field, item) for item in value]
    if field.type == "STRUCT":
        return as_ours(field.fields, value)
    if field.type == "RANGE":
        return Range(**value)
    if field.type == "INTERVAL":
        return Interval(value[0], value[1], value[2] // 1000)
    return value


class Http(requests.Session):
    """Answers requests by method and the end of their path; keeps what they sent.

    Attributes:
        sent: method, URL and body of each.
    """

    is_mtls = False

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__()
        self.answers = answers
        self.sent: list[tuple[str, str, bytes]] = []

    def request(self, method: str, url: str, **more: Any) -> requests.Response:
        body = more.get("data") or b""
        self.sent.append((method, url, body.encode() if isinstance(body, str) else body))
        path = url.partition("?")[0]
        end = next(end for end in self.answers if path.endswith(end))
        response = requests.Response()
        response.status_code = 200
        response.headers["Content-Type"] = "application/json"
        response._content = json.dumps(self.answers[end]).encode()
        return response


def client(http: Http) -> bigquery.Client:
    """Returns Google's client on such a stand-in."""
    return bigquery.Client(project="p", credentials=AnonymousCredentials(), _http=http)


def typed(value: Any) -> Any:
    """Returns a value with the type of every part of it, since 1 == 1.0 == True."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if isinstance(value, float):
        return (float, repr(value))
    if isinstance(value, datetime.datetime):
        return (type(value), value.replace(tzinfo=None), value.utcoffset())
    return (type(value), value)
