"""Filters mean the same to a BigQuery as to Python."""

import datetime
import decimal
import operator
import random

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from bqflink_beam.codec.arrow import BatchDecoder
from bqflink_beam.codec.proto import RowEncoder
from bqflink_beam.filters import Predicate, col, partitions
from bqflink_beam.names import TableReference
from bqflink_beam.schema import json as schema_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.base import SessionRequest
from bqflink_beam.testing import Emulator

UTC = datetime.timezone.utc
TABLE = TableReference("p", "d", "filtered")
SCHEMA = TableSchema(
    (
        Field(name="row", type="INT64"),
        Field(name="i", type="INT64"),
        Field(name="f", type="FLOAT64"),
        Field(name="b", type="BOOL"),
        Field(name="s", type="STRING"),
        Field(name="y", type="BYTES"),
        Field(name="n", type="NUMERIC"),
        Field(name="d", type="DATE"),
        Field(name="c", type="DATETIME"),
        Field(name="t", type="TIMESTAMP"),
        Field(name="o", type="TIME"),
        Field(name="a b", type="STRUCT", fields=(Field(name="größe", type="INT64"),)),
    )
)
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "a%",
    "a_",
    "a\\",
    "O'Hare",
    'quo"te',
    "`",
    "\n",
    "--",
    "é",
    "日付",
    "🙂",
]
POOLS = {
    "i": [0, 1, -1, 5, 2**63 - 1, -(2**63)],
    "f": [0.0, -0.0, 1.5, -1.5, 1e300, float("inf"), float("-inf")],
    "b": [True, False],
    "s": TEXTS,
    "y": [text.encode() for text in TEXTS] + [b"\x00", b"\xff'"],
    "n": [
        decimal.Decimal(text)
        for text in ("0", "1.5", "-1.5", "1e-9", "-9.5e28", "9" * 29 + "." + "9" * 9)
    ],
    "d": [datetime.date(1, 1, 1), datetime.date(2024, 2, 29), datetime.date(9999, 12, 31)],
    "c": [
        datetime.datetime.fromisoformat(text)
        for text in ("0001-01-01T00:00:00", "2024-02-29T12:00:00.000001", "9999-12-31T23:59:59")
    ],
    "t": [
        datetime.datetime(1, 1, 1, tzinfo=UTC),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime.datetime(2024, 2, 29, 12, tzinfo=UTC),
    ],
    "o": [datetime.time(0), datetime.time(12, 0, 0, 1), datetime.time(23, 59, 59, 999_999)],
    "a b.größe": [0, 7],
}
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def make_rows():
    """Every value of every pool meets others, and NULL, somewhere."""
    rows, chance = [], random.Random(5)
    for index in range(60):
        row = {"row": index}
        for path, pool in POOLS.items():
            value = chance.choice([None, *pool])
            if path == "a b.größe":
                row["a b"] = None if index % 4 == 0 else {"größe": value}
            else:
                row[path] = value
        rows.append(row)
    return rows


ROWS = make_rows()


def value_of(row, path):
    for name in path.split("."):
        row = None if row is None else row[name]
    return row


def known(path, test):
    """SQL's logic: None is unknown."""

    def evaluate(row):
        value = value_of(row, path)
        return None if value is None else test(value)

    return evaluate


@st.composite
def comparisons(draw):
    path = draw(st.sampled_from(sorted(POOLS)))
    column, values = col(path), st.sampled_from(POOLS[path])
    kind = draw(st.sampled_from(["compare", "in", "between", "null", "not null", "prefix"]))
    if kind == "prefix" and path in ("s", "y"):
        prefix = draw(values)
        return column.startswith(prefix), known(path, lambda value: value.startswith(prefix))
    if kind == "in":
        choices = draw(st.lists(st.none() | values, max_size=3))
        some = [choice for choice in choices if choice is not None]
        inside = known(path, lambda value: value in some) if some else lambda row: False
        if None in choices:
            missing = lambda row: value_of(row, path) is None
            return column.isin(choices), either(inside, missing)
        return column.isin(choices), inside
    if kind == "between" and path != "b":
        low, high = draw(values), draw(values)
        return column.between(low, high), known(path, lambda value: low <= value <= high)
    if kind == "null":
        return column.is_null(), lambda row: value_of(row, path) is None
    if kind == "not null":
        return column.is_not_null(), lambda row: value_of(row, path) is not None
    sign, other = draw(st.sampled_from(sorted(COMPARISONS))), draw(values)
    compare = COMPARISONS[sign]
    return compare(column, other), known(path, lambda value: compare(value, other))


