"""Row filters: Python expressions that become SQL, quoted and parenthesised.

    bq.col("address.city") == "Zürich"
    (bq.col("id") > 10) & ~bq.col("kind").isin(["a", "b"])

The logic is SQL's: where a column is NULL, a comparison is neither true nor false and
the row is left out, also under ``~``; `is_null` asks for it. ``== None`` is `is_null`.
"""

import datetime
import decimal
import enum
import re
import uuid
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from bqflink_beam.codec import temporals, values
from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.errors import ConfigError, RowError, shorten
from bqflink_beam.schema.model import Field

PARTITION_TIME = "_PARTITIONTIME"
_NULL_PARTITION, _UNPARTITIONED = "__NULL__", "__UNPARTITIONED__"
# How long the id of a partition is, for each unit of time.
_ID_FORMATS = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H"}
_INTEGER_ID = re.compile(r"-?\d{1,19}", re.ASCII)


class Predicate:
    """A condition on a row. Combine with ``&``, ``|`` and ``~``; `str` gives the SQL.

    `Predicate(text)` takes a condition in SQL as it is, to be combined with others.
    """

    __slots__ = ("sql",)

    def __init__(self, sql: str) -> None:
        if not isinstance(sql, str) or not sql.strip():
            raise ConfigError(f"a filter needs a condition in SQL, got {sql!r}")
        # A comment at the end of a user's text must not swallow the parenthesis.
        end = "\n)" if "--" in sql or "#" in sql else ")"
        self.sql = f"({sql}{end}"

    def __str__(self) -> str:
        return self.sql

    def __repr__(self) -> str:
        return f"Predicate({self.sql})"

    def __and__(self, other: "Predicate") -> "Predicate":
        return Predicate(f"{self.sql} AND {_predicate(other).sql}")

    def __or__(self, other: "Predicate") -> "Predicate":
        return Predicate(f"{self.sql} OR {_predicate(other).sql}")

    def __invert__(self) -> "Predicate":
        return Predicate(f"NOT {self.sql}")

    def __bool__(self) -> bool:
        raise ConfigError(
            "a filter is no bool: write & | ~ instead of and, or, not, "
            "and between() instead of a < b < c"
        )


