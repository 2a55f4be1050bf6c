import pyarrow as pa
import pytest
from hypothesis import given, settings

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.arrow import from_arrow, may_have_ranges, to_arrow, with_ranges
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies


def arrow_field(kind, **facts):
    return to_arrow(TableSchema((Field(name="c", type=kind, **facts),))).field("c")


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("STRING", pa.string()),
        ("BYTES", pa.binary()),
        ("INT64", pa.int64()),
        ("FLOAT64", pa.float64()),
        ("BOOL", pa.bool_()),
        ("NUMERIC", pa.decimal128(38, 9)),
        ("BIGNUMERIC", pa.decimal256(76, 38)),
        ("DATE", pa.date32()),
        ("TIME", pa.time64("us")),
        ("DATETIME", pa.timestamp("us")),
        ("TIMESTAMP", pa.timestamp("us", tz="UTC")),
        ("JSON", pa.string()),
        ("GEOGRAPHY", pa.string()),
        ("INTERVAL", pa.month_day_nano_interval()),
    ],
)
def test_columns_have_the_types_a_read_session_gives(kind, type_):
    assert arrow_field(kind).type == type_
    assert arrow_field(kind, mode="REPEATED").type.value_type == type_


@pytest.mark.parametrize(
    ("kind", "metadata"),
    [
        ("JSON", {b"ARROW:extension:name": b"google:sqlType:json"}),
        ("DATETIME", {b"ARROW:extension:name": b"google:sqlType:datetime"}),
        (
            "GEOGRAPHY",
            {
                b"ARROW:extension:name": b"google:sqlType:geography",
                b"ARROW:extension:metadata": b'{"encoding": "WKT"}',
            },
        ),
        ("STRING", None),
    ],
)
def test_metadata_tells_types_that_look_alike_apart(kind, metadata):
    assert arrow_field(kind).metadata == metadata


def only_what_arrow_can_say(field):
    precise = field.type == "TIMESTAMP" and field.timestamp_precision == 12
    return Field(
        name=field.name,
        type="STRING" if precise else field.type,
        mode=field.mode,
        fields=tuple(map(only_what_arrow_can_say, field.fields)),
        range_element_type=field.range_element_type,
    )


@settings(max_examples=200, deadline=None)
@given(strategies.schemas())
def test_any_schema_comes_back_from_arrow(schema):
    ipc = pa.ipc.read_schema(to_arrow(schema).serialize())

    assert from_arrow(ipc) == TableSchema(tuple(map(only_what_arrow_can_say, schema)))


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (pa.int8(), "INT64"),
        (pa.uint32(), "INT64"),
        (pa.uint64(), "NUMERIC"),
        (pa.float16(), "FLOAT64"),
        (pa.large_string(), "STRING"),
        (pa.dictionary(pa.int8(), pa.string()), "STRING"),
        (pa.binary(4), "BYTES"),
        (pa.date64(), "DATE"),
        (pa.time32("s"), "TIME"),
        (pa.timestamp("ns"), "DATETIME"),
        (pa.timestamp("s", tz="Europe/Berlin"), "TIMESTAMP"),
        (pa.decimal128(38, 9), "NUMERIC"),
        (pa.decimal128(38, 10), "BIGNUMERIC"),
        (pa.decimal256(76, 38), "BIGNUMERIC"),
    ],
)
def test_the_type_of_a_foreign_column_is_inferred(type_, kind):
    (field,) = from_arrow(pa.schema([pa.field("c", type_)]))

    assert field.type == kind


@pytest.mark.parametrize(
    "type_",
    [pa.decimal256(78 - 2, 39), pa.map_(pa.string(), pa.int64()), pa.null(), pa.duration("us"),
     pa.list_(pa.list_(pa.int64()))],
)  # fmt: skip
def test_what_no_column_can_hold_is_refused_by_name(type_):
    with pytest.raises(ConfigError) as caught:
        from_arrow(pa.schema([pa.field("c", type_)]))

    assert caught.value.column == "c"


def bare(schema):
    """The schema as a read session has it, without our word for RANGE."""

    def plain(field):
        type_ = field.type
        if pa.types.is_list(type_):
            type_ = pa.list_(plain(type_.value_field))
        elif pa.types.is_struct(type_):
            type_ = pa.struct([plain(type_.field(index)) for index in range(type_.num_fields)])
        return pa.field(field.name, type_, nullable=field.nullable)

    return pa.schema([plain(field) for field in schema])


def test_ranges_are_declared_wherever_they_lie_and_nothing_else_is():
    bounds = (Field(name="start", type="DATE"), Field(name="end", type="DATE"))
    span = Field(name="span", type="RANGE", range_element_type="DATE")
    spans = Field(name="spans", type="RANGE", range_element_type="DATE", mode="REPEATED")
    pair = Field(name="pair", type="STRUCT", fields=bounds)
    inner = Field(name="s", type="STRUCT", mode="REPEATED", fields=(span, pair))
    table = TableSchema((span, spans, pair, inner, Field(name="n", type="INT64")))
    session = bare(to_arrow(table)).remove(4).append(pa.field("new", pa.int64()))

    assert may_have_ranges(session)
    assert not may_have_ranges(
        pa.schema([pa.field("x", pa.struct([pa.field("start", pa.int64())]))])
    )
    declared = with_ranges(session, table)

    assert from_arrow(declared) == TableSchema((*table.fields[:4], Field(name="new", type="INT64")))
