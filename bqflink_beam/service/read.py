"""Storage Read: sessions, and the responses of their streams."""

from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import BqflinkError, NotFoundError, PermanentError, TransientError
from bqflink_beam.retry import DEFAULT_BACKOFF, Backoff
from bqflink_beam.service import status
from bqflink_beam.service.base import ReadResponse, ReadSession, SessionRequest
from bqflink_beam.service.channel import Channels, Method
from bqflink_beam.service.connection import Connection, is_loopback
from bqflink_beam.service.recent import Recent

_CreateRequest = types.CreateReadSessionRequest.pb()
_ReadSession = types.ReadSession.pb()
_ReadRowsRequest = types.ReadRowsRequest.pb()
_SplitRequest = types.SplitReadStreamRequest.pb()
_Lz4 = types.ArrowSerializationOptions.CompressionCodec.LZ4_FRAME.value
_PICOS = types.ArrowSerializationOptions.PicosTimestampPrecision.TIMESTAMP_PRECISION_PICOS.value


def _method(name: str, request: Any, response: Any) -> Method:
    return Method(f"/google.cloud.bigquery.storage.v1.BigQueryRead/{name}", request, response)


_CREATE = _method("CreateReadSession", _CreateRequest, _ReadSession)
_READ = _method("ReadRows", _ReadRowsRequest, types.ReadRowsResponse.pb())
_SPLIT = _method("SplitReadStream", _SplitRequest, types.SplitReadStreamResponse.pb())

_CREATE_S = 240.0
# No session lives longer, so no call on one does; that rows keep coming is `read/rows.py`'s
# to watch.
_READ_S = 6 * 3600.0


class StorageRead:
    """`service.base.ReadService` over gRPC."""

    def __init__(
        self,
        channels: Channels,
        connection: Connection,
        recent: Recent,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._channels = channels
        self._connection = connection
        self._recent = recent
        self._backoff = backoff
        self._clock = clock

    def create_session(self, request: SessionRequest) -> ReadSession:
        table = request.table
        call = self._about(f"create a read session of {table}", table=str(table))
        parent = f"projects/{self._connection.parent_project(table.project)}"
        message = _CreateRequest(
            parent=parent,
            read_session=self._session_message(request),
            max_stream_count=request.streams_max,
        )
        routing = f"read_session.table={table.path}"

        def create() -> Any:
            try:
                return self._channels.unary(
                    _CREATE, message, call=call, deadline_s=_CREATE_S, routing=routing
                )
            except NotFoundError as error:
                if not self._recent.is_young(table.path):
                    raise
                raise TransientError(error.message, table=str(table), code="NOT_FOUND") from error

        # A session whose answer was lost costs nothing and expires.
        made = self._channels.patience.retried(
            create,
            what=call.what,
            backoff=self._backoff,
            clock=self._clock,
        )
        return ReadSession(
            name=made.name,
            table=table,
            arrow_schema=made.arrow_schema.serialized_schema,
            streams=tuple(stream.name for stream in made.streams),
            expire_s=made.expire_time.seconds + made.expire_time.nanos / 1e9,
            estimated_rows=made.estimated_row_count,
            estimated_bytes=made.estimated_total_bytes_scanned,
        )

    def read_rows(self, stream: str, offset: int) -> "Responses":
        call = self._about(f"read {stream} from row {offset}", stream=stream)
        request = _ReadRowsRequest(read_stream=stream, offset=offset)
        return Responses(
            self._channels.server_stream(
                _READ, request, deadline_s=_READ_S, routing=f"read_stream={stream}"
            ),
            call,
        )

    def split_stream(
        self, stream: str, fraction: float, *, deadline_s: float
    ) -> tuple[str, str] | None:
        call = self._about(f"split {stream} at {fraction}", stream=stream)
        answer = self._channels.unary(
            _SPLIT,
            _SplitRequest(name=stream, fraction=fraction),
            call=call,
            deadline_s=deadline_s,
            routing=f"name={stream}",
        )
        primary, remainder = answer.primary_stream.name, answer.remainder_stream.name
        return (primary, remainder) if primary and remainder else None

    def _session_message(self, request: SessionRequest) -> Any:
        session = _ReadSession(table=request.table.path, data_format=types.DataFormat.ARROW.value)
        session.read_options.selected_fields.extend(request.columns)
        session.read_options.row_restriction = request.row_filter
        as_arrow = session.read_options.arrow_serialization_options
        # Otherwise a TIMESTAMP(12) is cut to microseconds without a word; others stay as they are.
        as_arrow.picos_timestamp_precision = _PICOS
        if self._compresses():
            as_arrow.buffer_compression = _Lz4
        if request.snapshot_s is not None:
            micros = round(request.snapshot_s * 1_000_000)
            session.table_modifiers.snapshot_time.FromMicroseconds(micros)
        return session

    def _compresses(self) -> bool:
        """On this machine compression costs more than it saves."""
        host = self._connection.storage_address.rpartition(":")[0]
        return not is_loopback(host) and bool(pa.Codec.is_available("lz4"))

    def _about(
        self, what: str, *, table: str | None = None, stream: str | None = None
    ) -> status.Call:
        return status.Call(
            what=what, endpoint=self._channels.endpoint, changes=False, table=table, stream=stream
        )


class Responses:
    """The responses of one ReadRows call, in order. `close` cancels it, from any thread."""

    def __init__(self, responses: Any, call: status.Call) -> None:
        self._responses = responses
        self._call = call

    def __iter__(self) -> "Responses":
        return self

    def __next__(self) -> ReadResponse:
        try:
            message = next(self._responses)
        except grpc.RpcError as error:
            raise status.from_rpc(error, self._call) from error
        if not message.HasField("arrow_record_batch") and message.row_count:
            raise self._wrong("rows came in another format than Arrow")
        progress = message.stats.progress
        return ReadResponse(
            rows=message.row_count,
            arrow_batch=message.arrow_record_batch.serialized_record_batch,
            progress_start=progress.at_response_start,
            progress_stop=progress.at_response_end,
            throttle_percent=message.throttle_state.throttle_percent,
        )

    def close(self) -> None:
        self._responses.cancel()

    def _wrong(self, text: str) -> BqflinkError:
        return PermanentError(f"{self._call.what}: {text}", stream=self._call.stream)
