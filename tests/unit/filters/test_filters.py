import datetime
import decimal
import enum
import math
import uuid

import numpy as np
import pandas as pd
import pytest

from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.errors import ConfigError
from bqflink_beam.filters import Predicate, col, literal, partitions

UTC = datetime.timezone.utc
civil = datetime.datetime.fromisoformat


class Color(enum.Enum):
    RED = "red"


LITERALS = [
    (True, "TRUE"),
    (np.bool_(False), "FALSE"),
    (5, "5"),
    (-(2**63), "-9223372036854775808"),
    (2**63, "NUMERIC '9223372036854775808'"),
    (10**29, "BIGNUMERIC '100000000000000000000000000000'"),
    (np.int64(5), "5"),
    (1.5, "1.5"),
    (1e300, "1e+300"),
    (math.inf, "CAST('inf' AS FLOAT64)"),
    (-math.inf, "CAST('-inf' AS FLOAT64)"),
    (math.nan, "CAST('nan' AS FLOAT64)"),
    (decimal.Decimal("1.50"), "NUMERIC '1.50'"),
    (decimal.Decimal("1E+3"), "NUMERIC '1000'"),
    (decimal.Decimal("1e-20"), "BIGNUMERIC '0.00000000000000000001'"),
    ("plain", "'plain'"),
    ("O'Hare", r"'O\'Hare'"),
    ("a\\", r"'a\\'"),
    ("a\nb\x00\u2028", r"'a\u000ab\u0000\u2028'"),
    ("`日付`", "'`日付`'"),
    (Color.RED, "'red'"),
    (uuid.UUID(int=1), "'00000000-0000-0000-0000-000000000001'"),
    (b"a'\xff", r"B'\x61\x27\xff'"),
    (datetime.date(2024, 1, 31), "DATE '2024-01-31'"),
    (datetime.time(1, 2, 3), "TIME '01:02:03.000000'"),
    (civil("2024-01-31T10:00:00"), "DATETIME '2024-01-31T10:00:00.000000'"),
    (civil("2024-01-31T10:00:00+02:00"), "TIMESTAMP '2024-01-31T08:00:00.000000Z'"),
    (np.datetime64("2024-01-31"), "DATETIME '2024-01-31T00:00:00.000000'"),
    (pd.Timestamp("2024-01-31 10:00:00.000001"), "DATETIME '2024-01-31T10:00:00.000001'"),
    (pd.Timestamp("2024-01-31 10:00", tz="Europe/Berlin"), "TIMESTAMP '2024-01-31T09:00:00.000000Z'"),
    (Interval(14, 3, 1), "INTERVAL '1-2 3 0:0:0.000001' YEAR TO SECOND"),
    (Range(datetime.date(2024, 1, 1), None), "RANGE<DATE> '[2024-01-01, UNBOUNDED)'"),
    (Range(None, civil("2024-01-31T10:00:00+00:00")), "RANGE<TIMESTAMP> '[UNBOUNDED, 2024-01-31T10:00:00.000000Z)'"),
    (col("a.b c"), "`a`.`b c`"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "sql"), LITERALS)
def test_a_value_of_every_type_has_a_literal(value, sql):
    assert literal(value) == sql


@pytest.mark.parametrize(
    "value",
    [None, {}, [1], object(), decimal.Decimal("NaN"), decimal.Decimal("1e50"), "\ud800", Range(),
     Range(5, 6), datetime.time(1, tzinfo=UTC), Interval(months=10**9),
     pd.Timestamp(1), pd.Timestamp(1, tz="UTC"), np.datetime64(1, "ns"), pd.NaT, np.datetime64("NaT")],
)  # fmt: skip
def test_what_has_no_literal_is_refused(value):
    with pytest.raises(ConfigError):
        literal(value)


