"""What a table refuses: checks of Arrow columns against a schema, column by column.

The sound case is vectorised and cheap; only values that break a rule are looked at
one by one, for their message. Messages are the service's own where one is known
(Google's integration tests quote those for STRING length and TIMESTAMP range).
"""

import dataclasses
import decimal
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.emulator import types, values
from bqflink_beam.emulator.geography import canonical_wkt
from bqflink_beam.schema.model import Field, TableSchema

DATE_DAYS = (-719_162, 2_932_896)
TIMESTAMP_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
TIME_MICROS = (0, 86_399_999_999)
NUMERIC_UNSCALED_MAX = 10**38 - 1
INTERVAL_MONTHS_MAX = 120_000
INTERVAL_DAYS_MAX = 3_660_000
INTERVAL_MICROS_MAX = 316_224_000_000_000_000
_NUMERIC_MAX = decimal.Decimal(NUMERIC_UNSCALED_MAX).scaleb(-9, decimal.Context(prec=50))
_PICOS = r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{12}Z$"


@dataclasses.dataclass
class Faulty:
    """What is wrong with the rows of one batch: the first message for each row index."""

    messages: dict[int, str] = dataclasses.field(default_factory=dict)

    def add(self, row: int, message: str) -> None:
        self.messages.setdefault(int(row), message)


