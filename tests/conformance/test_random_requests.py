"""Whatever arrives, the answer is a documented status: never INTERNAL, UNKNOWN, or nothing."""

import grpc
import pyarrow as pa
import pytest
from google.cloud.bigquery_storage_v1 import types
from google.protobuf import descriptor_pb2, message_factory
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bqflink_beam import testing
from bqflink_beam.testing.conformance.kit import READ, WRITE

DOCUMENTED = {
    "OK",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "OUT_OF_RANGE",
    "FAILED_PRECONDITION",
    "RESOURCE_EXHAUSTED",
    "ABORTED",
}
IN_BAND = {3, 5, 6, 9, 11}
PATH = "projects/p/datasets/d/tables/t"
FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "s", "type": "STRING", "maxLength": "5", "defaultValueExpression": "'x'"},
    {"name": "n", "type": "NUMERIC"},
    {"name": "d", "type": "DATE"},
    {"name": "r", "type": "STRUCT", "mode": "REPEATED", "fields": [{"name": "a", "type": "TIME"}]},
    {"name": "j", "type": "JSON"},
]
UNARY = {
    (WRITE, "CreateWriteStream"): "CreateWriteStreamRequest",
    (WRITE, "GetWriteStream"): "GetWriteStreamRequest",
    (WRITE, "FinalizeWriteStream"): "FinalizeWriteStreamRequest",
    (WRITE, "BatchCommitWriteStreams"): "BatchCommitWriteStreamsRequest",
    (WRITE, "FlushRows"): "FlushRowsRequest",
    (READ, "CreateReadSession"): "CreateReadSessionRequest",
    (READ, "SplitReadStream"): "SplitReadStreamRequest",
}


@pytest.fixture(scope="module")
def server():
    with testing.Emulator(settings=testing.Settings(append_bytes_max=2000)) as server:
        server.create_table("p.d.t", FIELDS, rows=[{"id": 1}, {"id": 2}])
        server.create_table(
            "p.d.keyed", FIELDS, tableConstraints={"primaryKey": {"columns": ["id"]}}
        )
        yield server


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(server.storage_endpoint) as channel:
        yield channel


class Names:
    """Streams that exist: three to write, one to read; new ones now and then, since random
    requests soon finalize what they find."""

    def __init__(self, channel) -> None:
        self._channel = channel
        self._uses = 0
        self._names: list[str] = []

    def current(self) -> list[str]:
        if self._uses % 20 == 0:
            self._names = [*map(self._write_stream, (1, 2, 3)), self._read_stream()]
        self._uses += 1
        return self._names

    def _write_stream(self, kind: int) -> str:
        request = types.CreateWriteStreamRequest.pb()(parent=PATH)
        request.write_stream.type_ = kind
        return self._call(WRITE, "CreateWriteStream", request, types.WriteStream.pb()).name

    def _read_stream(self) -> str:
        request = types.CreateReadSessionRequest.pb()(parent="projects/p")
        request.read_session.table = PATH
        request.read_session.data_format = 2
        session = self._call(READ, "CreateReadSession", request, types.ReadSession.pb())
        return session.streams[0].name

    def _call(self, service, method, request, response):
        call = self._channel.unary_unary(
            f"/{service}/{method}", response_deserializer=response.FromString
        )
        return call(request.SerializeToString(), timeout=20)


@pytest.fixture(scope="module")
def names(channel):
    return Names(channel)


def texts(field, names):
    """Draws for a field: mostly what belongs there, so that requests come far."""
    owner, name = field.containing_type.name, field.name
    default = f"{PATH}/streams/_default"
    keyed = "projects/p/datasets/d/tables/keyed/streams/_default"
    fitting = {
        "write_stream": [default, keyed, *names[:3]],
        "write_streams": names[:3],
        "name": names[3:] if owner == "SplitReadStreamRequest" else [default, *names[:3]],
        "read_stream": names[3:],
        "parent": ["projects/p" if owner == "CreateReadSessionRequest" else PATH],
        "table": [PATH],
    }.get(name, [""])
    odd = [
        *names,
        PATH,
        default,
        f"{PATH}/_default",
        f"{PATH}/streams/none",
        f"{PATH}$20200101",
        f"{PATH}/streams/",
        "projects/p",
        "projects/p/datasets/d/tables/none",
        "projects//datasets//tables/",
        "",
    ]
    return st.one_of(*[st.sampled_from(fitting)] * 8, st.sampled_from(odd), st.text(max_size=20))


