"""Rows of a table as Beam's schema'd rows, and back.

Beam's own types keep a `Decimal` to 28 digits, a `time` to milliseconds, and pickle a
`datetime` without a zone. Columns of such types get logical types of ours, which keep
the value. A TIMESTAMP is Beam's `Timestamp`, which other transforms understand. Text
types (JSON, GEOGRAPHY, 12-digit timestamps) are `str`.

Names that Python cannot hold as attributes are changed, see `RowType.renamed`.
"""

import datetime
import decimal
import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import apache_beam as beam
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.schemas import LogicalType, NoArgumentLogicalType
from apache_beam.utils.timestamp import Timestamp

from bqflink_beam.codec import temporals, values
from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.schema import infer
from bqflink_beam.schema.model import Field, TableSchema

_NOT_IN_A_NAME = re.compile(r"\W", re.ASCII)
# What a row has already, or its constructor.
_TAKEN = {"as_dict", "count", "index", "self"}


class Numeric(decimal.Decimal):
    """The type of NUMERIC and BIGNUMERIC fields; their values are plain `Decimal`s."""


class Time(datetime.time):
    """The type of TIME fields; their values are plain `time`s."""


class DateTime(datetime.datetime):
    """The type of DATETIME fields; their values are plain `datetime`s without a zone."""


class DateRange(Range):
    """The type of RANGE<DATE> fields; their values are plain `Range`s."""


class DateTimeRange(Range):
    """The type of RANGE<DATETIME> fields; their values are plain `Range`s."""


class TimestampRange(Range):
    """The type of RANGE<TIMESTAMP> fields; their values are plain `Range`s."""


_HINTS: dict[str, Any] = {
    "STRING": str,
    "BYTES": bytes,
    "INT64": int,
    "FLOAT64": float,
    "BOOL": bool,
    "NUMERIC": Numeric,
    "BIGNUMERIC": Numeric,
    "DATE": datetime.date,
    "TIME": Time,
    "DATETIME": DateTime,
    "TIMESTAMP": Timestamp,
    "JSON": str,
    "GEOGRAPHY": str,
    "INTERVAL": Interval,
}
_RANGE_HINTS = {"DATE": DateRange, "DATETIME": DateTimeRange, "TIMESTAMP": TimestampRange}
_KINDS: dict[Any, dict[str, Any]] = {
    Numeric: {"type": "BIGNUMERIC"},
    decimal.Decimal: {"type": "NUMERIC"},
    Time: {"type": "TIME"},
    DateTime: {"type": "DATETIME"},
    Timestamp: {"type": "TIMESTAMP"},
    Interval: {"type": "INTERVAL"},
    **{
        hint: {"type": "RANGE", "range_element_type": element}
        for element, hint in _RANGE_HINTS.items()
    },
}


class RowType:
    """The Beam type of a table's rows.

    `constraint` is the element type to set on a PCollection. `renamed` maps the columns
    that Python has no attribute for to the names their fields have instead.
    """

    def __init__(self, schema: TableSchema) -> None:
        self._struct = _Struct(schema.fields)
        self.constraint = self._struct.constraint
        self.renamed = {
            field.name: name for field, name in self._struct.names if field.name != name
        }

    def to_row(self, row: Mapping[str, Any]) -> beam.Row:
        """Returns a row as the read gives it as a `beam.Row`."""
        return self._struct.to_row(row)

    def from_row(self, row: Any) -> dict[str, Any]:
        """Returns a `beam.Row`, or what Beam decodes one to, as a dict by column."""
        return self._struct.from_row(row)


def mapping_of(row: Any) -> Any:
    """Returns rows as dicts, however deep they lie: `beam.Row`s and NamedTuples become dicts.

    A dict that holds none is returned as it is, not copied.
    """
    if isinstance(row, beam.Row):
        return {name: mapping_of(value) for name, value in row.as_dict().items()}
    if isinstance(row, tuple) and hasattr(row, "_fields"):
        return {name: mapping_of(value) for name, value in zip(row._fields, row, strict=True)}
    if isinstance(row, Mapping):
        inner = {name: mapping_of(value) for name, value in row.items()}
        return row if all(inner[name] is value for name, value in row.items()) else inner
    if isinstance(row, (list, tuple)):
        items = [mapping_of(item) for item in row]
        return row if all(map(_is, items, row)) else items
    return row


def schema_of(element_type: Any) -> TableSchema:
    """Returns the table that could hold rows of a Beam element type.

    Args:
        element_type: a `RowTypeConstraint`, a NamedTuple, a dataclass.

    Raises:
        ConfigError: the type has no fields, or one of them is no column's.
    """
    constraint = element_type
    if not isinstance(constraint, RowTypeConstraint):
        return infer.from_class(element_type)
    return TableSchema(tuple(_field_of(name, hint) for name, hint in constraint._fields))


def _is(left: Any, right: Any) -> bool:
    return left is right


# --- rows ------------------------------------------------------------------------------


