"""Bytes that no encoder made: each is a value of its column or a RowError, never a crash."""

import pytest
from hypothesis import strategies as st

from bqflink_beam.codec.avro import RecordDecoder, RecordEncoder
from bqflink_beam.codec.json import LineDecoder
from bqflink_beam.codec.proto import RowDecoder
from bqflink_beam.codec.values import Range
from bqflink_beam.errors import RowError
from bqflink_beam.schema import proto
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies


def column(kind, **facts):
    if kind == "RANGE":
        facts.setdefault("range_element_type", "DATE")
    return TableSchema((Field(name="c", type=kind, **facts),))


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("STRING", b"\x0a\x01\xff"),
        ("JSON", b"\x0a\x01\xff"),
        ("NUMERIC", b"\x0a\x01\xff"),
        ("NUMERIC", b"\x0a\x01x"),
        ("INTERVAL", b"\x0a\x01x"),
        ("DATE", b"\x08\xff\xff\xff\xff\x07"),
        ("TIME", b"\x08\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("DATETIME", b"\x08\x00"),
        ("TIMESTAMP", b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
        ("INT64", b"\x08"),
    ],
)
def test_a_message_with_what_its_column_cannot_hold_is_no_row(kind, data):
    schema = column(kind)

    with pytest.raises(RowError, match="no row of this descriptor"):
        RowDecoder(schema, proto.descriptor(schema)).decode(data)


def decoders(schema):
    return [
        RowDecoder(schema, proto.descriptor(schema)),
        RecordDecoder(RecordEncoder(schema).avro_schema),
        LineDecoder(schema),
    ]


def test_any_bytes_are_a_row_or_a_row_error(forall):
    def check(drawn):
        schema, data = drawn
        for decoder in decoders(schema):
            try:
                row = decoder.decode(data)
            except RowError:
                continue
            assert [*row] == [field.name for field in schema]

    # Most begin as a message, or a record, of one column does.
    starts = st.sampled_from([b"", b"\x02", b"\x08", b"\x09", b"\x0a", b"\x0a\x02", b'{"c":'])
    data = st.builds(bytes.__add__, starts, st.binary(max_size=20))
    kinds = st.sampled_from(strategies.SCALARS)
    modes = st.sampled_from(["NULLABLE", "REQUIRED", "REPEATED"])
    schemas = st.builds(lambda kind, mode: column(kind, mode=mode), kinds, modes)
    forall(st.tuples(schemas, data), check)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("INT64", '"1_000"'),
        ("INT64", '" 1"'),
        ("INT64", '"１"'),
        ("INT64", "1.0"),
        ("FLOAT64", '"1_000"'),
        ("FLOAT64", '"nan"'),
        ("FLOAT64", "1e400"),
        ("FLOAT64", '"1e400"'),
        ("FLOAT64", '"' + "9" * 400 + '"'),
        ("JSON", "1e400"),
        ("BOOL", '"true"'),
        ("RANGE", '{"start": "2024-01-01", "stop": "2024-01-02"}'),
        ("BYTES", '"A-_A"'),
        ("STRING", '"\\ud800"'),
    ],
)
def test_a_line_is_not_read_as_something_like_it(kind, text):
    with pytest.raises(RowError):
        LineDecoder(column(kind)).decode(f'{{"c": {text}}}')


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("INT64", '"-9223372036854775808"', -(2**63)),
        ("INT64", "9223372036854775807", 2**63 - 1),
        ("FLOAT64", '"-Infinity"', float("-inf")),
        ("FLOAT64", "1", 1.0),
        ("FLOAT64", '"1.5e3"', 1500.0),
        ("FLOAT64", "-0.0", -0.0),
        ("RANGE", "{}", Range()),
    ],
)
def test_a_line_of_others_is_read(same, kind, text, value):
    assert same(LineDecoder(column(kind)).decode(f'{{"c": {text}}}'), {"c": value})
