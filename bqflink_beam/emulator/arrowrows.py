"""Rows that arrive as Arrow: bare IPC messages, fitted to the columns of a table."""

import pyarrow as pa

from bqflink_beam.emulator import types
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.schema.model import TableSchema


def read_schema(data: bytes) -> pa.Schema:
    """Reads the IPC schema message of a writer.

    Raises:
        Refused: INVALID_ARGUMENT.
    """
    try:
        return pa.ipc.read_schema(pa.py_buffer(data))
    except (pa.ArrowException, OSError, EOFError) as error:
        raise Refused(f"Cannot parse the Arrow schema: {error}") from error


def decode(
    writer: pa.Schema, data: bytes, schema: TableSchema
) -> tuple[pa.RecordBatch, frozenset[str]]:
    """Reads an IPC record batch message into the columns of a table.

    Returns:
        The batch, and the names of columns that the writer's schema has not.

    Raises:
        Refused: INVALID_ARGUMENT: it cannot be parsed, has columns that the table has not
            (SCHEMA_MISMATCH_EXTRA_FIELDS), or types that do not go with the table's.
    """
    extra = [
        field.name
        for field in writer
        if field.name.lower() not in {column.name.lower() for column in schema}
    ]
    if extra:
        raise Refused(
            f"Input schema has more fields than BigQuery schema, extra fields: '{','.join(extra)}'",
            storage_error="SCHEMA_MISMATCH_EXTRA_FIELDS",
        )
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(data), writer)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise Refused(f"Cannot parse the Arrow record batch: {error}") from error
    target = types.arrow_schema(schema)
    positions = {name.lower(): at for at, name in enumerate(writer.names)}
    arrays = []
    for field in target:
        at = positions.get(field.name.lower())
        if at is None:
            arrays.append(types.nothing(field.type, batch.num_rows))
        else:
            arrays.append(_fit(batch.column(at), field.type, field.name))
    missing = frozenset(name for name in target.names if name.lower() not in positions)
    return pa.RecordBatch.from_arrays(arrays, schema=target), missing


def _fit(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    if array.type.equals(kind):
        return array
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        return _fit_struct(array, kind, path)
    if pa.types.is_list(kind) and (
        pa.types.is_list(array.type) or pa.types.is_large_list(array.type)
    ):
        values = _fit(array.flatten(), kind.value_type, path)
        lengths = pa.compute.fill_null(pa.compute.list_value_length(array), 0).to_pylist()
        ends = [0]
        for length in lengths:
            ends.append(ends[-1] + length)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=kind)
    if not _goes(array.type, kind):
        raise Refused(
            f"The Arrow field mismatched with BigQuery field at {path}, "
            f"the Arrow field type {array.type}, expected {kind}"
        )
    try:
        return array.cast(kind)
    except pa.ArrowInvalid as error:
        raise Refused(f"Invalid value on field {path}: {error}") from error


def _fit_struct(array: pa.Array, kind: pa.DataType, path: str) -> pa.Array:
    have = {field.name.lower(): at for at, field in enumerate(array.type)}
    wanted = {field.name.lower() for field in kind}
    extra = [f"{path}.{field.name}" for field in array.type if field.name.lower() not in wanted]
    if extra:
        raise Refused(
            f"Input schema has more fields than BigQuery schema, extra fields: '{','.join(extra)}'",
            storage_error="SCHEMA_MISMATCH_EXTRA_FIELDS",
        )
    children = [
        _fit(array.field(have[field.name.lower()]), field.type, f"{path}.{field.name}")
        if field.name.lower() in have
        else types.nothing(field.type, len(array))
        for field in kind
    ]
    return pa.StructArray.from_arrays(
        children, fields=list(kind), mask=array.is_null() if array.null_count else None
    )


def _goes(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the service reads one Arrow type as another without changing a value."""
    kinds = pa.types
    if kinds.is_timestamp(wanted):
        # The service takes microseconds whatever the unit says; others are refused here.
        same_zone = (
            (given.tz is None) == (wanted.tz is None) if kinds.is_timestamp(given) else False
        )
        return same_zone and given.unit == "us"
    for is_wanted, goes in _PAIRS:
        if is_wanted(wanted):
            return any(is_given(given) for is_given in goes)
    return bool(kinds.is_null(given))


_PAIRS = (
    (pa.types.is_int64, (pa.types.is_signed_integer,)),
    (pa.types.is_float64, (pa.types.is_floating,)),
    (pa.types.is_string, (pa.types.is_large_string, pa.types.is_string_view)),
    (
        pa.types.is_binary,
        (pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view),
    ),
    (pa.types.is_decimal, (pa.types.is_decimal,)),
    (pa.types.is_date32, (pa.types.is_int32, pa.types.is_string)),
)
