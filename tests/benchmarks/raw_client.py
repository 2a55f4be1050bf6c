"""Google's own clients with a plain loop round them: the least that a user can do by hand."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import BigQueryReadClient, types
from google.cloud.bigquery_storage_v1.services.big_query_read import transports
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_APPEND = "/google.cloud.bigquery.storage.v1.BigQueryWrite/AppendRows"
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_KINDS = {
    "id": "INT64",
    "user": "STRING",
    "city": "STRING",
    "amount": "BYTES",
    "score": "DOUBLE",
    "active": "BOOL",
    "day": "INT32",
    "at": "INT64",
    "local": "INT64",
    "note": "STRING",
}


def _descriptor() -> descriptor_pb2.DescriptorProto:
    made = descriptor_pb2.DescriptorProto(name="Row")
    for number, (name, kind) in enumerate(_KINDS.items(), start=1):
        type_ = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind}")
        made.field.add(name=name, number=number, label=1, type=type_)
    return made


def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto2")
    file.message_type.add().CopyFrom(_descriptor())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Row"))


Row = _message_class()


@contextlib.contextmanager
def channel_to(storage: str) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(storage, options=_OPTIONS) as channel:
        yield channel


def read_client(channel: grpc.Channel) -> BigQueryReadClient:
    return BigQueryReadClient(transport=transports.BigQueryReadGrpcTransport(channel=channel))


def read_batches(channel: grpc.Channel, table: str) -> list[pa.RecordBatch]:
    """Reads a table stream after stream, as Google's client gives it."""
    client = read_client(channel)
    project, dataset, name = table.split(".")
    session = client.create_read_session(
        parent=f"projects/{project}",
        read_session=types.ReadSession(
            table=f"projects/{project}/datasets/{dataset}/tables/{name}",
            data_format=types.DataFormat.ARROW,
        ),
        max_stream_count=0,
    )
    schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))
    return [
        pa.ipc.read_record_batch(
            pa.py_buffer(response.arrow_record_batch.serialized_record_batch), schema
        )
        for stream in session.streams
        for response in client.read_rows(stream.name)
    ]


def read_dicts(channel: grpc.Channel, table: str) -> list[dict[str, Any]]:
    """Reads a table as Python values, the fastest way that pyarrow has by itself."""
    return [row for batch in read_batches(channel, table) for row in batch.to_pylist()]


def append(channel: grpc.Channel, table: str, rows: Sequence[bytes], per_request: int) -> None:
    """Appends proto rows to the default stream, requests following one another at once."""
    project, dataset, name = table.split(".")
    stream = f"projects/{project}/datasets/{dataset}/tables/{name}/streams/_default"
    call = channel.stream_stream(
        _APPEND,
        request_serializer=types.AppendRowsRequest.pb().SerializeToString,
        response_deserializer=types.AppendRowsResponse.pb().FromString,
    )
    answers = call(_requests(stream, rows, per_request))
    errors = [answer.error for answer in answers if answer.HasField("error")]
    if errors:
        raise RuntimeError(f"the server refused {len(errors)} requests: {errors[0]}")


def _requests(stream: str, rows: Sequence[bytes], size: int) -> Iterator[Any]:
    for start in range(0, len(rows), size):
        request = types.AppendRowsRequest.pb()(write_stream=stream)
        if start == 0:
            request.proto_rows.writer_schema.proto_descriptor.CopyFrom(_descriptor())
        request.proto_rows.rows.serialized_rows.extend(rows[start : start + size])
        yield request
