"""Storage Read v1: the gRPC methods."""

import datetime
import re
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types as storage_types

from bqflink_beam.emulator import responses, types
from bqflink_beam.emulator.faults import Faults
from bqflink_beam.emulator.projection import MICROS, NANOS, PICOS, Projection
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rpc import RpcCall, server_stream, unary
from bqflink_beam.emulator.sessions import Keep, Session, Stream
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.emulator.store import Snapshot, Store, StoredTable
from bqflink_beam.emulator.streams import parse_table
from bqflink_beam.emulator.versions import Rows
from bqflink_beam.schema.model import Field, TableSchema

SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"
STREAMS_MAX = 1000
_RESTRICTION_CHARS_MAX = 1_000_000
_BLOCK_ROWS = 1000
_PARENT = re.compile(r"^projects/(?P<project>[^/]+)$")
_STREAM = re.compile(r"^(?P<session>projects/[^/]+/locations/[^/]+/sessions/[^/]+)/streams/[^/]+$")
_TIMESTAMPS = {0: MICROS, 1: MICROS, 2: NANOS, 3: PICOS}


class ReadService:
    """BigQueryRead over a store.

    Attributes:
        throttle_percent: what responses say about throttling; for tests.
    """

    def __init__(self, store: Store, faults: Faults, settings: Settings) -> None:
        self._store = store
        self._faults = faults
        self._settings = settings
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        self.throttle_percent = 0

    def handlers(self) -> grpc.GenericRpcHandler:
        """Returns the gRPC handlers of all methods."""
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "CreateReadSession": unary(
                    storage_types.CreateReadSessionRequest.pb(), self.create_read_session
                ),
                "ReadRows": server_stream(storage_types.ReadRowsRequest.pb(), self.read_rows),
                "SplitReadStream": unary(
                    storage_types.SplitReadStreamRequest.pb(), self.split_read_stream
                ),
            },
        )

    def create_read_session(self, request: Any, call: RpcCall) -> Any:
        asked = request.read_session
        parent = _PARENT.match(request.parent)
        if parent is None:
            raise Refused(f"Invalid parent: {request.parent!r}")
        reference = parse_table(asked.table)
        acting = self._faults.arrive("CreateReadSession", table=str(reference), call=call)
        acting.before()
        table = self._store.require_table(reference)
        session, snapshot = self._make(parent["project"], table, request)
        answer = self._message(session, table, request, snapshot)
        with self._lock:
            self._forget_old()
            self._sessions[session.name] = session
        acting.after(lambda: self.expire(session.name))
        return answer

    def read_rows(self, request: Any, call: RpcCall) -> Iterator[bytes]:
        name = request.read_stream
        session_name = _session_name(name)
        table = self._table_name(session_name)
        acting = self._faults.arrive("ReadRows", table=table, stream=name, call=call)
        if request.offset > 0:
            self._faults.count("ReadRows.resumed")
        acting.before(lambda: self.expire(session_name))
        session, stream = self._stream(name)
        rows = session.rows(stream)
        offset = request.offset
        if offset < 0:
            raise Refused(f"request failed: Offset must not be negative, got {offset}")
        if offset > rows.row_count:
            raise Refused(
                f"request failed: Requested offset {offset} has not been allocated yet "
                f"Entity: {name}",
                code="FAILED_PRECONDITION",
                entity=name,
            )
        answers = responses.messages(
            session, rows, offset, self._settings, lambda: self.throttle_percent
        )
        for sent, (message, count) in enumerate(answers):
            if sent:
                acting.before(lambda: self.expire(session_name), responses=sent)
                session.check_age(self._store.clock.now_s(), _stamp(session.expire_s))
            yield message
            self._faults.count("ReadRows.rows", count)
        acting.after(lambda: self.expire(session_name))

    def split_read_stream(self, request: Any, call: RpcCall) -> Any:
        session_name = _session_name(request.name)
        acting = self._faults.arrive(
            "SplitReadStream",
            table=self._table_name(session_name),
            stream=request.name,
            call=call,
        )
        acting.before(lambda: self.expire(session_name))
        session, stream = self._stream(request.name)
        # 0.0 cannot be told from a field that is not set.
        fraction = request.fraction or 0.5
        if not 0.0 < fraction < 1.0:
            raise Refused(f"request failed: fraction must be in (0, 1), got {request.fraction}")
        answer = storage_types.SplitReadStreamResponse.pb()()
        parts = session.split(stream, fraction, self._settings.split_rows_min)
        if parts is not None:
            answer.primary_stream.name = parts[0].name
            answer.remainder_stream.name = parts[1].name
        acting.after(lambda: self.expire(session_name))
        return answer

    def expire(self, session_name: str) -> None:
        """Makes a session too old at once."""
        with self._lock:
            session = self._sessions.get(session_name)
        if session is not None:
            session.expire_s = min(session.expire_s, self._store.clock.now_s())

    def sessions(self) -> dict[str, float]:
        """Returns the sessions that are remembered, with the time each expires."""
        with self._lock:
            return {name: session.expire_s for name, session in self._sessions.items()}

    # --- making a session ---

    def _make(self, project: str, table: StoredTable, request: Any) -> tuple[Session, Snapshot]:
        asked = request.read_session
        options = asked.read_options
        responses.check_options(asked)
        if table.kind not in ("TABLE", "SNAPSHOT"):
            raise Refused("request failed: non-table entities cannot be read with the storage API")
        if len(options.row_restriction) > _RESTRICTION_CHARS_MAX:
            raise Refused("request failed: row_restriction is longer than 1 MB")
        restriction = options.row_restriction.strip()
        snapshot = self._snapshot(table, asked, pseudo_columns=bool(restriction))
        projection = Projection(
            table.schema, options.selected_fields, timestamps=_timestamps(asked)
        )
        base = Rows(merge=False)
        base.append(self._sampled(snapshot, options))
        session = Session(
            f"projects/{project}/locations/{table.location.lower()}/sessions/{uuid.uuid4().hex}",
            str(table.reference),
            base,
            table.schema,
            projection,
            self._keeper(table, restriction) if restriction else None,
            asked,
            self._store.clock.now_s() + self._settings.session_ttl_s,
        )
        session.add_streams(self._stream_count(request, base.row_count))
        if session.filtered and not any(
            session.rows(stream).row_count for stream in session.streams.values()
        ):
            session.streams.clear()
        return session, snapshot

    def _snapshot(self, table: StoredTable, asked: Any, *, pseudo_columns: bool) -> Snapshot:
        if not asked.table_modifiers.HasField("snapshot_time"):
            return table.snapshot(pseudo_columns=pseudo_columns)
        at_s = asked.table_modifiers.snapshot_time.ToMicroseconds() / 1e6
        if at_s > self._store.clock.now_s():
            raise Refused(f"request failed: Snapshot time {_stamp(at_s)} is in the future")
        return table.snapshot(at_s, pseudo_columns=pseudo_columns)

    def _keeper(self, table: StoredTable, restriction: str) -> Keep:
        # DuckDB and sqlglot come with an extra; a server that never filters needs neither.
        from bqflink_beam.emulator.sql import RowFilter

        schema = table.schema
        if table.partitioned_by_ingestion:
            schema = TableSchema(
                (*schema.fields, Field(name=types.PARTITION_TIME, type="TIMESTAMP"))
            )
        compiled = RowFilter(schema, restriction)

        def keep(chunks: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
            if not chunks:
                return []
            kept: list[pa.RecordBatch] = compiled(pa.Table.from_batches(chunks)).to_batches()
            return kept

        return keep

    def _sampled(self, snapshot: Snapshot, options: Any) -> list[pa.RecordBatch]:
        if not options.HasField("sample_percentage"):
            return list(snapshot.chunks)
        percentage = options.sample_percentage
        if not 0.0 < percentage <= 100.0:
            raise Refused(
                f"request failed: sample_percentage must be in (0, 100], got {percentage}"
            )
        kept = []
        for chunk in snapshot.chunks:
            for start in range(0, chunk.num_rows, _BLOCK_ROWS):
                if self._store.clock.random() * 100.0 < percentage:
                    kept.append(chunk.slice(start, _BLOCK_ROWS))
        return kept

    def _stream_count(self, request: Any, rows: int) -> int:
        most = int(request.max_stream_count)
        least = int(request.preferred_min_stream_count)
        if most < 0 or least < 0:
            raise Refused("request failed: stream counts must not be negative")
        if most and least > most:
            raise Refused(
                "request failed: preferred_min_stream_count must not be greater than "
                "max_stream_count"
            )
        settings = self._settings
        count = max(settings.streams_min, -(-rows // settings.rows_per_stream))
        count = max(count, min(least, rows // _BLOCK_ROWS))
        return min(count, most or STREAMS_MAX, STREAMS_MAX, rows)

    def _message(
        self, session: Session, table: StoredTable, request: Any, snapshot: Snapshot
    ) -> Any:
        message = storage_types.ReadSession.pb()()
        message.CopyFrom(request.read_session)
        message.name = session.name
        message.expire_time.FromMicroseconds(int(session.expire_s * 1e6))
        message.table = table.reference.path
        responses.put_schema(message, session)
        message.estimated_row_count = snapshot.row_count
        message.estimated_total_bytes_scanned = sum(
            session.projection.apply(chunk).nbytes for chunk in snapshot.chunks
        )
        for name in session.streams:
            message.streams.add(name=name)
        return message

    # --- finding one ---

    def _stream(self, name: str) -> tuple[Session, Stream]:
        with self._lock:
            session = self._sessions.get(_session_name(name))
            stream = session.streams.get(name) if session is not None else None
        if session is None or stream is None:
            raise Refused(
                f"request failed: Requested entity was not found. Entity: {name}",
                code="NOT_FOUND",
                entity=name,
            )
        session.check_age(self._store.clock.now_s(), _stamp(session.expire_s))
        return session, stream

    def _table_name(self, session_name: str) -> str:
        with self._lock:
            session = self._sessions.get(session_name)
        return session.table if session is not None else ""

    def _forget_old(self) -> None:
        # A day after its end a session is not even told from one that never was.
        horizon_s = self._store.clock.now_s() - 86_400.0
        for name in [n for n, session in self._sessions.items() if session.expire_s < horizon_s]:
            del self._sessions[name]


def _session_name(stream: str) -> str:
    match = _STREAM.match(stream)
    if match is None:
        raise Refused(f"request failed: Invalid stream name. Entity: {stream}", entity=stream)
    return match["session"]


def _timestamps(asked: Any) -> str:
    arrow = asked.read_options.arrow_serialization_options.picos_timestamp_precision
    avro = asked.read_options.avro_serialization_options.picos_timestamp_precision
    return _TIMESTAMPS.get(arrow or avro, MICROS)


def _stamp(at_s: float) -> str:
    moment = datetime.datetime.fromtimestamp(at_s, datetime.timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
