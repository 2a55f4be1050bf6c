"""ReadRows messages: rows of a stream in the format that the session asked for."""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types as storage_types

from bqflink_beam.emulator.avrorows import AvroEncoder
from bqflink_beam.emulator.projection import Projection
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sessions import Session
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.emulator.versions import Rows

_ReadRowsResponse = storage_types.ReadRowsResponse.pb()
_ARROW, _AVRO = 2, 1
_BUFFER_CODECS = {0: None, 1: "lz4", 2: "zstd"}
_RESPONSE_LZ4 = 2


def check_options(session: Any) -> None:
    """Refuses what a session cannot be asked for."""
    options = session.read_options
    if session.data_format not in (_ARROW, _AVRO):
        raise Refused("request failed: data_format must be ARROW or AVRO")
    arrow = options.arrow_serialization_options
    if arrow.buffer_compression not in _BUFFER_CODECS:
        raise Refused("request failed: unknown buffer_compression")
    if options.response_compression_codec not in (0, _RESPONSE_LZ4):
        raise Refused("request failed: unknown response_compression_codec")
    if arrow.buffer_compression and options.response_compression_codec:
        raise Refused(
            "request failed: Arrow buffer compression and response compression cannot be combined"
        )


def put_schema(message: Any, session: Session) -> None:
    """Puts the schema into a session's or a first response's message."""
    if session.avro is not None:
        message.avro_schema.schema = session.avro.schema_text
    else:
        schema = session.projection.arrow_schema
        message.arrow_schema.serialized_schema = schema.serialize().to_pybytes()


def avro_encoder(session: Any, projection: Projection) -> AvroEncoder | None:
    """Returns what serializes the rows of a session that asks for Avro."""
    if session.data_format != _AVRO:
        return None
    options = session.read_options.avro_serialization_options
    return AvroEncoder(
        projection.schema,
        timestamps=projection.timestamps,
        display_names=options.enable_display_name_attribute,
    )


def messages(
    session: Session,
    rows: Rows,
    offset: int,
    settings: Settings,
    throttle_percent: Callable[[], int],
) -> Iterator[tuple[bytes, int]]:
    """Yields serialized responses from row `offset` on, each with its number of rows."""
    total = rows.row_count
    codec = _BUFFER_CODECS[
        session.options.read_options.arrow_serialization_options.buffer_compression
    ]
    whole = session.options.read_options.response_compression_codec == _RESPONSE_LZ4
    first = True
    for chunk in rows.slice(offset, total):
        for piece in _pieces(chunk, settings):
            stop = offset + piece.num_rows
            message = _ReadRowsResponse(row_count=piece.num_rows)
            payload = session.avro.encode(piece) if session.avro else _serialize(piece, codec)
            if whole:
                payload, message.uncompressed_byte_size = _compressed(payload)
            if session.avro:
                message.avro_rows.serialized_binary_rows = bytes(payload)
                message.avro_rows.row_count = piece.num_rows
            else:
                message.arrow_record_batch.serialized_record_batch = bytes(payload)
                message.arrow_record_batch.row_count = piece.num_rows
            message.stats.progress.at_response_start = offset / total
            message.stats.progress.at_response_end = stop / total
            message.throttle_state.throttle_percent = throttle_percent()
            if first:
                put_schema(message, session)
                first = False
            yield message.SerializeToString(), piece.num_rows
            offset = stop


def _compressed(payload: Any) -> tuple[Any, int]:
    """Returns a payload compressed and its size before, or as it is and -1: no smaller so."""
    compressed = pa.compress(payload, codec="lz4_raw", asbytes=True)
    return (compressed, len(payload)) if len(compressed) < len(payload) else (payload, -1)


def _pieces(chunk: pa.RecordBatch, settings: Settings) -> Iterator[pa.RecordBatch]:
    row_bytes = max(chunk.nbytes / chunk.num_rows, 1.0)
    count = max(1, min(settings.response_rows_max, int(settings.response_bytes_max / row_bytes)))
    for start in range(0, chunk.num_rows, count):
        yield chunk.slice(start, count)


def _serialize(batch: pa.RecordBatch, codec: str | None) -> Any:
    """Returns the bare IPC message of a batch."""
    if codec is None:
        return memoryview(batch.serialize())
    # Only stream writers compress. The schema message before the batch has no body, so it
    # ends with its metadata: a marker, a length, and that many bytes.
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
        stop = sink.tell()
    data = memoryview(sink.getvalue())
    (metadata_bytes,) = struct.unpack_from("<i", data, 4)
    return data[8 + metadata_bytes : stop]
