"""What no codec lets in, and how it says so."""

import datetime
import decimal
import fractions
import json
import math
import uuid

import hypothesis.strategies as st
import numpy as np
import pytest

from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.errors import ConfigError, RowError
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies
from tests.unit.codec.ways import CODECS, arrow, avro, batch_to_proto, ndjson, proto

UTC = datetime.timezone.utc
civil = datetime.datetime.fromisoformat


def column(kind, **facts):
    if kind == "RANGE":
        facts.setdefault("range_element_type", "DATE")
    return TableSchema((Field(name="c", type=kind, **facts),))


def refusal(codec, schema, row, **options):
    with pytest.raises(RowError) as caught:
        codec(schema, row, **options)
    return caught.value


REFUSED = [
    ("INT64", True),
    ("INT64", 1.0),
    ("INT64", "1"),
    ("INT64", decimal.Decimal(1)),
    ("INT64", 2**63),
    ("INT64", -(2**63) - 1),
    ("INT64", np.float64(1)),
    ("INT64", np.uint64(2**63)),
    ("FLOAT64", "1"),
    ("FLOAT64", True),
    ("FLOAT64", 2**53 + 1),
    ("FLOAT64", 10**400),
    ("FLOAT64", decimal.Decimal(1)),
    ("BOOL", 1),
    ("BOOL", "true"),
    ("STRING", 1),
    ("STRING", b"a"),
    ("STRING", "\ud800"),
    ("STRING", datetime.date(2024, 1, 1)),
    ("BYTES", "a"),
    ("BYTES", 1),
    ("BYTES", [1, 2]),
    ("NUMERIC", 2.3),
    ("NUMERIC", "2.3e"),
    ("NUMERIC", "1_000"),
    ("NUMERIC", "NaN"),
    ("NUMERIC", decimal.Decimal("NaN")),
    ("NUMERIC", decimal.Decimal("Infinity")),
    ("NUMERIC", math.inf),
    ("NUMERIC", decimal.Decimal("1e29")),
    ("NUMERIC", decimal.Decimal("1e-10")),
    ("NUMERIC", decimal.Decimal("1e-999999")),
    ("NUMERIC", decimal.Decimal("1e999999")),
    ("NUMERIC", 10**29),
    ("NUMERIC", True),
    ("BIGNUMERIC", decimal.Decimal("1e39")),
    ("BIGNUMERIC", decimal.Decimal("5.8e38")),
    ("BIGNUMERIC", decimal.Decimal("1e-39")),
    ("DATE", civil("2024-01-01")),
    ("DATE", 19795),
    ("DATE", "2024-02-30"),
    ("DATE", "2024-01-01T00:00:00"),
    ("DATE", np.datetime64("2024-01-01T01")),
    ("TIME", datetime.time(1, tzinfo=UTC)),
    ("TIME", "24:00:00"),
    ("TIME", "23:59:60"),
    ("TIME", "01:02:03.0000001"),
    ("TIME", 1),
    ("DATETIME", datetime.datetime(2024, 1, 1, tzinfo=UTC)),
    ("DATETIME", "2024-01-01T00:00:00Z"),
    ("DATETIME", datetime.date(2024, 1, 1)),
    ("DATETIME", 0),
    ("TIMESTAMP", civil("2024-01-01")),
    (
        "TIMESTAMP",
        datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
    ),
    ("TIMESTAMP", 1690825888385999872),
    ("TIMESTAMP", 253402300800000000),
    ("TIMESTAMP", -62135596800000001),
    ("TIMESTAMP", 1.5),
    ("TIMESTAMP", True),
    ("TIMESTAMP", "yesterday"),
    ("TIMESTAMP", "2024-01-01 00:00:00.1234567Z"),
    ("TIMESTAMP", np.datetime64("2024-01-01T00:00:00.000000001")),
    ("TIMESTAMP", np.datetime64("NaT", "us")),
    ("TIMESTAMP", np.datetime64("29999-01-01")),
    ("TIMESTAMP", Interval(micros=1)),
    ("JSON", "invalid_json_string"),
    ("JSON", "NaN"),
    ("JSON", math.nan),
    ("JSON", {1: "a"}),
    ("JSON", {"a": b"b"}),
    ("JSON", "[" * 100_000),
    ("JSON", "\ud800"),
    ("GEOGRAPHY", 5),
    ("INTERVAL", datetime.timedelta(1)),
    ("INTERVAL", "1 day"),
    ("INTERVAL", "P"),
    ("INTERVAL", ""),
    ("INTERVAL", Interval(months=120_001)),
    ("INTERVAL", Interval(micros=2**63)),
    ("INTERVAL", Interval(days=1.5)),
    ("RANGE", Range(datetime.date(2024, 1, 2), datetime.date(2024, 1, 1))),
    ("RANGE", Range(datetime.date(2024, 1, 1), datetime.date(2024, 1, 1))),
    ("RANGE", (None, None)),
    ("RANGE", "2024-01-01"),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=lambda value: str(value)[:30])
