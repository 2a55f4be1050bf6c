"""Rows <-> Avro records, for files of load jobs and for read sessions in Avro.

Records are written here by hand: the binary form is small, and it takes a tenth of the
time of going through a library's unions. Reading is fastavro's work on the bare types;
what they mean is added afterwards, so that values come out as everywhere.
"""

import datetime
import decimal
import io
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import fastavro

from bqflink_beam.codec import rows, temporals, values
from bqflink_beam.errors import RowError
from bqflink_beam.schema import avro
from bqflink_beam.schema.model import Field, TableSchema

_Write = Callable[[Any], bytes]
_Read = Callable[[Any], Any]

_WIDE = decimal.Context(prec=100)
_NULL, _SOME = b"\x00", b"\x02"
_MAGIC = b"Obj\x01"
_SMALL = [bytes([number]) for number in range(128)]


class RecordEncoder:
    """Encodes rows of one schema, each to the bytes of one record of `avro_schema`.

    Accepts and refuses what `codec.proto.RowEncoder` does. The row is never changed.
    """

    def __init__(self, schema: TableSchema, *, rounding: str | None = None) -> None:
        values.check_rounding(rounding)
        self.avro_schema = avro.to_avro(schema)
        self._fields = schema.fields
        self._rounding = rounding
        self._write = _record_writer(schema.fields, rounding)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Returns the row as one record, without header.

        Raises:
            RowError: the row cannot be written; says where, what and why.
        """
        try:
            return self._write(row)
        except rows.FAILURES as error:
            rows.explain(self._fields, row, self._rounding)
            raise RowError(f"the row cannot be encoded: {error}") from error


def file_header(avro_schema: Mapping[str, Any], sync: bytes) -> bytes:
    """Returns the beginning of an Avro file; `sync` is 16 bytes that no other file has."""
    metadata = {"avro.codec": b"null", "avro.schema": json.dumps(avro_schema).encode()}
    entries = b"".join(
        _bytes_of(name.encode()) + _bytes_of(text) for name, text in metadata.items()
    )
    return _MAGIC + long_of(len(metadata)) + entries + _NULL + sync


def file_block(records: Sequence[bytes], sync: bytes) -> bytes:
    """Returns a block of an Avro file; a load job takes blocks of up to 16 MB."""
    return b"".join((long_of(len(records)), long_of(sum(map(len, records))), *records, sync))


class RecordDecoder:
    """Decodes records of one Avro schema: of a read session, a file, or our own."""

    def __init__(self, avro_schema: Mapping[str, Any] | str) -> None:
        """Plans the decoding.

        Raises:
            ConfigError: the schema has a type that is no column's.
        """
        parsed = avro.parsed(avro_schema)
        self.schema = avro.from_avro(parsed)
        plan = _Plan()
        self._read = plan.record(parsed)
        self._bare = fastavro.parse_schema(plan.bare(parsed))

    def rows(self, data: bytes, count: int) -> list[dict[str, Any]]:
        """Returns the first `count` rows of `data`; a read session's block may have more bytes.

        Raises:
            RowError: the bytes are no such records.
        """
        source = io.BytesIO(data)
        try:
            return [
                self._read(fastavro.schemaless_reader(source, self._bare)) for _ in range(count)
            ]
        except (EOFError, ValueError, IndexError, StopIteration, OverflowError) as error:
            raise RowError(f"the bytes are no records of this schema: {error}") from error

    def decode(self, data: bytes) -> dict[str, Any]:
        """Returns the row of one record."""
        return self.rows(data, 1)[0]


def read_file(data: bytes) -> Iterable[dict[str, Any]]:
    """Yields the rows of an Avro file, whoever wrote it."""
    reader = fastavro.block_reader(io.BytesIO(data))
    decoder = RecordDecoder(reader.writer_schema)
    for block in reader:
        yield from decoder.rows(block.bytes_.getvalue(), block.num_records)


# --- writing ---------------------------------------------------------------------------


def long_of(number: int) -> bytes:
    """Returns an int or long."""
    zigzag = number << 1 if number >= 0 else ~(number << 1)
    if zigzag < 128:
        return _SMALL[zigzag]
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _bytes_of(data: bytes) -> bytes:
    return long_of(len(data)) + data


def _record_writer(fields: Sequence[Field], rounding: str | None) -> _Write:
    names = rows.Names(fields)
    writers = [(field.name, _field_writer(field, rounding)) for field in fields]

    def write(row: Any) -> bytes:
        whole = names.complete(row)
        return b"".join([write_field(whole[name]) for name, write_field in writers])

    return write


def _field_writer(field: Field, rounding: str | None) -> _Write:
    write = _value_writer(field, rounding)
    if field.repeated:
        return _array_writer(write)
    if field.required and not rows.never_null(field):
        return lambda value: write(_not_null(value))
    absent = rows.ABSENT if rows.never_null(field) else None

    def write_union(value: Any) -> bytes:
        return _NULL if value is absent else _SOME + write(_not_null(value))

    return write_union


def _array_writer(write: _Write) -> _Write:
    def write_array(value: Any) -> bytes:
        items = () if value is None else rows.items(value)
        if not items:
            return _NULL
        written = [write(_not_null(item)) for item in items]
        return b"".join((long_of(len(written)), *written, _NULL))

    return write_array


def _not_null(value: Any) -> Any:
    if value is None:
        raise RowError("NULL where none can be")
    return value


def _value_writer(field: Field, rounding: str | None) -> _Write:
    if field.type == "STRUCT":
        return _record_writer(field.fields, rounding)
    read = values.converter(field, rounding)
    if field.type == "RANGE":
        return lambda value: b"".join(_bound(end) for end in read(value))
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return lambda value: _bytes_of(read(value).encode())
    write = _WRITERS[field.type]
    return lambda value: write(read(value))


def _bound(number: int | None) -> bytes:
    return _NULL if number is None else _SOME + long_of(number)


def _decimal_writer(scale: int) -> _Write:
    def write(number: decimal.Decimal) -> bytes:
        unscaled = int(number.scaleb(scale, _WIDE))
        size = (unscaled.bit_length() + 8) // 8
        return _bytes_of(unscaled.to_bytes(size, "big", signed=True))

    return write


def _text(value: Any) -> bytes:
    return _bytes_of(str(value).encode())


_WRITERS: dict[str, _Write] = {
    "STRING": _text,
    "BYTES": _bytes_of,
    "INT64": long_of,
    "FLOAT64": struct.Struct("<d").pack,
    "BOOL": lambda value: b"\x01" if value else b"\x00",
    "NUMERIC": _decimal_writer(values.NUMERIC_SCALE),
    "BIGNUMERIC": _decimal_writer(values.BIGNUMERIC_SCALE),
    "DATE": long_of,
    "TIME": long_of,
    "DATETIME": long_of,
    "TIMESTAMP": long_of,
    "JSON": _text,
    "GEOGRAPHY": _text,
    "INTERVAL": _text,
}


# --- reading ---------------------------------------------------------------------------


class _Plan:
    """Plans the reading of one schema; knows the types it has named so far."""

    def __init__(self) -> None:
        self._reads: dict[str, _Read | None] = {}

    def bare(self, type_: Any) -> Any:
        """Returns the schema without what the types mean, which fastavro would act upon."""
        if isinstance(type_, list):
            return [self.bare(each) for each in type_]
        if not isinstance(type_, Mapping):
            return type_
        out = {key: type_[key] for key in ("name", "symbols", "size") if key in type_}
        if type_["type"] == "record":
            fields = [
                {"name": field["name"], "type": self.bare(field["type"])}
                for field in type_["fields"]
            ]
            return {**out, "type": "record", "fields": fields}
        if type_["type"] == "array":
            return {"type": "array", "items": self.bare(type_["items"])}
        return {**out, "type": self.bare(type_["type"])}

    def record(self, type_: Mapping[str, Any]) -> _Read:
        plan = [
            (
                field.get(avro.DISPLAY_NAME) or field["name"],
                field["name"],
                self._value(field["type"]),
            )
            for field in type_["fields"]
        ]

        def read(record: dict[str, Any]) -> Any:
            return {
                column: value
                if (value := record[name]) is None or convert is None
                else convert(value)
                for column, name, convert in plan
            }

        if avro.range_element(type_):
            return lambda record: values.Range(**read(record))
        return read

    def _value(self, type_: Any) -> _Read | None:
        """Returns what turns a bare value into ours, None if it is one already."""
        type_, _ = avro.branches(type_)
        if isinstance(type_, str):
            return self._reads.get(type_)
        inner = type_["type"]
        if isinstance(inner, (dict, list)):
            return self._value(inner)
        if inner == "array":
            convert = self._value(type_["items"])
            return None if convert is None else lambda items: [convert(item) for item in items]
        read = self.record(type_) if inner == "record" else _reader(type_)
        if "name" in type_:
            self._reads[type_["name"]] = read
        return read


def _reader(type_: Mapping[str, Any]) -> _Read | None:
    logical, declared = avro.logical_type(type_), type_.get("sqlType")
    if logical == "decimal":
        return _decimal_reader(type_.get("scale", 0))
    if type_["type"] == "string" and declared == "INTERVAL":
        return values.interval
    if logical == "datetime" or (type_["type"] == "string" and declared == "DATETIME"):
        return _civil_text
    return _READERS.get(logical or "")


def _decimal_reader(scale: int) -> _Read:
    def read(data: bytes) -> decimal.Decimal:
        return decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _WIDE)

    return read


def _civil_text(text: str) -> datetime.datetime:
    return temporals.to_civil(temporals.civil(text))


def _date(days: int) -> datetime.date:
    return temporals.to_date(_bounded(days, temporals.DAYS_MIN, temporals.DAYS_MAX))


def _time(micros: int) -> datetime.time:
    return temporals.to_time(_bounded(micros, 0, temporals.DAY_MICROS - 1))


def _civil(micros: int) -> datetime.datetime:
    return temporals.to_civil(_bounded(micros, temporals.MICROS_MIN, temporals.MICROS_MAX))


def _instant(micros: int) -> datetime.datetime:
    return temporals.to_instant(_bounded(micros, temporals.MICROS_MIN, temporals.MICROS_MAX))


def _bounded(number: int, least: int, greatest: int) -> int:
    if not least <= number <= greatest:
        raise ValueError(f"{number} lies outside the years 1 to 9999, or outside a day")
    return number


_READERS: dict[str, _Read] = {
    "date": _date,
    "time-micros": _time,
    "time-millis": lambda millis: _time(millis * 1_000),
    "local-timestamp-micros": _civil,
    "local-timestamp-millis": lambda millis: _civil(millis * 1_000),
    "timestamp-micros": _instant,
    "timestamp-millis": lambda millis: _instant(millis * 1_000),
}
