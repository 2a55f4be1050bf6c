"""Proto values to Arrow arrays: which proto types a column takes, and how each is read.

The pairs are those of Google's table of supported data types for the Write API. Each
converter has a fast way through Arrow for sound values, and a slow one that finds the
values at fault and says what is wrong with them.
"""

import contextlib
import re
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor

from bqflink_beam.emulator import types, values
from bqflink_beam.emulator.checks import NUMERIC_UNSCALED_MAX
from bqflink_beam.emulator.literals import (
    datetime_micros,
    days_from_text,
    interval_from_text,
    packed_datetime_micros,
    packed_datetimes_micros,
    packed_time_micros,
    picos_text,
    text_of_picos,
    time_micros,
)
from bqflink_beam.schema.model import Field

Report = Callable[[int, str], None]
Converter = Callable[[Sequence[Any], Report], pa.Array]

_KINDS = {
    FieldDescriptor.TYPE_DOUBLE: "double",
    FieldDescriptor.TYPE_FLOAT: "float",
    FieldDescriptor.TYPE_INT64: "int64",
    FieldDescriptor.TYPE_UINT64: "uint64",
    FieldDescriptor.TYPE_INT32: "int32",
    FieldDescriptor.TYPE_FIXED64: "fixed64",
    FieldDescriptor.TYPE_FIXED32: "fixed32",
    FieldDescriptor.TYPE_BOOL: "bool",
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_GROUP: "group",
    FieldDescriptor.TYPE_MESSAGE: "message",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_UINT32: "uint32",
    FieldDescriptor.TYPE_ENUM: "enum",
    FieldDescriptor.TYPE_SFIXED32: "sfixed32",
    FieldDescriptor.TYPE_SFIXED64: "sfixed64",
    FieldDescriptor.TYPE_SINT32: "sint32",
    FieldDescriptor.TYPE_SINT64: "sint64",
}
_WRAPPED = {
    "google.protobuf.BoolValue": "bool",
    "google.protobuf.BytesValue": "bytes",
    "google.protobuf.DoubleValue": "double",
    "google.protobuf.FloatValue": "float",
    "google.protobuf.Int32Value": "int32",
    "google.protobuf.Int64Value": "int64",
    "google.protobuf.StringValue": "string",
    "google.protobuf.UInt32Value": "uint32",
    "google.protobuf.UInt64Value": "uint64",
}
_SAME_WIRE = {"sint32": "int32", "sfixed32": "int32", "fixed32": "uint32", "sint64": "int64",
              "sfixed64": "int64", "fixed64": "uint64"}  # fmt: skip
_NUMBERS = frozenset({"int32", "uint32", "int64", "uint64", "float", "double"})
# What Arrow may parse: an exponent far below zero ends its process.
_PLAIN_DECIMAL = r"^[+-]?[0-9]{1,40}(\.[0-9]{1,40})?$"
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


def proto_type_name(proto_field: Any) -> str:
    """Returns the name of a proto field's type as messages have it."""
    if proto_field.type == FieldDescriptor.TYPE_MESSAGE:
        return str(proto_field.message_type.full_name)
    return _KINDS[proto_field.type]


def converter_for(proto_field: Any, field: Field, path: str) -> Converter | None:
    """Returns what turns the values of a proto field into a column; None if they do not go."""
    kind = _KINDS[proto_field.type]
    wrapped = False
    if kind == "message":
        name = proto_field.message_type.full_name
        if name in _WRAPPED:
            kind, wrapped = _WRAPPED[name], True
        else:
            kind = name
    kind = _SAME_WIRE.get(kind, kind)
    if kind == "enum" and field.type == "STRING":
        by_number = {v.number: v.name for v in proto_field.enum_type.values}
        convert: Converter | None = _one_by_one(
            lambda number: by_number.get(number, str(number)), pa.string(), field, path
        )
    else:
        convert = _scalar(kind, proto_field, field, path)
        if convert is not None and kind == "string":
            convert = _text_only(convert, path)
    if convert is None or not wrapped:
        return convert
    inner = convert
    return lambda items, report: inner(
        [None if item is None else item.value for item in items], report
    )