PREDICATES = [
    (col("a") == 5, "(`a` = 5)"),
    (col("a") != 5, "(`a` != 5)"),
    (col("a") == None, "(`a` IS NULL)"),  # noqa: E711 - what users write
    (col("a") != None, "(`a` IS NOT NULL)"),  # noqa: E711
    (col("a") < col("b"), "(`a` < `b`)"),
    (col("a") <= 5, "(`a` <= 5)"),
    (col("a") > 5, "(`a` > 5)"),
    (5 <= col("a"), "(`a` >= 5)"),  # noqa: SIM300
    (col("a").isin([1, 2]), "(`a` IN (1, 2))"),
    (col("a").isin([]), "(FALSE)"),
    (col("a").isin([None]), "(`a` IS NULL)"),
    (col("a").isin({1: 2, None: 3}), "((`a` IN (1)) OR (`a` IS NULL))"),
    (col("a").between(1, 2), "(`a` BETWEEN 1 AND 2)"),
    (col("a").startswith("f_o%\\"), r"(`a` LIKE 'f\\_o\\%\\\\%')"),
    (col("a").startswith(b"f%"), r"((`a` >= B'\x66\x25') AND (`a` < B'\x66\x26'))"),
    (col("a").startswith(b"f\xff"), r"((`a` >= B'\x66\xff') AND (`a` < B'\x67'))"),
    (col("a").startswith(b"\xff"), r"(`a` >= B'\xff')"),
    (col("a").startswith(b""), "(`a` >= B'')"),
    ((col("a") == 1) & (col("b") == 2) | ~(col("c") == 3), "(((`a` = 1) AND (`b` = 2)) OR (NOT (`c` = 3)))"),
    (Predicate("(a=1) OR (b=2)") & (col("c") == 3), "(((a=1) OR (b=2)) AND (`c` = 3))"),
    (Predicate("a = 1 -- one") & (col("c") == 3), "((a = 1 -- one\n) AND (`c` = 3)\n)"),
]  # fmt: skip


@pytest.mark.parametrize(("predicate", "sql"), PREDICATES, ids=lambda value: str(value)[:40])
def test_predicates_quote_and_parenthesise(predicate, sql):
    assert str(predicate) == sql


MISTAKES = [
    lambda: (col("a") == 1) and (col("b") == 2),
    lambda: not (col("a") == 1),  # noqa: SIM201
    lambda: 1 < col("a") < 3,
    lambda: col("a") and True,
    lambda: (col("a") == 1) & True,
    lambda: (col("a") == 1) | "b = 2",
    lambda: col("a") < None,
    lambda: col("a").isin("text"),
    lambda: col("a").isin(5),
    lambda: col("a").isin(bytearray(b"ab")),
    lambda: col("a").isin(memoryview(b"ab")),
    lambda: col("a").isin(np.array(5)),
    lambda: col("a").startswith(5),
    lambda: col(""),
    lambda: col("a..b"),
    lambda: col(5),
    lambda: Predicate(" "),
    lambda: Predicate(None),
]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_does_not_become_a_filter(mistake):
    with pytest.raises(ConfigError):
        mistake()


# --- the numbers are the rows of the predecessors' test tables ---------------------------


@pytest.mark.parametrize(
    ("id", "kind", "sql"),
    [
        ("2023062822", "DATETIME", "((`c` >= DATETIME '2023-06-28T22:00:00.000000') AND (`c` < DATETIME '2023-06-28T23:00:00.000000'))"),
        ("20230628", "DATE", "((`c` >= DATE '2023-06-28') AND (`c` < DATE '2023-06-29'))"),
        ("202306", "DATE", "((`c` >= DATE '2023-06-01') AND (`c` < DATE '2023-07-01'))"),
        ("202312", "DATE", "((`c` >= DATE '2023-12-01') AND (`c` < DATE '2024-01-01'))"),
        ("2023", "DATE", "((`c` >= DATE '2023-01-01') AND (`c` < DATE '2024-01-01'))"),
        ("9999", "DATE", "(`c` >= DATE '9999-01-01')"),
        ("99991231", "TIMESTAMP", "(`c` >= TIMESTAMP '9999-12-31T00:00:00.000000Z')"),
    ],
)  # fmt: skip
def test_row_87_and_90_partitions_by_time(id, kind, sql):
    assert str(partitions([id], column="c", type=kind)) == sql


