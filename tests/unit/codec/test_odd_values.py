"""Values that are not quite what they look like: of data frames, subclasses, proxies, and worse."""

import array
import collections
import contextlib
import datetime
import decimal
import enum
import fractions
import types

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest

from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.errors import RowError
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies
from tests.unit.codec.ways import CODECS, batch_to_proto, proto

UTC = datetime.timezone.utc
civil = datetime.datetime.fromisoformat


def column(kind, **facts):
    if kind == "RANGE":
        facts.setdefault("range_element_type", "DATE")
    return TableSchema((Field(name="c", type=kind, **facts),))


def refusal(codec, schema, row):
    with pytest.raises(RowError) as caught:
        codec(schema, row)
    return caught.value


PANDAS = [
    ("DATE", pd.Timestamp("2024-01-31"), datetime.date(2024, 1, 31)),
    ("DATETIME", pd.Timestamp("2024-01-31 10:00:00.000001"), civil("2024-01-31T10:00:00.000001")),
    ("DATETIME", pd.Timestamp("0001-01-01").as_unit("us"), civil("0001-01-01T00:00:00")),
    ("TIMESTAMP", pd.Timestamp("2024-01-31 10:00", tz="Europe/Berlin"), civil("2024-01-31T09:00:00+00:00")),
    ("TIMESTAMP", pd.Timestamp("1969-12-31 23:59:59.999999", tz="UTC"), civil("1969-12-31T23:59:59.999999+00:00")),
]  # fmt: skip
NOT_PANDAS = [
    ("DATE", pd.Timestamp("2024-01-31 10:00")),
    ("DATE", pd.NaT),
    ("DATETIME", pd.Timestamp("2024-01-31", tz="UTC")),
    ("DATETIME", pd.Timestamp(1)),
    ("TIMESTAMP", pd.Timestamp("2024-01-31")),
    ("TIMESTAMP", pd.Timestamp(1, tz="UTC")),
    ("TIMESTAMP", pd.NaT),
    ("INT64", pd.NA),
    ("STRING", pd.NA),
    ("FLOAT64", pd.NA),
    ("INTERVAL", pd.Timedelta(days=1)),
]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "given", "stored"), PANDAS)
def test_what_comes_out_of_a_data_frame(codec, same, kind, given, stored):
    assert same(codec(column(kind), {"c": given}), {"c": stored})
    assert same(codec(column(kind, mode="REPEATED"), {"c": [given]}), {"c": [stored]})


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "given"), NOT_PANDAS)
def test_what_a_data_frame_leaves_unsaid_is_not_guessed(codec, kind, given):
    assert refusal(codec, column(kind), {"c": given}).column == "c"


PICOS = column("TIMESTAMP", timestamp_precision=12)


@pytest.mark.parametrize("codec", [*CODECS, batch_to_proto])
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pd.Timestamp(1, tz="UTC"), "1970-01-01T00:00:00.000000001000Z"),
        (pd.Timestamp(-1, tz="Europe/Berlin"), "1969-12-31T23:59:59.999999999000Z"),
        (np.datetime64(1, "ps"), "1970-01-01T00:00:00.000000000001Z"),
        (np.datetime64(-1, "ps"), "1969-12-31T23:59:59.999999999999Z"),
        (np.datetime64(10**6, "as"), "1970-01-01T00:00:00.000000000001Z"),
        (np.datetime64("2024-01"), "2024-01-01T00:00:00.000000000000Z"),
    ],
)
def test_what_is_finer_than_a_microsecond_goes_where_it_fits(codec, given, stored):
    assert codec(PICOS, {"c": given}) == {"c": stored}
    if not stored.endswith("000000Z"):
        refusal(codec, column("TIMESTAMP"), {"c": given})


NUMPY_UNITS = ["Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as", "25s"]


def test_a_time_of_numpy_never_wraps_around(forall, same):
    """Numpy's own conversions overflow without a word: 2**62 seconds are 1970 in microseconds."""

    def check(drawn):
        count, unit = drawn
        moment = np.datetime64(count, unit)
        try:
            (found,) = proto(column("DATETIME"), {"c": moment}).values()
        except RowError:
            # Refused for what it is: no whole microsecond, or not in the years 1 to 9999.
            year = fractions.Fraction(count) * SECONDS[unit] / SECONDS["Y"] + 1970
            whole = (fractions.Fraction(count) * SECONDS[unit] * 10**6).denominator == 1
            assert not whole or not 1.01 < year < 9999.98
        else:
            assert found.isoformat().startswith(str(moment)[: {"Y": 4, "M": 7}.get(unit, 10)])
            assert np.datetime64(found, "us") == moment
            assert proto(PICOS, {"c": moment})["c"].startswith(found.isoformat())

    counts = st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-(10**6), 10**6)
    shifted = st.builds(lambda count, bits: count >> bits, counts, st.integers(0, 60))
    forall(st.tuples(shifted, st.sampled_from(NUMPY_UNITS)), check)


