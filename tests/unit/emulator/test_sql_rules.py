"""BigQuery's rules where other engines differ, one query each, and what must be refused."""

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from bqflink_beam.emulator import values
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import (
    InvalidQuery,
    RowFilter,
    TableInput,
    ViewInput,
    compile_text,
    filter_rows,
)
from bqflink_beam.schema.model import Field, TableSchema

_SCHEMA = TableSchema(
    (
        Field(name="id", type="INT64"),
        Field(name="name", type="STRING"),
        Field(name="day", type="DATE"),
        Field(name="arr", type="INT64", mode="REPEATED"),
    )
)
_ROWS = [
    {"id": 1, "name": "one", "day": datetime.date(2020, 1, 31), "arr": [1, 2]},
    {"id": 2, "name": None, "day": None, "arr": []},
    {"id": 3, "name": "100%", "day": datetime.date(2021, 2, 28), "arr": [3]},
]


class _Catalog:
    def table(self, path, at_s):
        if path == ("d", "v"):
            return ViewInput("SELECT id FROM d.t WHERE id > 1")
        if path != ("d", "t"):
            raise Refused(f"Not found: Table {'.'.join(path)}", code="NOT_FOUND")
        table = pa.Table.from_batches([values.batch_from_rows(_SCHEMA, _ROWS)])
        return TableInput(_SCHEMA, lambda: table)


def _run(sql):
    return compile_text(sql, _Catalog(), now_s=1_600_000_000.25).run()


def _column(sql):
    return [list(row.values())[0] for row in _run(sql).to_pylist()]


