"""What we write, read by Google's protobuf and by pyarrow alone; Avro has test_avro_files.py."""

import datetime
import decimal

import pyarrow as pa

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.schema import proto
from bqflink_beam.testing import strategies

UTC = datetime.timezone.utc
MICRO = datetime.timedelta(microseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)


def packed_clock(clock):
    return ((clock.hour * 64 + clock.minute) * 64 + clock.second) * 2**20 + clock.microsecond


def packed_civil(moment):
    days = (moment.year * 16 + moment.month) * 32 + moment.day
    return days * 2**37 + packed_clock(moment)


# What the Storage Write API documents for each type; all others stand as they are.
ON_THE_WIRE = {
    "NUMERIC": decimal.Decimal,
    "BIGNUMERIC": decimal.Decimal,
    "DATE": lambda days: datetime.date(1970, 1, 1) + datetime.timedelta(days=days),
}
TO_THE_WIRE = {
    "TIME": packed_clock,
    "DATETIME": packed_civil,
    "TIMESTAMP": lambda moment: (moment - EPOCH) // MICRO,
    "INTERVAL": str,
}


def check_message(same, message, fields, row):
    for field, name in zip(fields, proto.wire_names(fields), strict=True):
        found, value = getattr(message, name), row[field.name]
        if field.repeated:
            assert len(found) == len(value)
            for each, item in zip(found, value, strict=True):
                check_value(same, each, field, item)
        elif value is None:
            assert not message.HasField(name)
        else:
            assert message.HasField(name)
            check_value(same, found, field, value)


def check_value(same, found, field, value):
    kind = "PICOS" if field.timestamp_precision == 12 else field.type
    if kind == "STRUCT":
        check_message(same, found, field.fields, value)
    elif kind == "RANGE":
        element = field.range_element_type
        for end in ("start", "end"):
            bound = getattr(value, end)
            assert found.HasField(end) == (bound is not None)
            if bound is not None:
                check_plain(same, getattr(found, end), element, bound)
    else:
        check_plain(same, found, kind, value)


def check_plain(same, found, kind, value):
    read, write = ON_THE_WIRE.get(kind), TO_THE_WIRE.get(kind)
    assert same(read(found) if read else found, write(value) if write else value)


def test_protobuf_reads_what_the_service_documents(forall, same):
    def check(drawn):
        schema, rows = drawn
        encoder = RowEncoder(schema)
        class_ = proto.message_class(encoder.descriptor)
        for row in rows:
            message = class_.FromString(encoder.encode(row))
            check_message(same, message, schema.fields, row)

    forall(strategies.data(), check)


def as_pyarrow_says(field, value):
    if value is None:
        return None
    if isinstance(value, list):
        return [as_pyarrow_says(field, item) for item in value]
    if field.type == "STRUCT":
        return {inner.name: as_pyarrow_says(inner, value[inner.name]) for inner in field.fields}
    if field.type == "RANGE":
        return {"start": value.start, "end": value.end}
    if field.type == "INTERVAL":
        return pa.MonthDayNano([value.months, value.days, value.micros * 1_000])
    return value


def in_utc(value):
    """Pyarrow names the zone UTC in a way of its own."""
    if isinstance(value, dict):
        return {key: in_utc(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [in_utc(item) for item in value]
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.replace(tzinfo=UTC) if not value.utcoffset() else value
    return value


def test_pyarrow_reads_what_we_put_in(forall, same):
    def check(drawn):
        schema, rows = drawn
        batch = BatchEncoder(schema).encode(rows)
        batch.validate()
        expected = [
            {field.name: as_pyarrow_says(field, row[field.name]) for field in schema}
            for row in rows
        ]

        assert same(in_utc(batch.to_pylist()), expected)

    forall(strategies.data(), check)


def test_we_read_what_pyarrow_puts_in(forall, same):
    def check(drawn):
        schema, rows = drawn
        arrow_schema = BatchEncoder(schema).arrow_schema
        given = [
            {field.name: as_pyarrow_says(field, row[field.name]) for field in schema}
            for row in rows
        ]
        try:
            batch = pa.RecordBatch.from_pylist(given, schema=arrow_schema)
        except pa.ArrowInvalid:  # the ends of BIGNUMERIC, which pyarrow itself does not take
            assert "Decimal" in str(rows)
            return

        assert same(BatchDecoder(arrow_schema).rows(batch), rows)

    forall(strategies.data(), check)
