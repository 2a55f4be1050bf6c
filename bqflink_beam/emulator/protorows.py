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
from typing import Any, TypeAlias

import pyarrow as pa
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from bqflink_beam.emulator import types
from bqflink_beam.emulator.checks import Faulty
from bqflink_beam.emulator.descriptors import message_classes
from bqflink_beam.emulator.protovalues import converter_for, proto_type_name
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.schema.model import Field, TableSchema

Parsed: TypeAlias = Sequence[Sequence[Any]]
"""Rows as messages of each class that stands for a part of the writer schema."""

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
        self._messages, self._names = message_classes(descriptor)
        self._fields = fields = (*schema.fields, *extra)
        unknown: list[str] = []
        self._roots = [
            self._bind(message.DESCRIPTOR, fields, "", descriptor.name, unknown)
            for message in self._messages
        ]
        if unknown:
            raise Refused(
                "Input schema has more fields than BigQuery schema, extra fields: "
                f"'{','.join(unknown)}'",
                storage_error="SCHEMA_MISMATCH_EXTRA_FIELDS",
            )
        bound = [column.field.name for root in self._roots for column in root.columns]
        if len(set(bound)) < len(bound):
            raise Refused("Two proto fields are for the same BigQuery field")
        self.missing = frozenset(field.name for field in fields) - frozenset(bound)

    def decode(self, rows: Sequence[bytes], faulty: Faulty) -> pa.RecordBatch:
        """Returns the rows as a batch with all columns of the table, absent ones NULL or [].

        `faulty` takes a message for each row that does not parse or holds a value that is
        none of its column's type; what the batch has in such a row means nothing.
        """
        return self.batch(self.parse(rows, faulty), faulty)

    def parse(self, rows: Sequence[bytes], faulty: Faulty) -> Parsed:
        """Returns the rows as messages, an empty one for each that does not parse."""
        return [_parse(message, rows, faulty) for message in self._messages]

    def batch(self, parsed: Parsed, faulty: Faulty) -> pa.RecordBatch:
        """Returns parsed rows as a batch; see `decode`."""
        count = len(parsed[0])
        arrays: dict[str, pa.Array] = {}
        for root, messages in zip(self._roots, parsed, strict=True):
            arrays |= self._bound(root, messages, range(count), "", faulty)
        return pa.RecordBatch.from_arrays(
            _filled(self._fields, arrays, count),
            schema=pa.schema([types.arrow_field(field) for field in self._fields]),
        )

    def absent(self, parsed: Parsed, name: str) -> list[bool]:
        """Tells for each parsed row whether its top-level column `name` was left out."""
        for root, messages in zip(self._roots, parsed, strict=True):
            for column in root.columns:
                if column.field.name != name:
                    continue
                if column.repeated:
                    return [not getattr(message, column.attribute) for message in messages]
                has = _has_field(messages)
                return [not has(message, column.attribute) for message in messages]
        return [True] * len(parsed[0])

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
        """Returns all fields of a struct, absent ones NULL or []."""
        arrays = self._bound(struct, messages, rows, path, faulty)
        return _filled(struct.fields, arrays, len(messages))

    def _bound(
        self,
        struct: _Struct,
        messages: Sequence[Any],
        rows: Sequence[int],
        path: str,
        faulty: Faulty,
    ) -> dict[str, pa.Array]:
        """Returns the fields of a struct that the writer has, by name."""
        taken = _columns_of(messages, [column.attribute for column in struct.columns])
        arrays: dict[str, pa.Array] = {}
        for column, column_values in zip(struct.columns, taken, strict=True):
            arrays[column.field.name] = self._decode_column(
                column, column_values, messages, rows, path, faulty
            )
        return arrays

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


def _parse(message: Any, rows: Sequence[bytes], faulty: Faulty) -> list[Any]:
    try:
        return list(map(message.FromString, rows))
    except DecodeError:
        return [_parse_one(message, row, index, faulty) for index, row in enumerate(rows)]


def _parse_one(message: Any, row: bytes, index: int, faulty: Faulty) -> Any:
    try:
        return message.FromString(row)
    except DecodeError:
        faulty.add(index, "Cannot parse the row as the message of the writer schema.")
        return message()


def _filled(fields: Sequence[Field], arrays: Mapping[str, pa.Array], count: int) -> list[pa.Array]:
    return [
        arrays[field.name]
        if field.name in arrays
        else types.nothing(types.arrow_type(field), count)
        for field in fields
    ]


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
