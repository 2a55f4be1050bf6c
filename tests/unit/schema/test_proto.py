import pytest
from google.protobuf import descriptor_pb2

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema import proto
from bqflink_beam.schema.model import Field, TableSchema

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
