"""`TableSchema` and `Field`: the one model that every other form of a schema is made from."""

import dataclasses
from collections.abc import Iterator

from bqflink_beam.errors import ConfigError, shorten

TYPES = frozenset(
    {
        "STRING", "BYTES", "INT64", "FLOAT64", "BOOL", "NUMERIC", "BIGNUMERIC",
        "DATE", "TIME", "DATETIME", "TIMESTAMP", "JSON", "GEOGRAPHY", "INTERVAL",
        "RANGE", "STRUCT",
    }
)  # fmt: skip
"""Standard SQL names. REST answers and legacy schemas use others: see `canonical_type`."""

MODES = frozenset({"NULLABLE", "REQUIRED", "REPEATED"})

_LEGACY = {
    "INTEGER": "INT64",
    "FLOAT": "FLOAT64",
    "BOOLEAN": "BOOL",
    "RECORD": "STRUCT",
    "DECIMAL": "NUMERIC",
    "BIGDECIMAL": "BIGNUMERIC",
    "INT": "INT64",
    "SMALLINT": "INT64",
    "BIGINT": "INT64",
    "TINYINT": "INT64",
    "BYTEINT": "INT64",
}
NESTING_MAX = 15
_COLUMNS_MAX = 10_000


def canonical_type(name: str) -> str:
    """Returns the Standard SQL name of a type, whatever alias or case it is written in.

    Raises:
        ConfigError: there is no such type.
    """
    upper = name.upper()
    upper = _LEGACY.get(upper, upper)
    if upper not in TYPES:
        raise ConfigError(
            f"no BigQuery type is called {name!r}; types are {', '.join(sorted(TYPES))}"
        )
    return upper


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
    """One column, or one field of a STRUCT.

    Names compare without case in BigQuery; `name` keeps the case of the table.
    An ARRAY<T> is a field of type T with mode REPEATED.
    """

    name: str
    type: str
    mode: str = "NULLABLE"
    fields: tuple["Field", ...] = ()
    max_length: int | None = None
    precision: int | None = None
    scale: int | None = None
    rounding_mode: str | None = None
    range_element_type: str | None = None
    timestamp_precision: int | None = None
    default_value_expression: str | None = None
    description: str | None = None
    policy_tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", canonical_type(self.type))
        object.__setattr__(self, "mode", (self.mode or "NULLABLE").upper())
        object.__setattr__(self, "fields", tuple(self.fields))
        _check_name(self.name)
        if self.mode not in MODES:
            raise ConfigError(
                f"mode must be one of {sorted(MODES)}, got {self.mode!r}", column=self.name
            )
        if (self.type == "STRUCT") != bool(self.fields):
            raise ConfigError("a STRUCT has fields, and nothing else has", column=self.name)
        if self.type == "RANGE" and self.range_element_type not in (
            "DATE",
            "DATETIME",
            "TIMESTAMP",
        ):
            raise ConfigError(
                f"RANGE needs an element type DATE, DATETIME or TIMESTAMP, got {self.range_element_type!r}",
                column=self.name,
            )
        _check_unique(self.fields, self.name)

    @property
    def repeated(self) -> bool:
        return self.mode == "REPEATED"

    @property
    def required(self) -> bool:
        return self.mode == "REQUIRED"


@dataclasses.dataclass(frozen=True)
class TableSchema:
    """The columns of a table, in order. Made from a service answer, JSON or by hand."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        if len(self.fields) > _COLUMNS_MAX:
            raise ConfigError(f"a table has at most {_COLUMNS_MAX} columns, got {len(self.fields)}")
        _check_unique(self.fields, None)
        for field in self.fields:
            if _depth(field) > NESTING_MAX:
                raise ConfigError(f"STRUCTs nest at most {NESTING_MAX} deep", column=field.name)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def field(self, name: str) -> Field:
        """Returns the column of that name, any case.

        Raises:
            ConfigError: there is none; the message lists what there is.
        """
        for field in self.fields:
            if field.name.lower() == name.lower():
                return field
        have = ", ".join(field.name for field in self.fields[:50])
        raise ConfigError(f"no column is called {name!r}; the columns are {have}", column=name)


def _check_name(name: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= 300:
        raise ConfigError(f"a column name has 1 to 300 characters, got {shorten(name)}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(f"a column name must be UTF-8, got {name!r}") from error


def _check_unique(fields: tuple[Field, ...], owner: str | None) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        key = field.name.lower()
        if key in seen:
            raise ConfigError(
                f"column names must differ by more than case, got {seen[key]!r} and {field.name!r}",
                column=owner,
            )
        seen[key] = field.name


def _depth(field: Field) -> int:
    return 1 + max((_depth(inner) for inner in field.fields), default=0)