_NAN = "CAST('nan' AS FLOAT64)"
_RULES = [
    # NaN: unordered in comparisons, first in ORDER BY, contagious in MIN and MAX, one group.
    (f"SELECT {_NAN} = {_NAN}", [False]),
    (f"SELECT {_NAN} <> 1.0", [True]),
    (f"SELECT {_NAN} > 1.0", [False]),
    (f"SELECT NOT ({_NAN} > 1.0)", [True]),
    (f"SELECT {_NAN} > CAST(NULL AS FLOAT64)", [None]),
    (f"SELECT IS_NAN(x) FROM UNNEST([1.0, {_NAN}, -1.0]) AS x ORDER BY x", [True, False, False]),
    (f"SELECT x = -1 FROM UNNEST([1.0, {_NAN}, -1.0]) AS x ORDER BY x DESC", [False, True, False]),
    (f"SELECT IS_NAN(MIN(x)) FROM UNNEST([1.0, {_NAN}]) AS x", [True]),
    (f"SELECT COUNT(*) AS n FROM UNNEST([{_NAN}, {_NAN}]) AS x GROUP BY x", [2]),
    (f"SELECT IS_NAN(GREATEST(1.0, {_NAN}))", [True]),
    ("SELECT IS_NAN(CAST(x AS FLOAT64)) FROM UNNEST(['nan', '1']) AS x WITH OFFSET AS o ORDER BY o", [True, False]),
    ("SELECT IS_NAN(ROUND(x)) FROM UNNEST([CAST('nan' AS FLOAT64), 1.5]) AS x WITH OFFSET AS o ORDER BY o", [True, False]),
    ("SELECT SAFE_CAST(x AS INT64) FROM UNNEST([CAST('nan' AS FLOAT64), 2.5]) AS x WITH OFFSET AS o ORDER BY o", [None, 3]),
    ("SELECT CAST(x AS FLOAT64) FROM UNNEST(['5e-324', '0.1', '-1e400', ' 2 ']) AS x WITH OFFSET AS o ORDER BY o", [5e-324, 0.1, -math.inf, 2.0]),
    # Both zeros are one group and equal.
    ("SELECT COUNT(*) AS n FROM UNNEST([0.0, -0.0]) AS x GROUP BY x", [2]),
    ("SELECT COUNT(DISTINCT x) FROM UNNEST([0.0, -0.0]) AS x", [1]),
    # NULLs come first ascending, last descending, unless said otherwise.
    ("SELECT id FROM d.t ORDER BY name, id", [2, 3, 1]),
    ("SELECT id FROM d.t ORDER BY name DESC, id", [1, 3, 2]),
    ("SELECT id FROM d.t ORDER BY name NULLS LAST", [3, 1, 2]),
    ("SELECT id FROM d.t ORDER BY name DESC NULLS FIRST", [2, 1, 3]),
    # Three-valued logic.
    ("SELECT 1 IN (2, NULL)", [None]),
    ("SELECT 1 NOT IN (2, NULL)", [None]),
    ("SELECT 1 IN (1, NULL)", [True]),
    ("SELECT 1 IN UNNEST([2, NULL])", [None]),
    ("SELECT 1 IN UNNEST(CAST(NULL AS ARRAY<INT64>))", [False]),
    ("SELECT 5 IN (SELECT id FROM d.t)", [False]),
    ("SELECT 5 IN (SELECT NULLIF(id, 2) FROM d.t)", [None]),
    ("SELECT 1 IN (SELECT id FROM d.t WHERE FALSE)", [False]),
    ("SELECT CAST(NULL AS BOOL) IS TRUE", [False]),
    ("SELECT CAST(NULL AS BOOL) IS NOT FALSE", [True]),
    # LIKE: case matters, the backslash escapes, a dot is a dot.
    (r"SELECT '100%' LIKE '100\\%'", [True]),
    (r"SELECT '1000' LIKE '100\\%'", [False]),
    (r"SELECT 'a_b' LIKE 'a\\_b' AND NOT 'axb' LIKE 'a\\_b'", [True]),
    (r"SELECT 'a\\b' LIKE 'a\\\\b'", [True]),
    ("SELECT 'A' LIKE 'a'", [False]),
    ("SELECT 'a\\nb' LIKE 'a%b'", [True]),
    # Integers: division is FLOAT64, DIV and MOD truncate, casts round half away from zero.
    ("SELECT 7 / 2", [3.5]),
    ("SELECT DIV(-7, 2)", [-3]),
    ("SELECT MOD(-7, 2)", [-1]),
    ("SELECT CAST(2.5 AS INT64)", [3]),
    ("SELECT CAST(-2.5 AS INT64)", [-3]),
    ("SELECT ROUND(-2.5)", [-3.0]),
    ("SELECT -9223372036854775808", [-(2**63)]),
    ("SELECT 0x1F", [31]),
    # NUMERIC: exact, rounded half away from zero at nine digits; literals are what they say.
    ("SELECT NUMERIC '10' / 3", [Decimal("3.333333333")]),
    ("SELECT NUMERIC '20' / 3", [Decimal("6.666666667")]),
    ("SELECT NUMERIC '0.000000001' * NUMERIC '0.5'", [Decimal("0.000000001")]),
    ("SELECT NUMERIC '-0.000000001' * NUMERIC '0.5'", [Decimal("-0.000000001")]),
    ("SELECT NUMERIC '1.1' = 1.1", [True]),
    ("SELECT NUMERIC '-9.223372036854775807' * 9223372036854775807", [Decimal("-85070591731574072608.187908859")]),
    ("SELECT 2 * NUMERIC '49999999999999999999999999999.999999999'", [Decimal("99999999999999999999999999999.999999998")]),
    ("SELECT BIGNUMERIC '0.1' = 0.1", [True]),
    ("SELECT BIGNUMERIC '1e-38' * 2", [Decimal("2e-38")]),
    ("SELECT BIGNUMERIC '-3' < BIGNUMERIC '2'", [True]),
    ("SELECT BIGNUMERIC '578960446186580977117854925043439539266' > 0", [True]),
    ("SELECT AVG(x) FROM UNNEST([NUMERIC '1', NUMERIC '2', NUMERIC '2']) AS x", [Decimal("1.666666667")]),
    ("SELECT SUM(x) FROM UNNEST([BIGNUMERIC '1e38', BIGNUMERIC '1e-38']) AS x", [Decimal("1" + "0" * 38 + "." + "0" * 37 + "1")]),
    ("SELECT CAST(99999999999999999999999999999.999999999 AS NUMERIC)", [Decimal("99999999999999999999999999999.999999999")]),
    ("SELECT CAST(STRUCT(99999999999999999999999999.999999999) AS STRUCT<x NUMERIC>).x", [Decimal("100000000000000004764729344")]),
    ("SELECT CAST((1, NULL) AS STRUCT<a INT64, d DATE>).a", [1]),
    ("SELECT CAST(1.234567890123456789 AS BIGNUMERIC) = BIGNUMERIC '1.234567890123456789'", [True]),
    # A bare NULL is of the type that the other queries give it, a STRUCT of its fields' types.
    ("SELECT x FROM (SELECT NULL AS x UNION ALL SELECT 'a') ORDER BY x", [None, "a"]),
    ("SELECT NULL AS x UNION ALL SELECT NULL UNION ALL SELECT DATE '2020-01-01' ORDER BY x DESC LIMIT 1", [datetime.date(2020, 1, 1)]),
    ("SELECT n FROM UNNEST([STRUCT(1 AS id, 'a' AS n), STRUCT(2, NULL), STRUCT(NULL, 'c')]) WITH OFFSET AS o ORDER BY o", ["a", None, "c"]),
    ("SELECT id FROM UNNEST([STRUCT(1 AS id), STRUCT(2.5), STRUCT(NULL)]) WITH OFFSET AS o ORDER BY o", [1.0, 2.5, None]),
    ("SELECT s.a FROM (SELECT STRUCT(1 AS a, 'x' AS b) AS s UNION ALL SELECT (2, 'y')) ORDER BY 1", [1, 2]),
    ("SELECT s.a FROM (SELECT STRUCT(1 AS a) AS s UNION ALL SELECT STRUCT(2)) ORDER BY 1", [1, 2]),
    ("SELECT [STRUCT(DATE '2020-01-01' AS d), STRUCT('2020-01-02')]", [[{"d": datetime.date(2020, 1, 1)}, {"d": datetime.date(2020, 1, 2)}]]),
    # Rounding keeps the type.
    ("SELECT ROUND(BIGNUMERIC '-2.5')", [Decimal("-3")]),
    ("SELECT TRUNC(BIGNUMERIC '578960446186580977117854925043439539266.3499', 2)", [Decimal("578960446186580977117854925043439539266.34")]),
    ("SELECT CEIL(BIGNUMERIC '1e-38')", [Decimal("1")]),
    ("SELECT FLOOR(BIGNUMERIC '-1e-38')", [Decimal("-1")]),
    # Text of values.
    ("SELECT CAST(1.0 AS STRING)", ["1"]),
    ("SELECT CAST(-0.0 AS STRING)", ["0"]),
    ("SELECT CAST(1.123456789123456789e25 AS STRING)", ["1.1234567891234567e+25"]),
    ("SELECT CAST(1e300 AS STRING)", ["1e+300"]),
    ("SELECT CAST(0.1 AS STRING)", ["0.1"]),
    ("SELECT CAST(NUMERIC '1.50' AS STRING)", ["1.5"]),
    ("SELECT CAST(TIMESTAMP '2020-01-01 00:00:00.5+02:00' AS STRING)", ["2019-12-31 22:00:00.500+00"]),
    ("SELECT CAST(TRUE AS STRING)", ["true"]),
    # Literals.
    (r"SELECT b'ab\xff'", [b"ab\xff"]),
    (r"SELECT b'é'", ["é".encode()]),
    (r"SELECT r'a\d'", ["a\\d"]),
    (r"SELECT 'it\'s \u00e9\x41\101'", ["it's éAA"]),
    ("SELECT '''two\n'lines'''", ["two\n'lines"]),
    ("SELECT 'a' -- 'b'", ["a"]),
    ("SELECT /* ' */ 'a' # 'b", ["a"]),
    # Strings.
    ("SELECT SUBSTR('héllo', 2, 2)", ["él"]),
    ("SELECT SUBSTR('hello', -3, 2)", ["ll"]),
    ("SELECT SUBSTR('hello', 0, 2)", ["he"]),
    ("SELECT SUBSTR('hello', -9, 2)", ["he"]),
    ("SELECT SUBSTR('abc', 2, 9223372036854775807)", ["bc"]),
    ("SELECT SUBSTR('abc', -9223372036854775808)", ["abc"]),
    ("SELECT NULL LIKE 'a'", [None]),
    ("SELECT REPLACE('', '', CAST(NULL AS STRING))", [None]),
    ("SELECT ARRAY_TO_STRING(['a', 'b'], NULL)", [None]),
    ("SELECT FROM_HEX('abc')", [b"\x0a\xbc"]),
    ("SELECT LEFT('abc', NULL)", [None]),
    ("SELECT RIGHT('abc', NULL)", [None]),
    ("SELECT SUBSTR('abc', 1, NULL)", [None]),
    ("SELECT SUBSTR('abc', NULL)", [None]),
    ("SELECT TRIM('\\u00a0 a\\u2003')", ["a"]),
    ("SELECT LTRIM(' a ') || '|'", ["a |"]),
    ("SELECT LPAD('abc', 8, 'def')", ["defdeabc"]),
    ("SELECT RPAD('é', 3) || '|'", ["é  |"]),
    ("SELECT LPAD('abc', 2)", ["ab"]),
    ("SELECT TO_HEX(MD5('abc'))", ["900150983cd24fb0d6963f7d28e17f72"]),
    ("SELECT TO_HEX(SHA1(b'abc'))", ["a9993e364706816aba3e25717850c26c9cd0d89d"]),
    ("SELECT LENGTH(SHA512('é')) + LENGTH(SHA256('')) + LENGTH(MD5(''))", [112]),
    ("SELECT LEFT('abc', 9223372036854775807) || RIGHT('abc', 9223372036854775807)", ["abcabc"]),
    ("SELECT CAST(b'' AS STRING)", [""]),
    ("SELECT UPPER('a\\x00b')", ["A\0B"]),
    ("SELECT a FROM (SELECT * EXCEPT (b) REPLACE (a + 1 AS a) FROM (SELECT 1 AS a, 2 AS b))", [2]),
    ("SELECT LENGTH('é') + BYTE_LENGTH('é')", [3]),
    ("SELECT UPPER('é') || LOWER('É')", ["Éé"]),
    ("SELECT REVERSE('ae\u0301')", ["\u0301ea"]),
    ("SELECT CASE WHEN id = 1 THEN NULL ELSE 1 / (id - 1) END FROM d.t ORDER BY id", [None, 1.0, 0.5]),
    ("SELECT CAST('TRUE' AS BOOL)", [True]),
    ("SELECT STRPOS('abc', 'c')", [3]),
    # Dates.
    ("SELECT DATE_ADD(DATE '2020-01-31', INTERVAL 1 MONTH)", [datetime.date(2020, 2, 29)]),
    ("SELECT DATE_SUB(DATE '2020-03-31', INTERVAL 1 QUARTER)", [datetime.date(2019, 12, 31)]),
    ("SELECT DATE_TRUNC(DATE '2020-01-05', WEEK)", [datetime.date(2020, 1, 5)]),
    ("SELECT DATE_TRUNC(DATE '2020-01-05', WEEK(MONDAY))", [datetime.date(2019, 12, 30)]),
    ("SELECT DATE_TRUNC(DATE '2020-01-05', ISOWEEK)", [datetime.date(2019, 12, 30)]),
    ("SELECT DATE_TRUNC(DATE '2021-01-02', ISOYEAR)", [datetime.date(2019, 12, 30)]),
    ("SELECT DATE_DIFF(DATE '2020-01-05', DATE '2020-01-04', WEEK)", [1]),
    ("SELECT DATE_DIFF(DATE '2020-03-01', DATE '2020-02-29', MONTH)", [1]),
    ("SELECT EXTRACT(WEEK FROM DATE '2020-01-04')", [0]),
    ("SELECT EXTRACT(ISOWEEK FROM DATE '2021-01-01')", [53]),
    ("SELECT EXTRACT(ISOYEAR FROM DATE '2021-01-01')", [2020]),
    ("SELECT EXTRACT(DAYOFWEEK FROM DATE '2020-01-05')", [1]),
    ("SELECT TIMESTAMP_DIFF(TIMESTAMP '2020-01-02 00:00:00', TIMESTAMP '2020-01-01 00:00:01', DAY)", [0]),
    ("SELECT DATETIME_DIFF(DATETIME '2020-01-02', DATETIME '2020-01-01 23:59:59', DAY)", [1]),
    ("SELECT UNIX_SECONDS(TIMESTAMP '1969-12-31 23:59:59.5')", [-1]),
    ("SELECT FORMAT_DATE('%Y-%m', DATE '2020-01-05')", ["2020-01"]),
    ("SELECT UNIX_MICROS(CURRENT_TIMESTAMP())", [1_600_000_000_250_000]),
    ("SELECT DATE '2020-02-28' + 2", [datetime.date(2020, 3, 1)]),
    ("SELECT DATETIME(DATE '2020-01-31', TIME '10:00:00.5')", [datetime.datetime(2020, 1, 31, 10, 0, 0, 500_000)]),  # noqa: DTZ001
    ("SELECT DATETIME(2020, 1, 31, 23, 59, 59)", [datetime.datetime(2020, 1, 31, 23, 59, 59)]),  # noqa: DTZ001
    # Time zones: a clock that skips is counted on from before the gap, the first of two times counts.
    ("SELECT EXTRACT(HOUR FROM TIMESTAMP '2020-07-01 00:30:00+00' AT TIME ZONE 'America/New_York')", [20]),
    ("SELECT EXTRACT(DATE FROM TIMESTAMP '2020-07-01 20:30:00+00' AT TIME ZONE '+05:30')", [datetime.date(2020, 7, 2)]),
    ("SELECT DATE(TIMESTAMP '2020-07-01 00:30:00+00', 'America/New_York')", [datetime.date(2020, 6, 30)]),
    ("SELECT DATETIME(TIMESTAMP '1890-01-01 00:00:00+00', 'America/New_York')", [datetime.datetime(1889, 12, 31, 19)]),  # noqa: DTZ001
    ("SELECT UNIX_SECONDS(TIMESTAMP(DATETIME '2020-03-08 02:30:00', 'America/New_York')) - UNIX_SECONDS(TIMESTAMP '2020-03-08 07:30:00+00')", [0]),
    ("SELECT UNIX_SECONDS(TIMESTAMP(DATETIME '2020-11-01 01:30:00', 'America/New_York')) - UNIX_SECONDS(TIMESTAMP '2020-11-01 05:30:00+00')", [0]),
    ("SELECT TIMESTAMP('2020-01-01', 'Europe/Berlin') = TIMESTAMP '2019-12-31 23:00:00+00'", [True]),
    ("SELECT TIMESTAMP '2020-01-01 Asia/Tokyo' = TIMESTAMP '2019-12-31 15:00:00+00'", [True]),
    ("SELECT CAST('2020-07-01 00:00:00 America/Los_Angeles' AS TIMESTAMP) = TIMESTAMP '2020-07-01 07:00:00+00'", [True]),
    ("SELECT TIMESTAMP_TRUNC(TIMESTAMP '2020-07-01 03:30:00+00', DAY, 'America/New_York') = TIMESTAMP '2020-06-30 04:00:00+00'", [True]),
    ("SELECT TIMESTAMP_TRUNC(TIMESTAMP '2020-07-01 03:15:00+00', HOUR, 'Asia/Kolkata') = TIMESTAMP '2020-07-01 02:30:00+00'", [True]),
    ("SELECT FORMAT_TIMESTAMP('%F %T', TIMESTAMP '2020-07-01 03:30:00+00', 'America/New_York')", ["2020-06-30 23:30:00"]),
    ("SELECT CURRENT_DATETIME('Asia/Tokyo')", [datetime.datetime(2020, 9, 13, 21, 26, 40, 250_000)]),  # noqa: DTZ001
    ("SELECT DATE(TIMESTAMP '2020-07-01 00:30:00+00', CAST(NULL AS STRING))", [None]),
    ("SELECT SAFE_CAST('2020-01-01 00:00:00 Nope/Zone' AS TIMESTAMP)", [None]),
    # Arrays and subqueries.
    ("SELECT ARRAY(SELECT x * 2 FROM UNNEST(arr) AS x ORDER BY x DESC) FROM d.t ORDER BY id", [[4, 2], [], [6]]),
    ("SELECT CAST(NULL AS ARRAY<INT64>)", [[]]),
    ("SELECT arr[SAFE_OFFSET(1)] FROM d.t ORDER BY id", [2, None, None]),
    ("SELECT arr[ORDINAL(1)] FROM d.t WHERE id = 1", [1]),
    ("SELECT ARRAY_AGG(name IGNORE NULLS ORDER BY name DESC LIMIT 1) FROM d.t", [["one"]]),
    ("SELECT STRING_AGG(name, '|' ORDER BY name) FROM d.t", ["100%|one"]),
    ("SELECT id FROM d.v ORDER BY id", [2, 3]),
    ("WITH q AS (SELECT 1 AS id UNION ALL SELECT 2) SELECT q.id FROM q JOIN d.t AS t USING (id) ORDER BY 1", [1, 2]),
    ("SELECT t.id FROM d.t AS t LEFT JOIN UNNEST(t.arr) AS x WHERE x IS NULL", [2]),
    ("SELECT (SELECT COUNT(*) FROM t.arr) FROM d.t AS t ORDER BY id", [2, 0, 1]),
    ("SELECT id FROM d.t AS t WHERE EXISTS(SELECT 1 FROM t.arr AS x WHERE x = 3)", [3]),
    ("SELECT STRING_AGG(DISTINCT x ORDER BY x DESC) FROM UNNEST(['b', 'a', 'b', 'c']) AS x", ["c,b,a"]),
    ("SELECT ARRAY_AGG(DISTINCT x IGNORE NULLS ORDER BY x LIMIT 2) FROM UNNEST([2, 1, NULL, 2, 3]) AS x", [[1, 2]]),
    ("SELECT AVG(x) FROM UNNEST([1.5, NULL, 2.5]) AS x", [2.0]),
    ("SELECT LAG(id, 2, 0) OVER (ORDER BY id) FROM d.t ORDER BY id", [0, 0, 1]),
    ("SELECT LEAD(id, 1, 2.5) OVER (ORDER BY id) FROM d.t ORDER BY id", [2.0, 3.0, 2.5]),
    ("SELECT NTILE(2) OVER (ORDER BY id) FROM d.t ORDER BY id", [1, 1, 2]),
    ("SELECT COUNT(*) OVER (PARTITION BY MOD(id, 2)) FROM d.t ORDER BY id", [2, 1, 2]),
    ("SELECT o FROM d.t, UNNEST(arr) AS x WITH OFFSET AS o WHERE x = 2", [1]),
    ("SELECT s.b FROM (SELECT STRUCT(1 AS a, STRUCT(2 AS c) AS b) AS s)", [{"c": 2}]),
    ("SELECT id FROM d.t WHERE day BETWEEN '2020-01-01' AND '2020-12-31'", [1]),
    ("SELECT id FROM d.t QUALIFY ROW_NUMBER() OVER (ORDER BY id DESC) = 1", [3]),
    ("SELECT SUM(id) AS total FROM d.t GROUP BY name IS NULL HAVING total > 2 ORDER BY 1", [4]),
    ("SELECT 1 UNION DISTINCT SELECT 1.0", [1.0]),
    ("SELECT id FROM d.t EXCEPT DISTINCT SELECT 1 ORDER BY id", [2, 3]),
]  # fmt: skip


