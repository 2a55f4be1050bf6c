import json

import pytest
from hypothesis import given, settings

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.json import dumps, from_json, loads, to_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies

FULL = TableSchema(
    (
        Field(name="id", type="INT64", mode="REQUIRED", description="the key"),
        Field(name="n", type="NUMERIC", precision=10, scale=2, rounding_mode="ROUND_HALF_EVEN"),
        Field(name="s", type="STRING", max_length=5, default_value_expression="'a'"),
        Field(name="p", type="TIMESTAMP", timestamp_precision=12),
        Field(name="r", type="RANGE", range_element_type="DATE", mode="REPEATED"),
        Field(
            name="a",
            type="STRUCT",
            fields=(Field(name="x", type="JSON", policy_tags=("projects/p/tags/1",)),),
        ),
    )
)


def test_everything_a_field_can_say_survives():
    assert from_json(to_json(FULL)) == FULL
    assert loads(dumps(FULL)) == FULL


def test_the_service_writes_its_own_names_and_its_numbers_as_text():
    assert to_json(FULL)[1] == {
        "name": "n",
        "type": "NUMERIC",
        "precision": "10",
        "scale": "2",
        "roundingMode": "ROUND_HALF_EVEN",
    }
    assert to_json(FULL)[4] == {
        "name": "r",
        "type": "RANGE",
        "mode": "REPEATED",
        "rangeElementType": {"type": "DATE"},
    }


def test_legacy_type_names_are_read():
    (field,) = from_json(
        [
            {
                "name": "a",
                "type": "RECORD",
                "mode": None,
                "fields": [{"name": "b", "type": "INTEGER"}],
            }
        ]
    )

    assert (field.type, field.mode, field.fields[0].type) == ("STRUCT", "NULLABLE", "INT64")


@pytest.mark.parametrize(
    "wrap", [lambda it: it, lambda it: {"fields": it}, lambda it: {"schema": {"fields": it}}]
)
def test_a_list_a_schema_or_a_table_resource_can_be_loaded(wrap):
    assert loads(json.dumps(wrap(to_json(FULL)))) == FULL


@pytest.mark.parametrize(
    "text", ["", "5", "{}", "[5]", '[{"name": "a"}]', '[{"name": "a", "type": "NUMBER"}]',
             '[{"name": "a", "type": "NUMERIC", "precision": "many"}]',
             '[{"name": "a", "type": "STRUCT"}]', '[{"name": "a", "type": "RANGE"}]',
             '[{"name": "a", "type": "INT64"}, {"name": "A", "type": "INT64"}]']
)  # fmt: skip
def test_what_is_no_schema_is_refused(text):
    with pytest.raises(ConfigError):
        loads(text)


@settings(max_examples=200, deadline=None)
@given(strategies.schemas())
def test_any_schema_goes_through_json(schema):
    assert loads(dumps(schema)) == schema
    assert dumps(loads(dumps(schema))) == dumps(schema)
