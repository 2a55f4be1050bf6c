"""`Projection`: the selected fields of a read session, nested ones too, in the table's order."""

import dataclasses
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from bqflink_beam.emulator import types
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.schema.model import Field, TableSchema

PICOS, NANOS, MICROS = "picos", "nanos", "micros"


class Projection:
    """Turns stored chunks into what a session serves.

    Args:
        selected: dotted paths, any case; empty for all columns.
        timestamps: how TIMESTAMP(12) is served: as microseconds or nanoseconds (cut off),
            or as text with all its digits.

    Raises:
        Refused: INVALID_ARGUMENT, a path names no column.
    """

    def __init__(
        self, schema: TableSchema, selected: Sequence[str] = (), *, timestamps: str = MICROS
    ) -> None:
        fields = _select(schema.fields, selected)
        self.schema = TableSchema(fields)
        self.timestamps = timestamps
        stored = types.arrow_schema(schema)
        self._positions = [stored.get_field_index(field.name) for field in fields]
        self.arrow_schema = pa.schema([self._served(field) for field in fields])
        self._as_stored = [
            self.arrow_schema.field(at).type.equals(stored.field(position).type)
            for at, position in enumerate(self._positions)
        ]

    def apply(self, chunk: pa.RecordBatch) -> pa.RecordBatch:
        """Returns the selected columns of a stored chunk; shares its buffers where it can."""
        columns = []
        for at, position in enumerate(self._positions):
            column = chunk.column(position)
            if not self._as_stored[at]:
                column = self._project(column, self.arrow_schema.field(at).type)
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self.arrow_schema)

    def _served(self, field: Field) -> pa.Field:
        return _served(field, types.arrow_field(field), self.timestamps)

    def _project(self, array: pa.Array, kind: pa.DataType) -> pa.Array:
        if array.type.equals(kind):
            return array
        if pa.types.is_struct(kind):
            have = {field.name: at for at, field in enumerate(array.type)}
            children = [self._project(array.field(have[field.name]), field.type) for field in kind]
            return pa.StructArray.from_arrays(
                children, fields=list(kind), mask=array.is_null() if array.null_count else None
            )
        if pa.types.is_list(kind):
            return pa.ListArray.from_arrays(
                pc.subtract(array.offsets, array.offsets[0]),
                self._project(array.flatten(), kind.value_type),
                type=kind,
            )
        if pa.types.is_decimal(kind):
            return array.cast(kind)
        return _cut_picos(array, kind)


def _select(fields: Sequence[Field], selected: Sequence[str]) -> tuple[Field, ...]:
    if not selected:
        return tuple(fields)
    wanted: dict[str, list[str] | None] = {}
    unknown = []
    names = {field.name.lower(): field for field in fields}
    for path in selected:
        head, _, rest = path.lower().partition(".")
        field = names.get(head)
        if field is None or (rest and field.type != "STRUCT"):
            unknown.append(path)
        elif not rest:
            wanted[head] = None
        elif wanted.get(head, []) is not None:
            wanted.setdefault(head, []).append(path.partition(".")[2])  # type: ignore[union-attr]
    if unknown:
        raise Refused(
            "request failed: The following selected fields do not exist in the table schema: "
            + ", ".join(unknown)
        )
    chosen = []
    for field in fields:
        if field.name.lower() in wanted:
            inner = wanted[field.name.lower()]
            chosen.append(
                field
                if inner is None
                else dataclasses.replace(field, fields=_select(field.fields, inner))
            )
    return tuple(chosen)


def _served(field: Field, stored: pa.Field, timestamps: str) -> pa.Field:
    """Returns a column as it is served, where that differs from how it is stored."""
    if field.type == "STRUCT":
        kind = pa.struct(
            [_served(inner, types.arrow_field(inner), timestamps) for inner in field.fields]
        )
    elif types.is_picos(field) and timestamps != PICOS:
        kind = pa.timestamp("ns" if timestamps == NANOS else "us", tz="UTC")
    elif field.precision is not None and field.type in ("NUMERIC", "BIGNUMERIC"):
        decimal = pa.decimal128 if field.type == "NUMERIC" else pa.decimal256
        kind = decimal(field.precision, field.scale or 0)
    else:
        return stored
    return stored.with_type(
        pa.list_(stored.type.value_field.with_type(kind)) if field.repeated else kind
    )


def _cut_picos(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    # "2020-01-31T12:34:56.123456789012Z": the digits beyond the unit are cut off.
    digits = 9 if kind.unit == "ns" else 6
    shorter = pc.utf8_slice_codeunits(texts, 0, len("2020-01-31T12:34:56.") + digits)
    return shorter.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
