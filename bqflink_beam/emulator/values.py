"""Rows as Python values and as the cells of REST.

Python values: int, float, bool, str, bytes, Decimal, date, time, naive datetime
(DATETIME), aware datetime in UTC (TIMESTAMP), text for GEOGRAPHY, JSON and TIMESTAMP(12),
`pa.MonthDayNano` for INTERVAL, a dict with start and end for RANGE, dict for STRUCT,
list for REPEATED.
"""

import base64
import datetime
import decimal
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator import types
from bqflink_beam.schema.model import Field, TableSchema

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)
_WIDE = decimal.Context(prec=100)
_EXPONENT_MAX = 50


def python_rows(chunks: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Returns stored rows as dicts of Python values."""
    return [row for chunk in chunks for row in chunk.to_pylist()]


def batch_from_rows(schema: TableSchema, rows: Sequence[Mapping[str, Any]]) -> pa.RecordBatch:
    """Makes a chunk from rows of Python values; names match exactly, absent is NULL or [].

    Does not check against modes and limits: see `checks.check_batch`.
    """
    columns = []
    for field in schema:
        values = with_lists(field, [row.get(field.name) for row in rows])
        columns.append(_array(field, values, types.arrow_type(field)))
    return pa.RecordBatch.from_arrays(columns, schema=types.arrow_schema(schema))


def with_lists(field: Field, values: list[Any]) -> list[Any]:
    """Returns values of a field whose missing lists are empty ones, at any depth of a STRUCT."""
    complete = _completer(field)
    return values if complete is None else [complete(value) for value in values]


def _completer(field: Field) -> Callable[[Any], Any] | None:
    """Returns what completes a value; None if there can be no list in it."""
    inner = {each.name: complete for each in field.fields if (complete := _completer(each))}
    if not inner:
        return _list_of if field.repeated else None

    def struct(value: Any) -> Any:
        if value is None:
            return None
        return {**value, **{name: complete(value.get(name)) for name, complete in inner.items()}}

    return (lambda items: [struct(item) for item in items or ()]) if field.repeated else struct


def _list_of(items: Any) -> Any:
    return [] if items is None else items


def column_of(field: Field, values: list[Any]) -> pa.Array:
    """Makes a column of Python values.

    Raises:
        ValueError, OverflowError: a value is not of the column's type.
    """
    return _array(field, values, types.arrow_type(field))


def _array(field: Field, values: list[Any], kind: pa.DataType) -> pa.Array:
    if not _has_wide_decimals(field):
        return pa.array(values, kind)
    if field.repeated:
        lists = [items or () for items in values]
        ends = [0, *itertools.accumulate(map(len, lists))]
        flat = _elements(field, list(itertools.chain.from_iterable(lists)), kind.value_type)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat, type=kind)
    return _elements(field, values, kind)


def _elements(field: Field, values: list[Any], kind: pa.DataType) -> pa.Array:
    if field.type == "BIGNUMERIC":
        return wide_decimals(
            [None if value is None else unscaled(value, 38) for value in values], 38
        )
    nothing: dict[str, Any] = {}
    structs = [nothing if value is None else value for value in values]
    children = [
        _array(inner, [struct.get(inner.name) for struct in structs], part.type)
        for inner, part in zip(field.fields, kind, strict=True)
    ]
    nulls = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=nulls)


def _has_wide_decimals(field: Field) -> bool:
    return field.type == "BIGNUMERIC" or any(map(_has_wide_decimals, field.fields))


def unscaled(value: decimal.Decimal | int | str, scale: int) -> int:
    """Returns a decimal's digits as an integer at a scale.

    Raises:
        ValueError: the value is no number, has more fractional digits than that, or more
            digits than any type of BigQuery.
    """
    number = decimal.Decimal(value)
    if not number.is_finite():
        raise ValueError(f"{value!r} is no number")
    if not number:
        return 0
    # Before `int`, which takes hours for the digits of 1e400000000.
    if number.adjusted() > _EXPONENT_MAX:
        raise ValueError(f"{_short(value)} is out of range")
    if number.adjusted() >= -scale:
        shifted = _WIDE.scaleb(number, scale)
        whole = int(shifted)
        if whole == shifted:
            return whole
    raise ValueError(f"{_short(value)} has more than {scale} fractional digits")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def wide_decimals(unscaled_values: Sequence[int | None], scale: int) -> pa.Array:
    """Makes a decimal256 array from unscaled integers.

    Arrow's own constructor stops at 76 digits, and BIGNUMERIC has part of a 77th.
    """
    return decimals_from_bytes(
        [
            None if value is None else value.to_bytes(32, "little", signed=True)
            for value in unscaled_values
        ],
        pa.decimal256(76, scale),
    )


def decimals_from_bytes(values: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Makes a decimal array from little-endian two's complement values of its full width."""
    zero = bytes(kind.byte_width)
    data = b"".join([zero if value is None else value for value in values])
    valid = None
    if None in values:
        valid = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(data)])


