import re

import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema import proto
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.schema.proto import descriptor, from_descriptor
from bqflink_beam.testing import strategies

F = descriptor_pb2.FieldDescriptorProto
COLUMN_NAME_OPTION = 454943157


def schema(*names, **facts):
    return TableSchema(tuple(Field(name=name, type="STRING", **facts) for name in names))


def fields(descriptor):
    return list(descriptor_pb2.DescriptorProto.FromString(descriptor).field)


def column_name(field):
    """The text of the service's option, read as any other client would: by its number."""
    data = field.options.SerializeToString()
    tag = (COLUMN_NAME_OPTION << 3 | 2).to_bytes(5, "little")
    key = sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data[:5]))
    assert key == int.from_bytes(tag, "little")
    assert data[5] == len(data) - 6
    return data[6:].decode()


def test_case_is_folded_as_the_service_folds_it():
    assert [field.name for field in fields(proto.descriptor(schema("Foo", "eventId")))] == [
        "foo",
        "eventid",
    ]


def test_names_that_derive_the_same_json_name_live_together():
    descriptor = proto.descriptor(schema("foo_bar", "fooBar", "event_type", "eventType"))

    assert proto.message_class(descriptor) is proto.message_class(descriptor)


@pytest.mark.parametrize(
    "name", ["a-b", "é", "1a", "two words", "foo_👍", "日付", "größe", "Ünïcode", "x" * 299 + "é"]
)
def test_flexible_names_travel_in_the_option(name):
    (field,) = fields(proto.descriptor(schema(name)))

    assert field.name == field.json_name == "column_1"
    if len(name.encode()) < 128:
        assert column_name(field) == name
    proto.message_class(proto.descriptor(schema(name)))


def test_placeholders_never_meet_each_other_or_a_column():
    names = [
        field.name for field in fields(proto.descriptor(schema("foo_👍", "foo_👎", "column_1")))
    ]

    assert names == ["column_1_", "column_2", "column_1"]


@pytest.mark.parametrize(
    "name",
    [
        "SerializeToString",
        "Clear",
        "DESCRIPTOR",
        "class",
        "from",
        "self",
        "__init__",
        "struct_1",
        "ROW",
    ],
)
def test_names_of_python_and_protobuf_are_names_like_others(name):
    descriptor = proto.descriptor(
        TableSchema(
            (
                Field(name=name, type="INT64"),
                Field(name="s", type="STRUCT", fields=(Field(name=name, type="INT64"),)),
            )
        )
    )
    class_ = proto.message_class(descriptor)

    message = class_(**{name.lower(): 5, "s": {name.lower(): 6}})

    assert class_.SerializeToString(message) == b"\x08\x05\x12\x02\x08\x06"


def test_repeated_numbers_are_packed_and_texts_are_not():
    kinds = ["INT64", "FLOAT64", "BOOL", "DATE", "TIMESTAMP", "STRING", "BYTES", "NUMERIC"]
    descriptor = proto.descriptor(
        TableSchema(tuple(Field(name=kind, type=kind, mode="REPEATED") for kind in kinds))
    )

    assert {field.name.upper() for field in fields(descriptor) if field.options.packed} == set(
        kinds[:5]
    )


def test_nothing_is_required_for_protobuf_has_room_for_63_such_fields():
    required = tuple(Field(name=f"c{i}", type="INT64", mode="REQUIRED") for i in range(100))
    descriptor = proto.descriptor(TableSchema(required))

    assert {field.label for field in fields(descriptor)} == {
        descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
    }
    proto.message_class(descriptor)


def test_change_columns_come_last_as_optional_text():
    last = fields(proto.descriptor(schema("a", "b"), change_columns=True))[2:]

    assert [(field.name, field.number, field.label, field.type) for field in last] == [
        ("_change_type", 3, 1, 9),
        ("_change_sequence_number", 4, 1, 9),
    ]


def test_a_column_called_like_a_change_column_is_refused():
    with pytest.raises(ConfigError, match="reserved"):
        proto.descriptor(schema("_CHANGE_TYPE"), change_columns=True)


def test_every_message_type_lies_in_the_root():
    inner = Field(name="i", type="STRUCT", fields=(Field(name="x", type="INT64"),))
    outer = Field(name="o", type="STRUCT", fields=(inner, inner_range("r")))
    descriptor = proto.descriptor(TableSchema((outer, inner_range("q"))))

    root = descriptor_pb2.DescriptorProto.FromString(descriptor)

    assert sorted(each.name for each in root.nested_type) == ["RANGE_DATE", "STRUCT_1", "STRUCT_2"]
    assert not any(each.nested_type for each in root.nested_type)


def inner_range(name):
    return Field(name=name, type="RANGE", range_element_type="DATE")


def test_equal_schemas_give_equal_bytes():
    assert proto.descriptor(schema("a", "é")) == proto.descriptor(schema("a", "é"))


