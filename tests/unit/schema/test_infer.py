import dataclasses
import datetime
import decimal
import enum
import typing
import uuid

import numpy as np
import pyarrow as pa
import pytest
import typing_extensions
from apache_beam.utils.timestamp import Duration, Timestamp

from bqflink_beam.codec import values
from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.arrow import from_arrow
from bqflink_beam.schema.avro import from_avro
from bqflink_beam.schema.infer import from_class, from_rows, type_of
from bqflink_beam.schema.model import Field, TableSchema

UTC = datetime.timezone.utc


class Color(enum.Enum):
    RED = "red"


def only(*values):
    (field,) = from_rows([{"c": value} for value in values])
    return field


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (True, "BOOL"),
        (np.bool_(True), "BOOL"),
        (5, "INT64"),
        (np.int8(5), "INT64"),
        (2**63, "NUMERIC"),
        (10**29, "BIGNUMERIC"),
        (1.5, "FLOAT64"),
        (np.float32(1.5), "FLOAT64"),
        ("a", "STRING"),
        (uuid.UUID(int=0), "STRING"),
        (Color.RED, "STRING"),
        (b"a", "BYTES"),
        (decimal.Decimal("1.5"), "NUMERIC"),
        (decimal.Decimal("1e-10"), "BIGNUMERIC"),
        (decimal.Decimal("1e29"), "BIGNUMERIC"),
        (decimal.Decimal("1E+3"), "NUMERIC"),
        (datetime.date(2024, 1, 1), "DATE"),
        (datetime.time(1), "TIME"),
        (datetime.datetime.fromisoformat("2024-01-01"), "DATETIME"),
        (datetime.datetime(2024, 1, 1, tzinfo=UTC), "TIMESTAMP"),
        (Timestamp(5), "TIMESTAMP"),
        (np.datetime64("2024-01-01"), "DATETIME"),
        (Interval(1, 2, 3), "INTERVAL"),
    ],
)
def test_the_type_of_a_value(value, kind):
    assert only(value).type == kind
    assert only([value]) == Field(name="c", type=kind, mode="REPEATED")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([None, 1, 1.5], "FLOAT64"),
        ([1, decimal.Decimal(1)], "NUMERIC"),
        ([1, decimal.Decimal(1), decimal.Decimal("1e-20")], "BIGNUMERIC"),
    ],
)
def test_numbers_of_several_kinds_find_the_type_that_holds_all(values, kind):
    assert only(*values).type == kind


@pytest.mark.parametrize(
    ("precision", "scale", "kind"),
    [(38, 9, "NUMERIC"), (38, 10, "BIGNUMERIC"), (30, 0, "BIGNUMERIC"), (29, 0, "NUMERIC"),
     (9, 9, "NUMERIC"), (38, 38, "BIGNUMERIC"), (38, 0, "BIGNUMERIC")],
)  # fmt: skip
def test_decimals_find_the_type_that_holds_their_digits(precision, scale, kind):
    """spark-bigquery-connector#446, #755, dlt#983, python-bigquery#1397: text, or refused."""
    greatest = decimal.Decimal((0, (9,) * precision, -scale))
    logical = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    record = {"type": "record", "name": "R", "fields": [{"name": "c", "type": logical}]}

    (from_arrow_,) = from_arrow(pa.schema({"c": pa.decimal128(precision, scale)}))
    (from_avro_,) = from_avro(record)

    assert only(greatest).type == from_arrow_.type == from_avro_.type == kind
    values.converter(from_arrow_)(greatest)


def test_ranges_take_their_type_from_their_bounds():
    assert only(Range(None, datetime.date(2024, 1, 1))).range_element_type == "DATE"


def test_rows_need_not_have_the_same_keys():
    rows = [
        {"a": 1, "s": {"x": 1}},
        {"B": "b", "A": None, "s": {"y": ["t"]}, "l": [{"p": 1}, {"q": 2}]},
    ]

    assert from_rows(rows) == TableSchema(
        (
            Field(name="a", type="INT64"),
            Field(
                name="s",
                type="STRUCT",
                fields=(
                    Field(name="x", type="INT64"),
                    Field(name="y", type="STRING", mode="REPEATED"),
                ),
            ),
            Field(name="B", type="STRING"),
            Field(
                name="l",
                type="STRUCT",
                mode="REPEATED",
                fields=(Field(name="p", type="INT64"), Field(name="q", type="INT64")),
            ),
        )
    )


@pytest.mark.parametrize(
    "values",
    [
        (1, "a"), (True, 1), ([1], 1), (None,), ([],), (object(),), (decimal.Decimal("NaN"),),
        (decimal.Decimal("1e40"),), (Range(),), (10**39,), (10**5000,), (np.array(5),),
        (np.timedelta64(1, "s"),), (datetime.date(2024, 1, 1), datetime.time(1)),
    ],
)  # fmt: skip
def test_what_tells_no_type_is_refused_by_name(values):
    with pytest.raises(ConfigError) as caught:
        only(*values)

    assert caught.value.column == "c"