SECONDS = {
    "Y": fractions.Fraction(31_556_952), "M": fractions.Fraction(31_556_952, 12), "W": 604_800,
    "D": 86_400, "h": 3_600, "m": 60, "s": 1, "25s": 25, "ms": fractions.Fraction(1, 10**3),
    "us": fractions.Fraction(1, 10**6), "ns": fractions.Fraction(1, 10**9),
    "ps": fractions.Fraction(1, 10**12), "fs": fractions.Fraction(1, 10**15),
    "as": fractions.Fraction(1, 10**18),
}  # fmt: skip


def test_nanoseconds_of_pandas_are_rounded_on_demand():
    row = {"c": pd.Timestamp(1_600, tz="UTC")}

    for codec in CODECS:
        assert codec(column("TIMESTAMP"), row, rounding=decimal.ROUND_HALF_UP) == {
            "c": civil("1970-01-01T00:00:00.000002+00:00")
        }


class OddDecimal(decimal.Decimal):
    def __str__(self):
        return "99"


ODD_CONTEXT = decimal.Context(
    prec=1, capitals=0, rounding=decimal.ROUND_UP, traps=[decimal.Inexact, decimal.Rounded]
)


@pytest.mark.parametrize("codec", [*CODECS, batch_to_proto])
@pytest.mark.parametrize("kind", ["NUMERIC", "BIGNUMERIC"])
def test_the_programs_decimal_context_changes_nothing(codec, same, kind):
    """Python writes 1e-7 by it where it else writes 1E-7, and rounds where it else does not."""
    texts = ["1E-7", "-1E+3", "12345678901234567890.123456789", "0", "1.50", "-0.000000001"]
    numbers = [decimal.Decimal(text) for text in texts]
    schema = column(kind, mode="REPEATED")

    with decimal.localcontext(ODD_CONTEXT):
        found = codec(schema, {"c": numbers})
        alone = [codec(column(kind), {"c": number}) for number in numbers]
        written = [codec(column(kind), {"c": text})["c"] for text in texts]
        for wrong in ("1E-39", "1E+39", "NaN", "-Infinity", "NaN12"):
            refusal(codec, column(kind), {"c": decimal.Decimal(wrong)})

    assert same(found, {"c": numbers})
    assert same(alone, [{"c": number} for number in numbers])
    assert same(written, numbers)


def test_the_text_of_a_decimal_is_plain_in_every_context():
    schema = column("NUMERIC")
    encoder = RowEncoder(schema)

    with decimal.localcontext(ODD_CONTEXT):
        data = encoder.encode({"c": decimal.Decimal("1E-7")})

    assert data == b"\x0a\x090.0000001"


class OddDict(dict):
    """A dict that is asked in one way and says something else in another."""

    def __getitem__(self, key):
        return "odd"

    def get(self, key, default=None):
        return "odd"


@pytest.mark.parametrize("codec", CODECS)
def test_subclasses_that_look_different_are_what_they_hold(codec, same):
    """Each codec asked in its own way, and so wrote another value."""
    assert same(codec(column("NUMERIC"), {"c": OddDecimal("5")}), {"c": decimal.Decimal("5")})
    assert same(codec(column("BIGNUMERIC"), {"c": OddDecimal("5")}), {"c": decimal.Decimal("5")})
    assert same(codec(column("INT64"), OddDict(c=5)), {"c": 5})
    assert same(codec(column("INT64"), OddDict(C=5)), {"c": 5})
    schema = column("STRUCT", fields=(Field(name="x", type="INT64"),))
    assert same(codec(schema, {"c": OddDict(x=5)}), {"c": {"x": 5}})


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(
    "mapping",
    [
        types.MappingProxyType({"C": 5}),
        collections.OrderedDict(c=5),
        collections.ChainMap({"c": 5}, {"c": 6}),
        collections.UserDict(c=5),
        collections.Counter(c=5),
    ],
)
def test_every_kind_of_mapping_is_a_row_and_a_struct(codec, same, mapping):
    schema = column("STRUCT", fields=(Field(name="c", type="INT64"),))

    assert same(codec(column("INT64"), mapping), {"c": 5})
    assert same(codec(schema, {"c": mapping}), {"c": {"c": 5}})


