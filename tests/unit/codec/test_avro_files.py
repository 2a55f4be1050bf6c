"""Our Avro in fastavro's reader, and fastavro's in ours."""

import datetime
import decimal
import io
import json

import fastavro
import pytest

from bqflink_beam.codec.avro import RecordDecoder, RecordEncoder, file_block, file_header, read_file
from bqflink_beam.errors import RowError
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies

SYNC = b"sixteen bytes it"
civil = datetime.datetime.fromisoformat


def file_of(encoder, rows):
    records = [encoder.encode(row) for row in rows]
    blocks = [records[:2], records[2:]]
    body = b"".join(file_block(block, SYNC) for block in blocks if block)
    return file_header(encoder.avro_schema, SYNC) + body


def test_our_files_are_read_by_us(forall, same):
    def check(drawn):
        schema, rows = drawn
        assert same(list(read_file(file_of(RecordEncoder(schema), rows))), rows)

    forall(strategies.data(depth=1, columns_max=4), check)


def bare(value):
    """What fastavro makes of a value: it knows no Range and no Interval, and limits digits."""
    if isinstance(value, dict):
        return {key: bare(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [bare(inner) for inner in value]
    if hasattr(value, "start"):
        return {"start": value.start, "end": value.end}
    if hasattr(value, "months"):
        return str(value)
    return value


PLAIN = ["STRING", "BYTES", "INT64", "FLOAT64", "BOOL", "NUMERIC", "BIGNUMERIC", "DATE", "TIME",
         "DATETIME", "TIMESTAMP", "JSON", "GEOGRAPHY", "INTERVAL"]  # fmt: skip
EVERY = TableSchema(
    tuple(Field(name=f"n_{kind}", type=kind) for kind in PLAIN)
    + tuple(Field(name=f"r_{kind}", type=kind, mode="REPEATED") for kind in PLAIN)
    + (
        Field(name="range", type="RANGE", range_element_type="TIMESTAMP"),
        Field(name="picos", type="TIMESTAMP", timestamp_precision=12),
        Field(name="s", type="STRUCT", fields=(Field(name="x", type="INT64", mode="REQUIRED"),)),
    )
)


def test_our_files_are_read_by_fastavro(forall, same):
    encoder = RecordEncoder(EVERY)

    def check(row):
        (found,) = fastavro.reader(io.BytesIO(file_of(encoder, [row])))
        assert same(found, bare(row))

    forall(strategies.rows(EVERY), check)


def test_fastavros_files_are_read_by_us(forall, same):
    schema = fastavro.parse_schema(json.loads(json.dumps(RecordEncoder(EVERY).avro_schema)))

    def check(row):
        out = io.BytesIO()
        fastavro.writer(out, schema, [bare(row)], codec="deflate")
        assert same(list(read_file(out.getvalue())), [row])

    forall(strategies.rows(EVERY), check)


FOREIGN = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "a", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "b", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "c", "type": ["null", {"type": "string", "logicalType": "datetime"}]},
        {"name": "d", "type": {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal",
                               "precision": 9, "scale": 2}},
        {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
        {"name": "f", "type": "float"},
    ],
}  # fmt: skip


def test_types_that_we_do_not_write_are_read():
    out = io.BytesIO()
    row = {
        "a": datetime.time(10, 11, 48, 529_000),
        "b": datetime.datetime(1969, 12, 31, 23, 59, 59, 999_000, datetime.timezone.utc),
        "c": "2024-01-01T00:22:59.700440",
        "d": decimal.Decimal("-1.25"),
        "e": "Y",
        "f": 1.5,
    }
    fastavro.writer(out, FOREIGN, [row])

    assert list(read_file(out.getvalue())) == [row | {"c": civil("2024-01-01T00:22:59.700440")}]


def struct(name, space, **types):
    fields = [{"name": key, "type": type_} for key, type_ in types.items()]
    return {"type": "record", "name": name, "namespace": space, "fields": fields}


def fixed_decimal(scale):
    return {"type": "fixed", "name": "Dec", "size": 8, "logicalType": "decimal", "precision": 10, "scale": scale}  # fmt: skip


def test_types_used_by_name_are_those_of_the_namespace_around(same):
    """Of two types with one short name the wrong one would shift the decimal point."""
    schema = struct(
        "R", "top",
        a=struct("A", "one", x=fixed_decimal(2)),
        b=struct("B", "two", x=fixed_decimal(4), day={"type": "int", "logicalType": "date"}),
        c=struct("C", "one", x=["null", "Dec"]),
        d={"type": "array", "items": "two.Dec"},
        e="two.B",
    )  # fmt: skip
    number, day = decimal.Decimal("1.25"), datetime.date(2024, 1, 31)
    b = {"x": number, "day": day}
    row = {"a": {"x": number}, "b": b, "c": {"x": number}, "d": [number], "e": b}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), row)

    assert same(RecordDecoder(schema).decode(out.getvalue()), row)


def test_a_logical_type_on_the_wrong_type_changes_no_value(same):
    schema = struct(
        "R", "",
        a={"type": "long", "logicalType": "date"},
        b={"type": "string", "logicalType": "timestamp-micros"},
        c={"type": "int", "logicalType": "time-micros"},
        d={"type": "string", "logicalType": "decimal", "precision": 4, "scale": 2},
    )  # fmt: skip
    row = {"a": 5, "b": "yesterday", "c": 86_400_000, "d": "x"}
    plain = struct("R", "", a="long", b="string", c="int", d="string")
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain), row)

    assert same(RecordDecoder(schema).decode(out.getvalue()), row)


def test_bytes_after_the_last_row_are_not_read():
    """A read session's block may have more than its rows; the row count is what holds."""
    encoder = RecordEncoder(EVERY)
    decoder = RecordDecoder(encoder.avro_schema)
    data = encoder.encode({"n_INT64": 5})

    (row,) = decoder.rows(data + b"more", 1)

    assert row["n_INT64"] == 5


@pytest.mark.parametrize("data", [b"", b"\x02", b"\xff" * 20])
def test_bytes_that_are_no_record_are_refused(data):
    decoder = RecordDecoder(RecordEncoder(EVERY).avro_schema)

    with pytest.raises(RowError):
        decoder.decode(data)