class Place(typing.NamedTuple):
    city: str
    zip: int | None


@dataclasses.dataclass
class Person:
    id: int
    name: typing.Optional[str]  # noqa: UP045 - what users write
    born: datetime.date
    seen: datetime.datetime
    local: typing.Annotated[datetime.datetime, "DATETIME"]
    amount: decimal.Decimal | None
    tags: list[str]
    places: typing.Sequence[Place]
    home: Place | None
    extra: dict
    score: np.float64
    color: Color
    stamp: Timestamp


def test_a_class_of_rows():
    place = (Field(name="city", type="STRING", mode="REQUIRED"), Field(name="zip", type="INT64"))

    assert from_class(Person) == TableSchema(
        (
            Field(name="id", type="INT64", mode="REQUIRED"),
            Field(name="name", type="STRING"),
            Field(name="born", type="DATE", mode="REQUIRED"),
            Field(name="seen", type="TIMESTAMP", mode="REQUIRED"),
            Field(name="local", type="DATETIME", mode="REQUIRED"),
            Field(name="amount", type="NUMERIC"),
            Field(name="tags", type="STRING", mode="REPEATED"),
            Field(name="places", type="STRUCT", mode="REPEATED", fields=place),
            Field(name="home", type="STRUCT", fields=place),
            Field(name="extra", type="JSON", mode="REQUIRED"),
            Field(name="score", type="FLOAT64", mode="REQUIRED"),
            Field(name="color", type="STRING", mode="REQUIRED"),
            Field(name="stamp", type="TIMESTAMP", mode="REQUIRED"),
        )
    )


class Level(enum.IntEnum):
    HIGH = 3


class Plain(enum.Enum):
    FIVE = 5


class Key(str):
    pass


class Kinds(typing.NamedTuple):
    level: Level
    key: Key | None
    color: Color


def test_what_is_made_of_a_type_is_of_it():
    kinds = from_class(Kinds)

    assert [each.type for each in kinds] == ["INT64", "STRING", "STRING"]
    row = {"level": Level.HIGH, "key": Key("a"), "color": Color.RED}
    assert [each.type for each in from_rows([row])] == ["INT64", "STRING", "STRING"]
    for field, value in zip(kinds, row.values(), strict=True):
        values.converter(field)(value)


@pytest.mark.parametrize("value", [Plain.FIVE, Duration(5)])
def test_no_type_is_found_for_what_no_column_takes(value):
    with pytest.raises(ConfigError, match="no column type is known"):
        only(value)
    with pytest.raises(ConfigError, match="no column type is known"):
        type_of(type(value), "c")


class Told(typing.TypedDict, total=False):
    inside: typing.Annotated[datetime.datetime | None, "DATETIME"]
    outside: typing.Annotated[datetime.datetime, "DATETIME"] | None
    items: typing.Annotated[list[decimal.Decimal], "BIGNUMERIC"]
    item: list[typing.Annotated[decimal.Decimal, "BIGNUMERIC"]]
    note: typing.Annotated[str, "what it is for"]
    pair: tuple[int, ...]


def test_the_type_that_is_told_counts_wherever_it_stands():
    """And a key that may be lacking is a column that may be NULL."""
    assert from_class(Told) == TableSchema(
        (
            Field(name="inside", type="DATETIME"),
            Field(name="outside", type="DATETIME"),
            Field(name="items", type="BIGNUMERIC", mode="REPEATED"),
            Field(name="item", type="BIGNUMERIC", mode="REPEATED"),
            Field(name="note", type="STRING"),
            Field(name="pair", type="INT64", mode="REPEATED"),
        )
    )


class Partly(typing_extensions.TypedDict):
    id: int
    note: typing_extensions.NotRequired[str]
    size: typing_extensions.NotRequired[typing.Annotated[int | None, "NUMERIC"]]


def test_only_the_keys_that_a_row_must_have_are_required():
    assert from_class(Partly) == TableSchema(
        (
            Field(name="id", type="INT64", mode="REQUIRED"),
            Field(name="note", type="STRING"),
            Field(name="size", type="NUMERIC"),
        )
    )


class Mixed(typing.NamedTuple):
    c: tuple[int, str]


class Odd(typing.NamedTuple):
    c: int | str


class Unknown(typing.NamedTuple):
    c: object


@pytest.mark.parametrize("kind", [Odd, Unknown, Mixed, int, dict])
def test_a_class_that_is_no_row_is_refused(kind):
    with pytest.raises(ConfigError):
        from_class(kind)