@pytest.mark.parametrize("codec", CODECS)
def test_a_row_with_defaults_of_its_own_stays_as_it_is(codec):
    row = collections.defaultdict(lambda: 7)

    assert codec(column("INT64"), row) == {"c": None}
    assert not row


class Pretender:
    """As proxies and lazy texts are: of every type when asked, of none when used."""

    def __init__(self, kind):
        self._kind = kind

    @property
    def __class__(self):
        return self._kind


PRETENDED = {
    "STRING": str, "BYTES": bytes, "INT64": int, "FLOAT64": float, "BOOL": bool, "NUMERIC": str,
    "DATE": datetime.date, "TIME": datetime.time, "DATETIME": datetime.datetime, "JSON": str,
    "TIMESTAMP": str, "GEOGRAPHY": str, "INTERVAL": str, "RANGE": str, "BIGNUMERIC": decimal.Decimal,
}  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize(("kind", "type_"), PRETENDED.items())
def test_what_only_pretends_to_be_of_a_type_is_refused(codec, kind, type_):
    """A TypeError would fail the job, not the row."""
    assert refusal(codec, column(kind), {"c": Pretender(type_)}).column == "c"


@pytest.mark.parametrize("codec", CODECS)
def test_micros_are_a_whole_number(codec, same):
    moment = types.SimpleNamespace(micros=np.int64(5))

    assert same(
        codec(column("TIMESTAMP"), {"c": moment}),
        {"c": datetime.datetime(1970, 1, 1, 0, 0, 0, 5, UTC)},
    )
    for micros in (True, 5.0, "5", None):
        refusal(codec, column("TIMESTAMP"), {"c": types.SimpleNamespace(micros=micros)})


def _recursive_list():
    found = []
    found.append(found)
    return found


def _recursive_dict():
    found = {}
    found["a"] = found
    return found


class BadZone(datetime.tzinfo):
    def utcoffset(self, when):
        return None


class BadRepr:
    def __repr__(self):
        raise RuntimeError("no repr")


ODD = [
    object(), BadRepr(), ..., type, len, 1j, fractions.Fraction(1, 3), range(3), iter([]), {1}, set(),
    np.array([1, 2]), np.array(5), np.array([[1]]), np.array(["a"]), np.longdouble(1) / 3,
    np.complex64(1), np.void(b"a"), np.timedelta64(1, "s"), np.str_("a"), np.bytes_(b"a"),
    pd.NA, pd.NaT, pd.Series([1]), pd.DataFrame({"a": [1]}), pd.Period("2024"),
    decimal.Decimal("sNaN"), decimal.Decimal("-Infinity"), 10**5000, -(10**5000), float("nan"),
    array.array("i", [1]), memoryview(array.array("d", [1.5])), bytearray(),
    datetime.datetime(2024, 1, 1, tzinfo=BadZone()), datetime.timedelta.max,
    datetime.datetime.max.replace(tzinfo=datetime.timezone(-datetime.timedelta(hours=23))),
    _recursive_list(), _recursive_dict(), Range(Range(), 5), Range(pd.NaT, None), Interval("1", None, 2),
    "9" * 5000, "1e999999999", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "\x00",
    types.SimpleNamespace(micros="5"), types.SimpleNamespace(micros=10**30), enum.Enum("E", {"A": None}).A,
]  # fmt: skip


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", [*strategies.SCALARS, "STRUCT"])
def test_odd_things_are_stored_or_refused_and_never_crash(codec, kind):
    """Whatever is not a RowError would fail the job, not the row."""
    facts = {"fields": (Field(name="x", type="INT64"),)} if kind == "STRUCT" else {}
    one, many = column(kind, **facts), column(kind, mode="REPEATED", **facts)
    for thing in ODD:
        for schema, row in ((one, {"c": thing}), (many, {"c": thing}), (many, {"c": [thing]})):
            with contextlib.suppress(RowError):
                codec(schema, row)
    for thing in ODD:
        with contextlib.suppress(RowError):
            codec(one, thing)