class Column:
    """A column, or a field of a STRUCT; made by `col`."""

    __slots__ = ("path", "sql")

    def __init__(self, path: str) -> None:
        parts = path.split(".") if isinstance(path, str) else []
        if not parts or not all(parts):
            raise ConfigError(f"a column is a name, or names with dots between, got {path!r}")
        self.path = path
        self.sql = ".".join(map(_quoted_name, parts))

    def __repr__(self) -> str:
        return f"col({self.path!r})"

    def __eq__(self, other: object) -> Predicate:  # type: ignore[override]
        return self.is_null() if other is None else self._compare("=", other)

    def __ne__(self, other: object) -> Predicate:  # type: ignore[override]
        return self.is_not_null() if other is None else self._compare("!=", other)

    def __lt__(self, other: object) -> Predicate:
        return self._compare("<", other)

    def __le__(self, other: object) -> Predicate:
        return self._compare("<=", other)

    def __gt__(self, other: object) -> Predicate:
        return self._compare(">", other)

    def __ge__(self, other: object) -> Predicate:
        return self._compare(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise ConfigError("a column is no bool; compare it, or write col(name) == True")

    def is_null(self) -> Predicate:
        """The column has no value."""
        return Predicate(f"{self.sql} IS NULL")

    def is_not_null(self) -> Predicate:
        """The column has a value."""
        return Predicate(f"{self.sql} IS NOT NULL")

    def isin(self, choices: Iterable[Any]) -> Predicate:
        """The column has one of these values; None among them means NULL. No choice: no row."""
        one = (
            isinstance(choices, (str, bytes, bytearray, memoryview))
            or getattr(choices, "ndim", 1) != 1
        )
        if one or not isinstance(choices, Iterable):
            raise ConfigError(f"isin needs a list of values, got {shorten(choices)}")
        found = list(choices)
        named = [literal(choice) for choice in found if choice is not None]
        chosen = Predicate(f"{self.sql} IN ({', '.join(named)})") if named else None
        if len(named) == len(found):
            return Predicate("FALSE") if chosen is None else chosen
        return self.is_null() if chosen is None else chosen | self.is_null()

    def between(self, low: Any, high: Any) -> Predicate:
        """The column lies between two values, both included."""
        return Predicate(f"{self.sql} BETWEEN {literal(low)} AND {literal(high)}")

    def startswith(self, prefix: str | bytes) -> Predicate:
        """The text (or the bytes) begins so; no character of it is a wildcard."""
        if isinstance(prefix, bytes):
            # Bytes are ordered one by one, so those that begin so lie side by side.
            after = _next_prefix(prefix)
            return self >= prefix if after is None else (self >= prefix) & (self < after)
        if not isinstance(prefix, str):
            raise ConfigError(f"startswith needs text or bytes, got {shorten(prefix)}")
        # LIKE, for the service prunes clustered tables by it.
        pattern = re.sub(r"([\\%_])", r"\\\1", prefix) + "%"
        return Predicate(f"{self.sql} LIKE {literal(pattern)}")

    def _compare(self, operator: str, other: object) -> Predicate:
        if other is None:
            raise ConfigError("NULL is not before or after anything; use is_null()")
        return Predicate(f"{self.sql} {operator} {literal(other)}")


def _next_prefix(prefix: bytes) -> bytes | None:
    """Returns the first bytes after all that begin with `prefix`; None if there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def col(path: str) -> Column:
    """Returns a column to build a filter with; dots lead into STRUCTs: ``col("address.city")``."""
    return Column(path)


def literal(value: Any) -> str:
    """Returns a value as a SQL literal of its type; a `Column` as its name.

    Raises:
        ConfigError: there is no literal for the value.
    """
    if isinstance(value, Column):
        return value.sql
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64):
        value = value.item()
    for kind, write in _LITERALS:
        if isinstance(value, kind):
            try:
                return write(value)
            except RowError as error:
                raise ConfigError(f"{shorten(value)} {error.message}") from error
    raise ConfigError(f"no SQL literal is known for {shorten(value)} ({type(value).__name__})")


def partitions(
    ids: Iterable[str],
    *,
    column: str = PARTITION_TIME,
    type: str = "TIMESTAMP",
    range_interval: int | None = None,
) -> Predicate:
    """Returns the condition that a row lies in one of some partitions.

    Args:
        ids: partition ids as the service lists them: 2023, 202306, 20230628, 2023062822,
            the start of an integer range, ``__NULL__``, or ``__UNPARTITIONED__``.
        column: the partitioning column; tables partitioned by ingestion time have the
            default.
        type: its type: DATE, DATETIME, TIMESTAMP or INT64.
        range_interval: the width of an integer range, for INT64.

    Raises:
        ConfigError: an id that is none, or rows that no condition can pick: those still
            in the write buffer of a table partitioned by a column.
    """
    found = [_partition(id, col(column), type.upper(), range_interval) for id in ids]
    if not found:
        return Predicate("FALSE")
    # Side by side, not one within the other: a table may have thousands of partitions.
    return found[0] if len(found) == 1 else Predicate(" OR ".join(each.sql for each in found))


def _partition(id: str, column: Column, kind: str, range_interval: int | None) -> Predicate:
    if id == _NULL_PARTITION:
        return column.is_null()
    if id == _UNPARTITIONED:
        if column.path != PARTITION_TIME:
            raise ConfigError(
                "rows that are not in a partition yet cannot be picked by their column",
                column=column.path,
            )
        return column.is_null()
    if kind == "INT64":
        if range_interval is None or range_interval < 1 or not _INTEGER_ID.fullmatch(id):
            raise ConfigError(
                f"an integer range needs its start and an interval of 1 or more, got {id!r} "
                f"and {range_interval!r}",
                column=column.path,
            )
        return (column >= int(id)) & (column < int(id) + range_interval)
    start, stop = _bounds(id, column, kind)
    return column >= start if stop is None else (column >= start) & (column < stop)


def _bounds(id: str, column: Column, kind: str) -> tuple[datetime.date, datetime.date | None]:
    """Returns the first moment of a partition and of the next, None after the last year."""
    length = len(id)
    if length not in _ID_FORMATS or not id.isascii() or not id.isdigit():
        raise ConfigError(f"{id!r} is no id of a partition by time", column=column.path)
    if kind not in ("DATE", "DATETIME", "TIMESTAMP") or (kind == "DATE" and length == 10):
        raise ConfigError(f"no partition of a {kind} column is called {id!r}", column=column.path)
    try:
        start = datetime.datetime.strptime(id, _ID_FORMATS[length]).replace(tzinfo=temporals.UTC)
    except ValueError as error:
        raise ConfigError(f"{id!r} is no id of a partition by time", column=column.path) from error
    stop = _next(start, length)
    return _of_kind(start, kind), stop and _of_kind(stop, kind)


def _next(start: datetime.datetime, length: int) -> datetime.datetime | None:
    try:
        if length == 4:
            return start.replace(year=start.year + 1)
        if length == 6:
            return (start + datetime.timedelta(days=31)).replace(day=1)
        return start + datetime.timedelta(days=1 if length == 8 else 0, hours=length == 10)
    except (ValueError, OverflowError):
        return None


def _of_kind(moment: datetime.datetime, kind: str) -> datetime.date:
    if kind == "DATE":
        return moment.date()
    return moment.replace(tzinfo=None) if kind == "DATETIME" else moment


# --- quoting ---------------------------------------------------------------------------


def _predicate(other: object) -> Predicate:
    if not isinstance(other, Predicate):
        raise ConfigError(
            f"& and | join filters, got {shorten(other)}; comparisons need parentheses round them"
        )
    return other


def _quoted_name(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def _string(text: str) -> str:
    values.string(text)
    return "'" + "".join(map(_escaped, text)) + "'"


def _escaped(character: str) -> str:
    if character in "\\'":
        return "\\" + character
    # Line ends and other controls end or disturb a literal; U+2028 ends a line for some.
    if character < " " or "\x7f" <= character <= "\x9f" or character in "\u2028\u2029":
        return f"\\u{ord(character):04x}"
    return character


def _bytes(data: bytes) -> str:
    return "B'" + "".join(f"\\x{byte:02x}" for byte in data) + "'"


def _integer(number: int) -> str:
    if values.INT64_MIN <= number <= values.INT64_MAX:
        return str(number)
    return _decimal(decimal.Decimal(number))


def _float(number: float) -> str:
    text = repr(number)
    return text if text[-1].isdigit() else f"CAST('{text}' AS FLOAT64)"


def _decimal(number: decimal.Decimal) -> str:
    for kind in ("NUMERIC", "BIGNUMERIC"):
        try:
            values.converter(Field(name="x", type=kind))(number)
        except RowError:
            continue
        return f"{kind} '{number:f}'"
    raise ConfigError(f"{shorten(number)} is beyond BIGNUMERIC")


def _moment(moment: Any) -> str:
    """Writes a `datetime`, pandas' Timestamp or a `datetime64`, which has no zone."""
    if getattr(moment, "tzinfo", None) is None:
        text = temporals.to_civil(temporals.civil(moment)).isoformat(timespec="microseconds")
        return f"DATETIME '{text}'"
    text = temporals.to_civil(temporals.instant(moment)).isoformat(timespec="microseconds")
    return f"TIMESTAMP '{text}Z'"


def _time(time: datetime.time) -> str:
    temporals.time(time)
    return f"TIME '{time.isoformat(timespec='microseconds')}'"


def _interval(interval: Interval) -> str:
    return f"INTERVAL '{values.interval(interval)}' YEAR TO SECOND"


def _range(range_: Range) -> str:
    bounds = [bound for bound in (range_.start, range_.end) if bound is not None]
    if not bounds:
        raise ConfigError("a RANGE open at both ends says nothing of its type; write it in SQL")
    kind = literal(bounds[0]).partition(" ")[0]
    if kind not in ("DATE", "DATETIME", "TIMESTAMP"):
        raise ConfigError(f"a RANGE has bounds that are dates or times, got {shorten(range_)}")
    values.converter(Field(name="x", type="RANGE", range_element_type=kind))(range_)
    texts = [
        "UNBOUNDED" if bound is None else literal(bound).partition("'")[2][:-1]
        for bound in (range_.start, range_.end)
    ]
    return f"RANGE<{kind}> '[{texts[0]}, {texts[1]})'"


_LITERALS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (enum.Enum, lambda value: literal(value.value)),
    (bool, lambda value: "TRUE" if value else "FALSE"),
    (int, _integer),
    (float, _float),
    (decimal.Decimal, _decimal),
    (str, _string),
    (bytes, _bytes),
    (uuid.UUID, lambda value: _string(str(value))),
    (datetime.datetime, _moment),
    (datetime.date, lambda value: f"DATE '{value.isoformat()}'"),
    (datetime.time, _time),
    (np.datetime64, _moment),
    (Interval, _interval),
    (Range, _range),
)