class _Struct:
    """The fields of a table or a STRUCT, with what turns their values."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self.names = list(
            zip(fields, attribute_names([field.name for field in fields]), strict=True)
        )
        plans = [(name, *_plan(field)) for field, name in self.names]
        self.constraint = RowTypeConstraint.from_fields(
            [(name, hint) for name, hint, _, _ in plans]
        )
        self._there = [
            (field.name, name, there)
            for (field, _), (name, _, there, _) in zip(self.names, plans, strict=True)
        ]
        self._back = [
            (field.name, name, back)
            for (field, _), (name, _, _, back) in zip(self.names, plans, strict=True)
        ]

    def to_row(self, row: Mapping[str, Any]) -> beam.Row:
        return beam.Row(
            **{
                name: value if (value := row.get(column)) is None or there is None else there(value)
                for column, name, there in self._there
            }
        )

    def from_row(self, row: Any) -> dict[str, Any]:
        return {
            column: value if (value := getattr(row, name)) is None or back is None else back(value)
            for column, name, back in self._back
        }


_Turn = Callable[[Any], Any] | None


def _plan(field: Field) -> tuple[Any, _Turn, _Turn]:
    """Returns the type of a field, and what turns its values there and back."""
    hint, there, back = _value_plan(field)
    if field.repeated:
        hints: Any = Sequence
        return hints[hint], _each(there), _each(back, always=True)
    # Not `hint | None`, which a RowTypeConstraint does not know.
    return hint if field.required else Optional[hint], there, back  # noqa: UP045


def _value_plan(field: Field) -> tuple[Any, _Turn, _Turn]:
    if field.type == "STRUCT":
        struct = _Struct(field.fields)
        return struct.constraint, struct.to_row, struct.from_row
    if field.type == "RANGE":
        return _RANGE_HINTS[field.range_element_type or ""], None, None
    if field.type == "TIMESTAMP":
        if field.timestamp_precision == 12:
            return str, None, None
        return Timestamp, _to_timestamp, _from_timestamp
    return _HINTS[field.type], None, None


def _each(turn: _Turn, *, always: bool = False) -> _Turn:
    if turn is None:
        return list if always else None
    return lambda items: [turn(item) for item in items]


def _to_timestamp(moment: Any) -> Timestamp:
    return Timestamp(micros=temporals.instant(moment))


def _from_timestamp(moment: Timestamp) -> datetime.datetime:
    return temporals.to_instant(moment.micros)


def attribute_names(columns: Sequence[str]) -> list[str]:
    """Returns a name Python can hold for each column; most keep theirs."""
    taken = {column for column in columns if _is_attribute(column)}
    names = []
    for column in columns:
        name = column
        if not _is_attribute(column):
            name = _NOT_IN_A_NAME.sub("_", column).strip("_") or "field"
            if not _is_attribute(name):
                name = f"field_{name}"
            while name in taken:
                name += "_"
            taken.add(name)
        names.append(name)
    return names


def _is_attribute(name: str) -> bool:
    return (
        name.isidentifier()
        and name.isascii()
        and not name.startswith("_")
        and not keyword.iskeyword(name)
        and name not in _TAKEN
    )


def _field_of(name: str, hint: Any) -> Field:
    inner, mode = hint, "REQUIRED"
    if getattr(inner, "inner_type", None) is not None:
        inner, mode = inner.inner_type, "REPEATED"
    arguments = [kind for kind in getattr(inner, "__args__", ()) if kind is not type(None)]
    if mode == "REQUIRED" and len(arguments) == 1:
        optional = len(arguments) < len(inner.__args__)
        inner, mode = arguments[0], "NULLABLE" if optional else "REPEATED"
    if isinstance(inner, RowTypeConstraint):
        fields = tuple(_field_of(each, kind) for each, kind in inner._fields)
        return Field(name=name, type="STRUCT", mode=mode, fields=fields)
    if inner in _KINDS:
        return Field(name=name, mode=mode, **_KINDS[inner])
    return Field(name=name, type=infer.type_of(inner, name), mode=mode)


# --- logical types ---------------------------------------------------------------------


def _register(
    hint: type, urn: str, text: Callable[[Any], Any], parse: Callable[[Any], Any], kept: type
) -> None:
    """Registers a logical type for a type hint: what is kept of a value, and the way back."""

    class Kept(NoArgumentLogicalType):
        @classmethod
        def urn(cls):
            return f"bqflink_beam:logical_type:{urn}:v1"

        @classmethod
        def language_type(cls):
            return hint

        @classmethod
        def representation_type(cls):
            return kept

        def to_representation_type(self, value):
            return text(value)

        def to_language_type(self, value):
            return parse(value)

    Kept.__name__ = Kept.__qualname__ = f"{hint.__name__}LogicalType"
    LogicalType.register_logical_type(Kept)


def _range_text(element: str) -> Callable[[Range], str]:
    read = values.converter(Field(name="x", type="RANGE", range_element_type=element))

    def text(value: Range) -> str:
        return "|".join("" if bound is None else str(bound) for bound in read(value))

    return text


def _range_parse(element: str) -> Callable[[str], Range]:
    def parse(text: str) -> Range:
        start, _, end = text.partition("|")
        return values.to_range(element, int(start) if start else None, int(end) if end else None)

    return parse


_register(Numeric, "numeric", str, decimal.Decimal, str)
_register(Time, "time", temporals.time, temporals.to_time, int)
_register(DateTime, "datetime", temporals.civil, temporals.to_civil, int)
_register(Interval, "interval", str, values.interval, str)
for _element, _hint in _RANGE_HINTS.items():
    _register(
        _hint, f"range_{_element.lower()}", _range_text(_element), _range_parse(_element), str
    )