def test_a_value_that_would_change_is_refused(codec, kind, value):
    error = refusal(codec, column(kind), {"c": value})

    assert error.column == "c"
    assert error.value and len(error.value) <= 120
    assert f"c: {kind} cannot hold " in error.message
    assert f"({type(value).__name__})" in error.message


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "value"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_a_column_refuses_its_array_refuses(codec, kind, value):
    error = refusal(codec, column(kind, mode="REPEATED"), {"c": [value]})

    assert error.column == "c[0]"


ACCEPTED = [
    ("INT64", np.int8(-5), -5),
    ("FLOAT64", 5, 5.0),
    ("FLOAT64", np.float32(0.1), 0.10000000149011612),
    ("FLOAT64", -(2**60), -1152921504606846976.0),
    ("BOOL", np.bool_(True), True),
    ("STRING", np.str_("a"), "a"),
    ("STRING", uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    ("BYTES", bytearray(b"a"), b"a"),
    ("BYTES", memoryview(b"a"), b"a"),
    ("NUMERIC", 5, decimal.Decimal(5)),
    ("NUMERIC", 2.5, decimal.Decimal("2.5")),
    ("NUMERIC", "-1.5e3", decimal.Decimal(-1500)),
    ("NUMERIC", decimal.Decimal("1.50000000000000000"), decimal.Decimal("1.5")),
    ("NUMERIC", decimal.Decimal("1E+3"), decimal.Decimal(1000)),
    ("NUMERIC", decimal.Decimal("0E-50"), decimal.Decimal(0)),
    ("DATE", "2024-1-9", datetime.date(2024, 1, 9)),
    ("DATE", np.datetime64("2024-01-09"), datetime.date(2024, 1, 9)),
    ("TIME", "1:2:3.5", datetime.time(1, 2, 3, 500_000)),
    ("TIME", "01:02", datetime.time(1, 2)),
    ("TIME", "01:02:03.000000000", datetime.time(1, 2, 3)),
    ("DATETIME", "2024-01-31 10:00:00", civil("2024-01-31 10:00:00")),
    ("DATETIME", np.datetime64("1969-12-31T23:59:59.999999"), civil("1969-12-31T23:59:59.999999")),
    ("TIMESTAMP", -1, datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
    ("TIMESTAMP", "2024-01-31 10:00:00 UTC", datetime.datetime(2024, 1, 31, 10, tzinfo=UTC)),
    ("TIMESTAMP", "2024-01-31T10:00:00", datetime.datetime(2024, 1, 31, 10, tzinfo=UTC)),
    ("TIMESTAMP", "2024-01-31T10:00:00.1+01", datetime.datetime(2024, 1, 31, 9, 0, 0, 100_000, UTC)),
    (
        "TIMESTAMP",
        datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        datetime.datetime(2023, 12, 31, 22, tzinfo=UTC),
    ),
    ("JSON", {"a": [1, None, "é"]}, '{"a":[1,null,"é"]}'),
    ("JSON", [np.int64(1)], "[1]"),
    ("JSON", 5, "5"),
    ("JSON", '"text"', '"text"'),
    ("JSON", '{"b":1,"a":2}', '{"b":1,"a":2}'),
    ("INTERVAL", "-1-2 3 -4:5:6.789", Interval(-14, 3, -14_706_789_000)),
    ("INTERVAL", "P1Y2M-3DT4H5M6.5S", Interval(14, -3, 14_706_500_000)),
    ("RANGE", "[2024-01-01, UNBOUNDED)", Range(datetime.date(2024, 1, 1), None)),
    ("RANGE", Range("2024-01-01", "2024-01-02"), Range(datetime.date(2024, 1, 1), datetime.date(2024, 1, 2))),
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "given", "stored"), ACCEPTED, ids=lambda value: str(value)[:30])
def test_other_ways_to_say_the_same_value(codec, same, kind, given, stored):
    assert same(codec(column(kind), {"c": given}), {"c": stored})
    assert same(codec(column(kind, mode="REPEATED"), {"c": [given]}), {"c": [stored]})


def garbage():
    scalars = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.decimals(),
        st.dates(),
        st.times(),
        st.datetimes(timezones=st.none() | st.just(UTC)),
        st.timedeltas(),
        st.builds(Range, st.none() | st.dates(), st.none() | st.dates()),
        st.builds(Interval, st.integers(), st.integers(), st.integers()),
        st.uuids(),
        st.integers(-(2**63), 2**63 - 1).map(np.int64),
        st.sampled_from(["1", "2024-01-01", "12:00", "2024-01-01 12:00:00Z", "[]", "{}"]),
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner)
            | st.dictionaries(st.sampled_from(["a", "A", "b", "foo_bar"]), inner, max_size=3)
        ),
        max_leaves=4,
    )