def test_row_88_and_91_an_integer_range_has_its_whole_width():
    """The predecessor asked for rows equal to the range's start, and lost the others."""
    predicate = partitions(["2023"], column="c", type="INT64", range_interval=10)

    assert str(predicate) == "((`c` >= 2023) AND (`c` < 2033))"


def test_row_89_and_91_the_null_partition():
    assert str(partitions(["__NULL__"], column="dragon", type="DATE")) == "(`dragon` IS NULL)"


@pytest.mark.parametrize(
    ("id", "kind"),
    [
        ("__UNPARTITIONED__", "DATE"),
        ("202306282200", "DATE"),
        ("2023062", "DATE"),
        ("20230631", "DATE"),
        ("2023062822", "DATE"),
        ("２０２３", "DATE"),
        ("20230628", "STRING"),
        ("2023-06-28", "DATE"),
        ("5", "INT64"),
    ],
)
def test_row_89_what_is_no_partition_of_the_column(id, kind):
    with pytest.raises(ConfigError):
        partitions([id], column="c", type=kind)


def test_rows_not_yet_in_a_partition_by_ingestion_time():
    predicate = partitions(["__UNPARTITIONED__", "2023010203"])

    assert str(predicate) == (
        "((`_PARTITIONTIME` IS NULL) OR ((`_PARTITIONTIME` >= TIMESTAMP "
        "'2023-01-02T03:00:00.000000Z') AND (`_PARTITIONTIME` < TIMESTAMP "
        "'2023-01-02T04:00:00.000000Z')))"
    )


def test_row_92_six_digits_always_and_the_type_is_named():
    predicate = col("timestamp_field") == civil("2025-01-01T00:00:00")

    assert str(predicate) == "(`timestamp_field` = DATETIME '2025-01-01T00:00:00.000000')"


def test_row_93_an_instant():
    assert literal(datetime.datetime(1970, 1, 1, tzinfo=UTC)) == (
        "TIMESTAMP '1970-01-01T00:00:00.000000Z'"
    )


def test_row_94_wildcards_of_a_prefix_are_plain_characters():
    """The predecessor pushed 'foo%' only; quoting lets every prefix be pushed."""
    assert str(col("x").startswith("foo")) == "(`x` LIKE 'foo%')"
    assert str(col("x").startswith("f_o")) == r"(`x` LIKE 'f\\_o%')"
    assert str(col("x").startswith("%foo")) == r"(`x` LIKE '\\%foo%')"


def test_row_95_and_96_nested_columns():
    predicate = (col("address.city") == "Toronto") & (col("address.zip") > 10000)

    assert str(predicate) == "((`address`.`city` = 'Toronto') AND (`address`.`zip` > 10000))"
    assert str(~(col("address.city") == "Toronto")) == "(NOT (`address`.`city` = 'Toronto'))"


def test_row_97_a_quote_in_a_text():
    assert str(col("name") == "O'Hare") == r"(`name` = 'O\'Hare')"


def test_row_98_several_partitions_and_what_the_user_asked():
    predicate = Predicate("id > 10") & partitions(["2023", "2024"], column="d", type="DATE")

    assert str(predicate) == (
        "((id > 10) AND (((`d` >= DATE '2023-01-01') AND (`d` < DATE '2024-01-01')) OR "
        "((`d` >= DATE '2024-01-01') AND (`d` < DATE '2025-01-01'))))"
    )


def test_no_partition_is_no_row_and_thousands_stand_side_by_side():
    ids = [f"{year:04d}" for year in range(1, 5001)]

    assert str(partitions([])) == "(FALSE)"
    assert "((((((" not in str(partitions(ids))