@pytest.mark.parametrize(("sql", "wanted"), _RULES, ids=[sql for sql, _ in _RULES])
def test_query_answers_as_bigquery_does(sql, wanted):
    found = _column(sql)

    assert found == wanted
    assert [type(value) for value in found] == [type(value) for value in wanted]


_ERRORS = [
    ("SELECT 1/0", "division by zero: 1 / 0"),
    ("SELECT GENERATE_DATE_ARRAY('2016-01-01', '2017-01-01', INTERVAL 0 DAY)", "step cannot be 0"),
    ("SELECT STRUCT(1 AS a, 2 AS a)", "must differ"),
    ("SELECT ROW_NUMBER() OVER (ORDER BY id ROWS 2 PRECEDING) FROM d.t", "framing clause"),
    ("SELECT LAG(id, 1, id) OVER (ORDER BY id) FROM d.t", "must be constant"),
    ("SELECT LAG(id, -1) OVER (ORDER BY id) FROM d.t", "at least 0"),
    ("SELECT NTILE(0) OVER (ORDER BY id) FROM d.t", "at least 1"),
    ("SELECT LPAD('a', -1)", "length of at least 0"),
    ("SELECT LPAD('a', 5, '')", "pattern"),
    ("SELECT LPAD('a', 1000000000000)", "exceeds"),
    ("SELECT RANK() OVER () FROM d.t", "ORDER BY is required"),
    ("SELECT [STRUCT(DATE '2020-01-01'), STRUCT(CONCAT('2020', '-01-02'))]", "DATE, STRING"),
    ("SELECT CAST(NULL AS STRUCT<INT64>) IS NULL OR [STRUCT(1)] = [STRUCT('x')]", "No matching"),
    ("SELECT -(-9223372036854775808)", "Overflow"),
    (
        "SELECT DATE(TIMESTAMP '2020-01-01 00:00:00+00', 'Mars/Olympus_Mons')",
        "Invalid time zone: Mars",
    ),
    ("SELECT DATE(TIMESTAMP '2020-01-01 00:00:00+00', '/etc/passwd')", "Invalid time zone"),
    ("SELECT TIMESTAMP '2020-01-01 00:00:00 Nope/Zone'", "Invalid time zone: Nope/Zone"),
    ("SELECT TIMESTAMP('2020-01-01 00:00:00+05', 'Europe/Berlin')", "Invalid datetime"),
    ("SELECT EXTRACT(HOUR FROM DATETIME '2020-01-01' AT TIME ZONE 'UTC+')", "Invalid time zone"),
    ("SELECT EXTRACT(HOUR FROM DATETIME '2020-01-01' AT TIME ZONE '+01')", "takes no time zone"),
    ("SELECT CAST(x AS INT64) FROM UNNEST([CAST('nan' AS FLOAT64)]) AS x", "out of range"),
    ("SELECT CAST(' true' AS BOOL)", "Bad bool value"),
    ("SELECT CAST('2020-01-01 ' AS DATE)", "Invalid date"),
    ("SELECT CAST(' 2020-01-01' AS TIMESTAMP)", "Invalid timestamp"),
    ("SELECT CAST('2020-01-01 ' AS DATETIME)", "Invalid datetime"),
    ("SELECT ERROR(CAST(NULL AS STRING))", "NULL"),
    ("SELECT AVG(x) FROM UNNEST([1e308, 1e308]) AS x", "double overflow"),
    ("SELECT FROM_HEX('0f 0f')", "hexadecimal"),
    ("SELECT 1 UNION ALL SELECT 2 EXCEPT DISTINCT SELECT 1", "Different set operations"),
    ("SELECT 1 UNION ALL SELECT 1 UNION DISTINCT SELECT 1", "Different set operations"),
    ("SELECT 1e400", "Invalid floating point literal"),
    ("SELECT TIME(24, 0, 0)", "invalid time"),
    ("SELECT TIME(23, 59, 60)", "invalid time"),
    ("SELECT DATETIME(2020, 1, 2, 24, 0, 0)", "invalid datetime"),
    ("SELECT ROUND(BIGNUMERIC '578960446186580977117854925043439539266.5', -39)", "(?i)overflow"),
    # Functions of other databases, and calls with the wrong number of arguments.
    ("SELECT ISNAN(1.0)", "Function not found: ISNAN"),
    ("SELECT IIF(TRUE, 1, 2)", "Function not found: IIF"),
    ("SELECT SUBSTR('x')", "SUBSTR with 1 argument"),
    ("SELECT CEIL()", "CEIL with 0 arguments"),
    ("SELECT ARRAY()", "ARRAY with 0 arguments"),
    ("SELECT DATE_DIFF(DATE '2020-01-01', DATE '2020-01-01')", "DATE_DIFF with 2 arguments"),
    ("SELECT DATETIME(2020, 1, 1)", "six numbers"),
    ("SELECT REGEXP_EXTRACT()", "with 0 arguments"),
    ("SELECT J_S_O_N_EXISTS(1, 1, 1)", "(?i)not supported"),
    ("SELECT MOD(1, 0)", "division by zero"),
    ("SELECT NUMERIC '1' / 0", "division by zero"),
    ("SELECT 9223372036854775807 + 1", "Overflow"),
    ("SELECT SUM(x) FROM UNNEST([9223372036854775807, 1]) AS x", "out of range|INT64"),
    ("SELECT 1e308 * 10", "double overflow"),
    ("SELECT 1 / (1e308 * 10)", "double overflow"),
    ("SELECT NUMERIC '99999999999999999999999999999' * 10", "(?i)overflow"),
    ("SELECT NUMERIC '99999999999999999999999999999' * NUMERIC '10'", "numeric overflow"),
    ("SELECT CAST('12x' AS INT64)", "Bad int64 value: 12x"),
    ("SELECT CAST('1.5' AS INT64)", "Bad int64"),
    ("SELECT CAST('1_000' AS INT64)", "Bad int64"),
    ("SELECT DATE '2020-02-30'", "Invalid date"),
    ("SELECT DATE_ADD(DATE '9999-12-31', INTERVAL 1 DAY)", "out of range"),
    ("SELECT [1, NULL]", "Array cannot have a null element"),
    ("SELECT arr[OFFSET(5)] FROM d.t", "out of bounds"),
    ("SELECT (SELECT id FROM d.t)", "(?i)more than one row|single"),
    ("SELECT nope FROM d.t", "Unrecognized name: nope"),
    ("SELECT id FROM d.missing", "Not found"),
    ("SELECT a.id FROM d.t AS a, d.t AS b WHERE id = 1", "ambiguous"),
    ("SELECT id, COUNT(*) FROM d.t", "GROUP BY"),
    ("SELECT id FROM d.t WHERE COUNT(*) > 1", "Aggregate function COUNT not allowed"),
    ("SELECT 1 AS a, 2 AS A", "Duplicate column names"),
    ("SELECT 'a' < 1", "No matching signature"),
    ("SELECT id FROM d.t WHERE name", "BOOL"),
    ("SELECT 'a\\q'", "Illegal escape"),
    ("SELECT CAST('yes' AS BOOL)", "Bad bool"),
    ("SELECT 1 = 1 = TRUE", "parentheses"),
    ("SELECT 1 IN (1) = TRUE", "parentheses"),
    ("SELECT 'a' || 1 + 2", "No matching signature"),
    ("SELECT 'a", "Unclosed string"),
    ("SELECT FROM", "Syntax error"),
    ("SELEC 1", "Syntax error"),
    ("SELECT @p", "parameter 'p' not found"),
]


