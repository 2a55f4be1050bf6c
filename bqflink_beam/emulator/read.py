"""Storage Read v1: the gRPC methods."""

import base64
import datetime
import random
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types as storage_types

from bqflink_beam.emulator import responses, types
from bqflink_beam.emulator.faults import Faults
from bqflink_beam.emulator.projection import MICROS, NANOS, PICOS, Projection
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rpc import RpcCall, server_stream, unary
from bqflink_beam.emulator.sessions import Keep, RowCache, Session, Stream
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.emulator.store import Snapshot, Store, StoredTable
from bqflink_beam.emulator.streams import parse_table
from bqflink_beam.emulator.versions import Rows
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema

_ReadSession = storage_types.ReadSession.pb()

SERVICE = "google.cloud.bigquery.storage.v1.BigQueryRead"
STREAMS_MAX = 1000
_KIND = "read_session"
_RESTRICTION_CHARS_MAX = 1_000_000
_BLOCK_ROWS = 1000
_CACHE_BYTES_MAX = 256 << 20
_TRACE_ID_BYTES_MAX = 256
_PARENT = re.compile(r"^projects/(?P<project>[^/]+)$")
_STREAM = re.compile(r"^(?P<session>projects/[^/]+/locations/[^/]+/sessions/[^/]+)/streams/[^/]+$")
_TEXT_LITERAL = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
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
        self._cache = RowCache(_CACHE_BYTES_MAX)
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
            raise Refused(f"request failed: Invalid parent {request.parent!r}")
        reference = parse_table(asked.table)
        acting = self._faults.arrive("CreateReadSession", table=str(reference), call=call)
        acting.before()
        if "$" in reference.table:
            raise Refused(
                f"request failed: Table decorators are not supported: {reference.table}; use "
                "row_restriction"
            )
        table = self._store.require_table(reference)
        snapshot = self._snapshot(table, asked)
        _check_partition_filter(table, asked.read_options.row_restriction)
        document = self._document(parent["project"], table, snapshot, asked)
        session = self._open(document, snapshot.chunks)
        session.add_streams(self._stream_count(request, session.row_count))
        if session.filtered and not any(
            session.rows(stream).row_count for stream in session.streams.values()
        ):
            session.drop_streams()
        self._keep_document(session, document)
        with self._lock:
            self._sessions[session.name] = session
        self._forget_old()
        acting.after(lambda: self.expire(session.name))
        return self._message(session, table, asked, snapshot)

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
        rows_min = self._settings.split_rows_min
        parts = acting.deliver(lambda: session.split(stream, fraction, rows_min))
        if parts is not None:
            self._keep_document(session)
            answer.primary_stream.name = parts[0].name
            answer.remainder_stream.name = parts[1].name
        acting.after(lambda: self.expire(session_name))
        return answer

    def expire(self, session_name: str) -> bool:
        """Makes a session too old at once; tells whether there is one."""
        session = self._session(session_name)
        if session is not None:
            session.expire_s = min(session.expire_s, self._store.clock.now_s())
            self._keep_document(session)
        return session is not None

    def sessions(self) -> dict[str, float]:
        """Returns the sessions that are remembered, with the time each expires."""
        with self._lock:
            return {name: session.expire_s for name, session in self._sessions.items()}

    # --- making a session ---

    def _snapshot(self, table: StoredTable, asked: Any) -> Snapshot:
        responses.check_options(asked)
        if table.kind not in ("TABLE", "SNAPSHOT"):
            raise Refused("request failed: non-table entities cannot be read with the storage API")
        if not asked.table_modifiers.HasField("snapshot_time"):
            return table.snapshot(pseudo_columns=True)
        try:
            at_s = asked.table_modifiers.snapshot_time.ToMicroseconds() / 1e6
        except ValueError as error:
            raise Refused(f"request failed: Invalid snapshot time: {error}") from error
        if at_s > self._store.clock.now_s():
            raise Refused(f"request failed: Snapshot time {_stamp(at_s)} is in the future")
        return table.snapshot(at_s, pseudo_columns=True)

    def _document(
        self, project: str, table: StoredTable, snapshot: Snapshot, asked: Any
    ) -> dict[str, Any]:
        """Returns what a session is made from, now and after a restart."""
        options = asked.read_options
        if len(options.row_restriction) > _RESTRICTION_CHARS_MAX:
            raise Refused("request failed: row_restriction is longer than 1 MB")
        if len(asked.trace_id.encode()) > _TRACE_ID_BYTES_MAX:
            raise Refused(f"request failed: trace_id is longer than {_TRACE_ID_BYTES_MAX} bytes")
        if options.HasField("sample_percentage") and not 0.0 < options.sample_percentage <= 100.0:
            raise Refused("request failed: sample_percentage must be in (0, 100]")
        session_id = uuid.uuid4().hex
        location = table.location.lower()
        return {
            "name": f"projects/{project}/locations/{location}/sessions/{session_id}",
            "table": [table.reference.project, table.reference.dataset, table.reference.table],
            "uid": table.uid,
            "version": snapshot.version,
            "stop": snapshot.stop,
            "schema": types.schema_to_rest(table.schema),
            "by_ingestion": table.partitioned_by_ingestion,
            "asked": base64.b64encode(asked.SerializeToString()).decode(),
            "seed": self._store.clock.random(),
            "now_s": self._store.clock.now_s(),
            "expire_s": self._store.clock.now_s() + self._settings.session_ttl_s,
        }

    def _open(self, document: Mapping[str, Any], chunks: Sequence[pa.RecordBatch]) -> Session:
        asked = _ReadSession.FromString(base64.b64decode(document["asked"]))
        options = asked.read_options
        schema = types.schema_from_rest(document["schema"])
        restriction = options.row_restriction.strip()
        filterable = schema
        if document["by_ingestion"]:
            pseudo = Field(name=types.PARTITION_TIME, type="TIMESTAMP")
            filterable = TableSchema((*schema.fields, pseudo))
        base = Rows(merge=False)
        base.append(
            _sampled(chunks, options.sample_percentage, document["seed"])
            if options.HasField("sample_percentage")
            else chunks
        )
        projection = Projection(schema, options.selected_fields, timestamps=_timestamps(asked))
        return Session(
            document["name"],
            ".".join(document["table"]),
            base,
            projection,
            _keeper(filterable, restriction, document["now_s"]) if restriction else None,
            asked,
            document["expire_s"],
            responses.avro_encoder(asked, projection),
            self._cache,
        )

    def _keep_document(self, session: Session, document: Mapping[str, Any] | None = None) -> None:
        """Writes down a session and its streams, so that they survive a restart."""
        with self._store.transaction() as change:
            kept = document or self._store.document(_KIND, session.name)
            if kept is not None:
                streams = [[each.name, each.start, each.stop] for each in session.streams.values()]
                now = {**kept, "streams": streams, "expire_s": session.expire_s}
                change.put_document(_KIND, session.name, now)

    def _reopen(self, name: str) -> Session | None:
        """Makes a session of before a restart again; None if it, or its table, is gone."""
        document = self._store.document(_KIND, name)
        if document is None:
            return None
        table = self._store.get_table(TableReference(*document["table"]))
        if table is None or table.uid != document["uid"]:
            return None
        stored = table.pinned(document["version"], document["stop"])
        if stored is None:
            return None
        arrow = types.arrow_schema(types.schema_from_rest(document["schema"]))
        if document["by_ingestion"]:
            arrow = arrow.append(pa.field(types.PARTITION_TIME, pa.timestamp("us", tz="UTC")))
        session = self._open(document, [types.conform(chunk, arrow) for chunk in stored])
        for stream, start, stop in document["streams"]:
            session.add_stream(start, stop, stream)
        return session

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

    def _message(self, session: Session, table: StoredTable, asked: Any, snapshot: Snapshot) -> Any:
        message = _ReadSession(
            name=session.name, data_format=asked.data_format, trace_id=asked.trace_id
        )
        # What the caller may set, and nothing else of what came: the rest is output only.
        message.table_modifiers.CopyFrom(asked.table_modifiers)
        message.read_options.CopyFrom(asked.read_options)
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

    def _session(self, name: str) -> Session | None:
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                session = self._reopen(name)
                if session is not None:
                    self._sessions[name] = session
            return session

    def _stream(self, name: str) -> tuple[Session, Stream]:
        session = self._session(_session_name(name))
        stream = session.find(name) if session is not None else None
        if session is None or stream is None:
            raise Refused(
                f"request failed: Requested entity was not found. Entity: {name}",
                code="NOT_FOUND",
                entity=name,
            )
        session.check_age(self._store.clock.now_s(), _stamp(session.expire_s))
        return session, stream

    def _table_name(self, session_name: str) -> str:
        session = self._session(session_name)
        return session.table if session is not None else ""

    def _forget_old(self) -> None:
        # A day after its end a session is not even told from one that never was.
        horizon_s = self._store.clock.now_s() - 86_400.0
        with self._lock, self._store.transaction() as change:
            for name, document in self._store.list_documents(_KIND).items():
                if document["expire_s"] < horizon_s:
                    change.drop_document(_KIND, name)
                    self._sessions.pop(name, None)