def _text_only(convert: Converter, path: str) -> Converter:
    # proto2 does not check its strings: what is not UTF-8 reads as bytes.
    def checked(items: Sequence[Any], report: Report) -> pa.Array:
        if bytes in set(map(type, items)):
            for at, item in enumerate(items):
                if isinstance(item, bytes):
                    report(at, f"String field value is not valid UTF-8 on field {path}.")
            items = [None if isinstance(item, bytes) else item for item in items]
        return convert(items, report)

    return checked


def _scalar(kind: str, proto_field: Any, field: Field, path: str) -> Converter | None:
    if types.is_picos(field):
        return _picos(kind, proto_field, field, path)
    if field.type in ("NUMERIC", "BIGNUMERIC"):
        return _decimal(kind, field, path)
    target = types.element_type(field)
    one = _ONE.get((field.type, kind))
    if one is packed_datetime_micros:
        return _packed_datetimes(target, field, path)
    if one is not None:
        return _one_by_one(one, target, field, path)
    through = _DIRECT.get((field.type, kind))
    if through is not None:
        return _direct(through, target, field, path)
    return None


def _direct(through: pa.DataType, target: pa.DataType, field: Field, path: str) -> Converter:
    def convert(items: Sequence[Any], report: Report) -> pa.Array:
        try:
            array = pa.array(items, through)
        except (pa.ArrowInvalid, OverflowError):
            # Only a 64-bit integer can fail to fit, into the 32 bits of a date.
            array = pa.array([_fitting(at, item, report) for at, item in enumerate(items)], through)
        return array if through == target else array.view(target)

    def _fitting(at: int, item: Any, report: Report) -> Any:
        if item is not None and not -(2**31) <= item < 2**31:
            report(at, f"{_words(field)} field value is out of range: {item} on field {path}.")
            return None
        return item

    return convert


def _one_by_one(
    one: Callable[[Any], Any], target: pa.DataType, field: Field, path: str
) -> Converter:
    storage = {pa.date32(): pa.int32()}.get(target, target)
    if pa.types.is_temporal(target) and target != pa.date32() and field.type != "INTERVAL":
        storage = pa.int64()

    def convert(items: Sequence[Any], report: Report) -> pa.Array:
        converted: list[Any] = []
        for at, item in enumerate(items):
            if item is None:
                converted.append(None)
                continue
            try:
                converted.append(one(item))
            except ValueError as error:
                report(at, f"Invalid {_words(field).lower()} value: {error} on field {path}.")
                converted.append(None)
        array = pa.array(converted, storage)
        return array if storage == target else array.view(target)

    return convert


def _packed_datetimes(target: pa.DataType, field: Field, path: str) -> Converter:
    slow = _one_by_one(packed_datetime_micros, target, field, path)

    def convert(items: Sequence[Any], report: Report) -> pa.Array:
        given = pa.array(items, pa.int64())
        present = given.drop_null().to_numpy(zero_copy_only=False)
        micros = packed_datetimes_micros(present)
        if micros is None:
            return slow(items, report)
        array = pa.array(micros)
        if given.null_count:
            array = pc.replace_with_mask(given, given.is_valid(), array)
        return array.view(target)

    return convert


def _words(field: Field) -> str:
    return {"INT64": "Integer", "FLOAT64": "Float"}.get(field.type, field.type.capitalize())


