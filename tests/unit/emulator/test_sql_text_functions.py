"""SAFE., regular expressions, and the parsing and formatting of dates, as BigQuery documents them."""

import datetime
from decimal import Decimal

import pytest

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import InvalidQuery
from tests.unit.emulator.sql_run import column, value

_UTC = datetime.timezone.utc


def _utc(*parts):
    return datetime.datetime(*parts, tzinfo=_UTC)


def _civil(*parts):
    return datetime.datetime(*parts)  # noqa: DTZ001  a DATETIME has no zone


_SAFE = [
    ("SAFE.SUBSTR('foo', 0, -2)", None),
    ("SAFE.SUBSTR('bar', 0, 2)", "ba"),
    ("SAFE.DATE_ADD(DATE '9999-12-31', INTERVAL 1 DAY)", None),
    ("SAFE.DATE_ADD(DATE '2020-01-30', INTERVAL 1 MONTH)", datetime.date(2020, 2, 29)),
    ("SAFE.TIMESTAMP('no time')", None),
    ("SAFE.PARSE_DATE('%F', '2020-02-30')", None),
    ("SAFE.PARSE_JSON('{')", None),
    ("SAFE.ERROR('x')", None),
    ("SAFE.FROM_HEX('zz')", None),
    ("SAFE.MOD(7, 0)", None),
    ("SAFE.DIV(7, 2)", 3),
    ("SAFE.ABS(-9223372036854775808)", None),
    ("SAFE.GENERATE_ARRAY(1, 2, 0) IS NULL", True),
    ("SAFE.REGEXP_EXTRACT('abc', '(a)(b)')", None),
    ("SAFE.UPPER('a')", "A"),
    ("SAFE_ADD(9223372036854775807, 1)", None),
    ("SAFE_ADD(5, 4)", 9),
    ("SAFE_SUBTRACT(-9223372036854775808, 1)", None),
    ("SAFE_MULTIPLY(20, 4)", 80),
    ("SAFE_MULTIPLY(1e300, 1e300)", None),
    ("SAFE_MULTIPLY(NUMERIC '99999999999999999999999999999', NUMERIC '10')", None),
    ("SAFE_NEGATE(-9223372036854775808)", None),
    ("SAFE_NEGATE(+1)", -1),
    ("SAFE_DIVIDE(20, 4)", 5.0),
    ("SAFE_DIVIDE(1, 0)", None),
    ("SAFE_DIVIDE(NUMERIC '1', 3)", Decimal("0.333333333")),
    ("SAFE_DIVIDE(NUMERIC '1', 0)", None),
    ("SAFE_DIVIDE(NULL, 0)", None),
    ("SAFE_CONVERT_BYTES_TO_STRING(b'\\xc3\\xa9')", "é"),
]
_REGEXPS = [
    (r"REGEXP_EXTRACT('foo@example.com', r'^[a-zA-Z0-9_.+-]+')", "foo"),
    (r"REGEXP_EXTRACT('foo@example.com', r'^[a-zA-Z0-9_.+-]+@[a-zA-Z0-9-]+\.([a-zA-Z0-9-.]+$)')", "com"),
    ("REGEXP_EXTRACT('ab', '.b')", "ab"),
    ("REGEXP_EXTRACT('ab', '(.)b')", "a"),
    ("REGEXP_EXTRACT('xyztb', '(.)+b')", "t"),
    ("REGEXP_EXTRACT('ab', '(z)?b')", None),
    ("REGEXP_EXTRACT('ab', 'x')", None),
    ("REGEXP_EXTRACT('ab', 'x*')", ""),
    ("REGEXP_EXTRACT('', '')", ""),
    ("REGEXP_EXTRACT('Hello Helloo and Hellooo', 'H?ello+', 1, 3)", "Hellooo"),
    ("REGEXP_EXTRACT('Hello Helloo and Hellooo', 'H?ello+', 1, 4)", None),
    (r"REGEXP_EXTRACT('a(b', r'[(\]]b')", "(b"),
    (r"REGEXP_EXTRACT('a(b', r'\((?P<x>.)')", "b"),
    ("REGEXP_EXTRACT(CAST(NULL AS STRING), 'a')", None),
    ("REGEXP_SUBSTR('Hello World Helloo', 'H?ello+', 1, 2)", "Helloo"),
    ("REGEXP_EXTRACT_ALL('Try `func(x)` or `func(y)`', '`(.+?)`')", ["func(x)", "func(y)"]),
    ("REGEXP_EXTRACT_ALL('ab', '^b')", []),
    ("REGEXP_EXTRACT_ALL('ab', '$')", [""]),
    ("REGEXP_REPLACE('# Heading', r'^# ([a-zA-Z0-9\\s]+$)', r'<h1>\\1</h1>')", "<h1>Heading</h1>"),
    (r"REGEXP_REPLACE('abc', 'b(.)', r'X\0\\')", r"aXbc\ ".strip()),
    ("REGEXP_REPLACE('éa', 'x*', '-')", "-é-a-"),
    ("REGEXP_REPLACE('abc', 'b*', '-')", "-a-c-"),
    ("REGEXP_REPLACE('abc', CAST(NULL AS STRING), '-')", None),
    (r"REGEXP_INSTR('ab@cd-ef', r'@[^-]*')", 3),
    (r"REGEXP_INSTR('éé@cd', r'@[^-]*')", 3),
    (r"REGEXP_INSTR('a\nb@', '@')", 4),
    ("REGEXP_INSTR('ab', 'x')", 0),
    ("REGEXP_INSTR('ab', '')", 0),
    ("REGEXP_INSTR('', 'x*')", 0),
    ("REGEXP_INSTR(CAST(NULL AS STRING), 'x')", None),
]  # fmt: skip
_PARSED = [
    ("PARSE_DATE('%A %b %e %Y', 'Thursday Dec 25 2008')", datetime.date(2008, 12, 25)),
    ("PARSE_DATE('%x', '12/25/08')", datetime.date(2008, 12, 25)),
    ("PARSE_DATE('%Y%m%d', '20081225')", datetime.date(2008, 12, 25)),
    ("PARSE_DATE(' %F', '  2008-1-5  ')", datetime.date(2008, 1, 5)),
    ("PARSE_DATE('%y-%m', '69-2')", datetime.date(1969, 2, 1)),
    ("PARSE_DATE('%y-%m', '68-2')", datetime.date(2068, 2, 1)),
    ("PARSE_DATE('%Y%j', '2020366')", datetime.date(2020, 12, 31)),
    ("PARSE_DATE('%F', NULL)", None),
    ("PARSE_DATETIME('%Y-%m-%d %H:%M:%S', '1998-10-18 13:45:55')", _civil(1998, 10, 18, 13, 45, 55)),
    ("PARSE_DATETIME('%m/%d/%Y %I:%M:%S %p', '8/30/2018 2:23:38 pm')", _civil(2018, 8, 30, 14, 23, 38)),
    ("PARSE_DATETIME('%A, %B %e, %Y', 'Wednesday, December 19, 2018')", _civil(2018, 12, 19)),
    ("PARSE_DATETIME('%F %H:%M:%S', '2016-12-31 23:59:60')", _civil(2017, 1, 1)),
    ("PARSE_TIME('%I:%M:%S', '07:30:00')", datetime.time(7, 30)),
    ("PARSE_TIME('%I:%M:%S %p', '2:23:38 pm')", datetime.time(14, 23, 38)),
    ("PARSE_TIME('%p %I', 'AM 12')", datetime.time(0)),
    ("PARSE_TIME('%H:%M:%E*S', '14:23:38.5')", datetime.time(14, 23, 38, 500_000)),
    ("PARSE_TIMESTAMP('%a %b %e %I:%M:%S %Y', 'Thu Dec 25 07:30:00 2008')", _utc(2008, 12, 25, 7, 30)),
    ("PARSE_TIMESTAMP('%F %H:%M:%E*S%Ez', '2020-01-01 10:11:12.1234567+05:30')", _utc(2020, 1, 1, 4, 41, 12, 123456)),
    ("PARSE_TIMESTAMP('%FT%TZ', '2020-01-01T10:11:12Z')", _utc(2020, 1, 1, 10, 11, 12)),
    ("PARSE_TIMESTAMP('%F %T', '2020-07-01 10:11:12', 'America/New_York')", _utc(2020, 7, 1, 14, 11, 12)),
    ("PARSE_TIMESTAMP('%F %T %Z', '2020-07-01 10:11:12 America/New_York')", _utc(2020, 7, 1, 14, 11, 12)),
    ("PARSE_TIMESTAMP('%F %T%z', '2020-01-01 00:00:00-0800')", _utc(2020, 1, 1, 8)),
    ("PARSE_TIMESTAMP('%s', '-1')", _utc(1969, 12, 31, 23, 59, 59)),
]  # fmt: skip
_FORMATTED = [
    ("FORMAT_DATE('%x', DATE '2008-12-25')", "12/25/08"),
    ("FORMAT_DATE('%b-%d-%Y', DATE '2008-12-25')", "Dec-25-2008"),
    ("FORMAT_DATE('%Q %e %j %U %V %G %u %w %%', DATE '2008-01-05')", "1  5 005 00 01 2008 6 6 %"),
    ("FORMAT_DATE('%E4Y%m', DATE '2008-12-25')", "200812"),
    ("FORMAT_DATE('', DATE '2008-12-25')", ""),
    ("FORMAT_DATE('%F', NULL)", None),
    ("FORMAT_DATETIME('%c', DATETIME '2008-12-25 15:30:00')", "Thu Dec 25 15:30:00 2008"),
    ("FORMAT_TIME('%R %E*S %I%l %p', TIME '15:30:00.5')", "15:30 00.5 03 3 PM"),
    ("FORMAT_TIME('%E*S|%E2S', TIME '15:30:01')", "01|01.00"),
    ("FORMAT_TIMESTAMP('%c', TIMESTAMP '2050-12-25 15:30:55+00', 'UTC')", "Sun Dec 25 15:30:55 2050"),
    ("FORMAT_TIMESTAMP('%Y-%m-%dT%H:%M:%E3SZ', TIMESTAMP '2050-12-25 15:30:55.1239+00')", "2050-12-25T15:30:55.123Z"),
    ("FORMAT_TIMESTAMP('%s %Z %z', TIMESTAMP '1969-12-31 23:59:59.5+00')", "-1 UTC +0000"),
    ("FORMAT_TIMESTAMP('%F %Ez', TIMESTAMP '2050-12-25 01:30:55+00', 'America/New_York')", "2050-12-24 -05:00"),
]  # fmt: skip
_VALUES = _SAFE + _REGEXPS + _PARSED + _FORMATTED


