"""Rows <-> JSON objects, one a line: the NDJSON that load jobs take.

64-bit integers that JavaScript would round, decimals, and numbers that JSON has not
are text; the service reads both. A JSON column's value stands in the object as it is,
not as text with JSON in it, which is what ``insertAll`` takes. JSON's own null is the
one value with no form here, for the service reads it as NULL: it is refused.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bqflink_beam.codec import rows, temporals, values
from bqflink_beam.errors import RowError, shorten
from bqflink_beam.schema.model import Field, TableSchema

_Write = Callable[[Any], str]

_EXACT_MAX = 2**53
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_quote = json.JSONEncoder(ensure_ascii=False).encode
_ONE_LINE = str.maketrans("\n\r", "  ")


class LineEncoder:
    """Encodes rows of one schema, each to one line of JSON without its end.

    Accepts and refuses what `codec.proto.RowEncoder` does, and JSON's null besides.
    NULL and absent keys are left out. The row is never changed.
    """

    def __init__(self, schema: TableSchema, *, rounding: str | None = None) -> None:
        values.check_rounding(rounding)
        self._fields = schema.fields
        self._rounding = rounding
        self._write = _object_writer(schema.fields, rounding)

    def encode(self, row: Mapping[str, Any]) -> bytes:
        """Returns the row as UTF-8.

        Raises:
            RowError: the row cannot be written; says where, what and why.
        """
        try:
            return self._write(row).encode()
        except rows.FAILURES as error:
            rows.explain(self._fields, row, self._rounding)
            raise RowError(f"the row cannot be written as JSON: {error}") from error


class LineDecoder:
    """Decodes lines of JSON to the values a read gives."""

    def __init__(self, schema: TableSchema) -> None:
        self._read = _object_reader(schema.fields)

    def decode(self, line: bytes | str) -> dict[str, Any]:
        """Returns the row: every column, None or [] where the line has none.

        Raises:
            RowError: the line is no JSON object, or no row of the schema.
        """
        try:
            found = json.loads(line, parse_float=_finite)
            if not isinstance(found, dict):
                raise RowError("a line must be a JSON object")
            return self._read(found)
        except (RowError, ValueError, RecursionError) as error:
            raise RowError(f"the line is no row of this schema: {error}") from error


# --- writing ---------------------------------------------------------------------------


def _object_writer(fields: Sequence[Field], rounding: str | None) -> _Write:
    names = rows.Names(fields)
    plan = [(field.name, _quote(field.name), _field_writer(field, rounding)) for field in fields]

    def write(row: Any) -> str:
        whole = names.complete(row)
        members = []
        for name, quoted, write_field in plan:
            text = write_field(whole[name])
            if text:
                members.append(f"{quoted}:{text}")
        return "{" + ",".join(members) + "}"

    return write


def _field_writer(field: Field, rounding: str | None) -> _Write:
    """Returns the function that writes a member's value, "" if it is to be left out."""
    write = _value_writer(field, rounding)
    if field.repeated:
        return lambda value: _list(write, value)
    absent = rows.ABSENT if rows.never_null(field) else None
    if not field.required:
        return lambda value: "" if value is None else write(value)

    def write_required(value: Any) -> str:
        if value is None:
            raise RowError("NULL in a REQUIRED column")
        return "" if value is absent else write(value)

    return write_required


def _list(write: _Write, value: Any) -> str:
    items = () if value is None else rows.items(value)
    if any(item is None for item in items):
        raise RowError("NULL in an ARRAY")
    return f"[{','.join([write(item) for item in items])}]"


def _value_writer(field: Field, rounding: str | None) -> _Write:
    if field.type == "STRUCT":
        return _object_writer(field.fields, rounding)
    read = values.converter(field, rounding)
    if field.type == "RANGE":
        bound = _WRITERS[field.range_element_type or ""]
        return lambda value: _range(bound, *read(value))
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return lambda value: _quote(read(value))
    write = _WRITERS[field.type]
    return lambda value: write(read(value))


