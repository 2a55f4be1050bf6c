"""Rows of insertAll: what a JSON value means in each column, and what is refused."""

import base64
import datetime
import math
from decimal import Decimal

import pytest
import requests

from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.testing.conformance.rest import Rest

UTC = datetime.timezone.utc
BIGNUMERIC_MAX = "578960446186580977117854925043439539266.34992332820282019728792003956564819967"
TYPES = ("STRING", "BYTES", "INT64", "FLOAT64", "BOOL", "NUMERIC", "BIGNUMERIC", "DATE", "TIME",
         "DATETIME", "TIMESTAMP", "JSON", "GEOGRAPHY", "INTERVAL")  # fmt: skip


@pytest.fixture(scope="module")
def server():
    with EmulatorServer() as server:
        server.create_dataset("p", "d")
        yield server


@pytest.fixture(scope="module")
def rest(server):
    def put(name, data):
        raise AssertionError("no files here")

    return Rest(server.rest_endpoint, "p", "d", put)


def insert(server, rest, field, value):
    """Inserts one row of one column; returns the errors, and the values that are stored then."""
    table = rest.make_table([{"name": "x", **field}])
    answer = rest.insert_rows(table, [{"x": value}])
    stored = [row["x"] for row in server.visible_rows(f"p.d.{table}")]
    return answer.get("insertErrors"), stored


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("STRING", 1, "1"),
        ("BYTES", base64.b64encode(b"\x00\xff").decode(), b"\x00\xff"),
        ("INT64", "-9223372036854775808", -(2**63)),
        ("INT64", 2**63 - 1, 2**63 - 1),
        ("INT64", 2.0, 2),
        ("FLOAT64", "-Infinity", -math.inf),
        ("FLOAT64", 1, 1.0),
        ("BOOL", "true", True),
        ("NUMERIC", "1e-9", Decimal("1e-9")),
        ("NUMERIC", 1.5, Decimal("1.5")),
        ("BIGNUMERIC", BIGNUMERIC_MAX, Decimal(BIGNUMERIC_MAX)),
        ("DATE", "2024-2-9", datetime.date(2024, 2, 9)),
        ("TIME", "1:02:03.000004", datetime.time(1, 2, 3, 4)),
        ("DATETIME", "2024-01-31T10:00:00", datetime.datetime(2024, 1, 31, 10)),  # noqa: DTZ001
        ("TIMESTAMP", "2024-01-31 10:00:00+01:00", datetime.datetime(2024, 1, 31, 9, tzinfo=UTC)),
        ("TIMESTAMP", 1.5, datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)),
        ("JSON", '{"a": 1}', '{"a": 1}'),
        ("JSON", '"text"', '"text"'),
        ("JSON", "null", "null"),
        ("JSON", {"a": [1]}, '{"a":[1]}'),
        ("JSON", 1, "1"),
        ("GEOGRAPHY", "POINT(1 2)", "POINT(1 2)"),
    ],
)
def test_value_is_stored_as_its_column_means_it(server, rest, kind, value, stored):
    errors, (found,) = insert(server, rest, {"type": kind}, value)

    assert errors is None
    assert (type(found), found) == (type(stored), stored)


@pytest.mark.parametrize("kind", TYPES)
def test_null_is_null(server, rest, kind):
    assert insert(server, rest, {"type": kind}, None) == (None, [None])


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INT64", 1.5),
        ("INT64", "1e3"),
        ("INT64", True),
        ("INT64", 2**63),
        ("FLOAT64", "one"),
        ("BOOL", "perhaps"),
        ("NUMERIC", "NaN"),
        ("NUMERIC", "1e400000000"),
        ("BYTES", "no base64"),
        ("DATE", "2024-02-30"),
        ("TIME", "24:00:00"),
        ("DATETIME", "1-01-01T00:00:00"),
        ("TIMESTAMP", "yesterday"),
        ("JSON", "{bad"),
        ("JSON", ""),
        ("STRING", {"a": 1}),
        ("STRING", ["a"]),
    ],
)
def test_value_that_is_none_of_its_column_is_refused(server, rest, kind, value):
    errors, stored = insert(server, rest, {"type": kind}, value)

    assert stored == []
    ((error,),) = [each["errors"] for each in errors]
    assert (error["reason"], error["location"]) == ("invalid", "x")


def test_values_inside_of_records_are_read_as_at_the_top(server, rest):
    fields = [
        {"name": "doc", "type": "JSON"},
        {"name": "wide", "type": "BIGNUMERIC"},
        {"name": "tags", "type": "STRING", "mode": "REPEATED"},
    ]
    record = {"type": "RECORD", "mode": "REPEATED", "fields": fields}

    errors, (found,) = insert(server, rest, record, [{"doc": "[1]", "wide": BIGNUMERIC_MAX}, {}])

    assert errors is None
    assert found == [
        {"doc": "[1]", "wide": Decimal(BIGNUMERIC_MAX), "tags": []},
        {"doc": None, "wide": None, "tags": []},
    ]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity"])
def test_body_with_a_number_that_json_has_not_is_refused(server, rest, number):
    table = rest.make_table([{"name": "x", "type": "FLOAT64"}])
    url = f"{server.rest_endpoint}/bigquery/v2/projects/p/datasets/d/tables/{table}/insertAll"

    answer = requests.post(url, data='{"rows": [{"json": {"x": ' + number + "}}]}")

    assert answer.status_code == 400
    assert server.visible_rows(f"p.d.{table}") == []
