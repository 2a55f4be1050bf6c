"""Record batches straight to proto rows: the same rows as by way of dicts, or the same refusal."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
from bqflink_beam.codec.batch_to_proto import BatchToProto
from bqflink_beam.codec.proto import RowDecoder, RowEncoder
from bqflink_beam.errors import ConfigError, RowError
from bqflink_beam.schema import proto
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies

UTC = datetime.timezone.utc
civil = datetime.datetime.fromisoformat


def column(kind, **facts):
    if kind == "RANGE":
        facts.setdefault("range_element_type", "DATE")
    return TableSchema((Field(name="c", type=kind, **facts),))


def batch_of(array, **facts):
    return pa.record_batch([array], schema=pa.schema([pa.field("c", array.type, **facts)]))


def written(schema, batch):
    direct = BatchToProto(batch.schema, schema)
    decoder = RowDecoder(schema, direct.descriptor)
    return [decoder.decode(data) for data in direct.encode(batch)]


def test_the_message_is_that_of_the_other_encoder(forall):
    """Bytes, not only values, where a number has one text."""

    def check(drawn):
        schema, rows = drawn
        encoder, batches = RowEncoder(schema), BatchEncoder(schema)
        direct = BatchToProto(batches.arrow_schema, schema)
        assert direct.descriptor == encoder.descriptor
        if "Decimal" not in str(rows):
            assert direct.encode(batches.encode(rows)) == [encoder.encode(row) for row in rows]

    forall(strategies.data(columns_max=4), check)


def test_a_slice_of_a_batch_is_written_alone(forall, same):
    def check(drawn):
        schema, rows = drawn
        batch = BatchEncoder(schema).encode(rows)
        assert same(written(schema, batch.slice(1, 2)), rows[1:3])

    forall(strategies.data(columns_max=4), check)


def in_runs(values):
    """The first value twice, then the others; none of them counts as NULL."""
    stops = pa.array(range(2, 2 + len(values)), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(stops, pa.array(values))


def with_null_in_the_dictionary():
    return pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", None]))


FOREIGN = [
    ("INT64", pa.array([1, None], pa.int8()), [1, None]),
    ("INT64", pa.array([2**32 - 1], pa.uint32()), [2**32 - 1]),
    ("INT64", pa.array([5], pa.uint64()), [5]),
    ("FLOAT64", pa.array([0.1], pa.float32()), [0.10000000149011612]),
    ("FLOAT64", pa.array([5, None], pa.int64()), [5.0, None]),
    ("STRING", pa.array(["a", None], pa.large_string()), ["a", None]),
    ("STRING", pa.array(["a", None, "a"]).dictionary_encode(), ["a", None, "a"]),
    ("BYTES", pa.array([b"ab"], pa.binary(2)), [b"ab"]),
    ("NUMERIC", pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)), [decimal.Decimal("1.5")]),
    ("NUMERIC", pa.array([decimal.Decimal("1.50")], pa.decimal256(50, 2)), [decimal.Decimal("1.5")]),
    ("NUMERIC", pa.array([5, None]), [decimal.Decimal(5), None]),
    ("NUMERIC", pa.array(["1.5"]), [decimal.Decimal("1.5")]),
    ("BIGNUMERIC", pa.array([decimal.Decimal("1.50")], pa.decimal128(5, 2)), [decimal.Decimal("1.5")]),
    ("DATE", pa.array([datetime.date(2024, 1, 31)], pa.date64()), [datetime.date(2024, 1, 31)]),
    ("DATE", pa.array(["2024-01-31"]), [datetime.date(2024, 1, 31)]),
    ("TIME", pa.array([3_600], pa.time32("s")), [datetime.time(1)]),
    ("TIME", pa.array([1_000], pa.time64("ns")), [datetime.time(0, 0, 0, 1)]),
    ("DATETIME", pa.array([-1], pa.timestamp("ms")), [civil("1969-12-31T23:59:59.999")]),
    ("TIMESTAMP", pa.array([-1_000], pa.timestamp("ns", tz="Europe/Berlin")), [civil("1969-12-31T23:59:59.999999+00:00")]),
    ("TIMESTAMP", pa.array([5]), [datetime.datetime(1970, 1, 1, 0, 0, 0, 5, UTC)]),
    ("TIMESTAMP", pa.array(["2024-01-31T10:00:00Z", None]), [civil("2024-01-31T10:00:00+00:00"), None]),
    ("JSON", pa.array(['{"a": 1}', None]), ['{"a": 1}', None]),
    ("RANGE", pa.array([{"start": datetime.date(2024, 1, 1), "end": None}, None]), ["range", None]),
    ("STRING", in_runs(["a", None]), ["a", "a", None]),
    ("BYTES", in_runs([b"", None]), [b"", b"", None]),
    ("NUMERIC", in_runs([decimal.Decimal("1.5"), None]), [decimal.Decimal("1.5")] * 2 + [None]),
    ("TIMESTAMP", in_runs([5, None]), [datetime.datetime(1970, 1, 1, 0, 0, 0, 5, UTC)] * 2 + [None]),
    ("STRING", with_null_in_the_dictionary(), ["a", None, "a"]),
    ("STRING", pa.nulls(2), [None, None]),
    ("STRUCT", pa.nulls(2), [None, None]),
    ("INT64", pa.nulls(2), [None, None]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "array", "values"), FOREIGN)
def test_arrow_types_of_others_are_read_where_they_are_exact(same, kind, array, values):
    facts = {"fields": (Field(name="x", type="INT64"),)} if kind == "STRUCT" else {}
    found = [row["c"] for row in written(column(kind, **facts), batch_of(array))]

    if kind == "RANGE":
        assert (found[0].start, found[0].end, found[1]) == (datetime.date(2024, 1, 1), None, None)
    else:
        assert same(found, values)


def not_utf8(type_, offset):
    offsets = pa.py_buffer(np.array([0, 1], dtype=offset))
    return pa.Array.from_buffers(type_, 1, [None, offsets, pa.py_buffer(b"\xff")])


REFUSED = [
    ("INT64", pa.array([1.0])),
    ("INT64", pa.array(["1"])),
    ("INT64", pa.array([True])),
    ("INT64", pa.array([2**63], pa.uint64())),
    ("FLOAT64", pa.array([2**53 + 1])),
    ("FLOAT64", pa.array(["1.5"])),
    ("BOOL", pa.array([1])),
    ("STRING", pa.array([1])),
    ("STRING", pa.array([b"a"])),
    ("BYTES", pa.array(["a"])),
    ("NUMERIC", pa.array([2.3])),
    ("NUMERIC", pa.array([decimal.Decimal("1e-10")])),
    ("NUMERIC", pa.array([decimal.Decimal("1e29")])),
    ("DATE", pa.array([2932897], pa.int32()).cast(pa.date32())),
    ("DATE", pa.array([0], pa.timestamp("us"))),
    ("TIME", pa.array([86_400_000_000], pa.int64()).cast(pa.time64("us"))),
    ("DATETIME", pa.array([253402300800000000], pa.timestamp("us"))),
    ("DATETIME", pa.array([1], pa.timestamp("ns"))),
    ("DATETIME", pa.array([0], pa.timestamp("us", tz="UTC"))),
    ("TIMESTAMP", pa.array([0], pa.timestamp("us"))),
    ("TIMESTAMP", pa.array([-62135596800000001], pa.timestamp("us", tz="UTC"))),
    ("JSON", pa.array(["[1]", "no json"])),
    ("RANGE", pa.array([{"start": datetime.date(2024, 1, 2), "end": datetime.date(2024, 1, 1)}])),
    ("STRING", not_utf8(pa.string(), np.int32)),
    ("STRING", not_utf8(pa.large_string(), np.int64)),
    ("GEOGRAPHY", not_utf8(pa.string(), np.int32)),
    ("JSON", not_utf8(pa.string(), np.int32)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "array"), REFUSED)
def test_nothing_is_accepted_that_the_other_codecs_refuse(kind, array):
    with pytest.raises(RowError) as caught:
        written(column(kind), batch_of(array))

    assert "c" in str(caught.value)


@pytest.mark.parametrize(
    ("schema", "rows", "place"),
    [
        (column("STRING", max_length=2), [{"c": "ab"}, {"c": "abc"}], "c"),
        (column("NUMERIC", precision=3, scale=1), [{"c": decimal.Decimal("1.25")}], "c"),
        (column("JSON", mode="REPEATED"), [{"c": ["1", "x"]}], "c[1]"),
    ],
)
def test_the_row_and_the_place_are_named(schema, rows, place):
    (field,) = schema
    bare = TableSchema((Field(name="c", type=field.type, mode=field.mode),))
    if field.type == "JSON":
        batch = batch_of(pa.array([row["c"] for row in rows]))
    else:
        batch = BatchEncoder(bare).encode(rows)

    with pytest.raises(RowError, match=f"row {len(rows) - 1} of the batch") as caught:
        written(schema, batch)

    assert caught.value.column == place


def test_null_for_a_required_column_and_in_an_array():
    with pytest.raises(RowError, match="row 1 of the batch: c is REQUIRED"):
        written(column("INT64", mode="REQUIRED"), batch_of(pa.array([1, None])))
    with pytest.raises(RowError, match=r"c\[1\] is NULL"):
        written(column("INT64", mode="REPEATED"), batch_of(pa.array([[1, None]])))


def test_a_null_list_is_empty():
    assert written(column("STRING", mode="REPEATED"), batch_of(pa.array([["a"], None, []]))) == [
        {"c": ["a"]},
        {"c": []},
        {"c": []},
    ]


def test_what_lies_under_a_null_struct_is_not_written():
    inner = pa.array([1, 2]), pa.array([["a"], ["b"]])
    array = pa.StructArray.from_arrays(list(inner), names=["x", "y"], mask=pa.array([False, True]))
    fields = (
        Field(name="x", type="INT64", mode="REQUIRED"),
        Field(name="y", type="STRING", mode="REPEATED"),
    )

    assert written(column("STRUCT", fields=fields), batch_of(array)) == [
        {"c": {"x": 1, "y": ["a"]}},
        {"c": None},
    ]


def test_names_match_without_case_and_missing_columns_are_unset():
    schema = TableSchema((Field(name="A", type="INT64"), Field(name="b", type="INT64")))
    batch = pa.record_batch([pa.array([5])], names=["B"])

    assert written(schema, batch) == [{"A": None, "b": 5}]


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch([pa.array([1])], names=["d"]),
        pa.record_batch([pa.array([1]), pa.array([1])], names=["c", "C"]),
        pa.record_batch([pa.array([[1]])], names=["c"]),
        pa.record_batch([pa.array([{"x": 1}])], names=["c"]),
    ],
)
def test_batches_of_another_shape_are_a_mistake_at_construction(batch):
    schema = column("INT64")

    with pytest.raises((ConfigError, RowError)):
        written(schema, batch)


def test_a_missing_required_column_is_a_mistake_at_construction():
    schema = TableSchema(
        (Field(name="a", type="INT64", mode="REQUIRED"), Field(name="b", type="INT64"))
    )

    with pytest.raises(ConfigError, match="a is REQUIRED"):
        BatchToProto(pa.schema([pa.field("b", pa.int64())]), schema)


@pytest.mark.parametrize(
    "array", [in_runs(["a", None]), with_null_in_the_dictionary(), pa.nulls(1)]
)
def test_null_is_found_in_a_required_column_however_it_is_stored(array):
    schema = column("STRING", mode="REQUIRED")

    with pytest.raises(RowError, match="c is REQUIRED"):
        written(schema, batch_of(array))
    with pytest.raises(RowError, match=r"c\[\d\] is NULL"):
        items = array if array.type != pa.null() else array.cast(pa.string())
        lists = pa.ListArray.from_arrays(pa.array([0, len(items)], pa.int32()), items)
        written(column("STRING", mode="REPEATED"), batch_of(lists))


def test_a_column_without_a_type_is_a_column_without_values():
    """What pyarrow makes of rows in which a key is always None."""
    batch = pa.RecordBatch.from_pylist([{"c": None}, {"c": None}])

    assert written(column("INT64", mode="REPEATED"), batch) == [{"c": []}] * 2


@pytest.mark.parametrize(
    "value", [{"start": 1}, {"start": 1, "end": 2, "step": 1}, {"begin": 1, "end": 2}, {}]
)
def test_a_struct_that_is_no_range_is_a_mistake_at_construction(value):
    batch = batch_of(pa.array([value]))

    with pytest.raises(ConfigError, match="start and end"):
        BatchToProto(batch.schema, column("RANGE"))
    with pytest.raises(ConfigError, match="start and end"):
        BatchDecoder(batch.schema, column("RANGE"))


def test_a_batch_of_another_schema_is_not_taken_for_one_of_ours():
    """By position its values would go to other columns, or be read as another type."""
    schema = TableSchema((Field(name="a", type="INT64"), Field(name="b", type="INT64")))
    planned = BatchEncoder(schema).arrow_schema
    swapped = pa.record_batch([[1], [2]], names=["b", "a"])
    other_type = pa.record_batch([pa.array([1]), pa.array(["2"])], names=["a", "b"])

    for batch in (swapped, other_type):
        with pytest.raises(ConfigError, match="the batch has the schema"):
            BatchToProto(planned, schema).encode(batch)
    with pytest.raises(ConfigError, match="the batch has the columns"):
        BatchDecoder(planned).rows(swapped)


def test_runs_of_lists_which_arrow_cannot_take_apart_are_refused():
    lists = pa.array([[1], [2]])
    array = pa.RunEndEncodedArray.from_arrays(pa.array([1, 2], pa.int32()), lists)

    with pytest.raises(RowError, match="c cannot be read"):
        written(column("INT64", mode="REPEATED"), batch_of(array))


def test_an_empty_batch_has_no_rows():
    assert written(column("JSON"), batch_of(pa.array([], pa.string()))) == []
    assert (
        written(
            column("RANGE", mode="REPEATED"),
            BatchEncoder(column("RANGE", mode="REPEATED")).encode([]),
        )
        == []
    )


@pytest.mark.parametrize("kind", ["NUMERIC", "BIGNUMERIC"])
def test_decimals_are_plain_text_without_filling(kind):
    texts = ["0", "0.000000001", "100", "-1.5", "0.0000001"]
    batch = BatchEncoder(column(kind)).encode([{"c": text} for text in texts])
    direct = BatchToProto(batch.schema, column(kind))
    class_ = proto.message_class(direct.descriptor)

    assert [class_.FromString(data).c for data in direct.encode(batch)] == texts


def test_every_varint_boundary():
    numbers = sorted(
        {
            sign * ((1 << shift) + step)
            for shift in range(63)
            for step in (-1, 0, 1)
            for sign in (1, -1)
        }
    )
    numbers = [number for number in numbers if -(2**63) <= number < 2**63] + [2**63 - 1, -(2**63)]
    schema = column("INT64")
    encoder = RowEncoder(schema)

    direct = BatchToProto(pa.schema([pa.field("c", pa.int64())]), schema)

    assert direct.encode(batch_of(pa.array(np.array(numbers)))) == [
        encoder.encode({"c": number}) for number in numbers
    ]


def test_batches_read_from_a_session_go_on_as_they_are(same):
    """Decoding and encoding by way of dicts, and straight, give the same rows."""
    rows = [{"c": [decimal.Decimal("0E-9"), decimal.Decimal("1E-9"), decimal.Decimal(10)]}]
    schema = column("NUMERIC", mode="REPEATED")
    batch = BatchEncoder(schema).encode(rows)

    assert same(written(schema, batch), BatchDecoder(batch.schema).rows(batch))
