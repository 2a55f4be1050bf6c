"""Text files of load jobs: newline-delimited JSON and CSV, and what their columns seem to be."""

import csv
import decimal
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bqflink_beam.emulator import jsonvalues, types
from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.jsonvalues import BadValue
from bqflink_beam.schema.model import Field, TableSchema

_CSV_FIELD_MAX = 100 << 20
_DETECT_ROWS = 500
_NAME = re.compile(r"[^A-Za-z0-9_]")
_INTEGER = re.compile(r"[+-]?\d{1,19}\Z", re.ASCII)

Row = dict[str, Any] | BadValue
"""One row of a file: its values, or what is wrong with it."""


# --- JSON -----------------------------------------------------------------------------------


def json_objects(data: bytes) -> Iterator[Any]:
    """Yields the JSON values of a file, a `BadValue` for lines that are none."""
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            yield jsonvalues.loads(line)
        except ValueError as error:
            yield BadValue("", f"Parser terminated before end of string: {error}")


def json_rows(data: bytes, schema: TableSchema, options: Mapping[str, Any]) -> Iterator[Row]:
    """Yields the rows of a newline-delimited JSON file."""
    ignore = bool(options.get("ignoreUnknownValues"))
    for value in json_objects(data):
        if isinstance(value, BadValue):
            yield value
            continue
        try:
            yield jsonvalues.row_values(schema.fields, value, ignore_unknown=ignore)
        except BadValue as bad:
            yield bad


def detect_json(files: Sequence[bytes]) -> TableSchema:
    """Returns the schema that the first rows of JSON files seem to have."""
    rows = []
    for data in files:
        for value in json_objects(data):
            if isinstance(value, Mapping):
                rows.append(value)
            if len(rows) >= _DETECT_ROWS:
                break
    return TableSchema(_json_fields(rows))


def _json_fields(rows: Sequence[Mapping[str, Any]]) -> tuple[Field, ...]:
    seen: dict[str, list[Any]] = {}
    for row in rows:
        for name, value in row.items():
            seen.setdefault(name, []).append(value)
    return tuple(_json_field(name, found) for name, found in seen.items())


def _json_field(name: str, found: list[Any]) -> Field:
    repeated = any(isinstance(value, list) for value in found)
    items = [
        item
        for value in found
        for item in (value if isinstance(value, list) else [value])
        if item is not None
    ]
    mode = "REPEATED" if repeated else "NULLABLE"
    records = [item for item in items if isinstance(item, Mapping)]
    if records:
        return Field(name=name, type="STRUCT", mode=mode, fields=_json_fields(records))
    return Field(name=name, type=_common({_json_type(item) for item in items}), mode=mode)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "BOOL"
    if isinstance(value, int):
        return "INT64" if -(1 << 63) <= value < 1 << 63 else "FLOAT64"
    if isinstance(value, float | decimal.Decimal):
        return "FLOAT64"
    return _text_type(str(value), numbers=False)


def _common(kinds: set[str]) -> str:
    if len(kinds) == 1:
        return kinds.pop()
    if kinds == {"INT64", "FLOAT64"}:
        return "FLOAT64"
    return "STRING"


def _text_type(text: str, *, numbers: bool) -> str:
    """Returns the narrowest type whose literal a text is."""
    if numbers:
        if _INTEGER.match(text) and -(1 << 63) <= int(text) < 1 << 63:
            return "INT64"
        if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", text):
            return "FLOAT64"
        if text.lower() in ("true", "false"):
            return "BOOL"
    for kind in ("DATE", "TIME", "TIMESTAMP"):
        try:
            jsonvalues.SCALARS[kind](text)
        except (ValueError, OverflowError):
            continue
        if kind != "TIMESTAMP" or re.match(r"\d{4}-", text):
            return kind
    return "STRING"


# --- CSV ------------------------------------------------------------------------------------


