"""Any value of any type for any column: taken and read back, or refused; never anything else."""

import datetime
import decimal

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bqflink_beam.testing.conformance import embedded
from bqflink_beam.testing.conformance.kit import Writer, append_request, error_of, message

_COLUMNS = [
    {"type": "BOOL"},
    {"type": "INT64"},
    {"type": "FLOAT64"},
    {"type": "STRING"},
    {"type": "STRING", "maxLength": "3"},
    {"type": "BYTES", "maxLength": "3"},
    {"type": "NUMERIC"},
    {"type": "NUMERIC", "precision": "5", "scale": "2"},
    {"type": "BIGNUMERIC"},
    {"type": "DATE"},
    {"type": "TIME"},
    {"type": "DATETIME"},
    {"type": "TIMESTAMP"},
    {"type": "TIMESTAMP", "timestampPrecision": "12"},
    {"type": "JSON"},
    {"type": "GEOGRAPHY"},
    {"type": "INTERVAL"},
]
_DEFAULTS = {
    "INT64": "7",
    "STRING": "'x'",
    "NUMERIC": "1.5",
    "BIGNUMERIC": "1.5",
    "DATE": "DATE '2020-02-29'",
    "TIMESTAMP": "CURRENT_TIMESTAMP()",
    "JSON": """JSON '{"a": 1}'""",
}
_TEXTS = [
    "", " ", "0", "-1", "1.5", " 1 ", "1_0", "1e5", "1e-400000000", "1e400000000", "-0", "nan", "Infinity",
    "9" * 39, "0x1", "٣", "true", "null", "2020-02-29", "2021-02-29", "0000-01-01", "9999-12-31", "２０２０-01-01",
    "2020-01-01 00:00:00", "2020-01-01T23:59:60", "0001-01-01 00:00:00+23", "9999-12-31 23:59:59.999999999999-12",
    "12:34:56", "24:00:00", "1-2 3 4:5:6", "99999-0 0 0:0:0", "0-0 0 99999999:0:0", "P1D",
    "POINT(1 2)", "POINT(nan 0)", "POINT EMPTY", "GEOMETRYCOLLECTION(" * 3000, "[" * 50_000, '{"a":' * 3000,
    '{"type": "Point", "coordinates": []}', '{"type": "Polygon", "coordinates": [[[0, 0]]]}', '"\\ud800"', "1e999999",
]  # fmt: skip
_BYTES = [b"", b"\x00", b"\xff", b"\xff" * 16, b"\x01" * 17, b"\xff" * 31 + b"\x7f", b"\x01" * 33]
_LIMITS = {32: [0, 1, -1, 2**31 - 1, -(2**31)], 64: [0, 1, -1, 2**63 - 1, -(2**63), 2**62]}


def _integers(bits, signed=True):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    edges = [each for each in (*_LIMITS[bits], high) if low <= each <= high]
    return st.sampled_from(edges) | st.integers(low, high)


_FLOATS = st.floats() | st.sampled_from([0.0, 0.1, 1e308, 5e-324, 1e29])
_WORDS = st.sampled_from(_TEXTS) | st.text(max_size=8)
_OCTETS = st.sampled_from(_BYTES) | st.binary(max_size=20)
_SECONDS = st.builds(
    lambda seconds, nanos: {"seconds": seconds, "nanos": nanos}, _integers(64), _integers(32)
)
_PROTO = {
    "bool": st.booleans(),
    "int32": _integers(32),
    "uint32": _integers(32, signed=False),
    "int64": _integers(64),
    "sint64": _integers(64),
    "uint64": _integers(64, signed=False),
    "double": _FLOATS,
    "float": st.sampled_from([0.0, 0.5, float("nan"), float("inf")]),
    "string": _WORDS,
    "bytes": _OCTETS,
    "google.protobuf.Timestamp": _SECONDS,
    "google.protobuf.Duration": _SECONDS,
    "google.protobuf.StringValue": _WORDS.map(lambda text: {"value": text}),
    "google.protobuf.BytesValue": _OCTETS.map(lambda data: {"value": data}),
    "google.protobuf.Int64Value": _integers(64).map(lambda number: {"value": number}),
}
# Proto types that go with each column, so that most draws come as far as the values.
_FITTING = {
    "BOOL": ["bool", "int32", "uint64"],
    "INT64": ["int64", "int32", "uint32", "sint64", "google.protobuf.Int64Value"],
    "FLOAT64": ["double", "float"],
    "STRING": ["string", "google.protobuf.StringValue"],
    "BYTES": ["bytes", "string", "google.protobuf.BytesValue"],
    "NUMERIC": ["string", "bytes", "int64", "uint64", "double", "float", "google.protobuf.BytesValue"],
    "BIGNUMERIC": ["string", "bytes", "int64", "uint64", "double", "float"],
    "DATE": ["int32", "int64", "string"],
    "TIME": ["int64", "string"],
    "DATETIME": ["int64", "string"],
    "TIMESTAMP": ["int64", "int32", "uint32", "string", "google.protobuf.Timestamp"],
    "JSON": ["string"],
    "GEOGRAPHY": ["string"],
    "INTERVAL": ["string", "google.protobuf.Duration"],
}  # fmt: skip


