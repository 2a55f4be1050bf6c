"""Properties that hold for any schema and any rows."""

import copy

import pyarrow as pa
import pytest

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
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


WAYS = [through_proto, through_arrow]


@pytest.mark.parametrize("through", WAYS)
def test_what_goes_in_comes_out(forall, same, through):
    def check(drawn):
        schema, rows = drawn
        assert same(through(schema, rows), rows)

    forall(strategies.data(), check)


@pytest.mark.parametrize("through", WAYS)
def test_the_input_is_never_changed(forall, same, through):
    def check(drawn):
        schema, rows = drawn
        before = copy.deepcopy(rows)

        through(schema, rows)

        assert same(rows, before)

    forall(strategies.data(), check)