def _check_partition_filter(table: StoredTable, restriction: str) -> None:
    column = table.required_partition_filter
    code = _TEXT_LITERAL.sub("''", restriction)
    if column is not None and not re.search(rf"\b{re.escape(column)}\b", code, re.IGNORECASE):
        raise Refused(
            f"request failed: Cannot query over table '{table.reference}' without a filter over "
            f"column(s) '{column}' that can be used for partition elimination"
        )


def _keeper(schema: TableSchema, restriction: str, now_s: float) -> Keep:
    # DuckDB and sqlglot come with an extra; a server that never filters needs neither.
    from bqflink_beam.emulator.sql import RowFilter

    compiled = RowFilter(schema, restriction, now_s=now_s)

    def keep(chunks: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        if not chunks:
            return []
        kept: list[pa.RecordBatch] = compiled(pa.Table.from_batches(chunks)).to_batches()
        return kept

    return keep


def _sampled(
    chunks: Sequence[pa.RecordBatch], percentage: float, seed: float
) -> list[pa.RecordBatch]:
    chance = random.Random(seed)
    return [
        chunk.slice(start, _BLOCK_ROWS)
        for chunk in chunks
        for start in range(0, chunk.num_rows, _BLOCK_ROWS)
        if chance.random() * 100.0 < percentage
    ]


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