@st.composite
def rows_gone_wrong(draw):
    """A schema and a row in which some values are right and some are anything."""
    schema = draw(strategies.schemas(columns_max=4))
    row = draw(strategies.rows(schema))
    for field in draw(st.lists(st.sampled_from(list(schema)), max_size=2)):
        change = draw(st.sampled_from(["garbage", "item", "absent", "case", "extra"]))
        if change == "garbage":
            row[field.name] = draw(garbage())
        elif change == "item" and isinstance(row.get(field.name), list):
            row[field.name] = [*row[field.name], draw(garbage())]
        elif change == "absent":
            row.pop(field.name, None)
        elif change == "case" and field.name in row:
            row[field.name.swapcase()] = row.pop(field.name)
        elif change == "extra":
            row["no such column"] = 1
    return schema, row


def outcome(codec, schema, row):
    try:
        return without_spaces(codec(schema, row))
    except RowError as error:
        return error.column


def without_spaces(value):
    """JSON texts as NDJSON brings them back: with the same meaning, in the shortest form."""
    if isinstance(value, dict):
        return {key: without_spaces(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_spaces(inner) for inner in value]
    if isinstance(value, str):
        try:
            return json.dumps(json.loads(value), ensure_ascii=False, separators=(",", ":"))
        except ValueError:
            return value
    return value


def test_what_one_codec_refuses_all_refuse(forall, same):
    def check(drawn):
        schema, row = drawn
        first = outcome(proto, schema, row)
        assert same(outcome(arrow, schema, row), first)
        assert same(outcome(avro, schema, row), first)
        if "null" not in str(row):
            assert same(outcome(ndjson, schema, row), first)

    forall(rows_gone_wrong(), check)


@pytest.mark.parametrize("codec", [proto, arrow, avro])
def test_null_of_json_is_a_value(codec):
    assert codec(column("JSON"), {"c": "null"}) == {"c": "null"}


def test_null_of_json_has_no_form_in_ndjson():
    """The service reads it as NULL: the one value that one codec refuses alone."""
    with pytest.raises(RowError, match="JSON's null"):
        ndjson(column("JSON"), {"c": "null"})


ROUNDED = [
    ("TIME", "01:02:03.0000005", decimal.ROUND_HALF_EVEN, datetime.time(1, 2, 3)),
    ("TIME", "01:02:03.0000015", decimal.ROUND_HALF_EVEN, datetime.time(1, 2, 3, 2)),
    ("DATETIME", "2024-01-01 00:00:00.9999999", decimal.ROUND_DOWN, civil("2024-01-01T00:00:00.999999")),
    ("DATETIME", "2024-01-01 00:00:00.9999999", decimal.ROUND_UP, civil("2024-01-01T00:00:01")),
    ("TIMESTAMP", "1969-12-31 23:59:59.9999991Z", decimal.ROUND_UP, civil("1970-01-01T00:00:00+00:00")),
    ("TIMESTAMP", np.datetime64("1970-01-01T00:00:00.000000600"), decimal.ROUND_HALF_UP, civil("1970-01-01T00:00:00.000001+00:00")),
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "given", "rounding", "stored"), ROUNDED)
def test_rounding_is_the_users_choice(codec, kind, given, rounding, stored):
    refusal(codec, column(kind), {"c": given})

    assert codec(column(kind), {"c": given}, rounding=rounding) == {"c": stored}