@pytest.mark.parametrize(("expression", "wanted"), _VALUES, ids=[sql for sql, _ in _VALUES])
def test_function_answers_as_documented(expression, wanted):
    found = value(expression)

    assert found == wanted
    assert type(found) is type(wanted) or isinstance(wanted, datetime.datetime)


def test_functions_are_computed_for_each_row():
    rows = "UNNEST(['2020-01-02', 'bad', NULL, '2020-02-30']) AS x WITH OFFSET AS o ORDER BY o"

    assert column(f"SELECT SAFE.PARSE_DATE('%F', x) FROM {rows}") == [
        datetime.date(2020, 1, 2), None, None, None,
    ]  # fmt: skip
    assert column(f"SELECT REGEXP_EXTRACT(x, r'-(\\d+)$') FROM {rows}") == ["02", None, None, "30"]
    assert column(f"SELECT REGEXP_INSTR(x, '-02') FROM {rows}") == [8, 0, None, 5]


def test_safe_call_may_be_grouped_by():
    sql = "SELECT COUNT(*) FROM UNNEST(['ab', 'ac', 'b']) AS x GROUP BY SAFE.LEFT(x, 1) ORDER BY 1"

    assert column(sql) == [1, 2]


_ERRORS = [
    ("SAFE.SUBSTR(CAST(1 / x AS STRING), 1) FROM UNNEST([0]) AS x", "division by zero"),
    ("SAFE_ADD(9223372036854775807 + x, 1) FROM UNNEST([1]) AS x", "Overflow"),
    ("SAFE.ISNAN(1.0)", "Function not found: ISNAN"),
    ("SAFE_ADD('a', 1)", "No matching signature"),
    ("REGEXP_EXTRACT('abc', '(a)(b)')", "more than 1 capturing group"),
    ("REGEXP_EXTRACT_ALL('abc', '(a)(b)')", "more than 1 capturing group"),
    ("REGEXP_EXTRACT('abc', 'a', 1, 0)", "Occurrence must be positive"),
    ("REGEXP_EXTRACT('abc', '(')", "missing"),
    ("REGEXP_INSTR('abc', 'a)|(?:b')", "unexpected|missing"),
    (r"REGEXP_REPLACE('abc', 'b', r'\1')", "requests 1"),
    ("REGEXP_EXTRACT()", "REGEXP_EXTRACT with 0 arguments"),
    ("PARSE_DATE('%F', '2021-02-29')", "Out-of-range"),
    ("PARSE_DATE('%F', '2021-02-28x')", "Failed to parse input string"),
    ("PARSE_DATE('%F', '2021-02')", "Failed to parse input string"),
    ("PARSE_DATE('%F %Y', '2021-02-03')", "Failed to parse input string"),
    ("PARSE_DATE('%Y%j', '2021366')", "not in the year"),
    ("PARSE_DATE('%H', '1')", "%H is not allowed for the DATE type"),
    ("PARSE_TIME('%F', '2021-02-28')", "%F is not allowed for the TIME type"),
    ("PARSE_DATETIME('%F %Ez', '2021-02-28 Z')", "%Ez is not allowed"),
    ("PARSE_TIMESTAMP('%F %z', '2021-02-28 +1500')", "out of valid range"),
    ("PARSE_TIMESTAMP('%F %Z', '2021-02-28 Mars')", "Invalid time zone"),
    ("PARSE_TIMESTAMP('%Y-%m', '10000-01')", "Out-of-range"),
]


