"""Pages of REST rows, made column by column: several times faster than row by row.

What a value looks like is `values.rest_value`'s to say; only types whose text Arrow
writes in the same way take the short way.
"""

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.emulator import types, values
from bqflink_beam.schema.model import Field, TableSchema


def rest_rows(
    schema: TableSchema, chunks: Iterable[pa.RecordBatch], *, int64_timestamps: bool = False
) -> list[dict[str, Any]]:
    """Returns the same as `values.rest_rows`."""
    rows: list[dict[str, Any]] = []
    for chunk in chunks:
        columns = [_cells(field, chunk.column(field.name), int64_timestamps) for field in schema]
        rows += [{"f": list(cells)} for cells in zip(*columns, strict=True)]
    return rows


def _cells(field: Field, array: pa.Array, int64_timestamps: bool) -> list[dict[str, Any]]:
    texts = _texts(field, array, int64_timestamps)
    if texts is not None:
        return [{"v": text} for text in texts]
    return [
        {"v": values.rest_value(field, value, int64_timestamps=int64_timestamps)}
        for value in array.to_pylist()
    ]


def _texts(field: Field, array: pa.Array, int64_timestamps: bool) -> list[str | None] | None:
    if field.repeated or types.is_picos(field):
        return None
    if field.type == "TIMESTAMP":
        return _number_texts(array.cast(pa.int64())) if int64_timestamps else None
    writer = _WRITERS.get(field.type)
    return writer(array) if writer is not None else None


def _number_texts(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = array.cast(pa.string()).to_pylist()
    return texts


def _as_they_are(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = array.to_pylist()
    return texts


def _booleans(array: pa.Array) -> list[str | None]:
    texts: list[str | None] = pc.if_else(array, "true", "false").to_pylist()
    return texts


_WRITERS: dict[str, Callable[[pa.Array], list[str | None]]] = {
    "INT64": _number_texts,
    "STRING": _as_they_are,
    "JSON": _as_they_are,
    "GEOGRAPHY": _as_they_are,
    "BOOL": _booleans,
}
