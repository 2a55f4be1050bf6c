"""Intervals, FORMAT, code points and other functions as BigQuery documents them; STRUCTs compared."""

import datetime
import math

import pytest

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import InvalidQuery
from tests.unit.emulator.sql_run import column, value


def _day(*parts):
    return datetime.date(*parts)


def _civil(*parts):
    return datetime.datetime(*parts)  # noqa: DTZ001  a DATETIME has no zone


def _utc(*parts):
    return datetime.datetime(*parts, tzinfo=datetime.timezone.utc)


_TIMES = [
    ("DATE '2020-01-31' + INTERVAL 1 MONTH", _civil(2020, 2, 29)),
    ("INTERVAL 1 DAY + DATE '2020-01-31'", _civil(2020, 2, 1)),
    ("DATE '2020-01-31' - INTERVAL 25 HOUR", _civil(2020, 1, 29, 23)),
    ("DATETIME '2020-01-01' + INTERVAL 1 WEEK - INTERVAL 2 MINUTE", _civil(2020, 1, 7, 23, 58)),
    ("TIMESTAMP '2021-05-02 00:01:02.345+00' + INTERVAL 25 HOUR", _utc(2021, 5, 3, 1, 1, 2, 345_000)),
    ("TIMESTAMP '2020-03-01 00:00:00+00' - INTERVAL 1 DAY", _utc(2020, 2, 29)),
    ("DATETIME '2020-01-01' + INTERVAL CAST(NULL AS INT64) DAY", None),
    ("TIME_ADD(TIME '15:30:00', INTERVAL 10 MINUTE)", datetime.time(15, 40)),
    ("TIME_ADD(TIME '23:30:00', INTERVAL 50 HOUR)", datetime.time(1, 30)),
    ("TIME_SUB(TIME '00:30:00', INTERVAL 9000000000000 SECOND)", datetime.time(8, 30)),
    ("GENERATE_DATE_ARRAY('2016-01-01', '2016-06-30', INTERVAL 2 MONTH)", [_day(2016, 1, 1), _day(2016, 3, 1), _day(2016, 5, 1)]),
    ("GENERATE_DATE_ARRAY('2016-01-01', '2014-12-31', INTERVAL -1 YEAR)", [_day(2016, 1, 1), _day(2015, 1, 1)]),
    ("GENERATE_DATE_ARRAY('9999-01-01', '9999-12-31', INTERVAL 3 QUARTER)", [_day(9999, 1, 1), _day(9999, 10, 1)]),
    ("GENERATE_TIMESTAMP_ARRAY('2016-10-05 00:00:00+00', '2016-10-04 00:00:00+00', INTERVAL -12 HOUR)", [_utc(2016, 10, 5), _utc(2016, 10, 4, 12), _utc(2016, 10, 4)]),
    ("LAST_DAY(DATE '2008-11-25')", _day(2008, 11, 30)),
    ("LAST_DAY(DATE '2008-11-25', YEAR)", _day(2008, 12, 31)),
    ("LAST_DAY(DATE '2008-11-10', WEEK(SUNDAY))", _day(2008, 11, 15)),
    ("LAST_DAY(DATE '2008-11-10', WEEK(MONDAY))", _day(2008, 11, 16)),
    ("LAST_DAY(DATETIME '2008-02-10', QUARTER)", _day(2008, 3, 31)),
]  # fmt: skip
_TEXTS = [
    ("INSTR('banana', 'an', 1, 2)", 4),
    ("INSTR('banana', 'an', 1, 3)", 0),
    ("INSTR('banana', 'an', -1, 1)", 4),
    ("INSTR('banana', 'an', -3, 1)", 4),
    ("INSTR('banana', 'an', -4)", 2),
    ("INSTR('banana', 'an', -1, 3)", 0),
    ("INSTR('banana', 'a', -9)", 0),
    ("INSTR('helloooo', 'oo', 1, 2)", 6),
    ("INSTR('éa', 'a', 9)", 0),
    ("INSTR('éa', NULL)", None),
    ("INITCAP('Hello World-everyone!')", "Hello World-Everyone!"),
    ("INITCAP('the dog BARKS loudly+friendly')", "The Dog Barks Loudly+Friendly"),
    ("INITCAP('apples1oranges2pears', '12')", "Apples1Oranges2Pears"),
    ("TRANSLATE('This is a cookie', 'sco', 'zku')", "Thiz iz a kuukie"),
    ("TRANSLATE('abc', 'ab', 'x')", "xc"),
    ("NORMALIZE('\\u00ea') = NORMALIZE('\\u0065\\u0302')", True),
    ("NORMALIZE('Raha\\u2004Mahan', NFKC)", "Raha Mahan"),
    ("BIT_COUNT(-1)", 64),
    ("SIGN(-2.5)", -1.0),
    ("TO_CODE_POINTS('aé')", [97, 233]),
    ("TO_CODE_POINTS(b'\\x00\\xff')", [0, 255]),
    ("TO_CODE_POINTS('')", []),
    ("CODE_POINTS_TO_STRING([65, 255, 513, 1024])", "AÿȁЀ"),
    ("CHR(1024)", "Ѐ"),
    ("CHR(0)", ""),
    ("ASCII('abcd')", 97),
    ("UNICODE('âbcd')", 226),
    ("UNICODE('')", 0),
    ("FROM_BASE64('/+A=')", b"\xff\xe0"),
    ("(SELECT FROM_HEX(x) FROM UNNEST(['abc']) AS x)", b"\x0a\xbc"),
]  # fmt: skip
_FORMATS = [
    ("FORMAT('%d|%05d|%-5d|%+d', 10, 10, 10, 10)", "10|00010|10   |+10"),
    ("FORMAT('%x %X %o', 255, -255, 8)", "ff -FF 10"),
    ("FORMAT('-%s-%%', 'abcd efg')", "-abcd efg-%"),
    ("FORMAT('%10s|%-10s|%.2s', 'ab', 'ab', 'éabc')", "        ab|ab        |éa"),
    ("FORMAT('%f %.2f %f', 1.1, 2.005, CAST('inf' AS FLOAT64))", "1.100000 2.00 inf"),
    ("FORMAT('%t %T', DATE '2015-09-01', DATE '2015-09-01')", '2015-09-01 DATE "2015-09-01"'),
    ("FORMAT('%t', TIMESTAMP '2015-09-01 12:34:56+00')", "2015-09-01 12:34:56+00"),
    ("FORMAT('%t %t %T %T', 1.0, 1e25, 'a', TRUE)", '1.0 1e+25 "a" true'),
    ("FORMAT('%t %T', NULL, CAST(NULL AS DATE))", "NULL NULL"),
    ("FORMAT('%d', NULL)", None),
    ("FORMAT('%s', CAST(NULL AS STRING))", None),
    ("FORMAT('')", ""),
]
_STRUCTS = [
    ("(1, NULL) = (1, NULL)", None),
    ("(1, NULL) = (2, NULL)", False),
    ("(1, NULL) <> (2, NULL)", True),
    ("(1, 'a') = (1, 'a')", True),
    ("STRUCT(1 AS a) = STRUCT(1.0 AS b)", True),
    ("STRUCT(CAST('nan' AS FLOAT64), 1) = (1.0, 1)", False),
    ("(1, 2) IN ((1, 3), (1, 2))", True),
    ("(1, 2) IN (SELECT AS STRUCT 1, 3)", False),
    ("(1, 2) NOT IN UNNEST([(1, 2)])", False),
    ("(1, (2, 3)) = (1, (2, 4))", False),
    ("CAST(NULL AS STRUCT<INT64, INT64>) = (1, 2)", None),
]
_ROUNDED = [
    ("ROUND(123.7, -1)", 120.0),
    ("ROUND(1.235, 2)", 1.24),
    ("ROUND(314159.25, -2)", 314200.0),
    ("ROUND(-2.5, 0)", -3.0),
    ("ROUND(7, -1)", 10.0),
    # What the service's own arithmetic makes of numbers that lie below what they are written as.
    ("ROUND(0.15, 1)", 0.1),
    ("ROUND(2.675, 2)", 2.67),
    ("ROUND(1.6e308, 308)", 1.6e308),
    ("ROUND(1.6e308, -309)", 0.0),
    ("ROUND(5e-324, 324)", 5e-324),
    ("ROUND(5e-324, 323)", 0.0),
    ("ROUND(1.0, -9223372036854775808)", 0.0),
    ("ROUND(3.5, 9223372036854775807)", 3.5),
    ("ROUND(CAST('-inf' AS FLOAT64), 2)", -math.inf),
    ("IS_NAN(ROUND(CAST('nan' AS FLOAT64), 2))", True),
    ("ROUND(1.5, NULL)", None),
    ("ROUND(CAST(NULL AS FLOAT64), 1)", None),
    ("TRUNC(1.789, 1)", 1.7),
    ("TRUNC(-2.34, 1)", -2.3),
    ("TRUNC(123.456, -2)", 100.0),
    ("TRUNC(0.29, 2)", 0.28),
]
_VALUES = _ROUNDED + _TIMES + _TEXTS + _FORMATS + _STRUCTS


