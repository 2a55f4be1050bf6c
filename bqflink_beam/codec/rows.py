"""What every codec holds of a row: its keys, its NULLs, its arrays.

Codecs encode in one go and do not keep track of where they are. When something will
not go in, `explain` walks the row once more, in the order of the schema, and raises
the one `RowError` that says where and why; so all codecs refuse the same rows in the
same words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bqflink_beam.codec import values
from bqflink_beam.codec.temporals import refusal
from bqflink_beam.errors import RowError, shorten
from bqflink_beam.schema.model import Field

FAILURES = (RowError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""What a conversion raises for a value: ours, and what Python itself says of an odd one."""


class _Absent:
    """What stands for a key that a row has not, where that is not the same as None."""


ABSENT = _Absent()


def never_null(field: Field) -> bool:
    """Says whether a column may be missing from a row, for it has a default, but not be None."""
    return field.required and field.default_value_expression is not None


class Names:
    """The column names of a table or a STRUCT, against which keys are matched without case."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._columns = {field.name.lower(): field.name for field in fields}
        self._exact = frozenset(self._columns.values())
        self._empty = {field.name: ABSENT if never_null(field) else None for field in fields}

    def match(self, row: Mapping[str, Any], *, path: str = "") -> Mapping[str, Any]:
        """Returns the row keyed as the columns are written: itself, or a new dict.

        Raises:
            RowError: a key that is no column, or two keys for one column.
        """
        if not isinstance(row, Mapping):
            raise refusal(row, "is no mapping of names to values")
        if type(row) is not dict:
            # Once: what else is called a mapping may have its own ideas of a key's value.
            row = {**row}
        if self._exact >= row.keys():
            return row
        found: dict[str, Any] = {}
        for key, value in row.items():
            name = self._columns.get(key.lower()) if isinstance(key, str) else None
            if name is None:
                column = f"{path}.{key}" if path else str(key)
                raise RowError(
                    f"the table has no column {column}; add it to the table or drop it from the row",
                    column=column,
                    value=shorten(value),
                )
            if name in found:
                column = f"{path}.{name}" if path else name
                raise RowError(f"two keys of the row name the column {column}", column=column)
            found[name] = value
        return found

    def complete(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a new dict with every column: None, or `ABSENT`, where the row has none."""
        return {**self._empty, **self.match(row)}


def items(value: Any) -> Sequence[Any]:
    """Returns the items of a REPEATED value: a list, a tuple, or numpy's one-dimensional array.

    Text and bytes are sequences too, and would be taken apart; sets have no order;
    an iterator would be used up, and the input must not change.
    """
    if isinstance(value, (str, bytes, bytearray, memoryview)):
        raise refusal(value, "is one value, not a list")
    if isinstance(value, np.ndarray) and value.ndim == 1:
        return list(value)
    if not isinstance(value, Sequence):
        raise refusal(value, "is not a list")
    return value


def explain(
    fields: Sequence[Field], row: Any, rounding: str | None = None, *, path: str = ""
) -> None:
    """Raises the `RowError` of the first value that a row may not hold; returns if all may.

    Args:
        fields: the columns.
        row: the row, or a STRUCT's value.
        rounding: as `values.converter` has it.
        path: where the row stands, for nested ones.
    """
    if not isinstance(row, Mapping):
        kind = "STRUCT" if path else "a row"
        raise _at(path or "row", kind, row, refusal(row, "is no mapping of names to values"))
    found = Names(fields).match(row, path=path)
    for field in fields:
        column = f"{path}.{field.name}" if path else field.name
        value = found.get(field.name)
        if field.repeated:
            _explain_items(field, value, rounding, column)
        elif value is None:
            if field.required and not (never_null(field) and field.name not in found):
                raise RowError(f"{column} is REQUIRED and has no value", column=column)
        else:
            _explain_value(field, value, rounding, column)


def explain_in_batch(
    fields: Sequence[Field], index: int, row: Any, rounding: str | None = None
) -> None:
    """Explains one row of many, and says which."""
    try:
        explain(fields, row, rounding)
    except RowError as error:
        message = f"row {index} of the batch: {error.message}"
        raise RowError(message, column=error.column, value=error.value) from None


def _explain_items(field: Field, value: Any, rounding: str | None, column: str) -> None:
    if value is None:
        return
    try:
        found = items(value)
    except RowError as error:
        raise _at(column, f"ARRAY<{field.type}>", value, error) from None
    for index, item in enumerate(found):
        place = f"{column}[{index}]"
        if item is None:
            raise RowError(
                f"{place} is NULL, which an ARRAY cannot hold; leave it out", column=place
            )
        _explain_value(field, item, rounding, place)


def _explain_value(field: Field, value: Any, rounding: str | None, column: str) -> None:
    if field.type == "STRUCT":
        explain(field.fields, value, rounding, path=column)
        return
    try:
        values.converter(field, rounding)(value)
    except RowError as error:
        raise _at(column, field.type, value, error) from None
    except FAILURES as error:
        # A value that only pretends to be of a type that the column takes.
        reason = refusal(value, f"cannot be read: {error}")
        raise _at(column, field.type, value, reason) from error


def _at(column: str, kind: str, value: Any, error: RowError) -> RowError:
    text, given = shorten(value), type(value).__name__
    return RowError(
        f"{column}: {kind} cannot hold {text} ({given}), which {error.message}",
        column=column,
        value=text,
    )
