"""Properties that hold for any schema and any rows."""

import copy
import json

import pyarrow as pa
import pytest

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
from bqflink_beam.codec.avro import RecordDecoder, RecordEncoder
from bqflink_beam.codec.batch_to_proto import BatchToProto
from bqflink_beam.codec.json import LineDecoder, LineEncoder
from bqflink_beam.codec.proto import RowDecoder, RowEncoder
from bqflink_beam.testing import strategies


def through_proto(schema, rows):
    encoder = RowEncoder(schema)
    decoder = RowDecoder(schema, encoder.descriptor)
    return [decoder.decode(encoder.encode(row)) for row in rows]


def through_arrow(schema, rows):
    encoder = BatchEncoder(schema)
    batch = encoder.encode(rows)
    batch.validate()
    wire = pa.ipc.read_record_batch(batch.serialize(), encoder.arrow_schema)
    return BatchDecoder(encoder.arrow_schema).rows(wire)


def through_batch_to_proto(schema, rows):
    encoder = BatchEncoder(schema)
    direct = BatchToProto(encoder.arrow_schema, schema)
    decoder = RowDecoder(schema, direct.descriptor)
    return [decoder.decode(data) for data in direct.encode(encoder.encode(rows))]


def through_avro(schema, rows):
    encoder = RecordEncoder(schema)
    text = json.dumps(encoder.avro_schema)
    return RecordDecoder(text).rows(b"".join(map(encoder.encode, rows)), len(rows))


def through_json(schema, rows):
    encoder, decoder = LineEncoder(schema), LineDecoder(schema)
    lines = [encoder.encode(row) for row in rows]
    assert not any(b"\n" in line for line in lines)
    return [decoder.decode(line) for line in lines]


WAYS = [through_proto, through_arrow, through_batch_to_proto, through_avro]


@pytest.mark.parametrize("through", WAYS)
def test_what_goes_in_comes_out_and_stays_what_it_was(forall, same, through):
    def check(drawn):
        schema, rows = drawn
        before = copy.deepcopy(rows)

        after = through(schema, rows)

        assert same(after, before)
        assert same(rows, before)

    forall(strategies.data(), check)


def test_what_goes_in_comes_out_of_json(forall, same):
    """As above, but the service keeps no spaces of JSON texts, and has no null in NDJSON."""

    def check(drawn):
        schema, rows = drawn
        rows = [with_plain_json(schema, row) for row in rows]
        before = copy.deepcopy(rows)

        assert same(through_json(schema, rows), before)
        assert same(rows, before)

    forall(strategies.data(), check)


def with_plain_json(fields, row):
    return {field.name: plain_json(field, row[field.name]) for field in fields}


def plain_json(field, value):
    if value is None:
        return None
    if isinstance(value, list):
        return [plain_json(field, item) for item in value]
    if field.type == "STRUCT":
        return with_plain_json(field.fields, value)
    if field.type != "JSON":
        return value
    parsed = json.loads(value)
    return json.dumps({} if parsed is None else parsed, ensure_ascii=False, separators=(",", ":"))
