"""What the conformance suites are written with: rules, transports, and a few helpers.

A suite knows BigQuery only as raw messages over a `Transport`, so that one text runs
on the embedded server without a network, on the same over gRPC, and on the real one.
"""

import collections
import contextlib
import dataclasses
import datetime
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types as storage_types
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.rpc import status_pb2

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.names import TableReference

READ = "google.cloud.bigquery.storage.v1.BigQueryRead"
WRITE = "google.cloud.bigquery.storage.v1.BigQueryWrite"
_DEADLINE_S = 30.0

Test = TypeVar("Test", bound=Callable[..., Any])


@dataclasses.dataclass(frozen=True, order=True)
class Rule:
    """One thing that the service does, and who says so.

    `source` begins with its kind: ``proto`` (comments of the API's definition), ``docs``
    (Google's pages), ``google test`` (a test of Google's that runs on the service),
    ``measured`` (somebody's record of the service's answers), ``client`` (Google's client
    relies on it) or ``assumed``.
    """

    method: str
    text: str
    source: str


def rule(method: str, text: str, source: str) -> Callable[[Test], Test]:
    """Says which rule a test holds the service to; may be given several times."""

    def mark(test: Test) -> Test:
        test.rules = [*getattr(test, "rules", ()), Rule(method, text, source)]  # type: ignore[attr-defined]
        return test

    return mark


def rules_of(*suites: type) -> list[Rule]:
    """Returns the rules of suites, each once, in order."""
    found: dict[Rule, None] = {}
    for suite in suites:
        for name in dir(suite):
            if name.startswith("test_"):
                for each in getattr(getattr(suite, name), "rules", ()):
                    found[each] = None
    return sorted(found)


def message(name: str, /, **fields: Any) -> Any:
    """Makes a message of the Storage API."""
    return getattr(storage_types, name).pb()(**fields)


class Failure(Exception):
    """A call that ended with a status. `storage_errors` are (code, entity) of its details."""

    def __init__(self, code: str, text: str, details: Sequence[tuple[str, str]]) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.storage_errors = list(details)


def failure_of(status: status_pb2.Status) -> Failure:
    """Reads a ``google.rpc.Status``."""
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    kinds = storage_types.StorageError.pb()
    details = []
    for packed in status.details:
        error = kinds()
        if packed.Unpack(error):
            details.append((kinds.StorageErrorCode.Name(error.code), error.entity))
    return Failure(codes[status.code], status.message, details)


class Stream(Protocol):
    """An open AppendRows call."""

    def send(self, request: Any) -> None: ...

    def receive(self) -> Any:
        """Returns the next response.

        Raises:
            Failure: the call has ended with a status.
        """

    def close(self) -> None: ...


class Transport(Protocol):
    """How a suite talks to a BigQuery."""

    def unary(self, service: str, method: str, request: Any, response: Any) -> Any: ...

    def server_stream(
        self, service: str, method: str, request: Any, response: Any
    ) -> Iterator[Any]: ...

    def append_rows(self) -> Stream: ...