# --- REST cells ------------------------------------------------------------------------


def rest_rows(
    schema: TableSchema, chunks: Iterable[pa.RecordBatch], *, int64_timestamps: bool = False
) -> list[dict[str, Any]]:
    """Returns rows as REST has them: ``{"f": [{"v": ...}, ...]}``.

    Args:
        int64_timestamps: TIMESTAMP as microseconds instead of floating seconds
            (``formatOptions.useInt64Timestamp``).
    """
    return [
        {
            "f": [
                {"v": rest_value(field, row[field.name], int64_timestamps=int64_timestamps)}
                for field in schema
            ]
        }
        for row in python_rows(chunks)
    ]


def rest_value(field: Field, value: Any, *, int64_timestamps: bool = False) -> Any:
    """Returns a Python value of a field as the ``v`` of a REST cell."""
    if field.repeated:
        return [
            {"v": _rest_element(field, item, int64_timestamps)}
            for item in (value if value is not None else ())
        ]
    return _rest_element(field, value, int64_timestamps)


def _rest_element(field: Field, value: Any, int64_timestamps: bool) -> Any:
    if value is None:
        return None
    if field.type == "STRUCT":
        return {
            "f": [
                {"v": rest_value(inner, value[inner.name], int64_timestamps=int64_timestamps)}
                for inner in field.fields
            ]
        }
    if field.type == "RANGE":
        bounds = [
            "UNBOUNDED"
            if value[bound] is None
            else _rest_scalar(field.range_element_type or "DATE", value[bound], int64_timestamps)
            for bound in ("start", "end")
        ]
        return f"[{bounds[0]}, {bounds[1]})"
    return _rest_scalar(field.type, value, int64_timestamps)


def _rest_scalar(kind: str, value: Any, int64_timestamps: bool) -> str:
    if kind == "TIMESTAMP" and not isinstance(value, str):
        micros = timestamp_micros(value)
        return str(micros) if int64_timestamps else _float_seconds(micros)
    return _REST_TEXT.get(kind, str)(value)


def timestamp_micros(value: datetime.datetime) -> int:
    """Returns microseconds since the epoch, exactly."""
    return (value - _EPOCH) // _MICROSECOND


def micros_text(micros: int) -> str:
    """Returns microseconds since the epoch as ``2020-01-31T12:34:56.789000Z``."""
    moment = _EPOCH + datetime.timedelta(microseconds=micros)
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _float_seconds(micros: int) -> str:
    # "1.408452095E9": the service's rendering when nothing else is asked for.
    if micros == 0:
        return "0.0"
    sign, digits, _ = decimal.Decimal(micros).as_tuple()
    text = "".join(map(str, digits))
    exponent = len(text) - 7
    mantissa = f"{text[0]}.{text[1:].rstrip('0') or '0'}"
    return f"{'-' if sign else ''}{mantissa}E{exponent}"


def decimal_text(value: decimal.Decimal) -> str:
    """Returns a NUMERIC or BIGNUMERIC as text: no exponent, no trailing zeros."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def float_text(value: float) -> str:
    """Returns a FLOAT64 as text, the specials in the service's words."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def interval_text(value: Any) -> str:
    """Returns an INTERVAL (months, days, nanoseconds) in canonical form, ``Y-M D H:M:S[.F]``."""
    months, days, nanos = value
    micros = abs(nanos) // 1000
    hours, rest = divmod(micros, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    years, month = divmod(abs(months), 12)
    clock = f"{'-' if nanos < 0 else ''}{hours}:{minutes}:{seconds}"
    if fraction:
        clock += f".{fraction:06d}"
    return f"{'-' if months < 0 else ''}{years}-{month} {days} {clock}"


_REST_TEXT: dict[str, Callable[[Any], str]] = {
    "BOOL": lambda value: "true" if value else "false",
    "BYTES": lambda value: base64.b64encode(value).decode(),
    "FLOAT64": float_text,
    "NUMERIC": decimal_text,
    "BIGNUMERIC": decimal_text,
    "DATE": datetime.date.isoformat,
    "TIME": datetime.time.isoformat,
    "DATETIME": datetime.datetime.isoformat,
    "INTERVAL": interval_text,
}