def test_ten_thousand_columns_are_cut_into_messages_that_can_be_built():
    descriptor = proto.descriptor(schema(*(f"c{index}" for index in range(10_000))))

    numbers = [
        field.number
        for part in proto.parts(descriptor)
        for field in proto.message_class(part).DESCRIPTOR.fields
    ]

    assert numbers == list(range(1, 10_001))


def test_bytes_that_are_no_descriptor_are_refused():
    with pytest.raises(ConfigError):
        proto.message_class(b"\x0a\x03ROW\x12\x05\x0a\x03a-b")


# --- from a descriptor -----------------------------------------------------------------

# What a descriptor says of the types that it has no word for.
ON_THE_WIRE = {
    "NUMERIC": "STRING", "BIGNUMERIC": "STRING", "JSON": "STRING", "GEOGRAPHY": "STRING",
    "INTERVAL": "STRING", "DATE": "INT64", "TIME": "INT64", "DATETIME": "INT64",
    "TIMESTAMP": "INT64",
}  # fmt: skip


def as_descriptors_say(fields):
    return tuple(as_a_descriptor_says(field) for field in fields)


def as_a_descriptor_says(field):
    flexible = re.fullmatch(r"[a-z_][a-z0-9_]*", field.name.lower(), re.ASCII) is None
    kind = ON_THE_WIRE.get(field.type, field.type)
    return Field(
        name=field.name if flexible else field.name.lower(),
        type="STRING" if field.timestamp_precision == 12 else kind,
        mode="REPEATED" if field.repeated else "NULLABLE",
        fields=as_descriptors_say(field.fields),
        range_element_type=field.range_element_type,
    )


@settings(max_examples=300, deadline=None)
@given(strategies.schemas())
def test_any_schema_comes_back_as_far_as_a_descriptor_says_it(schema):
    found = from_descriptor(descriptor(schema))

    assert found.fields == as_descriptors_say(schema)


def message_of(*fields, nested=()):
    return descriptor_pb2.DescriptorProto(name="M", field=fields, nested_type=nested)


def proto_field(type_, label=F.LABEL_OPTIONAL, **facts):
    return F(name="c", number=1, type=type_, label=label, **facts)


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (F.TYPE_INT32, "INT64"), (F.TYPE_SINT64, "INT64"), (F.TYPE_SFIXED32, "INT64"),
        (F.TYPE_UINT32, "INT64"), (F.TYPE_FIXED32, "INT64"), (F.TYPE_UINT64, "NUMERIC"),
        (F.TYPE_FIXED64, "NUMERIC"), (F.TYPE_FLOAT, "FLOAT64"), (F.TYPE_BOOL, "BOOL"),
        (F.TYPE_BYTES, "BYTES"), (F.TYPE_STRING, "STRING"), (F.TYPE_ENUM, "INT64"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    ("label", "mode"),
    [
        (F.LABEL_OPTIONAL, "NULLABLE"),
        (F.LABEL_REQUIRED, "REQUIRED"),
        (F.LABEL_REPEATED, "REPEATED"),
    ],
)
def test_a_message_of_the_users_own_finds_its_columns(type_, kind, label, mode):
    data = message_of(proto_field(type_, label)).SerializeToString()

    assert from_descriptor(data) == TableSchema((Field(name="c", type=kind, mode=mode),))


@pytest.mark.parametrize(("type_name", "kind"), [(".p.M.B.A", "BOOL"), (".p.M.A", "BYTES")])
def test_a_nested_type_is_found_as_the_compiler_writes_it(type_name, kind):
    """Two types may share the short name."""
    outer = descriptor_pb2.DescriptorProto(name="A", field=[proto_field(F.TYPE_BYTES)])
    inner = descriptor_pb2.DescriptorProto(name="A", field=[proto_field(F.TYPE_BOOL)])
    b = descriptor_pb2.DescriptorProto(name="B", nested_type=[inner])
    message = message_of(proto_field(F.TYPE_MESSAGE, type_name=type_name), nested=[outer, b])

    (struct,) = from_descriptor(message.SerializeToString())

    assert struct.fields == (Field(name="c", type=kind),)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        message_of(proto_field(F.TYPE_MESSAGE, type_name=".p.Elsewhere")).SerializeToString(),
        message_of(proto_field(F.TYPE_GROUP, type_name="G")).SerializeToString(),
        message_of(
            proto_field(F.TYPE_MESSAGE, type_name="A"),
            nested=[
                descriptor_pb2.DescriptorProto(
                    name="A", field=[proto_field(F.TYPE_MESSAGE, type_name="A")]
                )
            ],
        ).SerializeToString(),
    ],
    ids=["no descriptor", "another file", "group", "itself"],
)
def test_what_no_table_can_hold_is_refused(data):
    with pytest.raises(ConfigError):
        from_descriptor(data)