@st.composite
def fields(draw):
    field = {"name": "x", "mode": "NULLABLE", **draw(st.sampled_from(_COLUMNS))}
    field["mode"] = draw(st.sampled_from(["NULLABLE", "NULLABLE", "REQUIRED", "REPEATED"]))
    if field["mode"] != "REPEATED" and field["type"] in _DEFAULTS and draw(st.booleans()):
        field["defaultValueExpression"] = _DEFAULTS[field["type"]]
    return field


@st.composite
def proto_requests(draw):
    """A column, and a request for it."""
    field = draw(fields())
    repeated = field["mode"] == "REPEATED"
    kind = draw(st.sampled_from([*_FITTING[field["type"]] * 3, *_PROTO]))
    writer = Writer(x=[kind] if repeated and kind.startswith("google") else kind)
    writer.descriptor.field[0].label = 3 if repeated else 1
    one = _PROTO[kind]
    value = st.lists(one, max_size=3) if repeated else one
    rows = st.one_of(
        value.map(lambda each: writer.row(x=each)),
        st.just(b""),
        st.sampled_from([b"\xff\xff", b"\x0a\x01\xff", b"\x0a\x00"]),
    )
    return field, append_request(
        "",
        draw(st.lists(rows, min_size=1, max_size=4)),
        writer=writer,
        default_missing_value_interpretation=draw(st.integers(0, 3)),
        missing_value_interpretations=draw(st.sampled_from([{}, {}, {"x": 1}, {"X": 2}])),
    )


def _of_decimals(digits, scale):
    unscaled = st.integers(-(10**digits) + 1, 10**digits - 1)
    context = decimal.Context(prec=100)
    return unscaled.map(lambda number: decimal.Decimal(number).scaleb(-scale, context))


_ARROW = [
    (pa.bool_(), st.booleans()),
    (pa.int8(), st.integers(-128, 127)),
    (pa.int64(), _integers(64)),
    (pa.uint64(), _integers(64, signed=False)),
    (pa.float32(), st.sampled_from([0.0, 0.5, float("nan")])),
    (pa.float64(), _FLOATS),
    (pa.string(), _WORDS),
    (pa.large_string(), _WORDS),
    (pa.string_view(), _WORDS),
    (pa.binary(), _OCTETS),
    (pa.decimal128(38, 9), _of_decimals(38, 9)),
    (pa.decimal128(38, 0), _of_decimals(38, 0)),
    (pa.decimal256(76, 38), _of_decimals(76, 38)),
    (pa.decimal256(60, 0), _of_decimals(60, 0)),
    (pa.int32(), _integers(32)),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(datetime.timezone.utc))),
    (pa.timestamp("s"), st.datetimes().map(lambda at: at.replace(microsecond=0))),
    (pa.month_day_nano_interval(), st.tuples(_integers(32), _integers(32), _integers(64))),
    (pa.null(), st.none()),
]


@st.composite
def arrow_requests(draw):
    """A column, and a request for it."""
    field = draw(fields())
    kind, value = draw(st.sampled_from(_ARROW))
    value = value | st.none()
    if draw(st.integers(0, 9)) < (8 if field["mode"] == "REPEATED" else 1):
        listed = draw(st.sampled_from([pa.list_, pa.large_list]))
        kind, value = listed(kind), st.lists(value, max_size=3) | st.none()
    batch = pa.RecordBatch.from_arrays(
        [pa.array(draw(st.lists(value, min_size=1, max_size=4)), kind)], ["x"]
    )
    request = message(
        "AppendRowsRequest", default_missing_value_interpretation=draw(st.integers(0, 3))
    )
    request.arrow_rows.writer_schema.serialized_schema = batch.schema.serialize().to_pybytes()
    request.arrow_rows.rows.serialized_record_batch = batch.serialize().to_pybytes()
    return field, request


@pytest.fixture(scope="module")
def bigquery():
    with embedded.direct() as bigquery:
        yield bigquery


def send(bigquery, field, request) -> None:
    """Sends a request; what is taken must be there in both formats, and nothing else."""
    table = bigquery.make_table([field])
    request.write_stream = table.default_stream

    with bigquery.connection() as append:
        answer = append(request)

    taken = answer.WhichOneof("response") == "append_result"
    sent = len(request.proto_rows.rows.serialized_rows)
    if request.HasField("arrow_rows"):
        schema = pa.ipc.read_schema(
            pa.py_buffer(request.arrow_rows.writer_schema.serialized_schema)
        )
        data = pa.py_buffer(request.arrow_rows.rows.serialized_record_batch)
        sent = pa.ipc.read_record_batch(data, schema).num_rows
    if not taken:
        assert error_of(answer).code == "INVALID_ARGUMENT"
    rows = [each["x"] for each in bigquery.rows(table)]
    assert len(rows) == (sent if taken else 0)
    if field["mode"] != "NULLABLE":
        assert None not in rows
    session = bigquery.create_session(table, data_format="AVRO")
    read = [each for stream in session.streams for each in bigquery.read(stream.name)]
    assert sum(each.row_count for each in read) == len(rows)
    bigquery.drop_table(table)