def check_batch(schema: TableSchema, batch: pa.RecordBatch, faulty: Faulty) -> pa.RecordBatch:
    """Checks the columns of `schema` in a batch that has their Arrow types.

    Args:
        faulty: takes the messages of rows that the table refuses.

    Returns:
        The batch, with decimals rounded to the scale of their column.
    """
    columns = list(batch.columns)
    for position, field in enumerate(schema):
        columns[position] = _check(field, columns[position], field.name, None, faulty)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _check(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    """Checks one column; `rows` maps its positions to rows of the batch, None if they are the same."""
    if not field.repeated:
        if field.required and array.null_count:
            _report(
                pc.is_null(array),
                rows,
                faulty,
                lambda _: f"Missing required field on field {path}.",
            )
        return _check_elements(field, array, path, rows, faulty)
    parents = pc.list_parent_indices(array)
    items = array.flatten()
    if items.null_count:
        _report(
            pc.is_null(items),
            _through(rows, parents),
            faulty,
            lambda _: f"Repeated field must not contain null on field {path}.",
        )
    checked = _check_elements(field, items, path, _through(rows, parents), faulty)
    if checked is items:
        return array
    offsets = pc.subtract(array.offsets, array.offsets[0])
    return pa.ListArray.from_arrays(offsets, checked, type=array.type)


def _check_elements(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    if len(array) == array.null_count:
        return array
    if field.type == "STRUCT":
        return _check_struct(field, array, path, rows, faulty)
    check = _CHECKS.get(field.type)
    if types.is_picos(field):
        check = _check_picos
    return check(field, array, path, rows, faulty) if check is not None else array


def _check_struct(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    # A NULL struct has no children to check, so they are taken out before and put back after.
    present = array
    if array.null_count:
        positions = pc.indices_nonzero(pc.is_valid(array))
        present = array.take(positions)
        rows = _through(rows, positions)
    children = []
    for position, inner in enumerate(field.fields):
        child = present.field(position)
        children.append(_check(inner, child, f"{path}.{inner.name}", rows, faulty))
    if all(child is present.field(at) for at, child in enumerate(children)):
        return array
    checked = pa.StructArray.from_arrays(children, fields=list(array.type))
    if not array.null_count:
        return checked
    back = pc.if_else(
        pc.is_valid(array),
        pc.subtract(pc.cumulative_sum(pc.is_valid(array).cast(pa.int64())), 1),
        pa.scalar(None, pa.int64()),
    )
    return checked.take(back)


def _through(rows: pa.Array | None, positions: pa.Array) -> pa.Array:
    return positions if rows is None else rows.take(positions)


def _report(
    bad: pa.Array, rows: pa.Array | None, faulty: Faulty, message: Callable[[int], str]
) -> None:
    for position in pc.indices_nonzero(bad).to_pylist():
        faulty.add(position if rows is None else rows[position].as_py(), message(position))


# --- one check for each type that has limits ------------------------------------------------


def _check_length(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    limit = field.max_length
    if limit is not None:
        measure = pc.utf8_length if field.type == "STRING" else pc.binary_length
        lengths = measure(array)
        if pc.max(lengths).as_py() > limit:
            _report(
                pc.greater(lengths, limit),
                rows,
                faulty,
                lambda at: (
                    f"Field {path}: {field.type}({limit}) has maximum length {limit} but got a "
                    f"value with length {lengths[at].as_py()} on field {path}."
                ),
            )
    return array


def _between(low: int, high: int, kind: pa.DataType, words: str) -> Callable[..., pa.Array]:
    def check(
        field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
    ) -> pa.Array:
        numbers = array.view(kind)
        extremes = pc.min_max(numbers).as_py()
        if extremes["min"] < low or extremes["max"] > high:
            _report(
                pc.or_(pc.less(numbers, low), pc.greater(numbers, high)),
                rows,
                faulty,
                lambda at: (
                    f"{words} field value is out of range: {numbers[at].as_py()} on field {path}."
                ),
            )
        return array

    return check


def _check_decimal(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    if field.precision is None:
        return array
    scale = field.scale or 0
    unscaled_max = 10**field.precision - 1
    full_scale = array.type.scale
    half_even = field.rounding_mode == "ROUND_HALF_EVEN"
    step = 10 ** (full_scale - scale)
    rounded: list[int | None] = []
    changed = False
    for at, value in enumerate(array.to_pylist()):
        if value is None:
            rounded.append(None)
            continue
        digits = values.unscaled(value, full_scale)
        kept = _round(digits, step, half_even)
        changed = changed or kept != digits
        if abs(kept) // step > unscaled_max:
            kind = (
                f"{field.type}({field.precision}, {scale})"
                if scale
                else (f"{field.type}({field.precision})")
            )
            faulty.add(
                at if rows is None else rows[at].as_py(),
                f"Field {path}: {kind} has precision {field.precision} and scale {scale} but got "
                f"a value that is out of range: {values.decimal_text(value)} on field {path}.",
            )
            kept = digits
        rounded.append(kept)
    if not changed:
        return array
    width = array.type.byte_width
    return values.decimals_from_bytes(
        [None if one is None else one.to_bytes(width, "little", signed=True) for one in rounded],
        array.type,
    )


def _round(digits: int, step: int, half_even: bool) -> int:
    whole, rest = divmod(abs(digits), step)
    if rest * 2 > step or (rest * 2 == step and (not half_even or whole % 2)):
        whole += 1
    return whole * step * (-1 if digits < 0 else 1)


def _check_numeric(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    # The 128 bits of a buffer that came from outside hold a little more than 38 digits.
    extremes = pc.min_max(array).as_py()
    if extremes["min"] < -_NUMERIC_MAX or extremes["max"] > _NUMERIC_MAX:
        for at, value in enumerate(array.to_pylist()):
            if value is not None and abs(value) > _NUMERIC_MAX:
                faulty.add(
                    at if rows is None else rows[at].as_py(),
                    f"Numeric field value is out of range: {values.decimal_text(value)} "
                    f"on field {path}.",
                )
        return array
    return _check_decimal(field, array, path, rows, faulty)


def _check_json(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    for at, text in enumerate(array.to_pylist()):
        if text is None:
            continue
        try:
            json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            faulty.add(
                at if rows is None else rows[at].as_py(),
                f"Invalid JSON value: {error} on field {path}.",
            )
    return array


def _check_geography(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    kept: list[str | None] = []
    for at, text in enumerate(array.to_pylist()):
        shape = text
        if text is not None:
            try:
                shape = canonical_wkt(text)
            except ValueError as error:
                faulty.add(
                    at if rows is None else rows[at].as_py(),
                    f"Invalid geography value: {error} on field {path}.",
                )
        kept.append(shape)
    return pa.array(kept, array.type)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _check_interval(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    for at, value in enumerate(array.to_pylist()):
        if value is not None and (
            abs(value.months) > INTERVAL_MONTHS_MAX
            or abs(value.days) > INTERVAL_DAYS_MAX
            or abs(value.nanoseconds) > INTERVAL_MICROS_MAX * 1000
        ):
            faulty.add(
                at if rows is None else rows[at].as_py(),
                f"Interval field value is out of range: {values.interval_text(value)} "
                f"on field {path}.",
            )
    return array


def _check_range(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    start, end = array.field("start"), array.field("end")
    element = Field(name="bound", type=field.range_element_type or "DATE")
    present = pc.is_valid(array)
    for name, bound in (("start", start), ("end", end)):
        _check_elements(element, bound, f"{path}.{name}", rows, faulty)
    bad = pc.fill_null(pc.and_(present, pc.greater_equal(start, end)), False)
    if pc.any(bad).as_py():
        _report(
            bad,
            rows,
            faulty,
            lambda at: (
                f"Range start element must be less than range end element: "
                f"{values.rest_value(field, array[at].as_py(), int64_timestamps=True)} "
                f"on field {path}."
            ),
        )
    return array


def _check_picos(
    field: Field, array: pa.Array, path: str, rows: pa.Array | None, faulty: Faulty
) -> pa.Array:
    matches = pc.match_substring_regex(array, _PICOS)
    if not pc.all(matches).as_py():
        _report(
            pc.fill_null(pc.invert(matches), False),
            rows,
            faulty,
            lambda at: f"Invalid timestamp value: {array[at].as_py()!r} on field {path}.",
        )
    return array


_CHECKS: dict[str, Callable[..., pa.Array]] = {
    "STRING": _check_length,
    "BYTES": _check_length,
    "NUMERIC": _check_numeric,
    "BIGNUMERIC": _check_decimal,
    "DATE": _between(*DATE_DAYS, pa.int32(), "Date"),
    "TIME": _between(*TIME_MICROS, pa.int64(), "Time"),
    "DATETIME": _between(*TIMESTAMP_MICROS, pa.int64(), "Datetime"),
    "TIMESTAMP": _between(*TIMESTAMP_MICROS, pa.int64(), "Timestamp"),
    "JSON": _check_json,
    "GEOGRAPHY": _check_geography,
    "INTERVAL": _check_interval,
    "RANGE": _check_range,
}
