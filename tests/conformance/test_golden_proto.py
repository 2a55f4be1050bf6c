"""Golden bytes of proto rows: Google's client makes them, the server and our codec read them."""

from collections.abc import Iterator
from typing import Any

import pytest
from google.cloud import bigquery_storage
from google.cloud.bigquery_storage_v1 import types, writer
from google.cloud.bigquery_storage_v1.services.big_query_write import transports
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from bqflink_beam.codec.proto import (
    RowDecoder,
    RowEncoder,
    pack_civil,
    unpack_civil,
    unpack_time,
)
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import Emulator
from tests.conformance import golden
from tests.conformance.raw_wire import Storage, T, stored, typed

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:google")
_Request = types.AppendRowsRequest.pb()
_Proto = descriptor_pb2.FieldDescriptorProto
# What both write: the forms that our encoder has chosen too.
OURS = {"types": golden.TYPES, "nested": golden.NESTED}


@pytest.fixture(scope="module")
def server() -> Iterator[Emulator]:
    with Emulator() as server:
        yield server


# --- making the bytes -----------------------------------------------------------------------


def message_class(messages: dict[str, str]) -> Any:
    """Builds what the compiler makes of a .proto file."""
    file = descriptor_pb2.FileDescriptorProto(name="rows.proto", syntax="proto2")
    pool = descriptor_pool.DescriptorPool()
    for module in (wrappers_pb2, timestamp_pb2):
        known = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(known)
        pool.Add(known)
        file.dependency.append(known.name)
    root = file.message_type.add(name=next(iter(messages)))
    for name, lines in messages.items():
        message = root if name == root.name else root.nested_type.add(name=name)
        for number, line in enumerate(lines.strip().splitlines(), 1):
            label, kind, field_name, *packed = line.split()
            field = message.field.add(name=field_name, number=number)
            field.label = _Proto.Label.Value(f"LABEL_{label.upper()}")
            if kind[0] == "." or kind in messages:
                field.type = _Proto.TYPE_MESSAGE
                field.type_name = kind if kind[0] == "." else f"{root.name}.{kind}"
            else:
                field.type = _Proto.Type.Value(f"TYPE_{kind.upper()}")
            if packed:
                field.options.packed = True
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(root.name))


def sent_by_google(given: golden.Append) -> tuple[list[str], list[str]]:
    """Sends the rows twice with Google's writer; returns its requests, and their trace ids."""
    row_class = message_class(given.messages)
    rows = [row_class(**row).SerializeToString() for row in given.rows]
    template = types.AppendRowsRequest(write_stream=T.default_stream)
    data = types.AppendRowsRequest.ProtoData(writer_schema=types.ProtoSchema())
    row_class.DESCRIPTOR.CopyToProto(data.writer_schema.proto_descriptor)
    template.proto_rows = data
    storage = Storage()
    with storage.channel() as channel:
        client = bigquery_storage.BigQueryWriteClient(
            transport=transports.BigQueryWriteGrpcTransport(channel=channel)
        )
        stream = writer.AppendRowsStream(client, template)
        for _ in range(2):
            proto_rows = types.AppendRowsRequest.ProtoData(
                rows=types.ProtoRows(serialized_rows=rows)
            )
            stream.send(types.AppendRowsRequest(proto_rows=proto_rows)).result(timeout=30)
        stream.close()
    requests = [_Request.FromString(data) for data in storage.appended]
    trace_ids = [request.trace_id for request in requests]
    for request in requests:
        request.ClearField("trace_id")
    return [request.SerializeToString().hex() for request in requests], trace_ids


@pytest.mark.parametrize("name", golden.APPENDS)
def test_google_writer_sends_the_golden_requests(name):
    given = golden.APPENDS[name]

    requests, trace_ids = sent_by_google(given)

    assert requests == [given.first, given.later]
    assert trace_ids[0].startswith("python-writer:")
    assert trace_ids[1] == ""


# --- reading them -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.APPENDS)
def test_embedded_server_stores_what_the_golden_requests_mean(server, name):
    given = golden.APPENDS[name]

    rows = stored(server, given.schema, bytes.fromhex(given.first), bytes.fromhex(given.later))

    assert list(map(typed, rows)) == list(map(typed, given.values * 2))


def golden_rows(given: golden.Append) -> list[bytes]:
    request = _Request.FromString(bytes.fromhex(given.first))
    return list(request.proto_rows.rows.serialized_rows)


@pytest.mark.parametrize("name", OURS)
def test_our_encoder_writes_the_golden_rows(name):
    given = OURS[name]
    encoder = RowEncoder(given.schema)

    rows = [encoder.encode(row).hex() for row in given.values]

    assert rows == [row.hex() for row in golden_rows(given)]


@pytest.mark.parametrize("name", OURS)
def test_our_decoder_reads_the_golden_rows(name):
    given = OURS[name]
    decoder = RowDecoder(given.schema, RowEncoder(given.schema).descriptor)

    rows = [decoder.decode(row) for row in golden_rows(given)]

    assert list(map(typed, rows)) == list(map(typed, given.values))


# --- published values ---------------------------------------------------------------------------


def repeated(kind: str, type: str, items: list[Any]) -> tuple[TableSchema, bytes]:
    """Returns a table of one array, and the request of a row with these items."""
    row_class = message_class({"Row": f"repeated {kind} x"})
    request = _Request(write_stream=T.default_stream)
    row_class.DESCRIPTOR.CopyToProto(request.proto_rows.writer_schema.proto_descriptor)
    request.proto_rows.rows.serialized_rows.append(row_class(x=items).SerializeToString())
    field = Field(name="x", type=type, mode="REPEATED")
    return TableSchema((field,)), request.SerializeToString()


@pytest.mark.parametrize(
    ("kind", "type", "published"),
    [
        ("int64", "TIME", golden.PACKED_TIMES),
        ("int64", "DATETIME", golden.PACKED_DATETIMES),
        ("bytes", "NUMERIC", {bytes.fromhex(k): v for k, v in golden.NUMERIC_BYTES.items()}),
        ("bytes", "BIGNUMERIC", {bytes.fromhex(k): v for k, v in golden.BIGNUMERIC_BYTES.items()}),
    ],
    ids=["TIME", "DATETIME", "NUMERIC", "BIGNUMERIC"],
)
def test_embedded_server_reads_published_values(server, kind, type, published):
    schema, request = repeated(kind, type, list(published))

    (row,) = stored(server, schema, request)

    assert list(map(typed, row["x"])) == list(map(typed, published.values()))


def test_our_codec_packs_and_unpacks_published_values():
    times = TableSchema((Field(name="x", type="TIME"),))
    class_ = message_class({"Row": "optional int64 x"})
    encoder = RowEncoder(times)

    packed = [
        class_.FromString(encoder.encode({"x": time})).x for time in golden.PACKED_TIMES.values()
    ]

    assert packed == list(golden.PACKED_TIMES)
    assert list(map(pack_civil, golden.PACKED_DATETIMES.values())) == list(golden.PACKED_DATETIMES)
    assert list(map(unpack_time, golden.PACKED_TIMES)) == list(golden.PACKED_TIMES.values())
    assert list(map(unpack_civil, golden.PACKED_DATETIMES)) == list(
        golden.PACKED_DATETIMES.values()
    )
