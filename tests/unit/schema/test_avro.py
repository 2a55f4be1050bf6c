import json

import fastavro
import pytest
from hypothesis import given, settings

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.avro import from_avro, to_avro
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies


def avro_type(kind, **facts):
    (field,) = to_avro(TableSchema((Field(name="c", type=kind, mode="REQUIRED", **facts),)))[
        "fields"
    ]
    return field["type"]


def record(*types):
    fields = [{"name": f"c{index}", "type": type_} for index, type_ in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def read(type_):
    (field,) = from_avro(record(type_))
    return field


@settings(max_examples=200, deadline=None)
@given(strategies.schemas())
def test_any_schema_comes_back_and_is_valid_avro(schema):
    written = to_avro(schema)

    fastavro.parse_schema(json.loads(json.dumps(written)))
    assert from_avro(json.dumps(written)) == schema


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        ("DATETIME", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("TIMESTAMP", {"type": "long", "logicalType": "timestamp-micros"}),
        ("TIME", {"type": "long", "logicalType": "time-micros"}),
        ("JSON", {"type": "string", "sqlType": "JSON"}),
    ],
)
def test_types_that_a_load_job_reads_as_themselves(kind, type_):
    assert avro_type(kind) == type_


def test_a_range_is_defined_once_and_named_after():
    ranges = TableSchema(
        tuple(Field(name=name, type="RANGE", range_element_type="DATE") for name in "ab")
    )

    first, second = to_avro(ranges)["fields"]

    assert first["type"][1]["name"] == "RANGE_DATE"
    assert second["type"][1] == "google.sqlType.RANGE_DATE"


def test_a_name_that_avro_lacks_is_kept_as_display_name():
    schema = TableSchema((Field(name="größe", type="INT64"), Field(name="column_1", type="INT64")))

    names = [(each["name"], each.get("displayName")) for each in to_avro(schema)["fields"]]

    assert names == [("column_1_", "größe"), ("column_1", None)]


# --- schemas of others ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ("int", "INT64"),
        ("long", "INT64"),
        ("float", "FLOAT64"),
        ("double", "FLOAT64"),
        ("boolean", "BOOL"),
        ("string", "STRING"),
        ("bytes", "BYTES"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "STRING"),
        ({"type": "fixed", "name": "F", "size": 4}, "BYTES"),
        ({"type": "string", "logicalType": "uuid"}, "STRING"),
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, "BYTES"),
        ({"type": "int", "logicalType": "date"}, "DATE"),
        ({"type": "int", "logicalType": "time-millis"}, "TIME"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "TIMESTAMP"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "DATETIME"),
        ({"type": "string", "logicalType": "datetime"}, "DATETIME"),
        ({"type": "string", "sqlType": "DATETIME"}, "DATETIME"),
        ({"type": "string", "logicalType": "geography_wkt"}, "GEOGRAPHY"),
        ({"type": "string", "logicalType": "Json"}, "JSON"),
        ({"type": {"type": "string", "sqlType": "INTERVAL"}}, "INTERVAL"),
        ({"type": "long", "logicalType": "unheard-of"}, "INT64"),
    ],
)
def test_what_others_write(type_, kind):
    assert (read(type_).type, read(type_).mode) == (kind, "REQUIRED")
    assert (read(["null", type_]).type, read(["null", type_]).mode) == (kind, "NULLABLE")
    assert read([type_, "null"]).mode == "NULLABLE"
    assert read([type_]).mode == "REQUIRED"
    array = read({"type": "array", "items": type_})
    assert (array.type, array.mode) == (kind, "REPEATED")


def decimal(precision, scale):
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize(
    ("precision", "scale", "kind", "parameters"),
    [
        (10, 2, "NUMERIC", (10, 2)),
        (38, 9, "NUMERIC", (None, None)),
        (39, 9, "BIGNUMERIC", (39, 9)),
        (76, 38, "BIGNUMERIC", (None, None)),
        (77, 38, "BIGNUMERIC", (None, None)),
    ],
)
def test_row_34_and_35_and_38_decimals(precision, scale, kind, parameters):
    field = read(decimal(precision, scale))

    assert (field.type, (field.precision, field.scale)) == (kind, parameters)


def test_row_35_a_decimal_beyond_bignumeric():
    with pytest.raises(ConfigError, match="BIGNUMERIC") as caught:
        read(decimal(78, 10))

    assert caught.value.column == "c0"