def _decimal(kind: str, field: Field, path: str) -> Converter | None:
    target = types.element_type(field)
    scale, width = target.scale, target.byte_width
    largest = NUMERIC_UNSCALED_MAX if field.type == "NUMERIC" else 2**255 - 1
    smallest = -NUMERIC_UNSCALED_MAX if field.type == "NUMERIC" else -(2**255)
    padding = (b"\x00" * width, b"\xff" * width)

    def digits(item: Any) -> int:
        if isinstance(item, bytes):
            if len(item) > width:
                raise ValueError(f"{len(item)} bytes, expected at most {width}")
            unscaled = int.from_bytes(item, "little", signed=True)
        else:
            text = str(item).strip()
            if _DECIMAL.fullmatch(text) is None:
                raise ValueError(repr(item))
            unscaled = values.unscaled(text, scale)
        if not smallest <= unscaled <= largest:
            raise ValueError(f"{item!r} is out of range")
        return unscaled

    def slow(items: Sequence[Any], report: Report) -> pa.Array:
        converted: list[bytes | None] = []
        for at, item in enumerate(items):
            try:
                converted.append(
                    None if item is None else digits(item).to_bytes(width, "little", signed=True)
                )
            except ValueError as error:
                report(at, f"Invalid {field.type} value: {error} on field {path}.")
                converted.append(None)
        return values.decimals_from_bytes(converted, target)

    def from_bytes(items: Sequence[Any], report: Report) -> pa.Array:
        padded = [
            None if item is None else item + padding[item[-1] >> 7 if item else 0][len(item) :]
            for item in items
        ]
        if any(item is not None and len(item) > width for item in padded):
            return slow(items, report)
        return values.decimals_from_bytes(padded, target)

    def from_text(items: Sequence[Any], report: Report) -> pa.Array:
        texts = pa.array(items, pa.string())
        if pc.all(pc.match_substring_regex(texts, _PLAIN_DECIMAL)).as_py():
            with contextlib.suppress(pa.ArrowInvalid):
                return texts.cast(target)
        return slow(items, report)

    if kind == "bytes":
        return from_bytes
    if kind == "string":
        return from_text
    return slow if kind in _NUMBERS else None


def _picos(kind: str, proto_field: Any, field: Field, path: str) -> Converter | None:
    if kind == "string":
        return _one_by_one(picos_text, pa.string(), field, path)
    if kind == "int64":
        return _one_by_one(lambda micros: text_of_picos(micros * 10**6), pa.string(), field, path)
    if kind == "google.protobuf.Timestamp":
        return _one_by_one(
            lambda m: text_of_picos(m.seconds * 10**12 + m.nanos * 1000), pa.string(), field, path
        )
    if proto_field.type == FieldDescriptor.TYPE_MESSAGE:
        names = {inner.name for inner in proto_field.message_type.fields}
        if names == {"seconds", "picoseconds"}:
            return _one_by_one(
                lambda m: text_of_picos(m.seconds * 10**12 + m.picoseconds),
                pa.string(),
                field,
                path,
            )
    return None


def _from_timestamp(message: Any) -> int:
    return _int64(int(message.seconds) * 1_000_000 + int(message.nanos) // 1000)


def _from_duration(message: Any) -> tuple[int, int, int]:
    micros = (int(message.seconds) * 1_000_000_000 + int(message.nanos)) // 1000
    return 0, 0, _int64(micros * 1000)


def _int64(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{number} is out of range")
    return number


_INT64, _INT32 = pa.int64(), pa.int32()

_DIRECT: dict[tuple[str, str], pa.DataType] = {
    ("BOOL", "bool"): pa.bool_(),
    ("BYTES", "bytes"): pa.binary(),
    ("DATE", "int32"): _INT32,
    ("DATE", "int64"): _INT32,
    ("FLOAT64", "double"): pa.float64(),
    ("FLOAT64", "float"): pa.float64(),
    ("INT64", "int64"): _INT64,
    ("INT64", "int32"): _INT64,
    ("INT64", "uint32"): _INT64,
    ("INT64", "enum"): _INT64,
    ("TIMESTAMP", "int64"): _INT64,
    ("TIMESTAMP", "int32"): _INT64,
    ("TIMESTAMP", "uint32"): _INT64,
    ("STRING", "string"): pa.string(),
    ("JSON", "string"): pa.string(),
    ("GEOGRAPHY", "string"): pa.string(),
}
_ONE: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("BOOL", "int32"): bool,
    ("BOOL", "int64"): bool,
    ("BOOL", "uint32"): bool,
    ("BOOL", "uint64"): bool,
    ("BYTES", "string"): lambda text: text.encode(),
    ("DATE", "string"): days_from_text,
    ("DATETIME", "string"): datetime_micros,
    ("DATETIME", "int64"): packed_datetime_micros,
    ("TIME", "string"): time_micros,
    ("TIME", "int64"): packed_time_micros,
    ("TIMESTAMP", "google.protobuf.Timestamp"): _from_timestamp,
    ("INTERVAL", "string"): interval_from_text,
    ("INTERVAL", "google.protobuf.Duration"): _from_duration,
}
