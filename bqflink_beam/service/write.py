"""Storage Write: streams and what is done to them."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from google.cloud.bigquery_storage_v1 import types

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import (
    AlreadyWrittenError,
    ConfigError,
    NotFoundError,
    StreamGoneError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.retry import DEFAULT_BACKOFF, Backoff
from bqflink_beam.service import status, table_schema
from bqflink_beam.service.append import Appends, StreamAppends, UpdatedSchemas
from bqflink_beam.service.base import CommitAnswer, StreamKind, StreamProblem, WriteStream
from bqflink_beam.service.channel import Channels, Method
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.token_bucket import TokenBucket

_T = TypeVar("_T")

_WriteStream = types.WriteStream.pb()
_CreateRequest = types.CreateWriteStreamRequest.pb()
_GetRequest = types.GetWriteStreamRequest.pb()
_FinalizeRequest = types.FinalizeWriteStreamRequest.pb()
_CommitRequest = types.BatchCommitWriteStreamsRequest.pb()
_FlushRequest = types.FlushRowsRequest.pb()
_KIND = _WriteStream.DESCRIPTOR.enum_types_by_name["Type"]


def _method(name: str, request: Any, response: Any) -> Method:
    return Method(f"/google.cloud.bigquery.storage.v1.BigQueryWrite/{name}", request, response)


_CREATE = _method("CreateWriteStream", _CreateRequest, _WriteStream)
_GET = _method("GetWriteStream", _GetRequest, _WriteStream)
_FINALIZE = _method("FinalizeWriteStream", _FinalizeRequest, types.FinalizeWriteStreamResponse.pb())
_COMMIT = _method(
    "BatchCommitWriteStreams", _CommitRequest, types.BatchCommitWriteStreamsResponse.pb()
)
_FLUSH = _method("FlushRows", _FlushRequest, types.FlushRowsResponse.pb())

_UNARY_S = 60.0
_COMMIT_S = 300.0
# Above some 40 calls a second CreateWriteStream takes half a minute. The hourly quota
# is the project's, so no process can keep it alone: the service says when it is used up.
_CREATES_PER_S = 20.0
_CREATES_BURST = 100


class StorageWrite:
    """`service.base.WriteService` over gRPC."""

    def __init__(
        self,
        channels: Channels,
        recent: Recent,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._channels = channels
        self._recent = recent
        self._backoff = backoff
        self._clock = clock
        self._creates = TokenBucket(per_second=_CREATES_PER_S, burst=_CREATES_BURST, clock=clock)

    def create_stream(self, table: TableReference, kind: StreamKind) -> WriteStream:
        call = self._call(f"create a {kind.value} stream of {table}", table.path, changes=False)
        request = _CreateRequest(
            parent=table.path,
            write_stream=_WriteStream(type_=_KIND.values_by_name[kind.value].number),
        )

        def create() -> Any:
            self._creates.take()
            return self._unary(_CREATE, request, call, f"parent={table.path}")

        # A stream made by a call whose answer is lost holds no rows, and expires.
        made = _stream(self._retried(create, call, table.path))
        self._recent.seen(table.path)
        self._recent.created(made.name)
        return made

    def get_stream(self, name: str) -> WriteStream:
        call = self._call(f"get stream {name}", name, changes=False)
        request = _GetRequest(name=name, view=types.WriteStreamView.FULL.value)
        return _stream(
            self._retried(lambda: self._unary(_GET, request, call, f"name={name}"), call, name)
        )

    def open_append(self, stream: str, descriptor: bytes, *, budget_s: float) -> StreamAppends:
        return StreamAppends(
            self.open_appends(routing=f"write_stream={stream}", budget_s=budget_s),
            stream,
            descriptor,
        )

    def open_appends(
        self, *, routing: str, budget_s: float, schemas: UpdatedSchemas | None = None
    ) -> Appends:
        """Opens a connection that requests of many default streams may share."""
        return Appends(
            self._channels,
            self._recent,
            routing=routing,
            budget_s=budget_s,
            schemas=schemas,
            clock=self._clock,
        )

    def finalize(self, stream: str) -> int:
        call = self._call(f"finalize {stream}", stream, changes=True)
        request = _FinalizeRequest(name=stream)
        answer = self._retried(
            lambda: self._unary(_FINALIZE, request, call, f"name={stream}"), call, None
        )
        return int(answer.row_count)

    def commit(self, table: TableReference, streams: Sequence[str]) -> CommitAnswer:
        call = self._call(f"commit {len(streams)} streams of {table}", table.path, changes=True)
        request = _CommitRequest(parent=table.path, write_streams=streams)
        answer = self._unary(_COMMIT, request, call, f"parent={table.path}", deadline_s=_COMMIT_S)
        return CommitAnswer(
            _seconds(answer.commit_time) if answer.HasField("commit_time") else None,
            tuple(
                StreamProblem(
                    status.storage_code_name(problem.code), problem.entity, problem.error_message
                )
                for problem in answer.stream_errors
            ),
        )

    def flush(self, stream: str, stop: int) -> None:
        if stop < 1:
            raise ConfigError(
                f"a flush must cover at least one row, got stop={stop}", stream=stream
            )
        call = self._call(f"flush {stream} up to row {stop}", stream, changes=True)
        request = _FlushRequest(write_stream=stream)
        # The API's offset is the last row to show; `stop` is the first row not to.
        request.offset.value = stop - 1
        try:
            self._retried(
                lambda: self._unary(_FLUSH, request, call, f"write_stream={stream}"), call, None
            )
        except AlreadyWrittenError:
            return  # An earlier flush went as far or further.

    def _unary(
        self,
        method: Method,
        request: Any,
        call: status.Call,
        routing: str,
        deadline_s: float = _UNARY_S,
    ) -> Any:
        return self._channels.unary(
            method, request, call=call, deadline_s=deadline_s, routing=routing
        )

    def _retried(self, function: Callable[[], _T], call: status.Call, young: str | None) -> _T:
        """Calls again what may be repeated; "not found" of a `young` path is "not yet".

        A stream that is flushed or finalized has taken rows before, so it is known.
        """

        def once() -> _T:
            try:
                return function()
            except (NotFoundError, StreamGoneError) as error:
                if young is None or not self._recent.is_young(young):
                    raise
                raise TransientError(
                    error.message, table=error.table, stream=error.stream, code="NOT_FOUND"
                ) from error

        return self._channels.patience.retried(
            once,
            what=call.what,
            backoff=self._backoff,
            clock=self._clock,
        )

    def _call(self, what: str, path: str, *, changes: bool) -> status.Call:
        return status.Call(
            what=what,
            endpoint=self._channels.endpoint,
            changes=changes,
            table=str(TableReference.from_path(path)),
            stream=path if "/streams/" in path else None,
        )


def _stream(message: Any) -> WriteStream:
    return WriteStream(
        name=message.name,
        # What names no type is a default stream, whose rows are visible at once.
        kind=(
            StreamKind(_KIND.values_by_number[message.type_].name)
            if message.type_
            else StreamKind.COMMITTED
        ),
        location=message.location,
        commit_s=_seconds(message.commit_time) if message.HasField("commit_time") else None,
        schema=(
            table_schema.from_message(message.table_schema)
            if message.HasField("table_schema")
            else None
        ),
    )


def _seconds(timestamp: Any) -> float:
    return float(timestamp.seconds + timestamp.nanos / 1e9)
