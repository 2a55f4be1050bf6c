"""What a schema may say, and how large it may be in every form that it takes."""

import pytest
from hypothesis import given, settings

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema import arrow, avro, json, proto
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service import table_schema
from bqflink_beam.testing import strategies


def field(name="c", kind="INT64", **facts):
    return Field(name=name, type=kind, **facts)


def nested(levels):
    """A column with so many levels, itself and its leaf included."""
    inner = field("x")
    for level in range(levels - 1):
        inner = field(f"s{level}", "STRUCT", fields=(inner,))
    return inner


def test_row_40_names_that_differ_only_in_case_are_refused_at_every_level():
    with pytest.raises(ConfigError, match="differ by more than case, got 'foo' and 'FOO'"):
        TableSchema((field("foo"), field("FOO")))
    with pytest.raises(ConfigError, match="differ by more than case") as caught:
        field("s", "STRUCT", fields=(field("größe"), field("GRÖSSE"), field("GRÖßE")))
    assert caught.value.column == "s"


def test_the_same_name_may_stand_in_two_structs():
    inner = (field("id"),)

    TableSchema(
        (field("id"), field("a", "STRUCT", fields=inner), field("b", "STRUCT", fields=inner))
    )


def test_fifteen_levels_and_no_more():
    TableSchema((nested(15),))
    with pytest.raises(ConfigError, match="at most 15 deep") as caught:
        TableSchema((nested(16),))
    assert caught.value.column == "s14"


def test_ten_thousand_columns_and_no_more():
    columns = tuple(field(f"c{index}") for index in range(10_001))

    assert len(TableSchema(columns[:-1])) == 10_000
    with pytest.raises(ConfigError, match="at most 10000 columns, got 10001"):
        TableSchema(columns)


@pytest.mark.parametrize(
    "facts",
    [
        {"name": ""},
        {"name": "x" * 301},
        {"name": "\ud800"},
        {"name": 5},
        {"type": "NO_SUCH_TYPE"},
        {"mode": "OPTIONAL"},
        {"type": "STRUCT"},
        {"fields": (field(),)},
        {"type": "RANGE"},
        {"type": "RANGE", "range_element_type": "TIME"},
    ],
)
def test_a_field_that_no_column_can_be_is_a_mistake(facts):
    with pytest.raises(ConfigError):
        Field(**{"name": "c", "type": "INT64", **facts})


def test_equal_schemas_are_equal_whatever_alias_a_type_is_written_with():
    first = TableSchema((field("a", "integer", mode="repeated"), field("b", "DECIMAL")))
    second = TableSchema([field("a", "INT64", mode="REPEATED"), field("b", "NUMERIC")])

    assert first == second
    assert hash(first) == hash(second)
    assert first != TableSchema((field("A", mode="REPEATED"), field("b", "NUMERIC")))
    assert first != TableSchema((field("a"), field("b", "NUMERIC")))
    assert first != TableSchema(first.fields[::-1])


def test_a_column_is_found_in_any_case_and_a_missing_one_tells_what_there_is():
    schema = TableSchema((field("Größe"), field("b")))

    assert schema.field("GRÖßE") is schema.fields[0]
    with pytest.raises(ConfigError, match="no column is called 'c'; the columns are Größe, b"):
        schema.field("c")


FORMS = {
    "json": lambda schema: json.loads(json.dumps(schema)),
    "rest": lambda schema: json.from_json(json.to_json(schema)),
    "message": lambda schema: table_schema.from_message(table_schema.to_message(schema)),
    "arrow": lambda schema: arrow.from_arrow(arrow.to_arrow(schema)),
    "avro": lambda schema: avro.from_avro(avro.to_avro(schema)),
    "proto": lambda schema: proto.from_descriptor(proto.descriptor(schema)),
}


@pytest.mark.parametrize("through", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "schema",
    [
        TableSchema(tuple(field(f"c{index}") for index in range(10_000))),
        TableSchema((nested(15),)),
    ],
    ids=["wide", "deep"],
)
def test_the_largest_schemas_go_through_every_form(through, schema):
    assert through(schema) == schema


@settings(max_examples=300, deadline=None)
@given(strategies.schemas())
def test_any_schema_goes_through_the_storage_message_and_rest(schema):
    assert FORMS["message"](schema) == schema
    assert FORMS["rest"](schema) == schema