@pytest.mark.parametrize(("expression", "wanted"), _VALUES, ids=[sql for sql, _ in _VALUES])
def test_expression_answers_as_documented(expression, wanted):
    found = value(expression)

    assert found == wanted
    assert type(found) is type(wanted)


def test_structs_of_rows_compare():
    rows = "UNNEST([STRUCT(1 AS a, 'x' AS b), STRUCT(2, NULL), STRUCT(3, 'z')]) AS s"

    assert column(f"SELECT s = (2, 'x') FROM {rows} WITH OFFSET AS o ORDER BY o") == [
        False, None, False,
    ]  # fmt: skip


_ERRORS = [
    ("TIMESTAMP '2020-01-01' + INTERVAL 1 MONTH", "MONTH is not defined"),
    ("DATE '9999-12-31' + INTERVAL 1 DAY", "out of range"),
    ("DATE '2020-01-01' + INTERVAL 1 FORTNIGHT", "(?i)syntax|Invalid INTERVAL unit"),
    ("GENERATE_DATE_ARRAY('2016-01-01', '2017-01-01', INTERVAL 0 MONTH)", "cannot be 0"),
    ("GENERATE_TIMESTAMP_ARRAY('2016-01-01', '2017-01-01', INTERVAL 0 DAY)", "cannot be 0"),
    ("TIME_ADD(TIME '10:00:00', INTERVAL 1 DAY)", "DAY is not defined"),
    ("INSTR('a', 'b', 0)", "other than 0"),
    ("INSTR('a', 'b', 1, 0)", "at least 1"),
    ("TRANSLATE('abc', 'aa', 'xy')", "Duplicate character"),
    ("NORMALIZE('a', NFX)", "Invalid normalization mode"),
    ("ROUND(1.6e308, -308)", "overflow"),
    ("CHR(-1)", "Invalid codepoint"),
    ("CHR(55296)", "Invalid codepoint"),
    ("CODE_POINTS_TO_STRING([1114112])", "Invalid codepoint"),
    ("ASCII('é')", "Non-ASCII"),
    ("FROM_BASE64('a')", "base64"),
    ("(SELECT FROM_HEX(x) FROM UNNEST(['0g']) AS x)", "hexadecimal"),
    ("FORMAT('%d', 'a')", "Invalid type"),
    ("FORMAT('%d')", "Too few"),
    ("FORMAT('%d', 1, 2)", "Too many"),
    ("(1, 2) < (1, 3)", "not defined for STRUCTs"),
    ("(1, 2) = (1, 'a')", "No matching signature"),
]