def both(left, right):
    def evaluate(row):
        found = (left(row), right(row))
        return False if False in found else None if None in found else True

    return evaluate


def either(left, right):
    def evaluate(row):
        found = (left(row), right(row))
        return True if True in found else None if None in found else False

    return evaluate


def negated(inner):
    def evaluate(row):
        found = inner(row)
        return None if found is None else not found

    return evaluate


def combined(inner):
    return st.one_of(
        st.builds(lambda a, b: (a[0] & b[0], both(a[1], b[1])), inner, inner),
        st.builds(lambda a, b: (a[0] | b[0], either(a[1], b[1])), inner, inner),
        inner.map(lambda each: (~each[0], negated(each[1]))),
        inner.map(lambda each: (Predicate(f"{each[0]} -- as it is"), each[1])),
    )


PREDICATES = st.recursive(comparisons(), combined, max_leaves=5)


@pytest.fixture(scope="module")
def read():
    """Reads the numbers of the rows that a filter lets through."""
    with Emulator() as server:
        server.create_table(str(TABLE), schema_json.to_json(SCHEMA))
        client = server.connection.open()
        encoder = RowEncoder(SCHEMA)
        append = client.write.open_append(TABLE.default_stream, encoder.descriptor, budget_s=30)
        append.send([encoder.encode(row) for row in ROWS], None).result(30)
        append.close()

        def matching(row_filter):
            request = SessionRequest(table=TABLE, columns=("row",), row_filter=row_filter)
            session = client.read.create_session(request)
            schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema))
            batches = [
                pa.ipc.read_record_batch(response.arrow_batch, schema)
                for stream in session.streams
                for response in client.read.read_rows(stream, 0)
            ]
            decoder = BatchDecoder(schema)
            return sorted(row["row"] for batch in batches for row in decoder.rows(batch))

        yield matching
        client.close()


@pytest.mark.parametrize(
    "examples",
    [500, pytest.param(20_000, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])],
)
def test_the_service_and_python_pick_the_same_rows(read, examples):
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(PREDICATES)
    def check(drawn):
        predicate, evaluate = drawn
        expected = [row["row"] for row in ROWS if evaluate(row) is True]
        assert read(str(predicate)) == expected

    check()


def day(value):
    return value and (value.date() if isinstance(value, datetime.datetime) else value)


@pytest.mark.parametrize(
    ("ids", "options", "inside"),
    [
        (["20240229"], {"column": "d", "type": "DATE"}, lambda row: row["d"] == POOLS["d"][1]),
        (["202402", "0001"], {"column": "d", "type": "DATE"}, lambda row: row["d"] in POOLS["d"][:2]),
        (["9999"], {"column": "d", "type": "DATE"}, lambda row: row["d"] == POOLS["d"][2]),
        (["99991231"], {"column": "c", "type": "DATETIME"}, lambda row: row["c"] == POOLS["c"][2]),
        (["2024022912"], {"column": "c", "type": "DATETIME"}, lambda row: row["c"] == POOLS["c"][1]),
        (["1969123123"], {"column": "t"}, lambda row: row["t"] == POOLS["t"][1]),
        (["2024022912", "__NULL__"], {"column": "t"}, lambda row: day(row["t"]) in (None, datetime.date(2024, 2, 29))),
        (["0"], {"column": "i", "type": "INT64", "range_interval": 5}, lambda row: row["i"] in (0, 1)),
        (["-5", "5"], {"column": "i", "type": "INT64", "range_interval": 5}, lambda row: row["i"] in (-1, 5)),
        ([], {"column": "i", "type": "INT64"}, lambda row: False),
    ],
)  # fmt: skip
def test_partitions_are_the_rows_that_lie_in_them(read, ids, options, inside):
    expected = [row["row"] for row in ROWS if inside(row)]

    assert bool(expected) == bool(ids)
    assert read(str(partitions(ids, **options))) == expected
