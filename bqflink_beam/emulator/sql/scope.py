"""What a compiled query is made of: expressions, the names they may use, and the plan."""

import dataclasses
import datetime
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import pyarrow as pa

from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.sql.kinds import (
    DATE,
    INT64,
    Kind,
    duckdb_type,
    kind_of_field,
)
from bqflink_beam.emulator.types import PARTITION_TIME
from bqflink_beam.schema.model import TableSchema

PARTITION_DATE = "_PARTITIONDATE"
TABLE_SUFFIX = "_TABLE_SUFFIX"
PSEUDO_COLUMNS = frozenset({PARTITION_TIME, PARTITION_DATE, TABLE_SUFFIX})
"""Columns that a star leaves out."""


JSON_FIELD = "bq_json_field"
"""The function behind ``json.field``, which every engine knows: names are found without a plan."""


class NotLiteral:
    """Marks an expression that is no plain literal."""


NOT_LITERAL = NotLiteral()


@dataclasses.dataclass(frozen=True)
class Scalar:
    """One compiled expression.

    `literal` is the value where the expression is a plain literal: such ones coerce to
    more types than others. `guards` are conditions under which the unguarded `raw`
    value is a float overflow; float arithmetic piles them up, everybody else reads `sql`.
    `parts` are the fields of a STRUCT that the query writes out here: each still coerces
    as what it is.
    """

    raw: str
    kind: Kind
    literal: object = NOT_LITERAL
    guards: tuple[str, ...] = ()
    parts: "tuple[Scalar, ...]" = ()

    @property
    def sql(self) -> str:
        if not self.guards:
            return self.raw
        return (
            f"(CASE WHEN {' OR '.join(self.guards)} "
            f"THEN CAST(error('double overflow') AS DOUBLE) ELSE {self.raw} END)"
        )

    @property
    def is_literal(self) -> bool:
        return self.literal is not NOT_LITERAL

    @property
    def is_null(self) -> bool:
        return self.literal is None


@dataclasses.dataclass(frozen=True)
class Column:
    """One column of a source: its name as the user sees it, and how it is read."""

    name: str
    scalar: Callable[[], Scalar]


@dataclasses.dataclass(frozen=True)
class Source:
    """One item of a FROM clause. `whole` is the row as one value, where there is such a thing."""

    alias: str
    columns: tuple[Column, ...]
    whole: Callable[[], Scalar] | None = None


@dataclasses.dataclass
class Scope:
    """The names an expression may use; `parent` are those of the query around it.

    `grouped` maps the text of GROUP BY expressions to what they are called after grouping.
    """

    sources: list[Source] = dataclasses.field(default_factory=list)
    parent: "Scope | None" = None
    merged: dict[str, Scalar] = dataclasses.field(default_factory=dict)
    hidden: frozenset[tuple[str, str]] = frozenset()

    def resolve(self, path: Sequence[str]) -> Scalar:
        """Returns what a dotted name stands for.

        Raises:
            InvalidQuery: nothing, or two things.
        """
        found = self._find(path)
        if found is None:
            if self.parent is not None:
                return self.parent.resolve(path)
            raise InvalidQuery(f"Unrecognized name: {'.'.join(path)}")
        return found

    def _find(self, path: Sequence[str]) -> Scalar | None:
        first = path[0].lower()
        if first in self.merged:
            return dig(self.merged[first], path[1:])
        columns = [
            (source, column)
            for source in self.sources
            for column in source.columns
            if column.name.lower() == first
        ]
        sources = [source for source in self.sources if source.alias.lower() == first]
        if sources and sources[0].whole is None:
            # A table is no value here, and a plain column has no parts: one reading is left.
            if len(path) > 1 and any(c.scalar().kind.name == "STRUCT" for _, c in columns):
                raise InvalidQuery(f"Name {path[0]} is ambiguous: a column and a table")
            sources, columns = (sources, []) if len(path) > 1 or not columns else ([], columns)
        if len(columns) > 1 or len(sources) > 1:
            raise InvalidQuery(f"Column name {path[0]} is ambiguous")
        if sources and (source := sources[0]):
            if len(path) == 1:
                if source.whole is None:
                    raise unsupported(f"A table as a value ({path[0]})")
                return source.whole()
            for column in source.columns:
                if column.name.lower() == path[1].lower():
                    return dig(column.scalar(), path[2:])
            if source.whole is not None:
                return dig(source.whole(), path[1:])
            raise InvalidQuery(f"Name {path[1]} not found inside {path[0]}")
        if columns:
            return dig(columns[0][1].scalar(), path[1:])
        return None


