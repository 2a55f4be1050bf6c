"""JSON in SQL: what BigQuery documents, number texts, key order, escapes, NULL and JSON's null."""

import pytest

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import InvalidQuery
from tests.unit.emulator.sql_run import column, value

_VALUES = [
    # A STRING: digits and key order stay.
    ("""JSON_VALUE('{"name": "Jakob", "age": "6"}', '$.age')""", "6"),
    ("""JSON_VALUE('{"a": 1.50}', '$.a')""", "1.50"),
    ("""JSON_VALUE('{"a": 1e400}', '$.a')""", "1e400"),
    ("""JSON_VALUE('{"a": "x\\\\n\\\\u00e9"}', '$.a')""", "x\né"),
    ("""JSON_VALUE('{"a": null}', '$.a')""", None),
    ("""JSON_VALUE('{"a": {"b": 1}}', '$.a')""", None),
    ("""JSON_VALUE('{"a": [1, true]}', '$.a[1]')""", "true"),
    ("""JSON_VALUE('{"a": [1, true]}', '$.a.1')""", "true"),
    ("""JSON_VALUE('{"a": [1, true]}', '$.a[2]')""", None),
    ("""JSON_VALUE('{"a": [1, true]}', '$.a.b')""", None),
    ("""JSON_VALUE('"s"')""", "s"),
    ("""JSON_VALUE('plain text', '$.a')""", None),
    ("""JSON_VALUE('nope', '$.a')""", None),
    ("JSON_VALUE('', '$.a')", None),
    ("""JSON_VALUE('{"a.b": {"c": "world"}}', '$."a.b".c')""", "world"),
    ("""JSON_EXTRACT_SCALAR('{"a.b": {"c": "world"}}', "$['a.b'].c")""", "world"),
    ("""JSON_EXTRACT_SCALAR('{"a": ["x"]}', '$.a[0]')""", "x"),
    ("""JSON_QUERY('{"class" : {"students" : [{"name" : "Jane"}]}}', '$.class')""", '{"students":[{"name":"Jane"}]}'),
    ("""JSON_QUERY('{"b": 1.0, "a": [1, 2]}')""", '{"b":1.0,"a":[1,2]}'),
    ("""JSON_QUERY('{"a": null}', '$.a')""", None),
    ("""JSON_QUERY('{"a": null}', '$.b')""", None),
    ("""JSON_EXTRACT('{"a": "b"}', '$.a')""", '"b"'),
    ("""JSON_EXTRACT('{"a": "b"}', '$.')""", '{"a":"b"}'),
    ("""JSON_VALUE_ARRAY('["apples", 1, true]', '$')""", ["apples", "1", "true"]),
    ("""JSON_VALUE_ARRAY('["apples", {"a": 1}]') IS NULL""", True),
    ("""JSON_EXTRACT_STRING_ARRAY('{"f": ["apples"]}', '$.f')""", ["apples"]),
    ("""JSON_QUERY_ARRAY('[1, {"a": "b"}, null]')""", ["1", '{"a":"b"}', "null"]),
    ("""JSON_EXTRACT_ARRAY('{"a": 1}', '$.a') IS NULL""", True),
    ("JSON_VALUE(CAST(NULL AS STRING), '$.a')", None),
    # A JSON value: sorted keys, normal numbers, a null of its own.
    ("""JSON_VALUE(JSON '{"a": 1.50}', '$.a')""", "1.5"),
    ("""JSON_VALUE(JSON '{"a": 18446744073709551615}', '$.a')""", "18446744073709551615"),
    ("""JSON_QUERY(JSON '{"b": 1, "a": {"d": 1.0, "c": null}}', '$.a')""", '{"c":null,"d":1.0}'),
    ("""JSON_QUERY(JSON '{"a": null}', '$.a')""", "null"),
    ("""JSON_QUERY(JSON '{"a": null}', '$.b')""", None),
    ("""JSON_QUERY(JSON '{"a": "x\\\\n\\u2028"}', '$')""", '{"a":"x\\n\\u2028"}'),
    ("""JSON_QUERY_ARRAY(JSON '[1, "a"]')""", ["1", '"a"']),
    ("""JSON_VALUE_ARRAY(JSON '[1.0, "a"]')""", ["1.0", "a"]),
    ("""(SELECT j.class.students[0]['name'] FROM (SELECT JSON '{"class": {"students": [{"name": "Jane"}]}}' AS j))""", '"Jane"'),
    ("""(SELECT j.Name FROM (SELECT JSON '{"name": 1}' AS j))""", None),
    ("""(SELECT j[1] FROM (SELECT JSON '[1]' AS j))""", None),
    ("""(SELECT j.a.b.c FROM (SELECT JSON '{"a": null}' AS j))""", None),
    # JSON values as others.
    ("INT64(JSON '10')", 10),
    ("INT64(JSON '10.0')", 10),
    ("FLOAT64(JSON '9.8')", 9.8),
    ("BOOL(JSON 'true')", True),
    ("""STRING(JSON '"purple"')""", "purple"),
    ("INT64(CAST(NULL AS JSON))", None),
    ("SAFE.INT64(JSON '\"x\"')", None),
    ("JSON_TYPE(JSON '[]')", "array"),
    ("JSON_TYPE(JSON 'null')", "null"),
    ("JSON_TYPE(JSON '1.5')", "number"),
    ("STRING(TIMESTAMP '2020-01-01 00:00:00+00')", "2020-01-01 00:00:00+00"),
    # Values as JSON.
    ("TO_JSON_STRING(9007199254740992)", "9007199254740992"),
    ("TO_JSON_STRING(9007199254740993)", '"9007199254740993"'),
    ("TO_JSON_STRING(NUMERIC '-1')", "-1"),
    ("TO_JSON_STRING(NUMERIC '123.56')", '"123.56"'),
    ("TO_JSON_STRING(BIGNUMERIC '9007199254740993')", '"9007199254740993"'),
    ("TO_JSON_STRING(1.0)", "1"),
    ("TO_JSON_STRING(CAST('nan' AS FLOAT64))", '"NaN"'),
    ("TO_JSON_STRING(CAST('-inf' AS FLOAT64))", '"-Infinity"'),
    ("TO_JSON_STRING('a\"\\n\\u0001/é\\u2028')", '"a\\"\\n\\u0001/é\\u2028"'),
    ("TO_JSON_STRING(b'Google')", '"R29vZ2xl"'),
    ("TO_JSON_STRING(DATE '2017-03-06')", '"2017-03-06"'),
    ("TO_JSON_STRING(DATETIME '2017-03-06 12:34:56.789012')", '"2017-03-06T12:34:56.789012"'),
    ("TO_JSON_STRING(TIMESTAMP '2017-03-06 12:34:56.5+00')", '"2017-03-06T12:34:56.500Z"'),
    ("TO_JSON_STRING(NULL)", "null"),
    ("TO_JSON_STRING(STRUCT(1 AS id, [10, 20] AS coordinates, STRUCT('x' AS y) AS s))", '{"id":1,"coordinates":[10,20],"s":{"y":"x"}}'),
    ("""TO_JSON_STRING(JSON '{"b": 1, "a": [1.5]}')""", '{"a":[1.5],"b":1}'),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "wanted"), _VALUES, ids=[sql for sql, _ in _VALUES])
