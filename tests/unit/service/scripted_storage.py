"""A Storage API of 100 lines that does what a script says: the other end of the service tests."""

import collections
import concurrent.futures
import dataclasses
import pathlib
import threading

import grpc
from google.cloud.bigquery_storage_v1 import types
from google.protobuf import any_pb2, descriptor_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2

from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import Anonymous

TABLE = "projects/p/datasets/d/tables/t"
STREAM = f"{TABLE}/streams/s"
DEFAULT = f"{TABLE}/streams/_default"
DESCRIPTOR = descriptor_pb2.DescriptorProto(name="Row").SerializeToString()
_INACTIVE = "Closing the stream because it has been inactive for 600 seconds"


@dataclasses.dataclass(frozen=True)
class React:
    """What the server does with one append request.

    Applies it or not; then answers, refuses it inside the call (`refuse`, a code name),
    ends the call (`end`, a code name), or says nothing. `late` keeps the answer back
    until the next request; `empty_first` sends a message before it that answers nothing.
    """

    apply: bool = True
    answer: bool = True
    refuse: str = ""
    end: str = ""
    text: str = "scripted"
    details: tuple = ()
    row_errors: tuple = ()
    schema: object = None
    late: bool = False
    empty_first: bool = False


OK = React()
LOST_ANSWER = React(answer=False, end="UNAVAILABLE")
CUT_BEFORE = React(apply=False, answer=False, end="UNAVAILABLE")
SILENCE = React(apply=False, answer=False)
SILENT_APPLY = React(answer=False)
THEN_IDLE_CLOSE = React(end="ABORTED", text=_INACTIVE)


def refuse(code, text="scripted", *details):
    return React(apply=False, answer=False, refuse=code, text=text, details=details)


def end(code, text="scripted"):
    return React(apply=False, answer=False, end=code, text=text)


def storage_error(code, entity=STREAM):
    number = types.StorageError.StorageErrorCode[code].value
    return types.StorageError.pb()(code=number, entity=entity)


def retry_info(seconds):
    return error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=seconds))


def packed(message):
    wrapped = any_pb2.Any()
    wrapped.Pack(message)
    return wrapped


