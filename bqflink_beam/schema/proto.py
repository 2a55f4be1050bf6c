"""`TableSchema` <-> the descriptor of rows for the Storage Write API, and its message class.

A descriptor is one self-contained ``DescriptorProto`` (proto2). Field numbers are
positions, from 1. Columns go by their lower-case names, as Google's own writer has
them: the service matches names without case, and message types, in upper case, can
then never be called like a field. Names that protobuf cannot hold get a placeholder
and the service's ``column_name`` option.
"""

import functools
import re
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import NESTING_MAX, Field, TableSchema

_Proto = descriptor_pb2.FieldDescriptorProto

CHANGE_TYPE = "_change_type"
CHANGE_SEQUENCE_NUMBER = "_change_sequence_number"

FIELDS_PER_MESSAGE_MAX = 2_000
"""Beyond some 4,000 fields upb cannot build a message: `parts` cuts wide rows up."""

_TYPES = {
    "STRING": _Proto.TYPE_STRING,
    "BYTES": _Proto.TYPE_BYTES,
    "INT64": _Proto.TYPE_INT64,
    "FLOAT64": _Proto.TYPE_DOUBLE,
    "BOOL": _Proto.TYPE_BOOL,
    "NUMERIC": _Proto.TYPE_STRING,
    "BIGNUMERIC": _Proto.TYPE_STRING,
    "DATE": _Proto.TYPE_INT32,
    "TIME": _Proto.TYPE_INT64,
    "DATETIME": _Proto.TYPE_INT64,
    "TIMESTAMP": _Proto.TYPE_INT64,
    "JSON": _Proto.TYPE_STRING,
    "GEOGRAPHY": _Proto.TYPE_STRING,
    "INTERVAL": _Proto.TYPE_STRING,
}
_KINDS = {
    **dict.fromkeys((_Proto.TYPE_INT64, _Proto.TYPE_SINT64, _Proto.TYPE_SFIXED64), "INT64"),
    **dict.fromkeys((_Proto.TYPE_INT32, _Proto.TYPE_SINT32, _Proto.TYPE_SFIXED32), "INT64"),
    **dict.fromkeys((_Proto.TYPE_UINT32, _Proto.TYPE_FIXED32, _Proto.TYPE_ENUM), "INT64"),
    **dict.fromkeys((_Proto.TYPE_UINT64, _Proto.TYPE_FIXED64), "NUMERIC"),
    **dict.fromkeys((_Proto.TYPE_FLOAT, _Proto.TYPE_DOUBLE), "FLOAT64"),
    _Proto.TYPE_BOOL: "BOOL",
    _Proto.TYPE_STRING: "STRING",
    _Proto.TYPE_BYTES: "BYTES",
}
_MODES = {
    _Proto.LABEL_OPTIONAL: "NULLABLE",
    _Proto.LABEL_REQUIRED: "REQUIRED",
    _Proto.LABEL_REPEATED: "REPEATED",
}
_PACKED = {_Proto.TYPE_INT64, _Proto.TYPE_INT32, _Proto.TYPE_DOUBLE, _Proto.TYPE_BOOL}

_PROTO_NAME = re.compile(r"[a-z_][a-z0-9_]*", re.ASCII)
_COLUMN_NAME_OPTION = 454943157


def wire_names(fields: tuple[Field, ...]) -> list[str]:
    """Returns the name each field has in the descriptor, in order."""
    taken = {field.name.lower() for field in fields}
    names = []
    for number, field in enumerate(fields, 1):
        name = field.name.lower()
        if not _PROTO_NAME.fullmatch(name):
            name = f"column_{number}"
            while name in taken:
                name += "_"
            taken.add(name)
        names.append(name)
    return names


def descriptor(schema: TableSchema, *, change_columns: bool = False) -> bytes:
    """Returns the serialized ``DescriptorProto`` of the schema's rows.

    Args:
        schema: the columns to write; omitted nullable ones of the table are NULL.
        change_columns: append the pseudo-columns of change data capture, which the
            writer's descriptor must have although the table's schema has not.

    Raises:
        ConfigError: a column is called like a pseudo-column.
    """
    root = descriptor_pb2.DescriptorProto(name="ROW")
    _add_fields(root, root, schema.fields)
    if change_columns:
        taken = {field.name.lower() for field in schema}
        for name in (CHANGE_TYPE, CHANGE_SEQUENCE_NUMBER):
            if name in taken:
                raise ConfigError("the name is reserved for change data capture", column=name)
            root.field.add(
                name=name,
                json_name=name,
                number=len(root.field) + 1,
                label=_Proto.LABEL_OPTIONAL,
                type=_Proto.TYPE_STRING,
            )
    return bytes(root.SerializeToString(deterministic=True))


@functools.lru_cache(maxsize=256)
def message_class(descriptor: bytes) -> Any:
    """Returns the message class (a ``type[Message]``) of a serialized descriptor, made once.

    Raises:
        ConfigError: the bytes are no descriptor protobuf can build.
    """
    file = descriptor_pb2.FileDescriptorProto(name="row.proto", syntax="proto2")
    try:
        root = file.message_type.add()
        root.MergeFromString(descriptor)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(root.name))
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigError(f"protobuf cannot build this row descriptor: {error}") from error


