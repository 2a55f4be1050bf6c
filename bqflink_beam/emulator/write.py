"""Storage Write v1: the gRPC methods."""

from collections.abc import Iterator
from typing import Any

import grpc
from google.cloud.bigquery_storage_v1 import types as storage_types

from bqflink_beam.emulator import types
from bqflink_beam.emulator.append import AppendConnection, AppendRowsRequest, EndOfConnection
from bqflink_beam.emulator.faults import Acting, Faults, Injected
from bqflink_beam.emulator.idle import Patience
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rpc import (
    RpcCall,
    bidirectional,
    parse,
    status_of,
    storage_error,
    unary,
)
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.emulator.store import Store, StoredTable
from bqflink_beam.emulator.streams import (
    BUFFERED,
    COMMIT_STREAMS_MAX,
    COMMITTED,
    PENDING,
    WriteStreams,
    parse_stream,
    parse_table,
    stream_not_found,
    table_not_found,
)

SERVICE = "google.cloud.bigquery.storage.v1.BigQueryWrite"
_WriteStream = storage_types.WriteStream.pb()
_FULL = storage_types.WriteStreamView.FULL.value


class WriteService:
    """BigQueryWrite over a store."""

    def __init__(self, store: Store, faults: Faults, settings: Settings) -> None:
        self._store = store
        self._faults = faults
        self._settings = settings
        self.streams = WriteStreams(store, settings.stream_ttl_s)

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns the gRPC handlers of all methods."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "CreateWriteStream": unary(
                    storage_types.CreateWriteStreamRequest.pb(), self.create_write_stream
                ),
                "AppendRows": bidirectional(self.append_rows),
                "GetWriteStream": unary(
                    storage_types.GetWriteStreamRequest.pb(), self.get_write_stream
                ),
                "FinalizeWriteStream": unary(
                    storage_types.FinalizeWriteStreamRequest.pb(), self.finalize_write_stream
                ),
                "BatchCommitWriteStreams": unary(
                    storage_types.BatchCommitWriteStreamsRequest.pb(),
                    self.batch_commit_write_streams,
                ),
                "FlushRows": unary(storage_types.FlushRowsRequest.pb(), self.flush_rows),
            },
        )

    def create_write_stream(self, request: Any, call: RpcCall) -> Any:
        reference = parse_table(request.parent)
        acting = self._faults.arrive("CreateWriteStream", table=str(reference), call=call)
        acting.before()
        kind = _WriteStream.Type.Name(request.write_stream.type_) if _known(request) else ""
        if kind not in (COMMITTED, BUFFERED, PENDING):
            raise Refused("Write stream type must be COMMITTED, PENDING or BUFFERED")
        if "$" in reference.table:
            raise Refused(
                f"A partition decorator goes with the default stream only. Entity: {request.parent}"
            )
        table = self._table(request.parent)
        state = acting.deliver(lambda: self.streams.create(table, kind))
        acting.after(lambda: self.streams.expire(state["name"]))
        return _message(state, table, full=True)

    def get_write_stream(self, request: Any, call: RpcCall) -> Any:
        reference, stream = parse_stream(request.name)
        acting = self._faults.arrive(
            "GetWriteStream", table=str(reference), stream=request.name, call=call
        )
        acting.before(lambda: self.streams.expire(request.name))
        full = request.view == _FULL
        if stream == "_default":
            table = self._store.get_table(reference)
            if table is None:
                raise table_not_found(reference)
            answer = _default_message(request.name, table, full=full)
        else:
            state = self.streams.get(request.name)
            answer = _message(state, self.streams.table_of(state), full=full)
        acting.after(lambda: self.streams.expire(request.name))
        return answer

    def finalize_write_stream(self, request: Any, call: RpcCall) -> Any:
        reference, stream = parse_stream(request.name)
        acting = self._faults.arrive(
            "FinalizeWriteStream", table=str(reference), stream=request.name, call=call
        )
        acting.before(lambda: self.streams.expire(request.name))
        if stream == "_default":
            raise stream_not_found(request.name)
        rows = acting.deliver(lambda: self.streams.finalize(request.name))
        acting.after(lambda: self.streams.expire(request.name))
        return storage_types.FinalizeWriteStreamResponse.pb()(row_count=rows)

    def batch_commit_write_streams(self, request: Any, call: RpcCall) -> Any:
        reference = parse_table(request.parent)
        names = list(request.write_streams)
        acting = self._faults.arrive("BatchCommitWriteStreams", table=str(reference), call=call)
        acting.before(lambda: self._expire_all(names))
        table = self._table(request.parent)
        if not names or len(names) > COMMIT_STREAMS_MAX:
            raise Refused(
                f"A commit names 1 to {COMMIT_STREAMS_MAX} streams, got {len(names)}. "
                f"Entity: {request.parent}"
            )
        if len(set(names)) < len(names):
            raise Refused(f"A stream is listed twice in the commit. Entity: {request.parent}")
        for name in names:
            parse_stream(name)
        response = storage_types.BatchCommitWriteStreamsResponse.pb()()
        commit_s, problems = acting.deliver(lambda: self.streams.commit(table, names))
        acting.after(lambda: self._expire_all(names))
        if commit_s is not None:
            response.commit_time.FromMicroseconds(round(commit_s * 1e6))
        response.stream_errors.extend(storage_error(problem) for problem in problems)
        return response

    def flush_rows(self, request: Any, call: RpcCall) -> Any:
        name = request.write_stream
        reference, stream = parse_stream(name)
        acting = self._faults.arrive("FlushRows", table=str(reference), stream=name, call=call)
        acting.before(lambda: self.streams.expire(name))
        if stream == "_default":
            raise Refused(
                f"Flush is not supported on the default stream. Entity: {name}",
                storage_error="INVALID_STREAM_TYPE",
                entity=name,
            )
        if not request.HasField("offset"):
            raise Refused(f"Offset must be set to flush rows. Entity: {name}")
        acting.deliver(lambda: self.streams.flush(name, request.offset.value))
        acting.after(lambda: self.streams.expire(name))
        return storage_types.FlushRowsResponse.pb()(offset=request.offset.value)

    def append_rows(self, requests: Iterator[bytes], call: RpcCall) -> Iterator[bytes]:
        self._faults.count("AppendRows.connections")
        connection = AppendConnection(self._store, self.streams, self._settings)
        patience = Patience(self._store.clock, self._settings.idle_close_s)
        for data in patience.requests(requests):
            request = parse(AppendRowsRequest, data)
            name = connection.target_name(request)
            acting = self._faults.arrive(
                "AppendRows", table=_table_name(name), stream=name, call=call
            )
            answer = self._answer(connection, request, len(data), name, acting)
            patience.heard()
            yield answer

    def _answer(
        self, connection: AppendConnection, request: Any, size: int, name: str, acting: Acting
    ) -> bytes:
        def expire() -> None:
            self.streams.expire(name)

        try:
            try:
                acting.before(expire)
                response, rows = acting.deliver(lambda: connection.answer(request, size))
                self._faults.count("AppendRows.rows", rows)
                acting.after(expire)
            except Injected as injected:
                if not injected.in_band:
                    raise
                connection.open_target(request)
                response = storage_types.AppendRowsResponse.pb()(
                    write_stream=name, error=status_of(injected)
                )
        except EndOfConnection as end:
            raise end.refused from None
        data: bytes = response.SerializeToString()
        return data

    def _table(self, parent: str) -> StoredTable:
        reference = parse_table(parent)
        table = self._store.get_table(reference)
        if table is None:
            raise table_not_found(reference)
        if table.kind != "TABLE":
            raise Refused(f"Cannot write to a {table.kind}. Entity: {parent}")
        return table

    def _expire_all(self, names: list[str]) -> None:
        for name in names:
            self.streams.expire(name)


def _known(request: Any) -> bool:
    return request.write_stream.type_ in _WriteStream.Type.values()


def _table_name(stream: str) -> str:
    try:
        reference, _ = parse_stream(stream)
    except Refused:
        return ""
    return str(reference).partition("$")[0]


def _message(state: dict[str, Any], table: StoredTable, *, full: bool) -> Any:
    message = _WriteStream(
        name=state["name"],
        type_=_WriteStream.Type.Value(state["kind"]),
        write_mode=_WriteStream.WriteMode.Value("INSERT"),
        location=state["location"],
    )
    message.create_time.FromMicroseconds(round(state["create_s"] * 1e6))
    if state["commit_s"] is not None:
        message.commit_time.FromMicroseconds(round(state["commit_s"] * 1e6))
    if full:
        message.table_schema.CopyFrom(types.schema_to_proto(table.schema))
    return message


def _default_message(name: str, table: StoredTable, *, full: bool) -> Any:
    created_s = int(table.resource["creationTime"]) / 1000
    state = {
        "name": name,
        "kind": COMMITTED,
        "location": table.location,
        "create_s": created_s,
        "commit_s": created_s,
    }
    return _message(state, table, full=full)
