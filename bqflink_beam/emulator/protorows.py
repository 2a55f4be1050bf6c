"""Serialized proto rows to Arrow columns.

A `RowDecoder` is made once for a writer schema and a table: it checks the descriptor
against the table, and knows for each column how its values become Arrow. Decoding goes
by column: `attrgetter` and `zip` turn messages into tuples of values, and only values
that read as a type's default are asked whether they were there at all (proto2: unset
is missing).
"""

import dataclasses
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    message_factory,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from bqflink_beam.emulator import types
from bqflink_beam.emulator.checks import Faulty
from bqflink_beam.emulator.protovalues import converter_for, proto_type_name
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.schema.model import Field, TableSchema

_COLUMN_NAME_OPTION = 454943157
_WELL_KNOWN = {
    f"google.protobuf.{name}"
    for name in (
        "BoolValue", "BytesValue", "DoubleValue", "FloatValue", "Int32Value", "Int64Value",
        "StringValue", "UInt32Value", "UInt64Value", "Timestamp", "Duration",
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class _Column:
    """One field of the writer's message, bound to one column of the table."""

    attribute: str
    field: Field
    repeated: bool
    message: bool
    convert: Callable[[Sequence[Any], Callable[[int, str], None]], pa.Array] | None
    struct: "_Struct | None"


@dataclasses.dataclass(frozen=True)
class _Struct:
    """One message type, bound to the columns of a table or the fields of a STRUCT."""

    fields: tuple[Field, ...]
    columns: tuple[_Column, ...]
    type: pa.StructType


class RowDecoder:
    """Decodes the rows of one writer schema for one table.

    Raises:
        Refused: INVALID_ARGUMENT, the descriptor is broken, has fields that the table has
            not (SCHEMA_MISMATCH_EXTRA_FIELDS) or types that do not go with the table's.
    """

    def __init__(
        self,
        descriptor: descriptor_pb2.DescriptorProto,
        schema: TableSchema,
        *,
        extra: Sequence[Field] = (),
    ) -> None:
        """
        Args:
            extra: columns that rows may have besides those of the table (change types).
        """
        self._message, self._names = _message_class(descriptor)
        fields = (*schema.fields, *extra)
        unknown: list[str] = []
        self._root = self._bind(self._message.DESCRIPTOR, fields, "", descriptor.name, unknown)
        if unknown:
            raise Refused(
                "Input schema has more fields than BigQuery schema, extra fields: "
                f"'{','.join(unknown)}'",
                storage_error="SCHEMA_MISMATCH_EXTRA_FIELDS",
            )
        bound = {column.field.name for column in self._root.columns}
        self.missing = frozenset(field.name for field in fields if field.name not in bound)

    def decode(self, rows: Sequence[bytes], faulty: Faulty) -> pa.RecordBatch:
        """Returns the rows as a batch with all columns of the table, absent ones NULL or [].

        `faulty` takes a message for each row that does not parse or holds a value that is
        none of its column's type; what the batch has in such a row means nothing.
        """
        return self.batch(self.parse(rows, faulty), faulty)

    def parse(self, rows: Sequence[bytes], faulty: Faulty) -> Sequence[Any]:
        """Returns the rows as messages, an empty one for each that does not parse."""
        try:
            return list(map(self._message.FromString, rows))
        except DecodeError:
            return self._parse_each(rows, faulty)

    def batch(self, messages: Sequence[Any], faulty: Faulty) -> pa.RecordBatch:
        """Returns parsed rows as a batch; see `decode`."""
        arrays = self._decode_columns(self._root, messages, range(len(messages)), "", faulty)
        return pa.RecordBatch.from_arrays(
            arrays, schema=pa.schema([types.arrow_field(field) for field in self._root.fields])
        )

    def absent(self, messages: Sequence[Any], name: str) -> list[bool]:
        """Tells for each parsed row whether its top-level column `name` was left out."""
        for column in self._root.columns:
            if column.field.name == name:
                if column.repeated:
                    return [not getattr(message, column.attribute) for message in messages]
                has = _has_field(messages)
                return [not has(message, column.attribute) for message in messages]
        return [True] * len(messages)

    def _parse_each(self, rows: Sequence[bytes], faulty: Faulty) -> list[Any]:
        messages = []
        for index, row in enumerate(rows):
            try:
                messages.append(self._message.FromString(row))
            except DecodeError:
                faulty.add(index, "Cannot parse the row as the message of the writer schema.")
                messages.append(self._message())
        return messages

    # --- binding the descriptor to the table ---

    def _bind(
        self,
        descriptor: Any,
        fields: tuple[Field, ...],
        path: str,
        root: str,
        unknown: list[str],
    ) -> _Struct:
        by_name = {field.name.lower(): field for field in fields}
        columns: list[_Column] = []
        for proto_field in descriptor.fields:
            name = self._names.get(proto_field.full_name, proto_field.name)
            field = by_name.get(name.lower())
            if field is None:
                unknown.append(path + name)
                continue
            if any(column.field is field for column in columns):
                raise Refused(
                    f"Two proto fields are for the same BigQuery field {path}{field.name}"
                )
            columns.append(self._bind_field(proto_field, field, path, root, unknown))
        return _Struct(fields, tuple(columns), pa.struct([types.arrow_field(f) for f in fields]))

    def _bind_field(
        self, proto_field: Any, field: Field, path: str, root: str, unknown: list[str]
    ) -> _Column:
        repeated = _is_repeated(proto_field)
        if repeated != field.repeated:
            raise Refused(
                f"The proto field label mismatched with BigQuery field at {root}.{path}{field.name}, "
                f"the proto field label {'repeated' if repeated else 'optional'}, "
                f"BigQuery field label {field.mode}"
            )
        is_message = proto_field.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)
        well_known = is_message and proto_field.message_type.full_name in _WELL_KNOWN
        inner = None
        if is_message and not well_known and field.type in ("STRUCT", "RANGE"):
            inner_fields = field.fields or tuple(
                Field(name=bound, type=field.range_element_type or "DATE")
                for bound in ("start", "end")
            )
            inner = self._bind(
                proto_field.message_type, inner_fields, f"{path}{field.name}.", root, unknown
            )
            inner = dataclasses.replace(inner, type=types.element_type(field))
            return _Column(proto_field.name, field, repeated, True, None, inner)
        convert = converter_for(proto_field, field, path + field.name)
        if convert is None:
            rest = types.field_to_rest(field)["type"]
            raise Refused(
                f"The proto field mismatched with BigQuery field at {root}.{path}{field.name}, "
                f"the proto field type {proto_type_name(proto_field)}, BigQuery field type {rest}"
            )
        return _Column(proto_field.name, field, repeated, is_message, convert, None)

    # --- decoding ---

    def _decode_columns(
        self,
        struct: _Struct,
        messages: Sequence[Any],
        rows: Sequence[int],
        path: str,
        faulty: Faulty,
    ) -> list[pa.Array]:
        taken = _columns_of(messages, [column.attribute for column in struct.columns])
        arrays: dict[str, pa.Array] = {}
        for column, column_values in zip(struct.columns, taken, strict=True):
            arrays[column.field.name] = self._decode_column(
                column, column_values, messages, rows, path, faulty
            )
        return [
            arrays[field.name]
            if field.name in arrays
            else types.nothing(types.arrow_type(field), len(messages))
            for field in struct.fields
        ]

    def _decode_column(
        self,
        column: _Column,
        column_values: Sequence[Any],
        messages: Sequence[Any],
        rows: Sequence[int],
        path: str,
        faulty: Faulty,
    ) -> pa.Array:
        here = path + column.field.name
        if column.repeated:
            lengths = list(map(len, column_values))
            items = list(itertools.chain.from_iterable(column_values))
            owners = [row for row, n in zip(rows, lengths, strict=True) for _ in range(n)]
            offsets = pa.array([0, *itertools.accumulate(lengths)], pa.int32())
            return pa.ListArray.from_arrays(
                offsets,
                self._elements(column, items, owners, here, faulty),
                type=types.arrow_type(column.field),
            )
        # An absent message reads as an empty one, which is true.
        if not messages or (not column.message and all(column_values)):
            return self._elements(column, column_values, rows, here, faulty)
        name = column.attribute
        has = _has_field(messages)
        if column.message:
            present = [has(message, name) for message in messages]
        else:
            # Whatever is not the type's default was there; asking is slow.
            present = [
                bool(value) or has(message, name)
                for value, message in zip(column_values, messages, strict=True)
            ]
        if all(present):
            return self._elements(column, column_values, rows, here, faulty)
        if column.struct is None:
            masked = [
                value if there else None
                for value, there in zip(column_values, present, strict=True)
            ]
            return self._elements(column, masked, rows, here, faulty)
        found = list(itertools.compress(column_values, present))
        owners = list(itertools.compress(rows, present))
        dense = self._elements(column, found, owners, here, faulty)
        numbers = itertools.count()
        return dense.take(
            pa.array([next(numbers) if there else None for there in present], pa.int64())
        )

    def _elements(
        self,
        column: _Column,
        items: Sequence[Any],
        rows: Sequence[int],
        path: str,
        faulty: Faulty,
    ) -> pa.Array:
        if column.struct is not None:
            children = self._decode_columns(column.struct, items, rows, f"{path}.", faulty)
            return pa.StructArray.from_arrays(children, fields=list(column.struct.type))
        assert column.convert is not None
        return column.convert(items, lambda at, message: faulty.add(rows[at], message))


def _columns_of(messages: Sequence[Any], names: Sequence[str]) -> list[Sequence[Any]]:
    if not messages:
        return [()] * len(names)
    if len(names) == 1:
        return [tuple(map(operator.attrgetter(names[0]), messages))]
    if not names:
        return []
    return list(zip(*map(operator.attrgetter(*names), messages), strict=True))


def _has_field(messages: Sequence[Any]) -> Callable[[Any, str], bool]:
    # From the class: a column of the writer may be called HasField, and hides the method.
    has: Callable[[Any, str], bool] = type(messages[0]).HasField
    return has


def _is_repeated(proto_field: Any) -> bool:
    # `label` is deprecated in newer protobuf, `is_repeated` absent in older.
    known = getattr(proto_field, "is_repeated", None)
    return bool(proto_field.label == FieldDescriptor.LABEL_REPEATED if known is None else known)


# --- the message class of a descriptor ---------------------------------------------------


def _message_class(descriptor: descriptor_pb2.DescriptorProto) -> tuple[Any, Mapping[str, str]]:
    """Makes the message class in a pool of its own; with the column names that fields are given."""
    if not descriptor.name or not descriptor.field:
        raise Refused("Invalid proto schema: the descriptor has no name or no fields")
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
