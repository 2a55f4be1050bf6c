"""Parquet files of load jobs: their schema in BigQuery's types, and their columns."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bqflink_beam.emulator import types, values
from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.load_avro import check_columns, decimal_target
from bqflink_beam.schema.model import Field, TableSchema

_ALSO = {
    "GEOGRAPHY": ("STRING",),
    "TIMESTAMP": ("DATETIME",),
    "DATETIME": ("TIMESTAMP",),
    "NUMERIC": ("BIGNUMERIC",),
    "BIGNUMERIC": ("NUMERIC",),
}


def read_parquet(data: bytes) -> pa.Table:
    """Returns the columns of a Parquet file as Arrow has them.

    Raises:
        Refused: it is none.
    """
    try:
        return pq.read_table(pa.BufferReader(data), use_threads=False)
    except (pa.ArrowInvalid, OSError) as error:
        raise invalid(
            f"Error while reading data, error message: Input file is not in Parquet format: {error}"
        ) from None


def parquet_schema(table: pa.Table, options: Mapping[str, Any]) -> TableSchema:
    """Returns the schema of a Parquet file."""
    return TableSchema(tuple(_field(field, options) for field in table.schema))


def _field(field: pa.Field, options: Mapping[str, Any]) -> Field:
    kind = field.type
    mode = "NULLABLE" if field.nullable else "REQUIRED"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        if not _list_inference(options):
            raise invalid(
                f"Field {field.name} is a list; set parquetOptions.enableListInference "
                "(without it the service makes a RECORD, which this server does not)"
            )
        inner = _field(kind.value_field.with_name(field.name), options)
        if inner.repeated:
            raise invalid(f"Field {field.name} is a list of lists")
        return _replaced(inner, mode="REPEATED")
    if pa.types.is_struct(kind):
        fields = tuple(_field(inner, options) for inner in kind)
        return Field(name=field.name, type="STRUCT", mode=mode, fields=fields)
    return Field(name=field.name, type=_scalar(field, options), mode=mode)


def _list_inference(options: Mapping[str, Any]) -> bool:
    return bool((options.get("parquetOptions") or {}).get("enableListInference"))


def _scalar(field: pa.Field, options: Mapping[str, Any]) -> str:
    kind = field.type
    if pa.types.is_decimal(kind):
        return decimal_target(kind.precision, kind.scale, options)
    if pa.types.is_timestamp(kind):
        return "DATETIME" if kind.tz is None else "TIMESTAMP"
    for test, name in (
        (pa.types.is_boolean, "BOOL"),
        (pa.types.is_integer, "INT64"),
        (pa.types.is_floating, "FLOAT64"),
        (pa.types.is_string, "STRING"),
        (pa.types.is_large_string, "STRING"),
        (pa.types.is_binary, "BYTES"),
        (pa.types.is_large_binary, "BYTES"),
        (pa.types.is_fixed_size_binary, "BYTES"),
        (pa.types.is_date, "DATE"),
        (pa.types.is_time, "TIME"),
        (pa.types.is_null, "STRING"),
    ):
        if test(kind):
            return name
    if pa.types.is_dictionary(kind):
        return _scalar(pa.field(field.name, kind.value_type), options)
    raise invalid(f"Unsupported Parquet type {kind} of field {field.name}")


def _replaced(field: Field, **changes: Any) -> Field:
    return dataclasses.replace(field, **changes)


def parquet_batches(
    table: pa.Table, schema: TableSchema, options: Mapping[str, Any]
) -> list[pa.RecordBatch]:
    """Returns a file's rows with the columns of a schema: by name, NULL or [] where it has none.

    Raises:
        Refused: its types are not those of the columns, or a value would change.
    """
    check_columns(parquet_schema(table, options), schema, _ALSO, "Parquet")
    have = {name.lower(): index for index, name in enumerate(table.schema.names)}
    target = types.arrow_schema(schema)
    columns = []
    for model, field in zip(schema, target, strict=True):
        index = have.get(field.name.lower())
        if index is None:
            columns.append(_nothing(field, table.num_rows))
            continue
        try:
            columns.append(_cast(table.column(index), model, field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise invalid(
                f"Error while reading data, error message: field {field.name}: {error}"
            ) from None
    batches: list[pa.RecordBatch] = pa.table(columns, schema=target).to_batches()
    return batches


def _nothing(field: pa.Field, count: int) -> pa.Array:
    if pa.types.is_list(field.type):
        return pa.array([[]] * count, field.type)
    return pa.nulls(count, field.type)


def _cast(column: pa.ChunkedArray, field: Field, kind: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_list(kind) or pa.types.is_struct(kind):
        # Through Python: fields are found by name, and NULL lists become empty ones.
        rows = values.with_lists(field, column.to_pylist())
        return pa.chunked_array([pa.array(rows, kind)])
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(kind)
    return column.cast(kind)
