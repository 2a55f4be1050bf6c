"""Record batches as elements: they arrive as they were sent."""

import datetime
import decimal

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam import coders
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from bqflink_beam.transforms.arrow_coder import ArrowBatchCoder

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string(), metadata={b"ARROW:extension:name": b"google:sqlType:json"}),
        pa.field("amount", pa.decimal128(38, 9)),
        pa.field("big", pa.decimal256(76, 38)),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("place", pa.struct([("city", pa.string()), ("zip", pa.int64())])),
    ]
)
ROWS = [
    {
        "id": 1,
        "text": "é",
        "amount": decimal.Decimal("1.000000001"),
        "big": decimal.Decimal("1e-38"),
        "at": datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc),
        "tags": ["a", None],
        "place": {"city": "x", "zip": None},
    },
    {"id": 2, "text": None, "amount": None, "big": None, "at": None, "tags": [], "place": None},
    {"id": 3, "text": "", "amount": None, "big": None, "at": None, "tags": None, "place": None},
]
BATCH = pa.RecordBatch.from_pylist(ROWS, SCHEMA)


@pytest.mark.parametrize(
    "batch",
    [BATCH, BATCH.slice(1, 1), BATCH.slice(3), pa.record_batch({})],
    ids=["whole", "slice", "no rows", "no columns"],
)
def test_a_batch_survives_its_coder_with_schema_and_metadata(batch):
    coder = ArrowBatchCoder()

    decoded = coder.decode(coder.encode(batch))

    assert decoded.equals(batch, check_metadata=True)
    decoded.validate(full=True)


def test_a_slice_carries_only_its_rows():
    batch = pa.record_batch({"id": list(range(100_000))})

    assert len(ArrowBatchCoder().encode(batch.slice(7, 10))) < 1_000


def test_it_is_the_coder_of_record_batches_and_no_key_coder():
    coder = coders.registry.get_coder(pa.RecordBatch)

    assert isinstance(coder, ArrowBatchCoder)
    assert not coder.is_deterministic()


def _same(batch):
    return batch.equals(BATCH, check_metadata=True)


def _batches(_):
    yield BATCH


def test_batches_pass_a_shuffle_unchanged():
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        same = (
            pipeline
            | beam.Impulse()
            | beam.FlatMap(_batches).with_output_types(pa.RecordBatch)
            | beam.Reshuffle()
            | beam.Map(_same)
        )
        assert_that(same, equal_to([True]))