class ScriptedStorage:
    """`streams` holds what was applied; `script` what to do with the next requests, then OK."""

    def __init__(self, tls=None):
        self.script = collections.deque()
        self.streams = collections.defaultdict(list)
        self.requests = []
        self.calls = []
        self.unary_script = collections.deque()
        self.unary_requests = []
        self.end_on = None
        self.wrong_offset = False
        self.over = threading.Event()
        append = grpc.stream_stream_rpc_method_handler(
            self._append,
            types.AppendRowsRequest.pb().FromString,
            types.AppendRowsResponse.pb().SerializeToString,
        )
        write = {"AppendRows": append}
        for name, request, response in (
            ("CreateWriteStream", types.CreateWriteStreamRequest, types.WriteStream),
            ("GetWriteStream", types.GetWriteStreamRequest, types.WriteStream),
            ("FlushRows", types.FlushRowsRequest, types.FlushRowsResponse),
            ("FinalizeWriteStream", types.FinalizeWriteStreamRequest,
             types.FinalizeWriteStreamResponse),
            ("BatchCommitWriteStreams", types.BatchCommitWriteStreamsRequest,
             types.BatchCommitWriteStreamsResponse),
        ):  # fmt: skip
            write[name] = self._unary_handler(name, request, response)
        read = {
            name: self._unary_handler(name, request, response)
            for name, request, response in (
                ("CreateReadSession", types.CreateReadSessionRequest, types.ReadSession),
                ("SplitReadStream", types.SplitReadStreamRequest, types.SplitReadStreamResponse),
            )
        }
        read["ReadRows"] = grpc.unary_stream_rpc_method_handler(
            self._read,
            types.ReadRowsRequest.pb().FromString,
            types.ReadRowsResponse.pb().SerializeToString,
        )
        self.server = grpc.server(
            concurrent.futures.ThreadPoolExecutor(256),
            # So many calls Google's servers take on one HTTP/2 connection.
            options=[("grpc.so_reuseport", 0), ("grpc.max_concurrent_streams", 100)],
        )
        prefix = "google.cloud.bigquery.storage.v1."
        self.server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(prefix + "BigQueryWrite", write),
                grpc.method_handlers_generic_handler(prefix + "BigQueryRead", read),
            )
        )
        if tls is None:
            self.port = self.server.add_insecure_port("127.0.0.1:0")
        else:
            cert, key = (pathlib.Path(path).read_bytes() for path in tls)
            credentials = grpc.ssl_server_credentials([(key, cert)])
            self.port = self.server.add_secure_port("127.0.0.1:0", credentials)
        self.server.start()

    @property
    def connection(self):
        return Connection(
            storage_endpoint=f"127.0.0.1:{self.port}",
            rest_endpoint="http://127.0.0.1:1",
            plaintext=True,
            credentials=Anonymous(),
        )

    def close(self):
        self.over.set()
        self.server.stop(0).wait()

    def _unary_handler(self, name, request, response):
        def handle(message, context):
            self.unary_requests.append((name, message, dict(context.invocation_metadata())))
            step = self.unary_script.popleft() if self.unary_script else response.pb()()
            if isinstance(step, React):
                _abort(context, step)
            return step

        return grpc.unary_unary_rpc_method_handler(
            handle, request.pb().FromString, response.pb().SerializeToString
        )

    def _read(self, message, context):
        self.unary_requests.append(("ReadRows", message, dict(context.invocation_metadata())))
        for step in self.unary_script.popleft() if self.unary_script else ():
            if isinstance(step, React):
                _abort(context, step)
            elif step is None:
                self.over.wait(30)
            else:
                yield step

    def _append(self, requests, context):
        self.calls.append(dict(context.invocation_metadata()))
        kept = []
        for request in requests:
            self.requests.append(request)
            step = self.script.popleft() if self.script else OK
            if self.end_on is not None and self.end_on in request.proto_rows.rows.serialized_rows:
                _abort(context, end("INVALID_ARGUMENT", "poison"))
            response = types.AppendRowsResponse.pb()()
            yield from kept
            kept.clear()
            if step.empty_first:
                yield types.AppendRowsResponse.pb()(write_stream=request.write_stream)
            if step.schema is not None:
                response.updated_schema.CopyFrom(step.schema)
            applied = self._apply(request, response) if step.apply else True
            if step.refuse or step.row_errors:
                code = grpc.StatusCode[step.refuse or "INVALID_ARGUMENT"].value[0]
                details = [packed(detail) for detail in step.details]
                response.error.CopyFrom(
                    status_pb2.Status(code=code, message=step.text, details=details)
                )
                for index, message in step.row_errors:
                    response.row_errors.add(index=index, message=message)
                yield response
            elif step.late:
                kept.append(response)
            elif step.answer or not applied:
                yield response
            if step.end == "OK":
                return
            if step.end:
                _abort(context, step)

    def _apply(self, request, response):
        rows = self.streams[request.write_stream]
        response.write_stream = request.write_stream
        misplaced = request.HasField("offset") and request.offset.value != len(rows)
        if misplaced and not self.wrong_offset:
            within = request.offset.value < len(rows)
            code = "ALREADY_EXISTS" if within else "OUT_OF_RANGE"
            storage = "OFFSET_ALREADY_EXISTS" if within else "OFFSET_OUT_OF_RANGE"
            response.error.code = grpc.StatusCode[code].value[0]
            response.error.message = f"expected offset {len(rows)}"
            response.error.details.append(packed(storage_error(storage)))
            return False
        response.append_result.SetInParent()
        if request.HasField("offset"):
            response.append_result.offset.value = len(rows)
        rows.extend(request.proto_rows.rows.serialized_rows)
        return True


def _abort(context, step):
    code = grpc.StatusCode[step.end or step.refuse]
    status = status_pb2.Status(
        code=code.value[0], message=step.text, details=[packed(d) for d in step.details]
    )
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(code, step.text)
