"""Every type through the service: written as proto and as Arrow, read as Arrow and as Avro."""

import datetime
import decimal

import grpc
import pyarrow as pa
import pytest
from google.cloud.bigquery_storage_v1 import types as google_types
from google.cloud.bigquery_storage_v1.services.big_query_read import BigQueryReadClient
from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
    BigQueryReadGrpcTransport,
)
from google.cloud.bigquery_storage_v1.services.big_query_write import BigQueryWriteClient
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import (
    BigQueryWriteGrpcTransport,
)
from google.protobuf import descriptor_pb2

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
from bqflink_beam.codec.avro import RecordDecoder
from bqflink_beam.codec.batch_to_proto import BatchToProto
from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.codec.values import BIGNUMERIC_MAX, BIGNUMERIC_MIN, Interval, Range
from bqflink_beam.names import TableReference
from bqflink_beam.schema import json as schema_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import Emulator

UTC = datetime.timezone.utc
civil = datetime.datetime.fromisoformat

VALUES = {
    "STRING": ["", "é\x00'", "🙂"],
    "BYTES": [b"", b"\x00\xff"],
    "INT64": [-(2**63), 0, 2**63 - 1],
    "FLOAT64": [-0.0, 1e-300, float("inf"), float("-inf")],
    "BOOL": [True, False],
    "NUMERIC": [
        decimal.Decimal("-99999999999999999999999999999.999999999"),
        decimal.Decimal(0),
        decimal.Decimal("1E-9"),
    ],
    "BIGNUMERIC": [BIGNUMERIC_MIN, decimal.Decimal("1E-38"), BIGNUMERIC_MAX],
    "DATE": [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    "TIME": [datetime.time(0), datetime.time(23, 59, 59, 999_999)],
    "DATETIME": [civil("0001-01-01T00:00:00"), civil("9999-12-31T23:59:59.999999")],
    "TIMESTAMP": [
        civil("0001-01-01T00:00:00+00:00"),
        civil("1969-12-31T23:59:59.999999+00:00"),
        civil("9999-12-31T23:59:59.999999+00:00"),
    ],
    "JSON": ['{"a":[1,null]}', "null", '"text"', "1"],
    "GEOGRAPHY": ["POINT(-121 41)"],
    "INTERVAL": [
        Interval(),
        Interval(14, -3, 14_706_789_000),
        Interval(-120_000, 3_660_000, -((2**63 - 1) // 1000)),
    ],
}
RANGES = {
    "DATE": [Range(datetime.date(2024, 1, 1), None), Range(None, None)],
    "DATETIME": [Range(None, civil("2024-01-01T00:00:00.000001"))],
    "TIMESTAMP": [Range(civil("2024-01-01T00:00:00+00:00"), civil("2024-01-02T00:00:00+00:00"))],
}
SCALARS = tuple(Field(name=kind.lower(), type=kind) for kind in VALUES) + tuple(
    Field(name=f"range_{element.lower()}", type="RANGE", range_element_type=element)
    for element in RANGES
)
LISTS = tuple(
    Field(
        name=f"list_{field.name}",
        type=field.type,
        mode="REPEATED",
        range_element_type=field.range_element_type,
    )
    for field in SCALARS
)
SCHEMA = TableSchema(
    (
        Field(name="row", type="INT64", mode="REQUIRED"),
        *SCALARS,
        *LISTS,
        Field(name="Nested", type="STRUCT", fields=(*SCALARS, *LISTS)),
        Field(
            name="größe",
            type="STRUCT",
            mode="REPEATED",
            fields=(Field(name="x", type="STRUCT", fields=(Field(name="y", type="NUMERIC"),)),),
        ),
    )
)


def pool_of(field):
    return RANGES[field.range_element_type] if field.type == "RANGE" else VALUES[field.type]


def row_of(index):
    inner = {field.name: None for field in SCALARS} | {field.name: [] for field in LISTS}
    for field in SCALARS:
        pool = pool_of(field)
        choice = index % (len(pool) + 1)
        inner[field.name] = None if choice == len(pool) else pool[choice]
    for field in LISTS:
        inner[field.name] = pool_of(field)[: index % 4]
    return {
        "row": index,
        **inner,
        "Nested": None if index % 3 == 0 else inner,
        "größe": [{"x": None}, {"x": {"y": decimal.Decimal("1.5")}}][: index % 3],
    }


ROWS = [row_of(index) for index in range(12)]
_LARGEST = decimal.Decimal(f"{'9' * 38}.{'9' * 38}")


def within_arrow(value):
    """Arrow's widest decimals have 76 digits, BIGNUMERIC's a little more."""
    if isinstance(value, dict):
        return {name: within_arrow(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [within_arrow(inner) for inner in value]
    if isinstance(value, decimal.Decimal) and value.adjusted() == 38:
        return _LARGEST if value > 0 else _LARGEST.copy_negate()
    return value


@pytest.fixture(scope="module")
def server():
    with Emulator() as emulator:
        yield emulator


def channel(server):
    return grpc.insecure_channel(server.connection.storage_endpoint)


def write_client(server):
    return BigQueryWriteClient(transport=BigQueryWriteGrpcTransport(channel=channel(server)))


def append(server, request):
    client = write_client(server)
    (response,) = client.append_rows(iter([request]))
    client.transport.close()
    assert not response.error.message, response.error


def proto_rows(table, descriptor, rows):
    request = google_types.AppendRowsRequest(write_stream=table.default_stream)
    data = request.proto_rows
    data.writer_schema.proto_descriptor = descriptor_pb2.DescriptorProto.FromString(descriptor)
    data.rows.serialized_rows = rows
    return request


def write_proto(server, table):
    encoder = RowEncoder(SCHEMA)
    append(server, proto_rows(table, encoder.descriptor, [encoder.encode(row) for row in ROWS]))
    return ROWS


def write_arrow(server, table):
    rows = [within_arrow(row) for row in ROWS]
    batch = BatchEncoder(SCHEMA).encode(rows)
    request = google_types.AppendRowsRequest(write_stream=table.default_stream)
    request.arrow_rows.writer_schema.serialized_schema = batch.schema.serialize().to_pybytes()
    request.arrow_rows.rows.serialized_record_batch = batch.serialize().to_pybytes()
    append(server, request)
    return rows


def write_batch_as_proto(server, table):
    batch = BatchEncoder(SCHEMA).encode(ROWS)
    direct = BatchToProto(batch.schema, SCHEMA)
    append(server, proto_rows(table, direct.descriptor, direct.encode(batch)))
    return ROWS


def session_of(server, table, data_format):
    client = BigQueryReadClient(transport=BigQueryReadGrpcTransport(channel=channel(server)))
    session = google_types.ReadSession(table=table.path, data_format=data_format)
    session.read_options.avro_serialization_options.enable_display_name_attribute = True
    session = client.create_read_session(parent="projects/p", read_session=session)
    responses = [
        response
        for stream in session.streams
        for response in client.read_rows(read_stream=stream.name)
    ]
    client.transport.close()
    return session, responses


def read_arrow(server, table):
    session, responses = session_of(server, table, google_types.DataFormat.ARROW)
    schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))
    decoder = BatchDecoder(schema, SCHEMA)
    rows = []
    for response in responses:
        data = pa.py_buffer(response.arrow_record_batch.serialized_record_batch)
        rows += decoder.rows(pa.ipc.read_record_batch(data, schema))
    return rows


def read_avro(server, table):
    session, responses = session_of(server, table, google_types.DataFormat.AVRO)
    decoder = RecordDecoder(session.avro_schema.schema)
    rows = []
    for response in responses:
        rows += decoder.rows(response.avro_rows.serialized_binary_rows, response.row_count)
    return rows


def typed(value):
    """The value with the type of every part of it, since 1 == 1.0 == True."""
    if isinstance(value, dict):
        return {name: typed(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [typed(inner) for inner in value]
    if isinstance(value, Range):
        return (Range, typed(value.start), typed(value.end))
    if isinstance(value, datetime.datetime):
        return (type(value), value, value.tzinfo)
    if isinstance(value, float):
        return (float, repr(value))
    return (type(value), value)


@pytest.mark.parametrize("read", [read_arrow, read_avro])
@pytest.mark.parametrize("write", [write_proto, write_arrow, write_batch_as_proto])
def test_every_value_comes_back_as_it_went(server, write, read):
    table = TableReference("p", "d", f"{write.__name__}_{read.__name__}")
    server.create_table(str(table), schema_json.to_json(SCHEMA))

    rows = write(server, table)

    found = sorted(read(server, table), key=lambda row: row["row"])
    assert [typed(row) for row in found] == [typed(row) for row in rows]


PICOS = TableSchema((Field(name="t", type="TIMESTAMP", timestamp_precision=12),))


def test_twelve_digits_come_back_as_text(server):
    table = TableReference("p", "d", "picos")
    server.create_table(str(table), schema_json.to_json(PICOS))
    encoder = RowEncoder(PICOS)
    text = "2024-01-31T10:00:00.123456789012Z"

    append(server, proto_rows(table, encoder.descriptor, [encoder.encode({"t": text})]))

    assert server.visible_rows(str(table)) == [{"t": text}]
