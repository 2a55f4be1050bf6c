"""Rows that arrive as Arrow: bare IPC messages, fitted to the columns of a table."""

import bisect
import itertools
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.emulator import types
from bqflink_beam.emulator.checks import Faulty
from bqflink_beam.emulator.literals import days_from_text, interval_from_text
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.schema.model import TableSchema

Report = Callable[[int, str], None]

_PARSERS: dict[pa.DataType, Callable[[str], Any]] = {
    pa.date32(): days_from_text,
    pa.month_day_nano_interval(): interval_from_text,
}
_STORAGE = {pa.date32(): pa.int32()}
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)


def read_schema(data: bytes) -> pa.Schema:
    """Reads the IPC schema message of a writer.

    Raises:
        Refused: INVALID_ARGUMENT.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise Refused(f"Cannot parse the Arrow schema: {error}") from error


def decode(
    writer: pa.Schema, data: bytes, schema: TableSchema, faulty: Faulty
) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Reads an IPC record batch message into the columns of a table.

    Args:
        faulty: takes a message for each row with a value that its column cannot hold; what
            the batch has in such a row means nothing.

    Returns:
        The batch, and the names of columns that the writer's schema has not.

    Raises:
        Refused: INVALID_ARGUMENT: it cannot be parsed, has columns that the table has not
            (SCHEMA_MISMATCH_EXTRA_FIELDS), or types that do not go with the table's.
    """
    if not len(writer):
        raise Refused("Invalid Arrow schema: it has no fields")
    target = types.arrow_schema(schema)
    positions = _positions(writer, target, "")
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), writer)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise Refused(f"Cannot parse the Arrow record batch: {error}") from error
    arrays = []
    for field in target:
        at = positions.get(field.name.lower())
        if at is None:
            arrays.append(types.nothing(field.type, batch.num_rows))
        else:
            arrays.append(_fit(batch.column(at), field.type, field.name, faulty.add))
    missing = frozenset(name for name in target.names if name.lower() not in positions)
    return pa.RecordBatch.from_arrays(arrays, schema=target), missing


def _positions(given: Iterable[pa.Field], wanted: Iterable[pa.Field], path: str) -> dict[str, int]:
    """Returns where the writer has each column, by its name in lower case.

    Raises:
        Refused: it has a column twice, one that the table has not, or a name that is no text.
    """
    known = {field.name.lower() for field in wanted}
    extra, found = [], {}
    for at, field in enumerate(given):
        try:
            name = field.name
        except UnicodeDecodeError as error:
            raise Refused(f"Cannot parse the Arrow schema: {error}") from error
        if name.lower() not in known:
            extra.append(path + name)
        elif name.lower() in found:
            raise Refused(f"Two Arrow fields are for the same BigQuery field {path}{name}")
        found[name.lower()] = at
    if extra:
        raise Refused(
            f"Input schema has more fields than BigQuery schema, extra fields: '{','.join(extra)}'",
            storage_error="SCHEMA_MISMATCH_EXTRA_FIELDS",
        )
    return found


def _fit(array: pa.Array, kind: pa.DataType, path: str, report: Report) -> pa.Array:
    """Returns a column in the table's type; `report` takes the positions of values at fault."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _fit_struct(array, kind, path, report)
    if pa.types.is_list(kind) and (
        pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    ):
        return _fit_list(array, kind, path, report)
    if array.type.equals(kind):
        return array
    if not _goes(array.type, kind):
        raise Refused(
            f"The Arrow field mismatched with BigQuery field at {path}, "
            f"the Arrow field type {array.type}, expected {kind}"
        )
    parse = _PARSERS.get(kind) if _is_text(array.type) else None
    if parse is not None:
        values = [
            _parsed(parse, text, at, path, report) for at, text in enumerate(array.to_pylist())
        ]
        return pa.array(values, _STORAGE.get(kind, kind)).view(kind)
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        return pa.concat_arrays(
            [_cast_one(array.slice(at, 1), kind, at, path, report) for at in range(len(array))]
        )


def _parsed(parse: Any, text: str | None, at: int, path: str, report: Report) -> Any:
    try:
        return None if text is None else parse(text)
    except ValueError as error:
        report(at, f"Invalid value: {error} on field {path}.")
        return None


def _cast_one(one: pa.Array, kind: pa.DataType, at: int, path: str, report: Report) -> pa.Array:
    try:
        return one.cast(kind)
    except pa.ArrowInvalid as error:
        report(at, f"Invalid value: {error} on field {path}.")
        return pa.nulls(1, kind)


def _fit_struct(array: pa.Array, kind: pa.DataType, path: str, report: Report) -> pa.Array:
    have = _positions(array.type, kind, f"{path}.")
    children = [
        _fit(array.field(have[field.name.lower()]), field.type, f"{path}.{field.name}", report)
        if field.name.lower() in have
        else types.nothing(field.type, len(array))
        for field in kind
    ]
    return pa.StructArray.from_arrays(
        children, fields=list(kind), mask=array.is_null() if array.null_count else None
    )


def _fit_list(array: pa.Array, kind: pa.DataType, path: str, report: Report) -> pa.Array:
    # A list that is NULL holds nothing, and is stored as an empty one.
    lengths = pc.fill_null(pc.list_value_length(array), 0)
    ends = [0, *itertools.accumulate(lengths.to_pylist())]
    values = _fit(
        array.flatten(),
        kind.value_type,
        path,
        lambda at, message: report(bisect.bisect_right(ends, at) - 1, message),
    )
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=kind)


def _is_text(kind: pa.DataType) -> bool:
    return any(is_text(kind) for is_text in _TEXTS)


def _goes(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the service reads one Arrow type as another without changing a value."""
    kinds = pa.types
    if kinds.is_timestamp(wanted):
        # The service takes microseconds whatever the unit says; others are refused here.
        same_zone = (
            (given.tz is None) == (wanted.tz is None) if kinds.is_timestamp(given) else False
        )
        return same_zone and given.unit == "us"
    if kinds.is_decimal(wanted):
        # Arrow ends the process when it is asked to cast from a scale beyond its powers of ten.
        return bool(kinds.is_decimal(given) and 0 <= given.scale <= given.precision)
    for is_wanted, goes in _PAIRS:
        if is_wanted(wanted):
            return any(is_given(given) for is_given in goes)
    return False


_PAIRS = (
    (pa.types.is_int64, (pa.types.is_signed_integer,)),
    (pa.types.is_float64, (pa.types.is_floating,)),
    (pa.types.is_string, _TEXTS),
    (
        pa.types.is_binary,
        (pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    ),
    (pa.types.is_date32, (pa.types.is_int32, *_TEXTS)),
    (pa.types.is_interval, _TEXTS),
)