def dig(value: Scalar, path: Sequence[str]) -> Scalar:
    """Returns a field of a STRUCT or of a JSON value, as deep as the path goes."""
    for name in path:
        if value.kind.name == "JSON":
            value = Scalar(f"{JSON_FIELD}({value.sql}, {quote_text(name)})", value.kind)
            continue
        if value.kind.name != "STRUCT":
            raise InvalidQuery(f"Cannot access field {name} on a value with type {value.kind}")
        matches = [
            (inner, kind) for inner, kind in value.kind.fields if inner.lower() == name.lower()
        ]
        if len(matches) != 1:
            problem = "is ambiguous" if matches else "does not exist"
            raise InvalidQuery(f"Field name {name} {problem} in {value.kind}")
        inner, kind = matches[0]
        value = Scalar(f"struct_extract({value.sql}, {quote_text(inner)})", kind)
    return value


def quote_text(text: str) -> str:
    """Returns a text as a DuckDB literal."""
    if "\0" in text:
        pieces = ["'" + piece.replace("'", "''") + "'" for piece in text.split("\0")]
        return "(" + " || chr(0) || ".join(pieces) + ")"
    return "'" + text.replace("'", "''") + "'"


# --- inputs ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TableInput:
    """A table that a query reads. `read` is called when the query runs.

    `filter_column` is the partition column that every query must filter, if there is one.
    """

    schema: TableSchema
    read: Callable[[], pa.Table]
    name: str = ""
    filter_column: str | None = None


@dataclasses.dataclass(frozen=True)
class ViewInput:
    """A view that a query reads: another query."""

    text: str
    name: str = ""


class Catalog(Protocol):
    """Where a query's tables come from."""

    def table(self, path: tuple[str, ...], at_s: float | None) -> TableInput | ViewInput:
        """Returns a table by the parts of its name, as of `at_s`.

        Raises:
            Refused: there is none.
        """


@dataclasses.dataclass
class _Used:
    table: TableInput
    columns: dict[int, Kind] = dataclasses.field(default_factory=dict)


class Plan:
    """What one query collects while it is compiled: inputs, functions, parameters."""

    def __init__(
        self,
        catalog: Catalog,
        *,
        now: datetime.datetime,
        named: Mapping[str, Scalar] | None = None,
        positional: Sequence[Scalar] = (),
    ) -> None:
        self.catalog = catalog
        self.now = now
        self.named = {name.lower(): value for name, value in (named or {}).items()}
        self.positional = list(positional)
        self.positional_used = 0
        self.functions: set[str] = set()
        self.tries = False  # whether failures may become NULL; refusals must not
        self.inputs: dict[str, _Used] = {}
        self.moment_s: Callable[[Scalar], float] = _no_moment
        self._numbers = itertools.count()

    def name(self, prefix: str) -> str:
        """Returns an identifier that is used nowhere else in this query."""
        return f"{prefix}{next(self._numbers)}"

    def call(self, function: str, *arguments: str, safe: bool = False) -> str:
        """Returns a call of one of `exact.FUNCTIONS`."""
        name = f"bqs_{function}" if safe else f"bq_{function}"
        self.functions.add(name)
        return f"{name}({', '.join(arguments)})"

    def source(self, table: TableInput, alias: str) -> tuple[str, Source]:
        """Returns the FROM text and the names of a table; its columns are read when used."""
        name = self.name("t")
        used = _Used(table)
        self.inputs[name] = used

        def reader(position: int) -> Callable[[], Scalar]:
            def read() -> Scalar:
                kind = kind_of_field(table.schema.fields[position])
                used.columns[position] = kind
                return Scalar(f"{name}.c{position}", kind)

            return read

        columns = [
            Column(field.name, reader(position)) for position, field in enumerate(table.schema)
        ]
        if columns and columns[-1].name == PARTITION_TIME:
            day = columns[-1].scalar
            columns.append(Column(PARTITION_DATE, lambda: _as_date(day())))
        return name, Source(alias, tuple(columns))

    def parameter(self, name: str | None) -> Scalar:
        """Returns the value of ``@name``, or of the next ``?``."""
        if name is not None:
            if name.lower() not in self.named:
                raise InvalidQuery(f"Query parameter '{name}' not found")
            return self.named[name.lower()]
        if self.positional_used >= len(self.positional):
            raise InvalidQuery("Query has more positional parameters than were given")
        self.positional_used += 1
        return self.positional[self.positional_used - 1]


def _as_date(moment: Scalar) -> Scalar:
    return Scalar(f"CAST({moment.sql} AS DATE)", DATE)


def _no_moment(moment: Scalar) -> float:
    raise unsupported("FOR SYSTEM_TIME AS OF")


def typed_null(kind: Kind) -> Scalar:
    """Returns NULL of a type."""
    return Scalar(f"CAST(NULL AS {duckdb_type(kind)})", kind)


def bare_null() -> Scalar:
    """Returns the literal NULL, which has no type of its own."""
    return dataclasses.replace(typed_null(INT64), literal=None)


__all__ = [
    "Catalog", "Column", "NOT_LITERAL", "Plan", "Scalar", "Scope", "Source", "TableInput",
    "ViewInput", "bare_null", "dig", "quote_text", "typed_null",
]  # fmt: skip
