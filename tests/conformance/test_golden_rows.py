"""Golden bytes of Arrow and Avro rows: Google's clients write and read them, and so do we."""

import base64
import datetime
import io
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import fastavro
import grpc
import pyarrow as pa
import pytest
from google.cloud import bigquery_storage
from google.cloud.bigquery_storage_v1 import types, writer
from google.cloud.bigquery_storage_v1.services.big_query_read import transports as read_transports
from google.cloud.bigquery_storage_v1.services.big_query_write import transports

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
from bqflink_beam.codec.avro import RecordDecoder
from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.schema.model import Field
from bqflink_beam.testing import Emulator
from tests.conformance import golden
from tests.conformance.raw_wire import Storage, T, as_ours, stored, typed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:google")
_Request = types.AppendRowsRequest.pb()
_Session = types.ReadSession.pb()
_Rows = types.ReadRowsResponse.pb()
LONG = {
    name: base64.b64decode(text)
    for name, text in json.loads(
        pathlib.Path(__file__).with_name("golden_bytes.json").read_text()
    ).items()
}
"""Bytes too long for a page: `APPEND`, `ARROW_SCHEMA` and `ARROW_ROWS` of `golden.VALUES`."""


@pytest.fixture(scope="module")
def server() -> Iterator[Emulator]:
    with Emulator() as server:
        yield server


# --- Arrow, written ---------------------------------------------------------------------------

_HOME = pa.struct(
    [("city", pa.string()), ("since", pa.timestamp("us")), ("tags", pa.list_(pa.string()))]
)
WRITTEN = pa.schema(
    [
        ("s", pa.string()),
        ("b", pa.binary()),
        pa.field("i", pa.int64(), nullable=False),
        ("f", pa.float64()),
        ("ok", pa.bool_()),
        ("n", pa.decimal128(38, 9)),
        ("w", pa.decimal256(76, 38)),
        ("d", pa.date32()),
        ("t", pa.time64("us")),
        ("l", pa.timestamp("us")),
        ("at", pa.timestamp("us", tz="UTC")),
        ("j", pa.string()),
        ("g", pa.string()),
        ("v", pa.month_day_nano_interval()),
        ("r", pa.struct([("start", pa.date32()), ("end", pa.date32())])),
        ("ints", pa.list_(pa.int64())),
        ("home", _HOME),
        ("stops", pa.list_(_HOME)),
    ]
)


def as_arrow(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: as_arrow(inner) for name, inner in value.items()}
    if isinstance(value, Interval):
        return pa.MonthDayNano([value.months, value.days, value.micros * 1000])
    return {"start": value.start, "end": value.end} if isinstance(value, Range) else value


def test_google_writer_sends_the_golden_arrow_request():
    batch = pa.RecordBatch.from_pylist([as_arrow(row) for row in golden.VALUES], schema=WRITTEN)
    storage = Storage()

    with storage.channel() as channel:
        client = bigquery_storage.BigQueryWriteClient(
            transport=transports.BigQueryWriteGrpcTransport(channel=channel)
        )
        template = types.AppendRowsRequest(write_stream=T.default_stream)
        template.arrow_rows = types.AppendRowsRequest.ArrowData(
            writer_schema=types.ArrowSchema(serialized_schema=WRITTEN.serialize().to_pybytes())
        )
        stream = writer.AppendRowsStream(client, template)
        rows = types.AppendRowsRequest.ArrowData(
            rows=types.ArrowRecordBatch(serialized_record_batch=batch.serialize().to_pybytes())
        )
        stream.send(types.AppendRowsRequest(arrow_rows=rows)).result(timeout=30)
        stream.close()

    (data,) = storage.appended
    request = _Request.FromString(data)
    request.ClearField("trace_id")
    assert request.SerializeToString() == LONG["APPEND"]


def test_embedded_server_stores_what_the_golden_arrow_request_means(server):
    rows = stored(server, golden.COLUMNS, LONG["APPEND"])

    assert list(map(typed, rows)) == list(map(typed, golden.VALUES))


def test_our_codec_reads_and_writes_the_golden_arrow_rows():
    data = _Request.FromString(LONG["APPEND"]).arrow_rows
    schema = pa.ipc.read_schema(pa.py_buffer(data.writer_schema.serialized_schema))
    batch = pa.ipc.read_record_batch(pa.py_buffer(data.rows.serialized_record_batch), schema)

    rows = BatchDecoder(schema, golden.COLUMNS).rows(batch)
    encoded = BatchEncoder(golden.COLUMNS).encode(golden.VALUES)

    assert list(map(typed, rows)) == list(map(typed, golden.VALUES))
    assert encoded.cast(schema).equals(batch)


# --- Arrow and Avro, read -----------------------------------------------------------------------