@pytest.mark.parametrize(("sql", "message"), _ERRORS, ids=[sql for sql, _ in _ERRORS])
def test_wrong_query_is_an_error(sql, message):
    with pytest.raises(Refused, match=message):
        _run(sql)


_REFUSED = [
    ("SELECT FARM_FINGERPRINT(name) FROM d.t", "FARM_FINGERPRINT"),
    ("SELECT RAND()", "RAND"),
    ("SELECT COUNT(*) OVER (PARTITION BY MOD(id, id)) FROM d.t", "may fail is not supported"),
    ("SELECT SQRT(NUMERIC '2')", "SQRT of NUMERIC"),
    ("SELECT id FROM d.t TABLESAMPLE SYSTEM (10 PERCENT)", "SAMPLE"),
    ("SELECT CONTAINS_SUBSTR(name, 'x') FROM d.t", "(?i)contains"),
    ("SELECT JSON '1' = JSON '1'", "JSON"),
    ("SELECT 1 | 2 & 3", "bitwise"),
    ("SELECT UPPER('straße')", "UPPER of 'ß'"),
    ("SELECT LOWER('ΟΔΟΣ')", "sigma"),
    ("FROM d.t |> WHERE id > 1", "Pipe"),
    ("WITH RECURSIVE q AS (SELECT 1 AS a) SELECT a FROM q", "RECURSIVE"),
    ("SELECT 1; SELECT 2", "script"),
    ("DECLARE x INT64", "Declare"),
    ("SELECT name FROM d.t UNION ALL BY NAME SELECT name FROM d.t", "(?i)name"),
    ("SELECT ARRAY_AGG(DISTINCT name ORDER BY id) FROM d.t", "DISTINCT and ORDER BY"),
    ("SELECT SUM(id) FILTER (WHERE id > 1) FROM d.t", "(?i)filter"),
]