@pytest.mark.parametrize("codec", CODECS)
def test_a_time_that_rounds_to_midnight_is_refused(codec):
    row = {"c": "23:59:59.9999999"}

    refusal(codec, column("TIME"), row, rounding=decimal.ROUND_UP)


@pytest.mark.parametrize("codec", CODECS)
def test_an_unknown_rounding_is_a_mistake_at_construction(codec):
    with pytest.raises(ConfigError, match="ROUND_HALF_EVEN"):
        codec(column("TIME"), {}, rounding="half up")


NESTED = TableSchema(
    (
        Field(name="id", type="INT64", mode="REQUIRED"),
        Field(
            name="a",
            type="STRUCT",
            fields=(
                Field(
                    name="b",
                    type="STRUCT",
                    mode="REPEATED",
                    fields=(
                        Field(name="c", type="STRING", mode="REPEATED"),
                        Field(name="d", type="INT64", mode="REQUIRED"),
                    ),
                ),
            ),
        ),
    )
)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("row", "place"),
    [
        ({"id": 1, "a": {"b": [{"d": 1}, {"d": 1, "c": ["x", 5]}]}}, "a.b[1].c[1]"),
        ({"id": 1, "a": {"b": [{"d": 1, "c": "xy"}]}}, "a.b[0].c"),
        ({"id": 1, "a": {"b": [{"d": 1, "c": {"x"}}]}}, "a.b[0].c"),
        ({"id": 1, "a": {"b": [{"d": 1, "c": iter("x")}]}}, "a.b[0].c"),
        ({"id": 1, "a": {"b": [{"d": 1, "c": [None]}]}}, "a.b[0].c[0]"),
        ({"id": 1, "a": {"b": [None]}}, "a.b[0]"),
        ({"id": 1, "a": {"b": [{}]}}, "a.b[0].d"),
        ({"id": 1, "a": {"b": [{"d": None}]}}, "a.b[0].d"),
        ({"id": 1, "a": {"b": {"d": 1}}}, "a.b"),
        ({"id": 1, "a": {"b": [{"d": 1, "e": 1}]}}, "a.b[0].e"),
        ({"id": 1, "a": {"b": [{"d": 1, "D": 1}]}}, "a.b[0].d"),
        ({"id": 1, "a": [1]}, "a"),
        ({"id": 1, "a": "text"}, "a"),
        ({"id": 1, "z": 1}, "z"),
        ({"id": 1, "ID": 1}, "id"),
        ({"a": None}, "id"),
        ({}, "id"),
        ({5: 1, "id": 1}, "5"),
    ],
)
def test_the_place_of_the_error_is_named(codec, row, place):
    assert refusal(codec, NESTED, row).column == place


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("row", [None, 5, "text", [("id", 1)], b""])
def test_what_is_no_mapping_is_no_row(codec, row):
    refusal(codec, NESTED, row)