@pytest.mark.parametrize(("expression", "message"), _ERRORS, ids=[sql for sql, _ in _ERRORS])
def test_wrong_call_is_an_error(expression, message):
    with pytest.raises(Refused, match=message):
        value(expression)


_REFUSED = [
    ("SAFE.UPPER('ß')", "UPPER of 'ß'"),
    ("SAFE.PARSE_DATE('%U', '1')", "%U"),
    ("SAFE.SUM(1)", "SAFE. before"),
    ("SAFE.NOPE(1)", "NOPE"),
    ("SAFE_CONVERT_BYTES_TO_STRING(b'\\xff')", "no UTF-8"),
    ("REGEXP_EXTRACT('abc', CONCAT('a', 'b'))", "pattern that is no literal"),
    ("REGEXP_EXTRACT('abc', 'b', 2)", "position other than 1"),
    ("REGEXP_EXTRACT_ALL('ab', 'x*')", "empty match at the end"),
    ("REGEXP_EXTRACT('ab', 'x*', 1, 3)", "empty match at the end"),
    ("REGEXP_EXTRACT_ALL('ab', '(a)|b')", "takes no part"),
    ("REGEXP_INSTR('ab', 'x*')", "empty match"),
    ("REGEXP_INSTR('ab', '(b)')", "group"),
    ("PARSE_DATE('%G-%V', '2020-01')", "%G"),
    ("PARSE_DATE('%j %m', '1 1')", "%j"),
    ("FORMAT_DATE('%C', DATE '2008-12-25')", "%C"),
    ("FORMAT_DATE('%H', DATE '2008-12-25')", "%H"),
    ("FORMAT_DATE('%F', DATE '0999-12-25')", "years before 1000"),
    ("FORMAT_TIMESTAMP('%Z', TIMESTAMP '2020-01-01', 'Asia/Tokyo')", "%Z"),
]


@pytest.mark.parametrize(("expression", "construct"), _REFUSED, ids=[sql for sql, _ in _REFUSED])
def test_inexact_call_is_refused_by_name(expression, construct):
    with pytest.raises(InvalidQuery, match=f"{construct}.*not supported"):
        value(expression)
