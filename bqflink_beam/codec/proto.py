"""Rows <-> serialized proto messages for the Storage Write API."""

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError, EncodeError

from bqflink_beam.codec import rows, temporals, values
from bqflink_beam.codec.proto_plan import Column, compile_encoder
from bqflink_beam.errors import RowError
from bqflink_beam.schema import proto
from bqflink_beam.schema.model import Field, TableSchema

_CHANGE_COLUMNS = tuple(
    Field(name=name.upper(), type="STRING")
    for name in (proto.CHANGE_TYPE, proto.CHANGE_SEQUENCE_NUMBER)
)

_FAILURES = (*rows.FAILURES, EncodeError)


class RowEncoder:
    """Encodes rows of one schema, each to the bytes of one message.

    Keys match columns without case. An absent key and None are both unset; an absent
    or None REPEATED is empty. The row is never changed. Threads may share an encoder.
    """

    def __init__(
        self, schema: TableSchema, *, change_columns: bool = False, rounding: str | None = None
    ) -> None:
        """Plans the encoding; it costs about as much as a hundred rows.

        Args:
            schema: the columns that rows may have.
            change_columns: rows may also have ``_CHANGE_TYPE`` and
                ``_CHANGE_SEQUENCE_NUMBER``.
            rounding: a constant of `decimal` by which temporals lose what is below a
                microsecond; None refuses such values.
        """
        values.check_rounding(rounding)
        self.descriptor = proto.descriptor(schema, change_columns=change_columns)
        self._rounding = rounding
        self._fields = schema.fields
        if change_columns:
            self._fields += _CHANGE_COLUMNS
        self._classes = [proto.message_class(part) for part in proto.parts(self.descriptor)]
        self._part_of = {
            name: index
            for index, class_ in enumerate(self._classes)
            for name in class_.DESCRIPTOR.fields_by_name
        }
        columns = _columns(self._fields, rounding)
        if len(self._classes) == 1:
            # The class of a narrow row takes the columns itself.
            class_ = self._classes[0]
            self._encode = compile_encoder(columns, class_, class_.SerializeToString)
        else:
            self._encode = compile_encoder(columns, dict, self._encode_wide)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Returns the row as a serialized message of `descriptor`.

        Raises:
            RowError: a value does not fit its column, a column is unknown or missing;
                says where, what and why.
        """
        try:
            return self._encode(row)  # type: ignore[no-any-return]
        except _FAILURES as error:
            rows.explain(self._fields, row, self._rounding)
            raise RowError(f"the row cannot be encoded: {error}") from error

    def _encode_wide(self, wire: dict[str, Any]) -> bytes:
        shares: list[dict[str, Any]] = [{} for _ in self._classes]
        for name, value in wire.items():
            shares[self._part_of[name]][name] = value
        return b"".join(
            class_.SerializeToString(class_(**share))
            for class_, share in zip(self._classes, shares, strict=True)
        )


class RowDecoder:
    """Decodes what `RowEncoder` made, to the values a read would give.

    Shows rows that the service refused, long after their encoder is gone.
    """

    def __init__(self, schema: TableSchema, descriptor: bytes) -> None:
        self._classes = [proto.message_class(part) for part in proto.parts(descriptor)]
        fields = schema.fields
        if sum(len(class_.DESCRIPTOR.fields) for class_ in self._classes) > len(fields):
            fields += _CHANGE_COLUMNS
        self._decode = _struct_decoder(fields)
        self._unset = _unset(schema.fields)

    def decode(self, data: bytes) -> dict[str, Any]:
        """Returns the row: every column, None or [] where it was unset.

        Raises:
            RowError: the bytes are no message of the descriptor, or hold a value that its
                column cannot.
        """
        row = self._unset()
        try:
            for class_ in self._classes:
                row.update(self._decode(class_.FromString(data)))
        except (DecodeError, TypeError, ValueError, ArithmeticError) as error:
            raise RowError(f"the bytes are no row of this descriptor: {error}") from error
        return row


# --- encoding --------------------------------------------------------------------------


def _columns(fields: tuple[Field, ...], rounding: str | None) -> list[Column]:
    return [
        _column(field, name, rounding)
        for field, name in zip(fields, proto.wire_names(fields), strict=True)
    ]


def _column(field: Field, name: str, rounding: str | None) -> Column:
    exact, convert = _value_encoder(field, rounding)
    limit = field.max_length or None
    if field.repeated:
        return Column(field, name, exact, _list_encoder(None if limit else exact, convert), limit)
    if field.type in ("NUMERIC", "BIGNUMERIC"):
        whole_max, scale_max = values.numeric_limits(field)
        return Column(field, name, exact, convert, text_max=min(whole_max, scale_max + 2))
    return Column(field, name, exact, convert, limit)


def _list_encoder(exact: type | None, convert: values.Convert) -> values.Convert:
    def encode(found: Any) -> list[Any]:
        return [
            item if type(item) is exact else convert(_not_null(item)) for item in rows.items(found)
        ]

    return encode


def _not_null(item: Any) -> Any:
    if item is None:
        raise RowError("NULL in an ARRAY")
    return item


def _value_encoder(field: Field, rounding: str | None) -> tuple[type | None, Callable[[Any], Any]]:
    """Returns the type whose values protobuf checks, if any, and the function for all else."""
    if field.type == "STRUCT":
        return None, compile_encoder(_columns(field.fields, rounding), dict)
    read = values.converter(field, rounding)
    if field.type == "RANGE":
        return None, _range_encoder(field.range_element_type or "", read)
    if field.type in _EXACT:
        return _EXACT[field.type], read
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return None, read
    if field.type in ("NUMERIC", "BIGNUMERIC"):
        whole_max, scale_max = values.numeric_limits(field)
        # BIGNUMERIC's largest numbers have 39 digits before the point, but not all of those.
        return None, _numeric(min(whole_max, 38), scale_max, read)
    return None, _ENCODERS.get(field.type, _unchanged)(read)


_EXACT: dict[str, type] = {
    "STRING": str,
    "BYTES": bytes,
    "INT64": int,
    "FLOAT64": float,
    "BOOL": bool,
    "GEOGRAPHY": str,
}


def _unchanged(read: values.Convert) -> values.Convert:
    return read


def _date(read: values.Convert) -> values.Convert:
    def encode(value: Any) -> Any:
        if type(value) is datetime.date:
            return value.toordinal() - 719_163
        return read(value)

    return encode


def _time(read: values.Convert) -> values.Convert:
    def encode(value: Any) -> Any:
        if type(value) is not datetime.time or value.tzinfo is not None:
            value = temporals.to_time(read(value))
        return (value.hour << 12 | value.minute << 6 | value.second) << 20 | value.microsecond

    return encode


def _civil(read: values.Convert) -> values.Convert:
    def encode(value: Any) -> int:
        if type(value) is not datetime.datetime or value.tzinfo is not None:
            value = temporals.to_civil(read(value))
        return pack_civil(value)

    return encode


def pack_civil(value: datetime.datetime) -> int:
    """Returns a DATETIME as the service's packed bit field."""
    return (
        value.year << 26
        | value.month << 22
        | value.day << 17
        | value.hour << 12
        | value.minute << 6
        | value.second
    ) << 20 | value.microsecond