def _integer(number: int) -> str:
    return str(number) if -_EXACT_MAX < number < _EXACT_MAX else f'"{number}"'


def _float(number: float) -> str:
    if math.isfinite(number):
        return repr(number)
    return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'


def _json(text: str) -> str:
    line = text.translate(_ONE_LINE).strip()
    if line == "null":
        raise RowError("JSON's null would be read as NULL; use Avro files, or None for NULL")
    return line


def _range(bound: _Write, start: int | None, end: int | None) -> str:
    written = ("null" if each is None else bound(each) for each in (start, end))
    return '{{"start":{},"end":{}}}'.format(*written)


_WRITERS: dict[str, _Write] = {
    "STRING": _quote,
    "BYTES": lambda data: f'"{base64.b64encode(data).decode()}"',
    "INT64": _integer,
    "FLOAT64": _float,
    "BOOL": lambda value: "true" if value else "false",
    "NUMERIC": lambda number: f'"{number:f}"',
    "BIGNUMERIC": lambda number: f'"{number:f}"',
    "DATE": lambda days: f'"{temporals.to_date(days).isoformat()}"',
    "TIME": lambda micros: f'"{temporals.to_time(micros).isoformat()}"',
    "DATETIME": lambda micros: f'"{temporals.to_civil(micros).isoformat()}"',
    "TIMESTAMP": lambda micros: f'"{temporals.to_civil(micros).isoformat()}Z"',
    "JSON": _json,
    "GEOGRAPHY": _quote,
    "INTERVAL": lambda interval: f'"{interval}"',
}


# --- reading ---------------------------------------------------------------------------


def _object_reader(fields: Sequence[Field]) -> Callable[[Any], dict[str, Any]]:
    names = rows.Names(fields)
    plan = [(field, _value_reader(field)) for field in fields]

    def read(found: Any) -> dict[str, Any]:
        whole = names.complete(found)
        return {field.name: _member(field, convert, whole[field.name]) for field, convert in plan}

    return read


def _member(field: Field, convert: Callable[[Any], Any], value: Any) -> Any:
    if value is None or value is rows.ABSENT:
        return [] if field.repeated else None
    return [convert(item) for item in rows.items(value)] if field.repeated else convert(value)


def _value_reader(field: Field) -> Callable[[Any], Any]:
    if field.type == "STRUCT":
        return _object_reader(field.fields)
    if field.type == "RANGE":
        element = field.range_element_type or ""
        return lambda value: _read_range(element, values.converter(field), value)
    convert = values.converter(field)
    if field.type == "TIMESTAMP" and field.timestamp_precision == 12:
        return convert
    if field.type in values.BACK:
        back = values.BACK[field.type]
        return lambda value: back(convert(value))
    prepare = _PREPARE.get(field.type)
    return convert if prepare is None else lambda value: convert(prepare(value))


def _read_range(element: str, convert: values.Convert, value: Any) -> values.Range:
    if isinstance(value, Mapping):
        if not value.keys() <= {"start", "end"}:
            raise RowError("a RANGE has a start and an end, and nothing else")
        value = values.Range(value.get("start"), value.get("end"))
    return values.to_range(element, *convert(value))


def _whole(value: Any) -> Any:
    # Python's own reading takes spaces, underscores and the digits of all scripts.
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value) else value


def _number(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return _NOT_FINITE[value] if value in _NOT_FINITE else _finite(value)


def _finite(text: str) -> float:
    if not _NUMBER.fullmatch(text) or math.isinf(float(text)):
        raise RowError(f"{shorten(text)} is no number that a double holds")
    return float(text)


def _data(value: Any) -> bytes:
    if not isinstance(value, str):
        raise RowError("BYTES must be base64 text")
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error as error:
        raise RowError(f"BYTES must be base64 text: {error}") from error


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_PREPARE: dict[str, Callable[[Any], Any]] = {
    "INT64": _whole,
    "FLOAT64": _number,
    "BYTES": _data,
    "JSON": _dumped,
}