@pytest.mark.parametrize("codec", CODECS)
def test_absent_and_none_and_case(codec):
    """Absent and None are NULL, a REPEATED is then empty, an empty STRUCT is not NULL."""
    assert codec(NESTED, {"ID": 1}) == {"id": 1, "a": None}
    assert codec(NESTED, {"id": 1, "A": {}}) == {"id": 1, "a": {"b": []}}
    assert codec(NESTED, {"id": 1, "a": {"B": None}}) == {"id": 1, "a": {"b": []}}


@pytest.mark.parametrize("codec", CODECS)
def test_tuples_and_arrays_are_lists(codec, same):
    schema = column("INT64", mode="REPEATED")

    assert same(codec(schema, {"c": (1, 2)}), {"c": [1, 2]})
    assert same(codec(schema, {"c": np.array([1, 2])}), {"c": [1, 2]})


WITH_DEFAULT = TableSchema(
    (
        Field(name="a", type="INT64", mode="REQUIRED", default_value_expression="7"),
        Field(name="b", type="INT64", default_value_expression="8"),
    )
)


@pytest.mark.parametrize("codec", CODECS)
def test_a_required_column_with_a_default_may_be_absent_but_not_none(codec):
    assert codec(WITH_DEFAULT, {}) == {"a": None, "b": None}
    assert codec(WITH_DEFAULT, {"a": 1, "b": None}) == {"a": 1, "b": None}
    assert refusal(codec, WITH_DEFAULT, {"a": None}).column == "a"
    assert refusal(codec, WITH_DEFAULT, {"a": None, "b": 1}).column == "a"


PARAMETERS = [
    ("STRING", {"max_length": 2}, "ab", "abc"),
    ("STRING", {"max_length": 2}, "éé", "ééé"),
    ("BYTES", {"max_length": 2}, b"ab", b"abc"),
    ("NUMERIC", {"precision": 5, "scale": 2}, decimal.Decimal("999.99"), decimal.Decimal("1000")),
    ("NUMERIC", {"precision": 5, "scale": 2}, decimal.Decimal("0.12"), decimal.Decimal("0.123")),
    ("NUMERIC", {"precision": 5}, decimal.Decimal("99999"), decimal.Decimal("0.1")),
    ("BIGNUMERIC", {"precision": 39, "scale": 1}, decimal.Decimal("1e37"), decimal.Decimal("1e38")),
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "facts", "fits", "too_much"), PARAMETERS)
def test_parameters_of_a_column_hold(codec, kind, facts, fits, too_much):
    assert codec(column(kind, **facts), {"c": fits}) == {"c": fits}
    refusal(codec, column(kind, **facts), {"c": too_much})


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "facts", "fits", "too_much"), PARAMETERS)
def test_parameters_of_a_column_hold_for_the_items_of_its_array(codec, kind, facts, fits, too_much):
    schema = column(kind, mode="REPEATED", **facts)

    assert codec(schema, {"c": [fits, fits]}) == {"c": [fits, fits]}
    assert codec(schema, {"c": (fits,)}) == {"c": [fits]}
    for items in ([fits, too_much], (fits, too_much)):
        assert refusal(codec, schema, {"c": items}).column == "c[1]"


class Text(str):
    """Longer or shorter than it says."""

    def __len__(self):
        return 1


