"""GROUP BY by position, ALL, ROLLUP, CUBE and GROUPING SETS."""

import pytest

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import InvalidQuery
from tests.unit.emulator.sql_run import rows

_SALES = "UNNEST([STRUCT(1 AS x, 'a' AS y), (1, 'b'), (2, NULL)])"
_ROWS = [
    # The number of a column is a number everywhere else.
    ("SELECT x, COUNT(*) + 1 FROM UNNEST([5, 5, 7]) AS x GROUP BY 1 ORDER BY 1", [(5, 3), (7, 2)]),
    ("SELECT x, 1 FROM UNNEST([5, 7]) AS x GROUP BY 1 HAVING x > 1 OR x < 0 ORDER BY 1", [(5, 1), (7, 1)]),
    ("SELECT x + 1 AS z, x + 1 > 2 FROM UNNEST([1, 2]) AS x GROUP BY z ORDER BY z", [(2, False), (3, True)]),
    ("SELECT x, COUNT(*) AS n FROM UNNEST([1, 1, 2]) AS x GROUP BY ALL ORDER BY n", [(2, 1), (1, 2)]),
    ("SELECT COUNT(*) AS n FROM UNNEST([1, 1, 2]) AS x GROUP BY ALL", [(3,)]),
    (
        f"SELECT x, y, COUNT(*) FROM {_SALES} GROUP BY ROLLUP(x, y) ORDER BY x, y, 3",
        [(None, None, 3), (1, None, 2), (1, "a", 1), (1, "b", 1), (2, None, 1), (2, None, 1)],
    ),
    (
        f"SELECT x, COUNT(*) FROM {_SALES} GROUP BY ROLLUP((x, y)) ORDER BY x",
        [(None, 3), (1, 1), (1, 1), (2, 1)],
    ),
    (
        f"SELECT x, y, COUNT(*), GROUPING(x) FROM {_SALES} GROUP BY CUBE(x, y) ORDER BY x, y, 3",
        [(None, None, 1, 1), (None, None, 3, 1), (None, "a", 1, 1), (None, "b", 1, 1), (1, None, 2, 0),
         (1, "a", 1, 0), (1, "b", 1, 0), (2, None, 1, 0), (2, None, 1, 0)],
    ),
    (
        f"SELECT x, COUNT(*) FROM {_SALES} GROUP BY GROUPING SETS(x, (), ()) ORDER BY x",
        [(None, 3), (None, 3), (1, 2), (2, 1)],
    ),
    (
        f"SELECT x, COUNT(*) FROM {_SALES} GROUP BY GROUPING SETS(ROLLUP(x), x) HAVING COUNT(*) > 1 OR x = 2 ORDER BY x",
        [(None, 3), (1, 2), (1, 2), (2, 1), (2, 1)],
    ),
    (
        "SELECT x + 1 AS z, GROUPING(x + 1) FROM UNNEST([1, 2]) AS x GROUP BY ROLLUP(z) ORDER BY z",
        [(None, 1), (2, 0), (3, 0)],
    ),
    (
        "SELECT DATE_TRUNC(x, YEAR) = '2020-01-01', COUNT(*) FROM UNNEST([DATE '2020-01-05', DATE '2021-02-01']) AS x "
        "GROUP BY ROLLUP(DATE_TRUNC(x, YEAR)) ORDER BY 1",
        [(None, 2), (False, 1), (True, 1)],
    ),
    ("SELECT x FROM UNNEST([1]) AS x WHERE FALSE GROUP BY GROUPING SETS(x)", []),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "wanted"), _ROWS, ids=[sql for sql, _ in _ROWS])
def test_groups_are_those_of_bigquery(sql, wanted):
    assert rows(sql) == wanted


_ERRORS = [
    ("SELECT x FROM UNNEST([1]) AS x GROUP BY x, ROLLUP(x)", "and something else"),
    ("SELECT x FROM UNNEST([1]) AS x GROUP BY ROLLUP(CUBE(x))", "(?i)syntax|cannot stand in"),
    ("SELECT GROUPING(x) FROM UNNEST([1]) AS x", "GROUPING must have"),
    ("SELECT GROUPING(x + 1) FROM UNNEST([1]) AS x GROUP BY ROLLUP(x)", "GROUPING must have"),
    ("SELECT x FROM UNNEST([STRUCT(1 AS x, 2 AS y)]) GROUP BY ROLLUP(y)", "GROUP BY"),
    ("SELECT x + 1 AS z, z FROM UNNEST([1]) AS x GROUP BY z", "Unrecognized name: z"),
]


@pytest.mark.parametrize(("sql", "message"), _ERRORS, ids=[sql for sql, _ in _ERRORS])
def test_wrong_grouping_is_an_error(sql, message):
    with pytest.raises(Refused, match=message):
        rows(sql)


_REFUSED = [
    ("SELECT x FROM UNNEST([1]) AS x WHERE FALSE GROUP BY ROLLUP(x)", "of no rows"),
    ("SELECT x FROM UNNEST([1]) AS x WHERE FALSE GROUP BY GROUPING SETS(x, ())", "of no rows"),
    ("SELECT 1, COUNT(*) FROM UNNEST([1]) AS x GROUP BY ROLLUP(1)", "with a constant"),
    ("SELECT x + 1, COUNT(*) FROM UNNEST([1]) AS x GROUP BY ALL", "GROUP BY ALL with"),
]


@pytest.mark.parametrize(("sql", "construct"), _REFUSED, ids=[sql for sql, _ in _REFUSED])
def test_inexact_grouping_is_refused_by_name(sql, construct):
    with pytest.raises(InvalidQuery, match=f"{construct}.*not supported"):
        rows(sql)