def session_of(server: Emulator, data_format: str) -> tuple[Any, Any]:
    """Returns the session and the one message of rows that the server makes of `VALUES`."""
    stored(server, golden.COLUMNS, LONG["APPEND"])
    with grpc.insecure_channel(server.storage_endpoint) as channel:
        client = reader(channel)
        session = client.create_read_session(
            parent="projects/p",
            read_session=types.ReadSession(table=T.path, data_format=data_format),
        )
        (message,) = client.read_rows(session.streams[0].name)
    return session._pb, message


def reader(channel: grpc.Channel) -> bigquery_storage.BigQueryReadClient:
    return bigquery_storage.BigQueryReadClient(
        transport=read_transports.BigQueryReadGrpcTransport(channel=channel)
    )


def read_by_google(session: Any, message: Any) -> list[dict[str, Any]]:
    """Serves a session and its rows to Google's reader; returns the rows it gives."""
    session.streams.add(name="projects/p/locations/us/sessions/s/streams/0")
    message.row_count = len(golden.VALUES)
    storage = Storage(session=session.SerializeToString(), rows=message.SerializeToString())
    with storage.channel() as channel:
        client = reader(channel)
        found = client.create_read_session(parent="projects/p", read_session=types.ReadSession())
        rows = client.read_rows(found.streams[0].name).rows(found)
        return [dict(row) for row in rows]


def test_embedded_server_sends_the_golden_arrow_rows(server):
    session, message = session_of(server, "ARROW")

    assert session.arrow_schema.serialized_schema == LONG["ARROW_SCHEMA"]
    assert message.arrow_record_batch.serialized_record_batch == LONG["ARROW_ROWS"]


def test_google_reader_reads_the_golden_arrow_rows():
    session, message = _Session(data_format=types.DataFormat.ARROW), _Rows()
    session.arrow_schema.serialized_schema = LONG["ARROW_SCHEMA"]
    message.arrow_record_batch.serialized_record_batch = LONG["ARROW_ROWS"]

    found = read_by_google(session, message)

    rows = [{name: value.as_py() for name, value in row.items()} for row in found]
    rows = [as_ours(golden.COLUMNS.fields, row) for row in rows]
    assert list(map(typed, rows)) == list(map(typed, golden.VALUES))


def test_our_decoder_reads_the_golden_arrow_rows():
    schema = pa.ipc.read_schema(pa.py_buffer(LONG["ARROW_SCHEMA"]))
    batch = pa.ipc.read_record_batch(pa.py_buffer(LONG["ARROW_ROWS"]), schema)

    rows = BatchDecoder(schema, golden.COLUMNS).rows(batch)

    assert list(map(typed, rows)) == list(map(typed, golden.VALUES))


def as_avro(fields: tuple[Field, ...], row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row as fastavro has it: no logical type for civil time, intervals and ranges."""
    return {field.name: _as_avro(field, row[field.name]) for field in fields}


def _as_avro(field: Field, value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, list):
        return [_as_avro(field, item) for item in value]
    if field.type == "STRUCT":
        return as_avro(field.fields, value)
    if field.type == "DATETIME":
        return value.isoformat()
    if field.type == "RANGE":
        return {"start": value.start, "end": value.end}
    return str(value) if field.type == "INTERVAL" else value


RECORDS = [as_avro(golden.COLUMNS.fields, row) for row in golden.VALUES]


def test_fastavro_writes_the_golden_avro_rows():
    sink = io.BytesIO()
    schema = fastavro.parse_schema(json.loads(golden.AVRO_SCHEMA))

    for record in RECORDS:
        fastavro.schemaless_writer(sink, schema, record)

    assert sink.getvalue().hex() == golden.AVRO_ROWS


def test_embedded_server_sends_the_golden_avro_rows(server):
    session, message = session_of(server, "AVRO")

    assert json.loads(session.avro_schema.schema) == json.loads(golden.AVRO_SCHEMA)
    assert message.avro_rows.serialized_binary_rows.hex() == golden.AVRO_ROWS


def test_google_reader_reads_the_golden_avro_rows():
    session, message = _Session(data_format=types.DataFormat.AVRO), _Rows()
    session.avro_schema.schema = golden.AVRO_SCHEMA
    message.avro_rows.serialized_binary_rows = bytes.fromhex(golden.AVRO_ROWS)

    rows = read_by_google(session, message)

    assert list(map(typed, rows)) == list(map(typed, RECORDS))
    assert rows[0]["at"].utcoffset() == datetime.timedelta(0)


def test_our_decoder_reads_the_golden_avro_rows():
    decoder = RecordDecoder(golden.AVRO_SCHEMA)

    rows = decoder.rows(bytes.fromhex(golden.AVRO_ROWS), len(golden.VALUES))

    assert list(map(typed, rows)) == list(map(typed, golden.VALUES))