@pytest.mark.parametrize("codec", CODECS)
def test_the_length_of_a_text_is_that_of_what_is_written(codec):
    schema = column("STRING", max_length=2)

    assert codec(schema, {"c": Text("ab")}) == {"c": "ab"}
    refusal(codec, schema, {"c": Text("abc")})


@pytest.mark.parametrize("codec", CODECS)
def test_digits_go_through_where_the_column_says_how_to_round(codec):
    schema = column("NUMERIC", precision=9, scale=5, rounding_mode="ROUND_HALF_EVEN")

    assert codec(schema, {"c": decimal.Decimal("1.234567")}) == {"c": decimal.Decimal("1.234567")}


PICOS = column("TIMESTAMP", timestamp_precision=12)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("2024-01-31T10:00:00.123456789012Z", "2024-01-31T10:00:00.123456789012Z"),
        ("2024-01-31 10:00:00.1+01:00", "2024-01-31T09:00:00.100000000000Z"),
        (civil("2024-01-31T10:00:00.000001+00:00"), "2024-01-31T10:00:00.000001000000Z"),
        (-1, "1969-12-31T23:59:59.999999000000Z"),
    ],
)
def test_twelve_digits_are_text(codec, given, stored):
    assert codec(PICOS, {"c": given}) == {"c": stored}


@pytest.mark.parametrize("codec", CODECS)
def test_thirteen_digits_are_too_many(codec):
    refusal(codec, PICOS, {"c": "2024-01-31T10:00:00.1234567890123Z"})


@pytest.mark.parametrize("codec", CODECS)
def test_a_long_value_is_shortened_in_the_error(codec):
    error = refusal(codec, column("INT64"), {"c": "x" * 10_000})

    assert len(error.value) == 120
    assert len(str(error)) < 400


@st.composite
def parametrised_decimals(draw):
    """A column with a precision and a scale, and a number that it may hold or just not."""
    kind, scale_max, whole_max = draw(st.sampled_from([("NUMERIC", 9, 29), ("BIGNUMERIC", 38, 38)]))
    scale = draw(st.integers(0, scale_max))
    precision = draw(st.integers(max(1, scale), scale + whole_max))
    units = draw(st.one_of(st.integers(-(10**precision), 10**precision), st.integers(-99, 99)))
    exponent = draw(st.sampled_from([-scale, -scale, -scale - 1, -scale + 1, 0, 5]))
    number = decimal.Decimal(units).scaleb(exponent, decimal.Context(prec=200))
    return column(kind, precision=precision, scale=scale), number


def test_a_column_with_a_precision_holds_exactly_its_digits(forall, same):
    """Counted with fractions, which know nothing of decimal digits and exponents."""

    def check(drawn):
        schema, number = drawn
        (field,) = schema
        exact = fractions.Fraction(number)
        whole = (exact * 10**field.scale).denominator == 1
        fits = whole and abs(exact) < 10 ** (field.precision - field.scale)
        for codec in [*CODECS, batch_to_proto]:
            if fits:
                assert same(codec(schema, {"c": number}), {"c": number})
                assert same(codec(schema, {"c": str(number)}), {"c": number})
            else:
                refusal(codec, schema, {"c": number})

    forall(parametrised_decimals(), check)


@pytest.mark.parametrize("codec", [*CODECS, batch_to_proto])
@pytest.mark.parametrize(("kind", "letter"), [("STRING", "é🙂"), ("BYTES", b"\xff\x00")])
def test_a_column_with_a_length_holds_exactly_so_much(codec, same, kind, letter):
    for length in range(1, 6):
        schema = column(kind, max_length=length)
        many = column(kind, mode="REPEATED", max_length=length)
        for count in range(length + 2):
            value = (letter * count)[:count]
            if count <= length:
                assert same(codec(schema, {"c": value}), {"c": value})
                assert same(codec(many, {"c": [value]}), {"c": [value]})
            else:
                refusal(codec, schema, {"c": value})
                refusal(codec, many, {"c": [value]})