def test_function_answers_as_documented(expression, wanted):
    found = value(expression)

    assert found == wanted
    assert type(found) is type(wanted)


def test_json_in_rows_is_read_row_by_row():
    rows = """UNNEST(['{"n": 1}', NULL, '{"n": "b"}', '[]']) AS x WITH OFFSET AS o ORDER BY o"""

    assert column(f"SELECT JSON_VALUE(x, '$.n') FROM {rows}") == ["1", None, "b", None]
    assert column(f"SELECT TO_JSON_STRING(STRUCT(x AS y)) FROM {rows} LIMIT 2") == [
        '{"y":"{\\"n\\": 1}"}',
        '{"y":null}',
    ]


_ERRORS = [
    ("""JSON_VALUE('{"a": 1}', "$['a']")""", "Invalid token in JSONPath at"),
    ("""JSON_VALUE('{"a": 1}', 'a')""", "must start with"),
    ("""JSON_VALUE('{"a": 1}', '$.a[*]')""", "Invalid token"),
    ("""JSON_QUERY('{"a": 1}', '$.')""", "Invalid token"),
    ("JSON_VALUE(1, '$')", "Cannot coerce"),
    ("INT64(JSON '10.1')", "cannot be converted to an int64"),
    ("INT64(JSON 'null')", "not an integer"),
    ("FLOAT64(JSON '9007199254740993')", "without loss of precision"),
    ("BOOL(JSON '1')", "not a boolean"),
    ("STRING(JSON '1')", "not a string"),
    ("INT64(1)", "No matching signature"),
    ("TO_JSON_STRING(1, 2)", "must be BOOL"),
]


@pytest.mark.parametrize(("expression", "message"), _ERRORS, ids=[sql for sql, _ in _ERRORS])
def test_wrong_call_is_an_error(expression, message):
    with pytest.raises(Refused, match=message):
        value(expression)


_REFUSED = [
    ("""JSON_VALUE('{"a": 1', '$.a')""", "no JSON"),
    ("""JSON_VALUE("{'a': 1}", '$.a')""", "no JSON"),
    ("""JSON_VALUE('{"a": 1, "a": 2}', '$.a')""", "a key twice"),
    ("""JSON_QUERY('{"a": "x\\\\n"}', '$')""", "escaped characters"),
    ("""SAFE.JSON_QUERY('{"a": "x\\\\n"}', '$')""", "escaped characters"),
    ("""JSON_VALUE('[1]', CONCAT('$', '[0]'))""", "path that is no literal"),
    ("""JSON_VALUE('[1]', '$.-1')""", "index"),
    ("JSON_VALUE(JSON '1e20')", "text of the JSON number"),
    ("TO_JSON_STRING(-0.0)", "negative zero"),
    ("TO_JSON_STRING(STRUCT(1))", "without a name"),
    ("TO_JSON_STRING(1, TRUE)", "pretty_print"),
    ("JSON_KEYS(JSON '{}')", "JSON_KEYS"),
]


@pytest.mark.parametrize(("expression", "construct"), _REFUSED, ids=[sql for sql, _ in _REFUSED])
def test_inexact_call_is_refused_by_name(expression, construct):
    with pytest.raises(InvalidQuery, match=f"(?i){construct}.*not supported"):
        value(expression)