@pytest.mark.parametrize(("sql", "construct"), _REFUSED, ids=[sql for sql, _ in _REFUSED])
def test_unsupported_construct_is_refused_by_name(sql, construct):
    with pytest.raises(InvalidQuery, match=construct):
        _run(sql)


def test_result_types_are_bigquery_types():
    query = compile_text(
        "SELECT 1 AS i, NUMERIC '1' + 1 AS n, BIGNUMERIC '1' AS b, DATETIME '2020-01-01' AS dt, "
        "TIMESTAMP '2020-01-01' AS ts, JSON '{}' AS j, [STRUCT(1 AS x)] AS a, 1 / 2 AS f",
        _Catalog(),
        now_s=0.0,
    )

    assert [(f.name, f.type, f.mode) for f in query.schema] == [
        ("i", "INT64", "NULLABLE"),
        ("n", "NUMERIC", "NULLABLE"),
        ("b", "BIGNUMERIC", "NULLABLE"),
        ("dt", "DATETIME", "NULLABLE"),
        ("ts", "TIMESTAMP", "NULLABLE"),
        ("j", "JSON", "NULLABLE"),
        ("a", "STRUCT", "REPEATED"),
        ("f", "FLOAT64", "NULLABLE"),
    ]


def test_star_over_using_has_the_shared_column_once_and_first():
    table = _run("SELECT * FROM (SELECT 'a' AS v, 1 AS k) JOIN (SELECT 1 AS k, 2 AS w) USING (k)")

    assert table.to_pylist() == [{"k": 1, "v": "a", "w": 2}]
    assert table.column_names == ["k", "v", "w"]