# Fields without which a request ends before anything is looked at.
_NEEDED = frozenset(
    {"write_stream", "write_streams", "name", "read_stream", "parent", "table", "read_session"}
    | {"rows", "writer_schema", "proto_descriptor", "serialized_rows", "data_format"}
    | {"serialized_schema", "serialized_record_batch", "proto_rows"}
)


def integers():
    return st.sampled_from([0, 1, 2, 3, -1, 2**31 - 1, -(2**31), 5]) | st.integers(
        -(2**31), 2**31 - 1
    )


def message_of(draw, descriptor, names, depth=0):
    """Draws a message of any of the API's types, field by field."""
    built = message_factory.GetMessageClass(descriptor)()
    for field in descriptor.fields:
        if draw(st.integers(0, 9)) >= (9 if field.name in _NEEDED else 3):
            continue
        if field.name == "arrow_rows" and draw(st.booleans()):
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            key = draw(st.sampled_from(["s", "id", "nope", "R", ""]))
            getattr(built, field.name)[key] = draw(st.sampled_from([0, 1, 2, 7]))
        elif field.message_type is not None:
            if field.message_type.full_name.startswith("google.protobuf.DescriptorProto"):
                getattr(built, field.name).CopyFrom(draw(descriptors()))
            elif depth < 5 and not field.message_type.full_name.startswith("google.protobuf.Desc"):
                inner = message_of(draw, field.message_type, names, depth + 1)
                target = getattr(built, field.name)
                target.add().CopyFrom(inner) if _repeated(field) else target.CopyFrom(inner)
        else:
            value = scalar(draw, field, names)
            try:
                if _repeated(field):
                    getattr(built, field.name).extend([value] * draw(st.integers(0, 3)))
                else:
                    setattr(built, field.name, value)
            except ValueError:
                assert field.type in (field.TYPE_UINT32, field.TYPE_UINT64, field.TYPE_ENUM)
    return built


def scalar(draw, field, names):
    if field.type == field.TYPE_STRING:
        if field.name == "row_restriction":
            return draw(restrictions())
        if field.name == "selected_fields":
            return draw(st.sampled_from(["id", "r.a", "R", "none", "id.x", "", "."]))
        return draw(texts(field, names))
    if field.type == field.TYPE_BYTES:
        return draw(payloads())
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
        return draw(st.floats() | st.sampled_from([0.5, 50.0]))
    if field.type == field.TYPE_BOOL:
        return draw(st.booleans())
    if field.enum_type is not None:
        return draw(st.sampled_from([value.number for value in field.enum_type.values] + [77]))
    return draw(integers())


def restrictions():
    parts = st.sampled_from(
        ["id", "s", "r", "j", "=", "<", ">", "(", ")", "AND", "OR", "NOT", "1", "'x'", "NULL"]
        + ["IS", "IN", "LIKE", "BETWEEN", "SUM(id)", "--", ";", "DATE '2020-01-01'", "`", "?"]
    )
    return st.lists(parts, max_size=6).map(" ".join) | st.text(max_size=15)


def payloads():
    schema = pa.schema([("id", pa.int64()), ("s", pa.string())])
    batch = pa.RecordBatch.from_pydict({"id": [1], "s": ["a"]}, schema)
    sound = [
        b"\x08\x01",
        b"\x08\x01\x12\x03abc",
        schema.serialize().to_pybytes(),
        batch.serialize().to_pybytes(),
    ]
    return st.sampled_from(sound) | st.binary(max_size=40)