@pytest.mark.parametrize(("expression", "message"), _ERRORS, ids=[sql for sql, _ in _ERRORS])
def test_wrong_expression_is_an_error(expression, message):
    with pytest.raises(Refused, match=message):
        value(expression)


_REFUSED = [
    ("INTERVAL 1 DAY", "An INTERVAL as a value"),
    ("STRUCT(INTERVAL 1 DAY)", "An INTERVAL as a value"),
    ("DATE '2020-01-01' + INTERVAL '1-2' YEAR TO MONTH", "several parts"),
    ("DATE '2020-01-01' - DATE '2019-01-01'", "DATE - DATE"),
    ("TIMESTAMP '2020-01-01' - TIMESTAMP '2019-01-01'", "TIMESTAMP - TIMESTAMP"),
    ("TIME '10:00:00' + INTERVAL 1 HOUR", "TIME \\+ INTERVAL"),
    ("GENERATE_DATE_ARRAY('2016-01-31', '2016-12-31', INTERVAL 1 MONTH)", "not every month has"),
    ("LAST_DAY(DATE '2020-01-01', ISOYEAR)", "LAST_DAY of ISOYEAR"),
    ("INSTR('a', '')", "empty text"),
    ("INITCAP('é')", "not ASCII"),
    ("NORMALIZE('\\U0001F600')", "Unicode 3.2"),
    ("FORMAT('%e', 1.0)", "%e"),
    ('FORMAT("%\'d", 1)', "FORMAT with"),
    ("FORMAT('%*d', 1, 2)", "FORMAT with"),
    ("FORMAT('%t', NUMERIC '1')", "%t of NUMERIC"),
    ("FORMAT('%T', 'a\"b')", "need escapes"),
    ("FORMAT('%t', CAST('nan' AS FLOAT64))", "%t of nan"),
    ("[1] = [1]", "ARRAY"),
]


@pytest.mark.parametrize(("expression", "construct"), _REFUSED, ids=[sql for sql, _ in _REFUSED])
def test_inexact_expression_is_refused_by_name(expression, construct):
    with pytest.raises(InvalidQuery, match=f"{construct}.*not supported"):
        value(expression)