def test_infinity_in_is_infinity_out():
    assert _column("SELECT CAST('inf' AS FLOAT64) * 2") == [math.inf]


def test_megabyte_of_comment_and_literal_is_read():
    assert _column(f"SELECT 'x' /* {'y' * 1_000_000} */") == ["x"]
    assert _column(f"SELECT LENGTH('{'z' * 1_000_000}')") == [1_000_000]


@pytest.mark.parametrize(
    "predicate",
    [
        "id > 1; DROP TABLE t",
        "id > 1 ORDER BY id",
        "id > 1 UNION ALL SELECT 1",
        "id IN (SELECT 1)",
        "COUNT(*) > 1",
        "nope = 1",
        "id >",
        "name",
        "1",
    ],
)
def test_row_restriction_that_is_no_plain_predicate_is_refused(predicate):
    with pytest.raises(InvalidQuery):
        RowFilter(_SCHEMA, predicate)


def test_row_restriction_keeps_rows_as_they_are():
    batch = values.batch_from_rows(_SCHEMA, _ROWS)

    kept = filter_rows(_SCHEMA, batch, "name LIKE '%n%' OR id = 3 -- why not")

    assert kept.equals(values.batch_from_rows(_SCHEMA, [_ROWS[0], _ROWS[2]]), check_metadata=True)


