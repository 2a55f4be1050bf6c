"""Writer schemas: the message classes that read their rows, and what columns the fields are for."""

from collections.abc import Iterator, Mapping
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)

from bqflink_beam.emulator.refused import Refused

_COLUMN_NAME_OPTION = 454943157
# A message has at most 64 KiB in memory, some four thousand texts.
_FIELDS_MAX = 2_000


def message_classes(
    descriptor: descriptor_pb2.DescriptorProto,
) -> tuple[list[Any], Mapping[str, str]]:
    """Makes the message classes of a writer schema; with the column names that fields are given.

    There is more than one where the schema is wider than the library can build: each then
    reads its part of a row, and the rest is unknown to it.

    Raises:
        Refused: INVALID_ARGUMENT, the descriptor is broken.
    """
    if not descriptor.name or not descriptor.field:
        raise Refused("Invalid proto schema: the descriptor has no name or no fields")
    classes: list[Any] = []
    names: dict[str, str] = {}
    for part in _parts(descriptor):
        made, found = _message_class(part)
        classes.append(made)
        names.update(found)
    return classes, names


def _parts(
    descriptor: descriptor_pb2.DescriptorProto,
) -> Iterator[descriptor_pb2.DescriptorProto]:
    fields = descriptor.field
    if len(fields) <= _FIELDS_MAX:
        yield descriptor
        return
    if len({field.number for field in fields}) < len(fields):
        raise Refused("Invalid proto schema: two fields have one number")
    for start in range(0, len(fields), _FIELDS_MAX):
        part = descriptor_pb2.DescriptorProto()
        part.CopyFrom(descriptor)
        del part.field[start + _FIELDS_MAX :]
        del part.field[:start]
        del part.oneof_decl[:]
        for field in part.field:
            field.ClearField("oneof_index")
            field.ClearField("proto3_optional")
        yield part


def _message_class(descriptor: descriptor_pb2.DescriptorProto) -> tuple[Any, Mapping[str, str]]:
    """Makes a message class in a pool of its own."""
    file = descriptor_pb2.FileDescriptorProto(name="writer.proto", syntax="proto2")
    file.message_type.add().CopyFrom(descriptor)
    pool = descriptor_pool.DescriptorPool()
    for module in (wrappers_pb2, timestamp_pb2, duration_pb2):
        known = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(known)
        pool.Add(known)
        file.dependency.append(known.name)
    _clear_proto3(file.message_type[0])
    try:
        pool.Add(file)
        found = pool.FindMessageTypeByName(descriptor.name)
    except (TypeError, KeyError, ValueError) as error:
        raise Refused(f"Invalid proto schema: {error}") from error
    names: dict[str, str] = {}
    _collect_names(file.message_type[0], descriptor.name, names)
    return message_factory.GetMessageClass(found), names


def _clear_proto3(message: descriptor_pb2.DescriptorProto) -> None:
    # A client may send a descriptor of a proto3 file; its optional fields read as proto2's,
    # and the one-field oneofs that stand for them, always the last ones, go.
    synthetic = {field.oneof_index for field in message.field if field.proto3_optional}
    for field in message.field:
        if field.proto3_optional:
            field.ClearField("proto3_optional")
            field.ClearField("oneof_index")
    if synthetic:
        del message.oneof_decl[min(synthetic) :]
    for inner in message.nested_type:
        # A map travels as repeated key and value, and reads as what it is.
        inner.options.ClearField("map_entry")
        _clear_proto3(inner)


def _collect_names(
    message: descriptor_pb2.DescriptorProto, full_name: str, names: dict[str, str]
) -> None:
    for field in message.field:
        if field.HasField("options"):
            options = _Options.FromString(field.options.SerializeToString())
            if options.column_name:
                names[f"{full_name}.{field.name}"] = options.column_name
    for inner in message.nested_type:
        _collect_names(inner, f"{full_name}.{inner.name}", names)


def _options_class() -> Any:
    # Google's annotation of a field with its column's name has no generated module in Python.
    file = descriptor_pb2.FileDescriptorProto(name="options.proto", syntax="proto2")
    message = file.message_type.add(name="Options")
    message.field.add(
        name="column_name",
        number=_COLUMN_NAME_OPTION,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Options"))


_Options = _options_class()
