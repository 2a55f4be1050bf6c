"""Golden bytes of REST: bodies that Google's client sends, files it uploads, pages it reads."""

import contextlib
import datetime
import decimal
import io
import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pandas
import pyarrow.parquet as pq
import pytest
import requests
from dateutil.relativedelta import relativedelta
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from bqflink_beam.codec.arrow import BatchDecoder
from bqflink_beam.codec.json import LineDecoder
from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.emulator import types as server_types
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import Emulator
from tests.conformance import golden, golden_rest
from tests.conformance.raw_wire import Http, T, as_ours, client, typed
from tests.conformance.test_golden_rows import LONG

pytestmark = pytest.mark.filterwarnings(
    "ignore::PendingDeprecationWarning:google",
    "ignore::DeprecationWarning:google",
    # The client knows no way of its own to write GEOGRAPHY, INTERVAL and RANGE.
    "ignore:Unknown type:FutureWarning",
    "ignore:Loading DataFrames:PendingDeprecationWarning",
    "ignore:Loading pandas DataFrame:FutureWarning",
)
SCHEMA = [
    bigquery.SchemaField.from_api_repr(field)
    for field in server_types.schema_to_rest(golden.COLUMNS)["fields"]
]
JOB = {"jobReference": {"projectId": "p", "jobId": "j", "location": "US"}, "configuration": {}}


@pytest.fixture
def server() -> Iterator[Emulator]:
    with Emulator() as server:
        server.create_table(T, golden.COLUMNS)
        yield server


def tables(server: Emulator) -> str:
    return f"{server.rest_endpoint}/bigquery/v2/projects/p/datasets/d/tables"


def rows_of(server: Emulator, schema: TableSchema = golden.COLUMNS) -> list[dict[str, Any]]:
    return [as_ours(schema.fields, row) for row in server.visible_rows(T)]