_PASSED = TableSchema(
    (
        Field(name="v", type="INTERVAL"),
        Field(name="vs", type="INTERVAL", mode="REPEATED"),
        Field(name="g", type="GEOGRAPHY"),
        Field(name="j", type="JSON", mode="REPEATED"),
        Field(name="r", type="RANGE", range_element_type="TIMESTAMP"),
        Field(name="rs", type="RANGE", range_element_type="DATE", mode="REPEATED"),
        Field(name="w", type="BIGNUMERIC", mode="REPEATED"),
        Field(
            name="s",
            type="STRUCT",
            mode="REPEATED",
            fields=(
                Field(name="w", type="BIGNUMERIC"),
                Field(name="ts", type="TIMESTAMP", mode="REPEATED"),
                Field(name="e", type="STRUCT", fields=(Field(name="y", type="BYTES"),)),
            ),
        ),
    )
)
_UTC = datetime.timezone.utc
_PASSED_ROWS = [
    {
        "v": pa.MonthDayNano((14, -3, 4_005_006_000)),
        "vs": [pa.MonthDayNano((0, 0, -1000)), pa.MonthDayNano((-1, 40, 0))],
        "g": "POINT(1 2)",
        "j": ["null", '{"a": 1}'],
        "r": {"start": datetime.datetime(1, 1, 1, tzinfo=_UTC), "end": None},
        "rs": [{"start": None, "end": datetime.date(9999, 12, 31)}],
        "w": [Decimal("-578960446186580977117854925043439539266"), Decimal("1e-38")],
        "s": [
            {"w": None, "ts": [], "e": None},
            {"w": Decimal("0.5"), "ts": [datetime.datetime(9999, 12, 31, tzinfo=_UTC)], "e": {"y": b"\0"}},
        ],
    },
    {"v": None, "vs": [], "g": None, "j": [], "r": None, "rs": [], "w": [], "s": []},
]  # fmt: skip


def test_values_that_do_not_compare_pass_through_unchanged():
    batch = values.batch_from_rows(_PASSED, _PASSED_ROWS)

    class Catalog:
        def table(self, path, at_s):
            return TableInput(_PASSED, lambda: pa.Table.from_batches([batch]))

    query = compile_text("SELECT * FROM d.t", Catalog(), now_s=0.0)

    assert query.run().to_pylist() == batch.to_pylist()
    assert query.schema == _PASSED