def _instant(read: values.Convert) -> values.Convert:
    epoch, utc = temporals.EPOCH, temporals.UTC

    def encode(value: Any) -> Any:
        if type(value) is datetime.datetime and value.tzinfo is utc:
            since = value - epoch
            return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return read(value)

    return encode


def _numeric(whole_max: int, scale_max: int, read: values.Convert) -> values.Convert:
    """Encodes decimals as plain text, which the service reads exactly and Python makes fastest."""

    def encode(value: Any) -> str:
        if type(value) is decimal.Decimal and value.is_finite() and value.adjusted() < whole_max:
            text = str(value).upper()
            point = text.find(".")
            if "E" not in text and (point < 0 or len(text) - point - 1 <= scale_max):
                return text
        return format(read(value), "f")

    return encode


def _text(read: values.Convert) -> values.Convert:
    return lambda value: str(read(value))


def _range_encoder(element: str, read: values.Convert) -> values.Convert:
    def encode(value: Any) -> dict[str, int]:
        start, end = read(value)
        if element == "DATETIME":
            start, end = (
                None if bound is None else pack_civil(temporals.to_civil(bound))
                for bound in (start, end)
            )
        return {"start": start, "end": end}

    return encode


_ENCODERS: dict[str, Callable[[values.Convert], values.Convert]] = {
    "DATE": _date,
    "TIME": _time,
    "DATETIME": _civil,
    "TIMESTAMP": _instant,
    "INTERVAL": _text,
}