def as_google(value: Any) -> Any:
    """Returns a value as users of Google's client give it."""
    if isinstance(value, dict):
        return {name: as_google(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [as_google(item) for item in value]
    if isinstance(value, Range):
        return {"start": value.start, "end": value.end}
    return str(value) if isinstance(value, Interval) else value


# --- insertAll ------------------------------------------------------------------------------

INSERTED = [{**row, "j": row["j"] and '{"a": [1, null]}'} for row in golden_rest.REST_VALUES]


def test_google_client_sends_the_golden_rows():
    http = Http({"/insertAll": {}})
    rows = [as_google({**row, "j": row["j"] and json.loads(row["j"])}) for row in INSERTED]

    errors = client(http).insert_rows(
        bigquery.Table(str(T), schema=SCHEMA), rows, row_ids=["first", "second", "third"]
    )

    ((method, url, body),) = http.sent
    assert (errors, method) == ([], "POST")
    assert urllib.parse.urlsplit(url).path.endswith("/projects/p/datasets/d/tables/t/insertAll")
    assert json.loads(body) == golden_rest.INSERT_ROWS


def test_google_client_sends_json_rows_as_they_are():
    http = Http({"/insertAll": {}})
    rows = [row["json"] for row in golden_rest.INSERT_ROWS["rows"]]

    client(http).insert_rows_json(str(T), rows, row_ids=["first", "second", "third"])

    assert json.loads(http.sent[0][2]) == golden_rest.INSERT_ROWS


def test_embedded_server_stores_what_the_golden_rows_mean(server):
    answer = requests.post(f"{tables(server)}/t/insertAll", json=golden_rest.INSERT_ROWS)

    assert answer.json() == {"kind": "bigquery#tableDataInsertAllResponse"}
    assert list(map(typed, rows_of(server))) == list(map(typed, INSERTED))


def test_numbers_that_json_has_not_are_sent_and_stored(server):
    floats = {"x": [float("inf"), float("-inf"), float("nan"), -0.0]}
    schema = TableSchema((Field(name="x", type="FLOAT64", mode="REPEATED"),))
    column = bigquery.SchemaField("x", "FLOAT64", "REPEATED")
    http = Http({"/insertAll": {}})
    server.store.delete_table(T)
    server.create_table(T, schema)

    client(http).insert_rows(bigquery.Table(str(T), schema=[column]), [floats], row_ids=["a"])
    sent = json.loads(http.sent[0][2])
    requests.post(f"{tables(server)}/t/insertAll", json=sent)

    assert sent["rows"][0]["json"] == {"x": ["inf", "-inf", "nan", -0.0]}
    assert typed(rows_of(server, schema)[0]) == typed(floats)


# --- files -----------------------------------------------------------------------------------


def uploaded(http: Http) -> bytes:
    """Returns the file in the one upload that a client made, from between its boundaries."""
    ((_, url, body),) = http.sent
    assert "uploadType=multipart" in url
    boundary, _, rest = body.partition(b"\r\n")
    _, _, file = rest.split(boundary, 2)[1].partition(b"\r\n\r\n")
    return file.removesuffix(b"\r\n")


def load(server: Emulator, data: bytes, **config: Any) -> None:
    google = bigquery.Client(
        project="p",
        credentials=AnonymousCredentials(),
        client_options=ClientOptions(api_endpoint=server.rest_endpoint),
    )
    with contextlib.closing(google):
        job_config = bigquery.LoadJobConfig(**config)
        google.load_table_from_file(io.BytesIO(data), str(T), job_config=job_config).result()


def test_google_client_uploads_the_golden_lines():
    http = Http({"/jobs": JOB})
    rows = [json.loads(line) for line in golden_rest.NDJSON.splitlines()]
    config = bigquery.LoadJobConfig(schema=SCHEMA)

    client(http).load_table_from_json(rows, str(T), job_config=config)

    assert uploaded(http).decode() == golden_rest.NDJSON


def test_embedded_server_loads_what_the_golden_lines_mean(server):
    load(server, golden_rest.NDJSON.encode(), source_format="NEWLINE_DELIMITED_JSON")

    assert list(map(typed, rows_of(server))) == list(map(typed, golden_rest.REST_VALUES))


def test_our_decoder_reads_the_golden_lines():
    decoder = LineDecoder(golden.COLUMNS)

    rows = [decoder.decode(line) for line in golden_rest.NDJSON.splitlines()]

    assert list(map(typed, rows)) == list(map(typed, golden_rest.REST_VALUES))


# The types that the client makes Parquet of.
FRAME = TableSchema(tuple(f for f in golden.COLUMNS if f.name not in ("j", "g", "v", "r")))
FRAME_COLUMNS = [column for column in SCHEMA if column.name in {field.name for field in FRAME}]
FRAME_ROWS = [{field.name: row[field.name] for field in FRAME} for row in golden_rest.REST_VALUES]


def test_google_client_uploads_the_golden_frame():
    http = Http({"/jobs": JOB})
    frame = pandas.DataFrame({field.name: [r[field.name] for r in FRAME_ROWS] for field in FRAME})
    config = bigquery.LoadJobConfig(schema=FRAME_COLUMNS)

    client(http).load_table_from_dataframe(frame, str(T), job_config=config)

    # Not the bytes themselves: a Parquet file names the version of its writer.
    assert b'"enableListInference": true' in http.sent[0][2]
    made, kept = pq.ParquetFile(io.BytesIO(uploaded(http))), golden_frame()
    assert str(made.schema).partition("\n")[2] == str(kept.schema).partition("\n")[2]
    assert made.read().equals(kept.read())


def golden_frame() -> pq.ParquetFile:
    return pq.ParquetFile(io.BytesIO(LONG["PARQUET"]))


def test_embedded_server_loads_what_the_golden_frame_means(server):
    server.store.delete_table(T)
    server.create_table(T, FRAME)
    options = bigquery.ParquetOptions()
    options.enable_list_inference = True

    # The client names the columns and asks for lists, as it does when it uploads a frame.
    load(
        server,
        LONG["PARQUET"],
        source_format="PARQUET",
        parquet_options=options,
        schema=FRAME_COLUMNS,
    )

    assert list(map(typed, rows_of(server, FRAME))) == list(map(typed, FRAME_ROWS))


def test_our_decoder_reads_the_golden_frame():
    table = golden_frame().read()

    rows = [
        row for batch in table.to_batches() for row in BatchDecoder(table.schema, FRAME).rows(batch)
    ]

    assert list(map(typed, rows)) == list(map(typed, FRAME_ROWS))


# --- pages -----------------------------------------------------------------------------------


def as_page(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row as Google's client reads it from a page."""
    found = as_google(row)
    if found["j"] is not None:
        found["j"] = json.loads(found["j"])
    if found["v"] is not None:
        found["v"] = relativedelta(
            years=-1, months=-2, days=3, hours=-4, minutes=-5, seconds=-6, microseconds=-70_000
        )
    return found


def test_google_client_reads_the_golden_page():
    http = Http({"/data": golden_rest.PAGE})

    rows = [dict(row) for row in client(http).list_rows(bigquery.Table(str(T), schema=SCHEMA))]

    ((_, url, _),) = http.sent
    assert "formatOptions.useInt64Timestamp=True" in url
    assert list(map(typed, rows)) == [typed(as_page(row)) for row in golden_rest.REST_VALUES]
    assert rows[0]["r"] == {"start": None, "end": datetime.date(9999, 12, 31)}
    assert rows[0]["w"] == decimal.Decimal("1e-38")


def test_embedded_server_answers_with_the_golden_page(server):
    load(server, golden_rest.NDJSON.encode(), source_format="NEWLINE_DELIMITED_JSON")

    listed = requests.get(
        f"{tables(server)}/t/data", params={"formatOptions.useInt64Timestamp": "true"}
    ).json()
    queried = requests.post(
        f"{server.rest_endpoint}/bigquery/v2/projects/p/queries",
        json={
            "query": "SELECT * FROM d.t",
            "useLegacySql": False,
            "formatOptions": {"useInt64Timestamp": True},
        },
    ).json()

    rows = golden_rest.PAGE["rows"]
    assert listed["rows"] == rows
    assert queried["rows"] == rows
    assert listed["totalRows"] == queried["totalRows"] == "3"