def nested(depth):
    inner = "int"
    for level in range(depth):
        inner = {"type": "record", "name": f"R{level}", "fields": [{"name": "x", "type": inner}]}
    return inner


def test_row_36_records_nest_fourteen_deep_in_a_column():
    """Fifteen levels with the leaf; the predecessor counted the row itself."""
    assert from_avro(nested(15))
    with pytest.raises(ConfigError, match="15"):
        from_avro(nested(16))


@pytest.mark.parametrize(
    "type_",
    [
        ["null", {"type": "array", "items": "int"}],
        {"type": "array", "items": ["null", "int"]},
        {"type": "array", "items": {"type": "array", "items": "int"}},
        ["int", "string"],
        ["null", "int", "string"],
        {"type": "map", "values": "int"},
        "null",
        "NoSuchType",
    ],
)
def test_rows_33_and_37_what_no_column_can_be(type_):
    with pytest.raises(ConfigError) as caught:
        read(type_)

    assert caught.value.column == "c0"


def test_row_39_two_structs_of_one_name_are_two_types():
    inner = [
        Field(name="s", type="STRUCT", fields=(Field(name=name, type="INT64"),)) for name in "ab"
    ]
    schema = TableSchema(
        tuple(
            Field(name=f"o{index}", type="STRUCT", fields=(each,))
            for index, each in enumerate(inner)
        )
    )

    assert from_avro(json.dumps(to_avro(schema))) == schema
    fastavro.parse_schema(to_avro(schema))


def test_a_type_used_by_name_is_found():
    place = {"type": "record", "name": "Place", "namespace": "n", "fields": [{"name": "x", "type": "int"}]}  # fmt: skip

    first, second = from_avro(record(place, ["null", "n.Place"]))

    assert first.fields == second.fields


def fixed_decimal(scale):
    return {"type": "fixed", "name": "Dec", "size": 8, "logicalType": "decimal", "precision": 10, "scale": scale}  # fmt: skip


def struct_of(name, space, *types):
    return {**record(*types), "name": name, "namespace": space}


def test_a_name_belongs_to_the_namespace_around_it():
    """Two types may share the short name; the last one defined is not always the one meant."""
    schema = record(
        struct_of("A", "one", fixed_decimal(2)),
        struct_of("B", "two", fixed_decimal(4)),
        struct_of("C", "one", "Dec"),
        "two.Dec",
    )

    first, second, third, fourth = from_avro(schema)

    assert [first.fields[0].scale, second.fields[0].scale] == [2, 4]
    assert (third.fields[0].scale, fourth.scale) == (2, 4)


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        ({"type": "long", "logicalType": "date"}, "INT64"),
        ({"type": "int", "logicalType": "time-micros"}, "INT64"),
        ({"type": "string", "logicalType": "timestamp-micros"}, "STRING"),
        ({"type": "bytes", "logicalType": "datetime"}, "BYTES"),
        ({"type": "string", "logicalType": "decimal", "precision": 4, "scale": 2}, "STRING"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "INT64"),
    ],
)
def test_a_logical_type_means_nothing_on_a_type_that_it_is_not_for(type_, kind):
    """As Avro has it: its values are those of the type below."""
    assert read(type_).type == kind


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "record", "name": "R"},
        {"type": "record", "fields": []},
        {"type": "record", "name": "R", "fields": [{"name": "x"}]},
        {"type": "record", "name": "R", "fields": ["x"]},
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "array"}}]},
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": None}]},
        {"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "bytes", "logicalType": "decimal"}}]},
        '{"type": "record"',
    ],
)  # fmt: skip
def test_what_is_no_avro_schema_is_a_mistake(schema):
    with pytest.raises(ConfigError):
        from_avro(schema)


def test_a_type_that_contains_itself_is_refused():
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}  # fmt: skip

    with pytest.raises(ConfigError, match="15"):
        from_avro(record(node))


def test_descriptions_come_along():
    schema = record("int")
    schema["fields"][0]["doc"] = "the key"

    (field,) = from_avro(schema)

    assert field.description == "the key"


@pytest.mark.parametrize("schema", ["5", '"int"', "[]", '{"type": "array", "items": "int"}'])
def test_only_a_record_is_a_row(schema):
    with pytest.raises(ConfigError):
        from_avro(schema)