# --- decoding --------------------------------------------------------------------------


def _unset(fields: tuple[Field, ...]) -> Callable[[], dict[str, Any]]:
    """Returns the maker of rows with nothing in them."""
    empty = {field.name: None for field in fields}
    repeated = [field.name for field in fields if field.repeated]

    def make() -> dict[str, Any]:
        row: dict[str, Any] = empty.copy()
        for name in repeated:
            row[name] = []
        return row

    return make


def _struct_decoder(fields: tuple[Field, ...]) -> Callable[[Any], dict[str, Any]]:
    """Returns the function that reads the set fields of a message."""
    plan = {
        name: (field.name, field.repeated, _value_decoder(field))
        for field, name in zip(fields, proto.wire_names(fields), strict=True)
    }

    def decode(message: Any) -> dict[str, Any]:
        row: dict[str, Any] = {}
        for descriptor, value in message.ListFields():
            key, repeated, convert = plan[descriptor.name]
            row[key] = [convert(item) for item in value] if repeated else convert(value)
        return row

    return decode


def _value_decoder(field: Field) -> Callable[[Any], Any]:
    if field.type == "STRUCT":
        make, decode = _unset(field.fields), _struct_decoder(field.fields)
        return lambda message: make() | decode(message)
    if field.type == "RANGE":
        return _range_decoder(field.range_element_type or "")
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return _text_of
    return _DECODERS.get(field.type, _as_it_is)


def _range_decoder(element: str) -> Callable[[Any], values.Range]:
    convert = _DECODERS[element]

    def decode(message: Any) -> values.Range:
        return values.Range(
            *(
                convert(getattr(message, end)) if message.HasField(end) else None
                for end in ("start", "end")
            )
        )

    return decode


def _as_it_is(value: Any) -> Any:
    return value


def _text_of(value: str | bytes) -> str:
    # Bytes are what protobuf makes of a text that is not UTF-8.
    return value if isinstance(value, str) else value.decode()


def unpack_civil(packed: int) -> datetime.datetime:
    """Returns the DATETIME of the service's packed bit field."""
    bits = packed >> 20
    return datetime.datetime(  # noqa: DTZ001 - civil time has no zone
        bits >> 26,
        bits >> 22 & 0xF,
        bits >> 17 & 0x1F,
        bits >> 12 & 0x1F,
        bits >> 6 & 0x3F,
        bits & 0x3F,
        packed & 0xFFFFF,
    )


def unpack_time(packed: int) -> datetime.time:
    """Returns the TIME of the service's packed bit field."""
    bits = packed >> 20
    return datetime.time(bits >> 12, bits >> 6 & 0x3F, bits & 0x3F, packed & 0xFFFFF)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "STRING": _text_of,
    "JSON": _text_of,
    "GEOGRAPHY": _text_of,
    "NUMERIC": decimal.Decimal,
    "BIGNUMERIC": decimal.Decimal,
    "DATE": temporals.to_date,
    "TIME": unpack_time,
    "DATETIME": unpack_civil,
    "TIMESTAMP": temporals.to_instant,
    "INTERVAL": values.interval,
}