def csv_records(data: bytes, options: Mapping[str, Any]) -> list[list[str]]:
    """Returns the records of a CSV file, header lines left out.

    Raises:
        Refused: an option that is not supported, or text in another encoding.
    """
    delimiter = options.get("fieldDelimiter") or ","
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    quote = options.get("quote", '"')
    encoding = {"UTF-8": "utf-8-sig", "ISO-8859-1": "latin-1"}.get(
        options.get("encoding") or "UTF-8"
    )
    if len(delimiter) != 1 or encoding is None or len(quote) > 1:
        raise invalid("Unsupported CSV delimiter, quote or encoding")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise invalid(f"Bad character (ASCII 0) encountered, or not {encoding}: {error}") from None
    csv.field_size_limit(_CSV_FIELD_MAX)
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quotechar=quote or None,
        quoting=csv.QUOTE_MINIMAL if quote else csv.QUOTE_NONE,
        strict=True,
    )
    try:
        records = [record for record in reader if record]
    except csv.Error as error:
        raise invalid(f"Error while reading data, error message: {error}") from None
    if not options.get("allowQuotedNewlines") and any(
        "\n" in cell for record in records for cell in record
    ):
        raise invalid(
            "Error while reading data, error message: CSV table references a quoted newline; "
            "set allowQuotedNewlines"
        )
    return records[int(options.get("skipLeadingRows") or 0) :]


def csv_rows(data: bytes, schema: TableSchema, options: Mapping[str, Any]) -> Iterator[Row]:
    """Yields the rows of a CSV file."""
    fields = schema.fields
    null_marker = options.get("nullMarker", "")
    for record in csv_records(data, options):
        if len(record) < len(fields) and not options.get("allowJaggedRows"):
            yield BadValue(
                "", f"CSV table has {len(record)} values in a row of {len(fields)} columns."
            )
            continue
        if len(record) > len(fields) and not options.get("ignoreUnknownValues"):
            yield BadValue("", f"Too many values in row. {len(record)} for {len(fields)} columns.")
            continue
        try:
            yield {
                field.name: _cell(field, text, null_marker)
                for field, text in zip(fields, record, strict=False)
            }
        except BadValue as bad:
            yield bad


def _cell(field: Field, text: str, null_marker: str) -> Any:
    if field.repeated or field.type == "STRUCT":
        raise BadValue(field.name, f"CSV cannot hold the nested or repeated field {field.name}.")
    if text == null_marker and (text or field.type not in ("STRING", "BYTES")):
        return None
    if not text and field.type not in ("STRING", "BYTES"):
        return None
    value: Any = text
    if field.type == "JSON":
        try:
            value = jsonvalues.loads(text)
        except ValueError as error:
            raise BadValue(field.name, f"Invalid JSON in field {field.name}: {error}") from None
    return jsonvalues.field_value(field, value, "", ignore_unknown=False)


def detect_csv(files: Sequence[bytes], options: Mapping[str, Any]) -> tuple[TableSchema, bool]:
    """Returns the schema that CSV files seem to have, and whether they begin with a header."""
    records = csv_records(files[0], {**options, "skipLeadingRows": 0})[: _DETECT_ROWS + 1]
    if not records:
        raise invalid("Schema has no fields: the files are empty")
    body = records[1:]
    first = [_text_type(cell, numbers=True) for cell in records[0]]
    below = [
        _common({_text_type(r[i], numbers=True) for r in body if i < len(r) and r[i]} or {"STRING"})
        for i in range(len(records[0]))
    ]
    asked = options.get("skipLeadingRows")
    header = (
        bool(int(asked))
        if asked is not None
        else (all(kind == "STRING" for kind in first) and any(kind != "STRING" for kind in below))
    )
    kinds = (
        below
        if header
        else [_common({a, b}) if body else a for a, b in zip(first, below, strict=True)]
    )
    names = (
        [_NAME.sub("_", cell.strip()) or f"string_field_{i}" for i, cell in enumerate(records[0])]
        if header
        else [
            f"{types.field_to_rest(Field(name='x', type=k))['type'].lower()}_field_{i}"
            for i, k in enumerate(kinds)
        ]
    )
    fields = tuple(Field(name=n, type=k) for n, k in zip(names, kinds, strict=True))
    return TableSchema(fields), header
