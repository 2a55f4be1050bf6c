"""The straight-line function that turns a row into the arguments of a message.

A loop over columns costs more than protobuf itself, so the function is written out
for the schema, as `dataclasses` does it: one lookup and one type check a column, and
a call only for a value that needs more. What it does for two columns::

    def encode(row):
        if type(row) is not dict or len(row) != 2:
            row = complete(row)
        try:
            v0 = row['id']
            v1 = row['day']
        except KeyError:
            return encode(complete(row))
        if type(v0) is not int and v0 is not None:
            v0 = c0(v0)
        if type(v1) is date:
            v1 = v1.toordinal() - 719163
        elif v1 is not None:
            v1 = c1(v1)
        return finish(make(id=v0, day=v1))

Any error means that the row is refused; `rows.explain` says why.
"""

import datetime
import decimal
import keyword
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from bqflink_beam.codec import rows, temporals
from bqflink_beam.errors import RowError
from bqflink_beam.schema.model import Field


class Column(NamedTuple):
    """How one field is encoded; made by `codec.proto`, read by `compile_encoder`.

    `exact` is the Python type protobuf itself checks in full, if any, but for `length_max`,
    the column's own limit. `convert` takes any other value (for REPEATED: the whole list).
    `text_max` is the length up to which any plain decimal text fits, for NUMERIC.
    """

    field: Field
    name: str
    exact: type | None
    convert: Callable[[Any], Any]
    length_max: int | None = None
    text_max: int = 0


def compile_encoder(
    columns: Sequence[Column],
    make: Callable[..., Any],
    finish: Callable[[Any], Any] | None = None,
) -> Callable[[Mapping[str, Any]], Any]:
    """Returns the function of a row that calls `make` with one argument for each column.

    What `make` returns goes through `finish`, if given, and is the function's result.
    """
    complete = rows.Names([column.field for column in columns]).complete
    names: dict[str, Any] = {
        "make": make,
        "finish": finish,
        "complete": complete,
        "date": datetime.date,
        "datetime": datetime.datetime,
        "Decimal": decimal.Decimal,
        "UTC": temporals.UTC,
        "EPOCH": temporals.EPOCH,
        "ABSENT": rows.ABSENT,
        "RowError": RowError,
    }
    lines = [
        "def encode(row):",
        f" if type(row) is not dict or len(row) != {len(columns)}:",
        "  row = complete(row)",
        " try:",
        *(f"  v{index} = row[{column.field.name!r}]" for index, column in enumerate(columns)),
        " except KeyError:",
        "  return encode(complete(row))",
    ]
    for index, column in enumerate(columns):
        names[f"c{index}"] = column.convert
        if column.exact is not None:
            names[f"t{index}"] = column.exact
        lines += [f" {line}" for line in _check(column, f"v{index}", f"c{index}", f"t{index}")]
    values = {column.name: f"v{index}" for index, column in enumerate(columns)}
    # A display is faster than a call of `dict`, and keywords are than a display.
    made = _display(values) if make is dict else f"make({_call(values)})"
    lines.append(f" return {made}" if finish is None else f" return finish({made})")
    # The text holds nothing of the schema but reprs of names.
    exec("\n".join(lines), names)
    encode: Callable[[Mapping[str, Any]], Any] = names["encode"]
    return encode


def _check(column: Column, value: str, convert: str, exact: str) -> list[str]:
    field = column.field
    inner = _check_value(column, value, convert, exact)
    if not field.required:
        return inner
    null = [f"if {value} is None: raise RowError('NULL in a REQUIRED column')"]
    if not rows.never_null(field):
        return null + inner
    return [
        *null,
        f"if {value} is ABSENT: {value} = None",
        "else:",
        *(f" {line}" for line in inner),
    ]


def _check_value(column: Column, value: str, convert: str, exact: str) -> list[str]:
    otherwise = [f"elif {value} is not None: {value} = {convert}({value})"]
    if column.field.repeated and column.exact:
        return [
            f"if type({value}) is list:",
            f" for item in {value}:",
            f"  if {_unfit(column, 'item', exact)}:",
            f"   {value} = {convert}({value})",
            "   break",
            *otherwise,
        ]
    if column.field.repeated:
        return [f"if {value} is not None: {value} = {convert}({value})"]
    if column.exact is not None:
        unfit = _unfit(column, value, exact)
        return [f"if {unfit} and {value} is not None: {value} = {convert}({value})"]
    if column.field.type == "DATE":
        return [f"if type({value}) is date: {value} = {value}.toordinal() - 719163", *otherwise]
    if column.text_max:
        return [
            f"if type({value}) is Decimal:",
            f" text = str({value})",
            # Whether exponents are written with E or e is up to the program's own context.
            f" if len(text) <= {column.text_max} and 'E' not in text and 'e' not in text"
            f" and {value}.is_finite():",
            f"  {value} = text",
            f" else: {value} = {convert}({value})",
            *otherwise,
        ]
    if column.field.type == "TIMESTAMP" and column.field.timestamp_precision != 12:
        return [
            f"if type({value}) is datetime and {value}.tzinfo is UTC:",
            f" since = {value} - EPOCH",
            f" {value} = (since.days * 86400 + since.seconds) * 1000000 + since.microseconds",
            *otherwise,
        ]
    if column.field.type == "DATETIME":
        date = f"{value}.year << 26 | {value}.month << 22 | {value}.day << 17"
        clock = f"{value}.hour << 12 | {value}.minute << 6 | {value}.second"
        return [
            f"if type({value}) is datetime and {value}.tzinfo is None:",
            f" {value} = ({date} | {clock}) << 20 | {value}.microsecond",
            *otherwise,
        ]
    return [f"if {value} is not None: {value} = {convert}({value})"]


def _unfit(column: Column, value: str, exact: str) -> str:
    """Returns the condition that a value is not one that protobuf takes as it is."""
    if column.length_max is None:
        return f"type({value}) is not {exact}"
    return f"(type({value}) is not {exact} or len({value}) > {column.length_max})"


def _display(values: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {value}" for name, value in values.items()) + "}"


def _call(values: Mapping[str, str]) -> str:
    reserved = {name: value for name, value in values.items() if keyword.iskeyword(name)}
    plain = [f"{name}={value}" for name, value in values.items() if name not in reserved]
    return ", ".join(plain + ([f"**{_display(reserved)}"] if reserved else []))