def many(examples, derandomize):
    return settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=derandomize,
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("requests", [proto_requests(), arrow_requests()], ids=["proto", "arrow"])
def test_some_values_are_taken_or_refused(bigquery, requests):
    many(500, True)(given(requests)(lambda drawn: send(bigquery, *drawn)))()


@pytest.mark.long
@pytest.mark.parametrize("requests", [proto_requests(), arrow_requests()], ids=["proto", "arrow"])
def test_5000_values_are_taken_or_refused(bigquery, requests):
    many(5_000, False)(given(requests)(lambda drawn: send(bigquery, *drawn)))()


# --- Arrow that was damaged on the way ------------------------------------------------------

_FIELDS = [
    {"name": "i", "type": "INT64"},
    {"name": "s", "type": "STRING"},
    {"name": "l", "type": "INT64", "mode": "REPEATED"},
    {"name": "t", "type": "STRUCT", "fields": [{"name": "a", "type": "STRING"}]},
    {"name": "n", "type": "NUMERIC"},
    {"name": "b", "type": "BOOL"},
]
_BATCH = pa.RecordBatch.from_arrays(
    [
        pa.array([1, 2, None]),
        pa.array(["a", None, "ccc"]),
        pa.array([[1], None, [2, 3]]),
        pa.array([{"a": "x"}, None, {"a": None}]),
        pa.array([decimal.Decimal("1.5"), None, decimal.Decimal(2)], pa.decimal128(38, 9)),
        pa.array([True, None, False]),
    ],
    names=["i", "s", "l", "t", "n", "b"],
)


@st.composite
def damaged(draw, data):
    """A message with a few of its bytes changed."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data) - 1))
        octets = draw(
            st.sampled_from([b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff"])
            | st.integers(0, 7).map(lambda bit, byte=changed[at]: bytes([byte ^ 1 << bit]))
            | st.sampled_from([-1, 5, 2**31, 2**62]).map(
                lambda n: n.to_bytes(8, "little", signed=True)
            )
        )
        changed[at : at + len(octets)] = octets
    return bytes(changed)


_SCHEMA_DATA, _ROWS_DATA = (each.serialize().to_pybytes() for each in (_BATCH.schema, _BATCH))
_DAMAGED = st.one_of(
    st.tuples(damaged(_SCHEMA_DATA), st.just(_ROWS_DATA)),
    *[st.tuples(st.just(_SCHEMA_DATA), damaged(_ROWS_DATA))] * 2,
)


def send_damaged(bigquery, schema, rows) -> None:
    table = bigquery.make_table(_FIELDS)
    request = message("AppendRowsRequest", write_stream=table.default_stream)
    request.arrow_rows.writer_schema.serialized_schema = schema
    request.arrow_rows.rows.serialized_record_batch = rows

    with bigquery.connection() as append:
        answer = append(request)

    if answer.WhichOneof("response") == "error":
        assert error_of(answer).code == "INVALID_ARGUMENT"
    assert (len(bigquery.rows(table)) > 0) == (answer.WhichOneof("response") == "append_result")
    bigquery.drop_table(table)


@pytest.mark.parametrize(
    "examples", [pytest.param(500), pytest.param(10_000, marks=pytest.mark.long)]
)
def test_damaged_arrow_is_refused_or_read(bigquery, examples):
    many(examples, True)(given(_DAMAGED)(lambda drawn: send_damaged(bigquery, *drawn)))()


@pytest.mark.parametrize("garbled", [b"\xeec", b"s\xee", b"\xff\xff"])
@pytest.mark.parametrize("name", [b"s1", b"f1"])
def test_arrow_columns_and_fields_whose_names_are_no_text_are_refused(bigquery, name, garbled):
    """A broken last character shows in the name alone, not in a text that has it in the middle."""
    inner = {"name": "f1", "type": "INTEGER"}
    table = bigquery.make_table([{"name": "s1", "type": "RECORD", "fields": [inner]}])
    batch = pa.RecordBatch.from_pylist([{"s1": {"f1": 1}}])
    request = message("AppendRowsRequest", write_stream=table.default_stream)
    request.arrow_rows.writer_schema.serialized_schema = (
        batch.schema.serialize().to_pybytes().replace(name, garbled)
    )
    request.arrow_rows.rows.serialized_record_batch = batch.serialize().to_pybytes()

    with bigquery.connection() as append:
        answer = append(request)

    assert error_of(answer).code == "INVALID_ARGUMENT"
    assert bigquery.rows(table) == []