@functools.lru_cache(maxsize=256)
def parts(descriptor: bytes) -> tuple[bytes, ...]:
    """Cuts a descriptor into some that protobuf can build, each with a share of the columns.

    Serialized messages of the parts, joined, are a serialized message of the whole.
    """
    whole = descriptor_pb2.DescriptorProto.FromString(descriptor)
    if len(whole.field) <= FIELDS_PER_MESSAGE_MAX:
        return (descriptor,)
    cut = []
    for start in range(0, len(whole.field), FIELDS_PER_MESSAGE_MAX):
        part = descriptor_pb2.DescriptorProto(name=whole.name)
        part.field.extend(whole.field[start : start + FIELDS_PER_MESSAGE_MAX])
        part.nested_type.extend(whole.nested_type)
        cut.append(part.SerializeToString(deterministic=True))
    return tuple(cut)


def from_descriptor(descriptor: bytes) -> TableSchema:
    """Returns the table that could hold messages of a serialized, self-contained descriptor.

    A descriptor says less than a table: a DATE of ours is its number, a NUMERIC its text.

    Raises:
        ConfigError: the bytes are no descriptor, or a field has a type that no column can have.
    """
    try:
        root = descriptor_pb2.DescriptorProto.FromString(descriptor)
    except DecodeError as error:
        raise ConfigError(f"the bytes are no descriptor: {error}") from error
    return TableSchema(_fields_from(root, _nested_types(root, ""), ""))


def _nested_types(
    message: descriptor_pb2.DescriptorProto, owner: str
) -> dict[str, descriptor_pb2.DescriptorProto]:
    """Returns the message types within one by their names from the root on."""
    found: dict[str, descriptor_pb2.DescriptorProto] = {}
    for nested in message.nested_type:
        name = f"{owner}{nested.name}"
        found |= {name: nested, **_nested_types(nested, f"{name}.")}
    return found


def _fields_from(
    message: descriptor_pb2.DescriptorProto,
    types: dict[str, descriptor_pb2.DescriptorProto],
    owner: str,
) -> tuple[Field, ...]:
    if owner.count(".") >= NESTING_MAX:
        raise ConfigError(f"STRUCTs nest at most {NESTING_MAX} deep", column=owner[:-1])
    return tuple(_field_from(field, types, owner) for field in message.field)


def _field_from(field: Any, types: dict[str, descriptor_pb2.DescriptorProto], owner: str) -> Field:
    options = UnknownFieldSet(field.options)
    names = [each.data.decode() for each in options if each.field_number == _COLUMN_NAME_OPTION]
    name, mode = names[0] if names else field.name, _MODES[field.label]
    kind = _KINDS.get(field.type)
    if kind is not None:
        return Field(name=name, type=kind, mode=mode)
    # From the root or, as the compiler writes it, from the package on.
    path = field.type_name.lstrip(".")
    found = [key for key in types if f".{path}".endswith(f".{key}")]
    type_name = max(found, key=len, default=None)
    if field.type != _Proto.TYPE_MESSAGE or type_name is None:
        raise ConfigError(
            f"no column holds the proto field {owner}{name}: its type is not in the descriptor",
            column=f"{owner}{name}",
        )
    element = type_name.removeprefix("RANGE_")
    if type_name in ("RANGE_DATE", "RANGE_DATETIME", "RANGE_TIMESTAMP"):
        return Field(name=name, type="RANGE", mode=mode, range_element_type=element)
    inner = _fields_from(types[type_name], types, f"{owner}{name}.")
    return Field(name=name, type="STRUCT", mode=mode, fields=inner)


def _add_fields(
    root: descriptor_pb2.DescriptorProto,
    message: descriptor_pb2.DescriptorProto,
    fields: tuple[Field, ...],
) -> None:
    for number, (field, name) in enumerate(zip(fields, wire_names(fields), strict=True), 1):
        # Never required: upb cannot build a message with more than 63 such fields. The
        # encoders see to it, and the service does again.
        label = _Proto.LABEL_REPEATED if field.repeated else _Proto.LABEL_OPTIONAL
        proto = message.field.add(name=name, number=number, label=label)
        # Without it protobuf derives one, and foo_bar and fooBar derive the same.
        proto.json_name = name
        if name != field.name.lower():
            proto.options.MergeFromString(_column_name(field.name))
        if field.type == "STRUCT":
            proto.type, proto.type_name = _Proto.TYPE_MESSAGE, _struct(root, field)
        elif field.type == "RANGE":
            proto.type, proto.type_name = _Proto.TYPE_MESSAGE, _range(root, field)
        else:
            proto.type = _wire_type(field)
            if field.repeated and proto.type in _PACKED:
                proto.options.packed = True


def _wire_type(field: Field) -> Any:
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return _Proto.TYPE_STRING
    return _TYPES[field.type]


def _struct(root: descriptor_pb2.DescriptorProto, field: Field) -> str:
    """Adds a message type for a STRUCT; all types lie flat in the root, as the service's do."""
    message = root.nested_type.add(name=f"STRUCT_{len(root.nested_type) + 1}")
    _add_fields(root, message, field.fields)
    return str(message.name)


def _range(root: descriptor_pb2.DescriptorProto, field: Field) -> str:
    name = f"RANGE_{field.range_element_type}"
    if any(message.name == name for message in root.nested_type):
        return name
    message = root.nested_type.add(name=name)
    for number, bound in enumerate(("start", "end"), 1):
        message.field.add(
            name=bound,
            json_name=bound,
            number=number,
            label=_Proto.LABEL_OPTIONAL,
            type=_TYPES[field.range_element_type or ""],
        )
    return name


def _column_name(name: str) -> bytes:
    """Returns the bytes of the option that holds the true name of a column.

    Google's Python packages have no class for this extension; unknown fields survive.
    """
    text = name.encode()
    return varint(_COLUMN_NAME_OPTION << 3 | 2) + varint(len(text)) + text


def varint(value: int) -> bytes:
    """Returns a number that is not negative as protobuf writes it."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
