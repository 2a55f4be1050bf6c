"""Rows as keys of a Counter, however they were read."""

import decimal
import json

import pyarrow as pa

from bqflink_beam.codec.values import Interval, Range


def row_key(fields, row):
    """A row by types and values; equal for NaNs, for JSON of one meaning, for equal decimals."""
    return tuple((field.name, _cell(field, row[field.name])) for field in fields)


def _cell(field, value):
    if isinstance(value, list):
        return tuple(_cell(field, each) for each in value)
    if isinstance(value, Range):
        value = {"start": value.start, "end": value.end}
    if isinstance(value, dict) and field.type == "RANGE":
        return tuple((end, str(value[end])) for end in ("start", "end"))
    if isinstance(value, dict):
        return row_key(field.fields, value)
    if isinstance(value, pa.MonthDayNano):
        value = Interval(value.months, value.days, value.nanoseconds // 1_000)
    if field.type == "JSON" and value is not None:
        return json.dumps(json.loads(value), sort_keys=True)
    if isinstance(value, decimal.Decimal):
        return value  # equal whatever the zeros at its end
    return type(value).__name__, str(value)