@st.composite
def descriptors(draw):
    """Draws writer schemas: mostly sound ones for the tables here, and odd ones."""
    made = descriptor_pb2.DescriptorProto(
        name=draw(st.sampled_from(["Row", "Row", "Row", "Row", "", "1bad", "a.b"]))
    )
    sound = {"id": 3, "s": 9, "n": 9, "d": 5, "j": 9, "_CHANGE_TYPE": 9}
    names = draw(
        st.lists(st.sampled_from([*sound, *sound, "r", "extra", ""]), max_size=4, unique=True)
    )
    for number, name in enumerate(names, start=1):
        odd = draw(st.integers(0, 5)) == 0
        made.field.add(
            name=name,
            number=draw(st.sampled_from([1, 0, 19_500])) if odd else number,
            type=draw(st.integers(1, 18)) if odd else sound.get(name, 11),
            label=draw(st.integers(1, 3)) if odd else 3 if name == "r" else 1,
            type_name=""
            if name in sound and not odd
            else draw(st.sampled_from(["", ".Row", "T", "T", ".google.protobuf.Int64Value"])),
        )
    if draw(st.booleans()):
        made.nested_type.add(name="T").field.add(name="a", number=1, type=9, label=1)
    return made


def _repeated(field) -> bool:
    known = getattr(field, "is_repeated", None)
    return field.label == field.LABEL_REPEATED if known is None else known


def check(call) -> None:
    """Runs a call to its end; it must end with a documented status."""
    try:
        call()
    except grpc.RpcError as error:
        assert error.code().name in DOCUMENTED, f"{error.code().name}: {error.details()}"


def run_many(channel, names, examples, derandomize) -> None:
    unary = list(UNARY)

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def one(data) -> None:
        which = data.draw(st.integers(0, len(unary) + 2))
        raw = data.draw(st.integers(0, 4)) == 0
        if which < len(unary):
            service, method = unary[which]
            descriptor = getattr(types, UNARY[service, method]).pb().DESCRIPTOR
            body = request(data, descriptor, names.current(), raw)
            check(lambda: channel.unary_unary(f"/{service}/{method}")(body, timeout=20))
        elif which == len(unary):
            body = request(data, types.ReadRowsRequest.pb().DESCRIPTOR, names.current(), raw)
            check(lambda: list(channel.unary_stream(f"/{READ}/ReadRows")(body, timeout=20)))
        else:
            descriptor = types.AppendRowsRequest.pb().DESCRIPTOR
            bodies = [
                request(data, descriptor, names.current(), raw and not number)
                for number in range(data.draw(st.integers(1, 3)))
            ]
            check(lambda: append(channel, bodies))

    one()


def request(data, descriptor, names, raw) -> bytes:
    if raw:
        return data.draw(st.binary(max_size=60))
    return message_of(data.draw, descriptor, names).SerializeToString()


def append(channel, bodies) -> None:
    call = channel.stream_stream(
        f"/{WRITE}/AppendRows", response_deserializer=types.AppendRowsResponse.pb().FromString
    )
    for answer in call(iter(bodies), timeout=20):
        if answer.WhichOneof("response") == "error":
            assert answer.error.code in IN_BAND, answer


def test_some_random_requests_are_answered(channel, names):
    run_many(channel, names, 1_000, derandomize=True)


@pytest.mark.long
def test_10000_random_requests_are_answered(channel, names):
    run_many(channel, names, 10_000, derandomize=False)


@pytest.mark.parametrize(("seconds", "nanos"), [(0, -1), (0, 10**9), (2**62, 0), (-(2**62), 0)])
def test_a_snapshot_time_that_is_no_time_is_invalid(channel, seconds, nanos):
    request = types.CreateReadSessionRequest.pb()(parent="projects/p")
    request.read_session.table = PATH
    request.read_session.data_format = 2
    request.read_session.table_modifiers.snapshot_time.seconds = seconds
    request.read_session.table_modifiers.snapshot_time.nanos = nanos

    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(f"/{READ}/CreateReadSession")(request.SerializeToString(), timeout=20)

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
