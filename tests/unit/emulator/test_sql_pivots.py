"""PIVOT and UNPIVOT: which rows they group, what their columns are called, and what is refused."""

import pytest

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import InvalidQuery
from tests.unit.emulator.sql_run import named_rows

_PRODUCE = (
    "(SELECT * FROM UNNEST([STRUCT('Kale' AS product, 51 AS sales, 'Q1' AS quarter, 2020 AS year), "
    "('Kale', 23, 'Q2', 2020), ('Kale', 4, 'Q1', 2021), ('Apple', 77, 'Q1', 2020)]))"
)
_WIDE = "(SELECT 'Kale' AS product, 51 AS Q1, 23 AS Q2, CAST(NULL AS INT64) AS Q3)"
_ROWS = [
    (
        f"{_PRODUCE} PIVOT(SUM(sales) FOR quarter IN ('Q1', 'Q2', 'Q3')) ORDER BY product, year",
        [
            {"product": "Apple", "year": 2020, "Q1": 77, "Q2": None, "Q3": None},
            {"product": "Kale", "year": 2020, "Q1": 51, "Q2": 23, "Q3": None},
            {"product": "Kale", "year": 2021, "Q1": 4, "Q2": None, "Q3": None},
        ],
    ),
    (
        f"(SELECT product, sales, quarter FROM {_PRODUCE}) "
        "PIVOT(SUM(sales) AS total, COUNT(*) AS n FOR quarter IN ('Q1' AS first, 'Q2')) ORDER BY product",
        [
            {"product": "Apple", "total_first": 77, "n_first": 1, "total_Q2": None, "n_Q2": 0},
            {"product": "Kale", "total_first": 55, "n_first": 2, "total_Q2": 23, "n_Q2": 1},
        ],
    ),
    (
        "(SELECT * FROM UNNEST([STRUCT(1 AS x, 100 AS y), (1, NULL), (2, NULL)])) "
        "PIVOT(COUNT(x) FOR y IN (100, 103, NULL AS none)) AS p",
        [{"_100": 1, "_103": 0, "none": 2}],
    ),
    (
        "(SELECT 1 AS x, 2 AS y) PIVOT(SUM(x + y) FOR y IN (2 AS two))",
        [{"two": 3}],
    ),
    (
        f"{_WIDE} UNPIVOT(sales FOR quarter IN (Q1, Q2, Q3)) ORDER BY quarter",
        [
            {"product": "Kale", "sales": 51, "quarter": "Q1"},
            {"product": "Kale", "sales": 23, "quarter": "Q2"},
        ],
    ),
    (
        f"{_WIDE} UNPIVOT INCLUDE NULLS (sales FOR quarter IN (Q1 AS 'one', Q3)) ORDER BY quarter",
        [
            {"product": "Kale", "Q2": 23, "sales": None, "quarter": "Q3"},
            {"product": "Kale", "Q2": 23, "sales": 51, "quarter": "one"},
        ],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("item", "wanted"), _ROWS, ids=[sql for sql, _ in _ROWS])
def test_rows_and_names_are_those_of_bigquery(item, wanted):
    found = named_rows(f"SELECT * FROM {item}")

    assert found == wanted
    assert [list(row) for row in found] == [list(row) for row in wanted]


def test_alias_names_the_result():
    sql = f"SELECT p.Q2 FROM {_PRODUCE} PIVOT(MAX(sales) FOR quarter IN ('Q2')) AS p WHERE p.Q2 > 1"

    assert named_rows(sql) == [{"Q2": 23}]


_ERRORS = [
    ("(SELECT 1 AS a, 'x' AS b) UNPIVOT(v FOR k IN (a, b))", "of one type"),
    ("(SELECT 1 AS a) UNPIVOT(v FOR k IN (a, a))", "different columns"),
    ("(SELECT 1 AS a) UNPIVOT(v FOR k IN (c))", "is no column"),
    ("(SELECT 1 AS a, 5 AS k) PIVOT(SUM(a) FOR j IN (5))", "Unrecognized name: j"),
    ("(SELECT 1 AS a, 5 AS k) PIVOT(SUM(a) FOR k IN ('x'))", "No matching signature"),
]


@pytest.mark.parametrize(("item", "message"), _ERRORS, ids=[sql for sql, _ in _ERRORS])
def test_wrong_pivot_is_an_error(item, message):
    with pytest.raises(Refused, match=message):
        named_rows(f"SELECT * FROM {item}")


_REFUSED = [
    ("(SELECT 1 AS a, 5 AS k) PIVOT(ARRAY_AGG(a) FOR k IN (5))", "PIVOT with ARRAY_AGG"),
    ("(SELECT 1 AS a, 5 AS k) PIVOT(SUM(DISTINCT a) FOR k IN (5))", "PIVOT with SUM"),
    ("(SELECT 1 AS a, 5.5 AS k) PIVOT(SUM(a) FOR k IN (5.5))", "without an alias"),
    ("(SELECT 1 AS a, 'x y' AS k) PIVOT(SUM(a) FOR k IN ('x y'))", "without an alias"),
    ("(SELECT 1 AS a) UNPIVOT((v) FOR k IN ((a)))", "UNPIVOT"),
    ("(SELECT 1 AS a) UNPIVOT(v FOR k IN (a AS 1))", "labels that are no texts"),
]


@pytest.mark.parametrize(("item", "construct"), _REFUSED, ids=[sql for sql, _ in _REFUSED])
def test_inexact_pivot_is_refused_by_name(item, construct):
    with pytest.raises(InvalidQuery, match=construct):
        named_rows(f"SELECT * FROM {item}")