class GrpcTransport:
    """Over a channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def unary(self, service: str, method: str, request: Any, response: Any) -> Any:
        call = self._channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=_serialize,
            response_deserializer=response.FromString,
        )
        with _failures():
            return call(request, timeout=_DEADLINE_S, metadata=_routing(request))

    def server_stream(
        self, service: str, method: str, request: Any, response: Any
    ) -> Iterator[Any]:
        call = self._channel.unary_stream(
            f"/{service}/{method}",
            request_serializer=_serialize,
            response_deserializer=response.FromString,
        )
        with _failures():
            yield from call(request, timeout=_DEADLINE_S, metadata=_routing(request))

    def append_rows(self) -> Stream:
        return _GrpcStream(self._channel)


class _GrpcStream:
    def __init__(self, channel: grpc.Channel) -> None:
        self._requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._call: Any = None
        self._open = channel.stream_stream(
            f"/{WRITE}/AppendRows",
            request_serializer=_serialize,
            response_deserializer=storage_types.AppendRowsResponse.pb().FromString,
        )

    def send(self, request: Any) -> None:
        self._requests.put(request)
        if self._call is None:
            metadata = (("x-goog-request-params", f"write_stream={request.write_stream}"),)
            self._call = self._open(
                iter(self._requests.get, None), timeout=_DEADLINE_S, metadata=metadata
            )

    def receive(self) -> Any:
        with _failures():
            return next(self._call)

    def close(self) -> None:
        self._requests.put(None)


class DirectTransport:
    """Straight into an embedded server's services, no network: fast enough for mutants.

    Args:
        services: by full name, objects whose methods are the RPCs in snake case.
        call: makes what a handler is given beside its request.
        refused: the class of the server's refusals, and `status_of` their status.
    """

    def __init__(
        self,
        services: Mapping[str, Any],
        call: Callable[[], Any],
        refused: type[Exception],
        status_of: Callable[[Any], status_pb2.Status],
    ) -> None:
        self._services = services
        self._call = call
        self._refused = refused
        self._status_of = status_of

    def unary(self, service: str, method: str, request: Any, response: Any) -> Any:
        handler = getattr(self._services[service], _snake(method))
        with self._failures():
            return handler(request, self._call())

    def server_stream(
        self, service: str, method: str, request: Any, response: Any
    ) -> Iterator[Any]:
        handler = getattr(self._services[service], _snake(method))
        with self._failures():
            for data in handler(request, self._call()):
                yield response.FromString(data)

    def append_rows(self) -> Stream:
        return _DirectStream(self)

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except self._refused as refused:
            raise failure_of(self._status_of(refused)) from refused


class _DirectStream:
    def __init__(self, transport: DirectTransport) -> None:
        self._transport = transport
        self._requests: collections.deque[bytes] = collections.deque()
        service = transport._services[WRITE]
        self._answers = service.append_rows(self._waiting(), transport._call())

    def _waiting(self) -> Iterator[bytes]:
        while self._requests:
            yield self._requests.popleft()

    def send(self, request: Any) -> None:
        self._requests.append(request.SerializeToString())

    def receive(self) -> Any:
        with self._transport._failures():
            data = next(self._answers)
        return storage_types.AppendRowsResponse.pb().FromString(data)

    def close(self) -> None:
        self._answers.close()


def _snake(method: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in method).lstrip("_")


def _serialize(request: Any) -> bytes:
    data: bytes = request.SerializeToString()
    return data


def _routing(request: Any) -> tuple[tuple[str, str], ...]:
    for field in ("write_stream", "name", "parent", "read_stream"):
        value = getattr(request, field, None)
        if isinstance(value, str) and value:
            return (("x-goog-request-params", f"{field}={value}"),)
    return ()


@contextlib.contextmanager
def _failures() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        packed = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
        status = status_pb2.Status.FromString(packed) if packed else status_pb2.Status()
        status.code, status.message = error.code().value[0], error.details() or ""
        raise failure_of(status) from error


# --- rows ---------------------------------------------------------------------------------


class Writer:
    """A writer schema and its rows.

    Args:
        fields: column name to proto type (``int64``, ``string``, ``repeated int64``) or to a
            nested `Writer`; a list of one `Writer` for a repeated message; or a class of a
            well-known message such as ``google.protobuf.Int64Value`` by its full name.
    """

    def __init__(self, name: str = "Row", /, **fields: Any) -> None:
        self.descriptor = descriptor_pb2.DescriptorProto(name=name)
        for number, (column, kind) in enumerate(fields.items(), start=1):
            self._add(number, column, kind)
        self._message: Any = None

    def _add(self, number: int, column: str, kind: Any) -> None:
        field = self.descriptor.field.add(name=column, number=number, label=1)
        if isinstance(kind, list):
            (kind,) = kind
            field.label = 3
        if isinstance(kind, Writer):
            nested = self.descriptor.nested_type.add()
            nested.CopyFrom(kind.descriptor)
            nested.name = f"T{number}"
            field.type, field.type_name = 11, f"{self.descriptor.name}.T{number}"
            field.ClearField("type_name")
            field.type_name = nested.name
        elif kind.startswith("google."):
            field.type, field.type_name = 11, f".{kind}"
        else:
            label, _, kind = kind.rpartition(" ")
            field.label = 3 if label == "repeated" else 1
            field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")

    @property
    def message(self) -> Any:
        """The message class of the writer schema."""
        if self._message is None:
            pool = descriptor_pool.DescriptorPool()
            file = descriptor_pb2.FileDescriptorProto(name="w.proto", syntax="proto2")
            file.message_type.add().CopyFrom(self.descriptor)
            default = descriptor_pool.Default()
            for known in ("wrappers", "timestamp", "duration"):
                path = f"google/protobuf/{known}.proto"
                copied = descriptor_pb2.FileDescriptorProto()
                default.FindFileByName(path).CopyToProto(copied)
                pool.Add(copied)
                file.dependency.append(path)
            pool.Add(file)
            found = pool.FindMessageTypeByName(self.descriptor.name)
            self._message = message_factory.GetMessageClass(found)
        return self._message

    def row(self, **values: Any) -> bytes:
        """Serializes one row; a column left out is missing from it."""
        data: bytes = self.message(**values).SerializeToString()
        return data


def append_request(
    stream: str = "",
    rows: Sequence[bytes] = (),
    *,
    writer: Writer | None = None,
    offset: int | None = None,
    **more: Any,
) -> Any:
    """Makes an AppendRowsRequest of proto rows."""
    request = message("AppendRowsRequest", write_stream=stream, **more)
    request.proto_rows.SetInParent()
    if writer is not None:
        request.proto_rows.writer_schema.proto_descriptor.CopyFrom(writer.descriptor)
    request.proto_rows.rows.serialized_rows.extend(rows)
    if offset is not None:
        request.offset.value = offset
    return request


# --- the BigQuery under test ----------------------------------------------------------------


class BigQuery:
    """The service under test, as the suites use it.

    Args:
        make_table: makes a table with a new name from REST fields and more of its resource.
        patch_table: changes a table's REST resource.
        advance: moves the service's clock; None where it cannot be moved.
        now_s: the service's time.
    """

    def __init__(
        self,
        transport: Transport,
        make_table: Callable[..., TableReference],
        patch_table: Callable[[TableReference, Mapping[str, Any]], None],
        drop_table: Callable[[TableReference], None],
        advance: Callable[[float], None] | None = None,
        now_s: Callable[[], float] = SYSTEM_CLOCK.now_s,
    ) -> None:
        self.transport = transport
        self.make_table = make_table
        self.patch_table = patch_table
        self.drop_table = drop_table
        self.advance = advance
        self.now_s = now_s

    def today(self, days: int = 0) -> datetime.date:
        """Returns the service's date, or one some days from it."""
        now = datetime.datetime.fromtimestamp(self.now_s(), datetime.timezone.utc)
        return now.date() + datetime.timedelta(days)

    # --- writing ---

    def write(self, method: str, request: Any) -> Any:
        response = {
            "CreateWriteStream": "WriteStream",
            "GetWriteStream": "WriteStream",
        }.get(method, f"{method}Response")
        return self.transport.unary(WRITE, method, request, getattr(storage_types, response).pb())

    def create_stream(self, table: TableReference, kind: str) -> str:
        request = message("CreateWriteStreamRequest", parent=table.path)
        request.write_stream.type_ = storage_types.WriteStream.Type[kind].value
        return str(self.write("CreateWriteStream", request).name)

    @contextlib.contextmanager
    def connection(self) -> Iterator["Connection"]:
        """Opens an AppendRows connection for a block."""
        stream = self.transport.append_rows()
        try:
            yield Connection(stream)
        finally:
            stream.close()

    def append(
        self, stream: str, writer: Writer, rows: Sequence[bytes], offset: int | None = None
    ) -> Any:
        """Appends once, on a connection of its own; returns the response."""
        with self.connection() as connection:
            return connection(append_request(stream, rows, writer=writer, offset=offset))

    def finalize(self, stream: str) -> int:
        return int(
            self.write(
                "FinalizeWriteStream", message("FinalizeWriteStreamRequest", name=stream)
            ).row_count
        )

    def commit(self, table: TableReference, *streams: str) -> Any:
        return self.write(
            "BatchCommitWriteStreams",
            message("BatchCommitWriteStreamsRequest", parent=table.path, write_streams=streams),
        )

    def flush(self, stream: str, offset: int) -> Any:
        request = message("FlushRowsRequest", write_stream=stream)
        request.offset.value = offset
        return self.write("FlushRows", request)

    def get_stream(self, name: str, *, full: bool = False) -> Any:
        return self.write(
            "GetWriteStream",
            message("GetWriteStreamRequest", name=name, view=2 if full else 1),
        )

    # --- reading ---

    def create_session(
        self,
        table: TableReference,
        *,
        streams_max: int = 0,
        streams_min: int = 0,
        data_format: str = "ARROW",
        snapshot_s: float | None = None,
        **options: Any,
    ) -> Any:
        request = message(
            "CreateReadSessionRequest",
            parent=f"projects/{table.project}",
            max_stream_count=streams_max,
            preferred_min_stream_count=streams_min,
        )
        session = request.read_session
        session.table = table.path
        session.data_format = storage_types.DataFormat[data_format].value
        session.read_options.MergeFrom(storage_types.ReadSession.TableReadOptions.pb()(**options))
        if snapshot_s is not None:
            session.table_modifiers.snapshot_time.FromMicroseconds(round(snapshot_s * 1e6))
        return self.transport.unary(
            READ, "CreateReadSession", request, storage_types.ReadSession.pb()
        )

    def read(self, stream: str, offset: int = 0) -> list[Any]:
        """Reads a stream to its end; returns its responses."""
        request = message("ReadRowsRequest", read_stream=stream, offset=offset)
        responses = self.transport.server_stream(
            READ, "ReadRows", request, storage_types.ReadRowsResponse.pb()
        )
        return list(responses)

    def split(self, stream: str, fraction: float) -> tuple[str, str]:
        answer = self.transport.unary(
            READ,
            "SplitReadStream",
            message("SplitReadStreamRequest", name=stream, fraction=fraction),
            storage_types.SplitReadStreamResponse.pb(),
        )
        return answer.primary_stream.name, answer.remainder_stream.name

    def stream_rows(self, session: Any, stream: str, offset: int = 0) -> list[dict[str, Any]]:
        """Reads one stream of an Arrow session as dicts."""
        schema = arrow_schema(session)
        return [row for each in self.read(stream, offset) for row in arrow_rows(each, schema)]

    def session_rows(self, session: Any) -> list[dict[str, Any]]:
        return [row for each in session.streams for row in self.stream_rows(session, each.name)]

    def rows(self, table: TableReference, **options: Any) -> list[dict[str, Any]]:
        """Reads a table through a session of its own."""
        return self.session_rows(self.create_session(table, **options))


class Connection:
    """An open AppendRows connection: call it with a request for the response."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def __call__(self, request: Any) -> Any:
        self._stream.send(request)
        return self._stream.receive()


def arrow_schema(session: Any) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))


def arrow_rows(response: Any, schema: pa.Schema) -> list[dict[str, Any]]:
    data = pa.py_buffer(response.arrow_record_batch.serialized_record_batch)
    rows: list[dict[str, Any]] = pa.ipc.read_record_batch(data, schema).to_pylist()
    return rows


def error_of(response: Any) -> Failure:
    """Returns the error of an AppendRows response; there must be one."""
    assert response.WhichOneof("response") == "error", response
    return failure_of(response.error)


def offset_of(response: Any) -> int | None:
    """Returns the offset that an append landed at, None if none is told."""
    assert response.WhichOneof("response") == "append_result", response
    result = response.append_result
    return result.offset.value if result.HasField("offset") else None


def row_errors(response: Any) -> dict[int, str]:
    """Returns the messages of an append's row errors by row."""
    return {each.index: each.message for each in response.row_errors}
