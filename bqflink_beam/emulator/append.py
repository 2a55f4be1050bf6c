"""One AppendRows connection: what it remembers, and how it answers each request."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types as storage_types

from bqflink_beam.emulator import arrowrows, cdc, defaults, types
from bqflink_beam.emulator.checks import Faulty, check_batch
from bqflink_beam.emulator.protorows import RowDecoder
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rpc import status_of
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.emulator.store import Store, StoredTable
from bqflink_beam.emulator.streams import (
    WriteStreams,
    parse_stream,
    table_not_found,
)
from bqflink_beam.emulator.table import check_decorator
from bqflink_beam.emulator.versions import Chunk, LazyChunk
from bqflink_beam.schema.model import Field, TableSchema

AppendRowsRequest = storage_types.AppendRowsRequest.pb()
AppendRowsResponse = storage_types.AppendRowsResponse.pb()
RowErrorMessage = storage_types.RowError.pb()

_NULL_VALUE, _DEFAULT_VALUE = 1, 2


class EndOfConnection(Exception):
    """A request after which the service closes the connection; carries the refusal."""

    def __init__(self, refused: Refused) -> None:
        super().__init__(refused.message)
        self.refused = refused


@dataclasses.dataclass
class _Target:
    """A stream that the connection writes to."""

    name: str
    table: StoredTable
    is_default: bool
    known_schema: TableSchema
    proto_schema: Any = None
    arrow_schema_data: bytes | None = None
    decoder: RowDecoder | None = None
    decoder_schema: TableSchema | None = None
    takes_changes: bool = False

    def forget_schema(self) -> None:
        """A new destination, or a new schema, begins anew."""
        self.proto_schema = self.arrow_schema_data = self.decoder = None
        self.takes_changes = False


class AppendConnection:
    """Answers the requests of one connection, in order."""

    def __init__(self, store: Store, streams: WriteStreams, settings: Settings) -> None:
        self._store = store
        self._streams = streams
        self._settings = settings
        self._targets: dict[str, _Target] = {}
        self._current: _Target | None = None
        self._switched = False
        self._default_interpretation = _NULL_VALUE

    def target_name(self, request: Any) -> str:
        """Returns the stream that a request is for: its own, or the one before's."""
        if request.write_stream:
            return str(request.write_stream)
        return self._current.name if self._current is not None else ""

    def answer(self, request: Any, request_bytes: int) -> tuple[Any, int]:
        """Applies a request and returns its response, and how many rows were appended.

        Raises:
            EndOfConnection: the request breaks the protocol, or its stream does not exist.
        """
        target = self.open_target(request)
        response = AppendRowsResponse(write_stream=target.name)
        rows = 0
        try:
            if request_bytes >= self._settings.append_bytes_max:
                raise Refused(
                    f"Request size {request_bytes} is not below the limit of "
                    f"{self._settings.append_bytes_max} bytes. Entity: {target.name}"
                )
            offset, rows = self._append(target, request)
            response.append_result.SetInParent()
            if offset is not None:
                response.append_result.offset.value = offset
        except _RowErrors as errors:
            response.error.CopyFrom(status_of(errors.refused))
            response.row_errors.extend(errors.messages(self._settings.row_errors_max))
        except Refused as refused:
            if refused.code == "NOT_FOUND":
                raise EndOfConnection(refused) from refused
            response.error.CopyFrom(status_of(refused))
        self._tell_of_new_schema(target, response)
        return response, rows

    def open_target(self, request: Any) -> "_Target":
        """Takes what of a request holds for the next ones, even when it is refused itself:
        stream, writer schema, and how missing values are to be read.

        Raises:
            EndOfConnection: the stream does not exist, or cannot be switched to.
        """
        try:
            target, fresh = self._target(request)
        except Refused as refused:
            raise EndOfConnection(refused) from refused
        if fresh:
            target.forget_schema()
        if request.default_missing_value_interpretation in (_NULL_VALUE, _DEFAULT_VALUE):
            self._default_interpretation = request.default_missing_value_interpretation
        kind = request.WhichOneof("rows")
        if kind == "proto_rows" and request.proto_rows.HasField("writer_schema"):
            target.forget_schema()
            target.proto_schema = request.proto_rows.writer_schema.proto_descriptor
        elif kind == "arrow_rows" and request.arrow_rows.HasField("writer_schema"):
            target.forget_schema()
            target.arrow_schema_data = request.arrow_rows.writer_schema.serialized_schema
        return target

    def _target(self, request: Any) -> tuple[_Target, bool]:
        """Returns the target of a request, and whether it is another one than before."""
        name = request.write_stream
        if not name:
            if self._current is None:
                raise Refused("The first request on a connection must have a write_stream")
            if self._switched:
                raise Refused(
                    "write_stream must be in every request once a connection has switched streams"
                )
            return self._current, False
        if self._current is not None and name == self._current.name:
            return self._current, False
        target = self._targets.get(name) or self._open(name)
        if self._current is not None:
            if not (self._current.is_default and target.is_default):
                raise Refused(
                    "A connection can switch between default streams only, "
                    f"not from {self._current.name} to {name}"
                )
            self._switched = True
        self._targets[name] = self._current = target
        return target, True

    def _open(self, name: str) -> _Target:
        reference, stream = parse_stream(name)
        if stream == "_default":
            table = self._store.get_table(reference)
            if table is None:
                raise table_not_found(reference)
            if table.kind != "TABLE":
                raise Refused(f"Cannot append to a {table.kind}. Entity: {reference.path}")
            check_decorator(table, reference.table, self._store.clock.now_s())
            return _Target(name, table, True, table.schema)
        state = self._streams.get(name)
        table = self._streams.table_of(state)
        return _Target(name, table, False, table.schema)

    def _append(self, target: _Target, request: Any) -> tuple[int | None, int]:
        self._check_request(target, request)
        offset = request.offset.value if request.HasField("offset") else None
        if target.is_default:
            if offset is not None:
                raise Refused(
                    f"Offset must not be set on the default stream. Entity: {target.name}"
                )
        else:
            self._streams.check_append(self._streams.get(target.name), offset)
        faulty = Faulty()
        chunk: Chunk = self._unchecked(target, request) or self._decode(target, request, faulty)
        if faulty.messages:
            raise _RowErrors(target.name, faulty)
        if not chunk.num_rows:
            raise Refused(f"Rows must be specified. Entity: {target.name}")
        if not target.is_default:
            return self._streams.append(target.name, offset, chunk), chunk.num_rows
        reference, _ = parse_stream(target.name)
        with self._store.transaction() as change:
            if self._store.get_table(reference) is not target.table:
                raise table_not_found(target.table.reference)
            outdated = target.takes_changes and target.decoder_schema is not target.table.schema
            if not target.takes_changes:
                change.append(reference, [chunk])
            elif not outdated:
                change.merge(target.table, chunk)
        if outdated:
            # The table was altered in between, and changes are merged column by column.
            return self._append(target, request)
        return None, chunk.num_rows

    def _check_request(self, target: _Target, request: Any) -> None:
        if request.default_missing_value_interpretation not in (0, _NULL_VALUE, _DEFAULT_VALUE):
            raise Refused(f"Invalid default missing value interpretation. Entity: {target.name}")
        kind = request.WhichOneof("rows")
        if kind is None:
            raise Refused(f"Rows must be specified. Entity: {target.name}")
        if (target.proto_schema if kind == "proto_rows" else target.arrow_schema_data) is None:
            raise Refused(
                "A writer schema must be given in the first request for a stream. "
                f"Entity: {target.name}"
            )
        if kind == "proto_rows" and not request.proto_rows.rows.serialized_rows:
            raise Refused(f"Rows must be specified. Entity: {target.name}")

    def _unchecked(self, target: _Target, request: Any) -> LazyChunk | None:
        """Returns proto rows as they came, where nothing asks for them to be looked at."""
        schema = target.table.schema
        if (
            self._settings.validation
            or request.WhichOneof("rows") != "proto_rows"
            or target.table.partitioned_by_ingestion
            or self._store.journal is not None
            or self._interpretations(schema, request)
            or cdc.wants_changes(target.proto_schema)
        ):
            return None
        decoder = self._decoder(target, schema)
        rows = request.proto_rows.rows.serialized_rows
        return LazyChunk(len(rows), lambda: decoder.decode(rows, Faulty()))

    def _decoder(self, target: _Target, schema: TableSchema) -> RowDecoder:
        if target.decoder is None or target.decoder_schema is not schema:
            extra: tuple[Field, ...] = ()
            if cdc.wants_changes(target.proto_schema) and not _has_change_columns(schema):
                cdc.check_table(target.table, is_default=target.is_default)
                extra = cdc.CHANGE_FIELDS
            target.takes_changes = bool(extra)
            target.decoder = RowDecoder(target.proto_schema, schema, extra=extra)
            target.decoder_schema = schema
        return target.decoder

    def _decode(self, target: _Target, request: Any, faulty: Faulty) -> pa.RecordBatch:
        schema = target.table.schema
        interpretations = self._interpretations(schema, request)
        if request.WhichOneof("rows") == "arrow_rows":
            assert target.arrow_schema_data is not None
            writer = arrowrows.read_schema(target.arrow_schema_data)
            data = request.arrow_rows.rows.serialized_record_batch
            batch, missing = arrowrows.decode(writer, data, schema, faulty)
            absent: Mapping[str, list[bool] | None] = dict.fromkeys(missing)
        else:
            decoder = self._decoder(target, schema)
            rows = request.proto_rows.rows.serialized_rows
            messages = decoder.parse(rows, faulty)
            batch = decoder.batch(messages, faulty)
            absent = {
                name: None if name in decoder.missing else decoder.absent(messages, name)
                for name in interpretations
            }
        batch = self._fill_defaults(schema, batch, interpretations, absent)
        if target.takes_changes:
            return cdc.check_changes(target.table, batch, faulty)
        return check_batch(schema, batch, faulty)

    def _interpretations(self, schema: TableSchema, request: Any) -> dict[str, Field]:
        """Returns the columns whose default stands in for a missing value, by name."""
        chosen = dict(request.missing_value_interpretations)
        by_lower = {field.name.lower(): field for field in schema}
        for name, interpretation in chosen.items():
            if interpretation not in (_NULL_VALUE, _DEFAULT_VALUE):
                raise Refused(f"Invalid missing value interpretation for field {name}")
            if name.lower() not in by_lower:
                raise Refused(f"Missing value interpretation for unknown field {name}")
        lowered = {name.lower(): interpretation for name, interpretation in chosen.items()}
        return {
            field.name: field
            for lower, field in by_lower.items()
            if field.default_value_expression
            and lowered.get(lower, self._default_interpretation) == _DEFAULT_VALUE
        }

    def _fill_defaults(
        self,
        schema: TableSchema,
        batch: pa.RecordBatch,
        interpretations: Mapping[str, Field],
        absent: Mapping[str, list[bool] | None],
    ) -> pa.RecordBatch:
        columns = list(batch.columns)
        for position, field in enumerate(schema):
            if field.name not in interpretations or field.name not in absent:
                continue
            missing = absent[field.name]
            columns[position] = defaults.fill(
                field,
                columns[position],
                [True] * batch.num_rows if missing is None else missing,
                defaults.default_maker(field, self._store.clock),
            )
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _tell_of_new_schema(self, target: _Target, response: Any) -> None:
        schema = target.table.schema
        if schema is not target.known_schema:
            if schema != target.known_schema:
                response.updated_schema.CopyFrom(types.schema_to_proto(schema))
            target.known_schema = schema


def _has_change_columns(schema: TableSchema) -> bool:
    return any(field.name.upper() == types.CHANGE_TYPE for field in schema)


class _RowErrors(Exception):
    """Rows that the table refuses; nothing of the request is applied."""

    def __init__(self, stream: str, faulty: Faulty) -> None:
        super().__init__(stream)
        self._faulty = faulty
        self.refused = Refused(
            "Errors found while processing rows. Please refer to the row_errors field for "
            "details. The list may not be complete because of the size limitations. "
            f"Entity: {stream}"
        )

    def messages(self, at_most: int) -> list[Any]:
        rows = sorted(self._faulty.messages)[:at_most]
        return [
            RowErrorMessage(index=row, code=1, message=self._faulty.messages[row]) for row in rows
        ]
