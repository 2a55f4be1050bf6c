"""Google's clients and Beam's own BigQuery I/O run on the embedded BigQuery as they are.

Nothing is handed to them but endpoints and credentials.
"""

import contextlib
import datetime
import decimal
import gc
import io
import math

import apache_beam as beam
import grpc
import pyarrow as pa
import pytest
import requests
from apache_beam.internal.gcp import auth
from apache_beam.io.gcp import bigquery as beam_bigquery
from apache_beam.io.gcp.internal.clients import bigquery as beam_rest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from google.api_core import exceptions
from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery, bigquery_storage
from google.cloud import storage as storage_client
from google.cloud.bigquery_storage_v1.services.big_query_read import transports

from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.emulator.settings import Settings

_UTC = datetime.timezone.utc
pytestmark = pytest.mark.filterwarnings(
    "ignore::PendingDeprecationWarning:google",
    "ignore::DeprecationWarning",
    "ignore::ResourceWarning",
)
_SCHEMA = [
    bigquery.SchemaField("id", "INT64", "REQUIRED"),
    bigquery.SchemaField("name", "STRING"),
    bigquery.SchemaField("price", "NUMERIC"),
    bigquery.SchemaField("wide", "BIGNUMERIC"),
    bigquery.SchemaField("weight", "FLOAT64"),
    bigquery.SchemaField("ok", "BOOL"),
    bigquery.SchemaField("raw", "BYTES"),
    bigquery.SchemaField("day", "DATE"),
    bigquery.SchemaField("clock", "TIME"),
    bigquery.SchemaField("local", "DATETIME"),
    bigquery.SchemaField("at", "TIMESTAMP"),
    bigquery.SchemaField("tags", "STRING", "REPEATED"),
    bigquery.SchemaField("home", "RECORD", fields=[bigquery.SchemaField("city", "STRING")]),
]
_ROW = {
    "id": 1,
    "name": "é'\n",
    "price": decimal.Decimal("1.5"),
    "wide": decimal.Decimal("-1e-38"),
    "weight": 0.1,
    "ok": True,
    "raw": b"\x00\xff",
    "day": datetime.date(1, 1, 1),
    "clock": datetime.time(1, 2, 3, 4),
    "local": datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),  # noqa: DTZ001
    "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999, _UTC),
    "tags": ["a", ""],
    "home": {"city": "Bern"},
}
_NULLS = {**{name: None for name in _ROW}, "id": 2, "tags": []}


@pytest.fixture
def server(tmp_path):
    with EmulatorServer(settings=Settings(files_root=tmp_path, streams_min=2)) as server:
        server.create_dataset("proj", "d")
        yield server


@pytest.fixture
def client(server):
    with contextlib.closing(
        bigquery.Client(
            project="proj",
            credentials=AnonymousCredentials(),
            client_options=ClientOptions(api_endpoint=server.rest_endpoint),
        )
    ) as client:
        yield client


@pytest.fixture
def storage(server):
    with grpc.insecure_channel(server.storage_endpoint) as channel:
        yield bigquery_storage.BigQueryReadClient(
            transport=transports.BigQueryReadGrpcTransport(channel=channel)
        )


@pytest.fixture
def table(client, server):
    """A table with one row of every kind and one of NULLs, inserted by Google's client."""
    client.create_table(bigquery.Table("proj.d.t", schema=_SCHEMA))
    assert client.insert_rows(client.get_table("proj.d.t"), [_ROW, _NULLS]) == []
    return "proj.d.t"


def _rows(rows):
    return sorted((dict(row) for row in rows), key=lambda row: row["id"])


# --- google-cloud-bigquery --------------------------------------------------------------


def test_inserted_rows_are_listed_unchanged(client, table):
    assert _rows(client.list_rows(table)) == [_ROW, _NULLS]


def test_rows_are_listed_over_many_pages(client, server):
    server.create_table(
        "proj.d.n", [{"name": "id", "type": "INT64"}], rows=[{"id": n} for n in range(25)]
    )

    found = client.list_rows("proj.d.n", page_size=10)

    assert [row["id"] for row in found] == list(range(25))


def test_query_answers_with_values_of_every_type(client, table):
    job = client.query(f"SELECT * FROM `{table}` WHERE id < @top ORDER BY id", job_config=bigquery.QueryJobConfig(
        query_parameters=[bigquery.ScalarQueryParameter("top", "INT64", 10)]))  # fmt: skip

    assert _rows(job.result()) == [_ROW, _NULLS]
    assert job.location == "US"


def test_query_and_wait_answers(client, table):
    assert [dict(row) for row in client.query_and_wait(f"SELECT COUNT(*) AS n FROM {table}")] == [
        {"n": 2}
    ]


def test_parameters_of_every_type_are_bound(client):
    values = {
        "i": ("INT64", -5), "f": ("FLOAT64", 0.1), "s": ("STRING", "it's \\ é"), "b": ("BOOL", False),
        "y": ("BYTES", b"\x00\xff"), "n": ("NUMERIC", decimal.Decimal("1.5")), "d": ("DATE", _ROW["day"]),
        "t": ("TIME", _ROW["clock"]), "dt": ("DATETIME", _ROW["local"]), "ts": ("TIMESTAMP", _ROW["at"]),
        "nothing": ("STRING", None),
    }  # fmt: skip
    config = bigquery.QueryJobConfig(
        query_parameters=[
            *(bigquery.ScalarQueryParameter(n, kind, value) for n, (kind, value) in values.items()),
            bigquery.ArrayQueryParameter("a", "INT64", [1, 2]),
            bigquery.StructQueryParameter("r", bigquery.ScalarQueryParameter("x", "INT64", 7)),
        ]
    )
    columns = ", ".join(f"@{name} AS {name}" for name in [*values, "a", "r"])

    (row,) = client.query(f"SELECT {columns}", job_config=config).result()

    assert dict(row) == {
        **{n: value for n, (_, value) in values.items()},
        "a": [1, 2],
        "r": {"x": 7},
    }


def test_query_result_is_read_as_arrow_by_the_storage_api(client, storage, server, table):
    result = client.query(f"SELECT id, name, at FROM {table}").result(page_size=None)

    found = result.to_arrow(bqstorage_client=storage)

    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
        {key: row[key] for key in ("id", "name", "at")} for row in (_ROW, _NULLS)
    ]


def test_table_is_read_as_arrow_by_the_storage_api(client, storage, server):
    rows = [{"id": n} for n in range(1000)]
    server.create_table("proj.d.n", [{"name": "id", "type": "INT64"}], rows=rows)

    found = client.list_rows("proj.d.n").to_arrow(bqstorage_client=storage)

    assert sorted(found.column("id").to_pylist()) == list(range(1000))
    assert server.counters["ReadRows"] >= 1


def test_files_are_loaded_by_upload(client):
    config = bigquery.LoadJobConfig(autodetect=True, source_format="CSV")

    job = client.load_table_from_file(
        io.BytesIO(b"id,name\n1,x\n2,y\n"), "proj.d.up", job_config=config
    )
    job.result()

    assert job.output_rows == 2
    assert _rows(client.list_rows("proj.d.up")) == [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]


def test_large_file_is_uploaded_in_pieces(client):
    data = b"".join(b'{"id": %d, "name": "%s"}\n' % (n, b"x" * 100) for n in range(30_000))
    config = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON", schema=_SCHEMA[:2])

    job = client.load_table_from_file(io.BytesIO(data), "proj.d.big", job_config=config)
    job.result()

    assert job.output_rows == 30_000


def test_arrow_table_is_loaded_as_parquet(client, tmp_path):
    import pyarrow.parquet as pq

    data = pa.table({"id": [1, 2], "tags": [["a"], []], "price": [decimal.Decimal("1.5"), None]})
    pq.write_table(data, tmp_path / "x.parquet")
    options = bigquery.ParquetOptions()
    options.enable_list_inference = True
    config = bigquery.LoadJobConfig(source_format="PARQUET", parquet_options=options)

    client.load_table_from_uri(
        f"file://{tmp_path}/x.parquet", "proj.d.pq", job_config=config
    ).result()

    assert _rows(client.list_rows("proj.d.pq")) == data.to_pylist()


@pytest.mark.parametrize("form", ["AVRO", "PARQUET", "NEWLINE_DELIMITED_JSON"])
def test_extracted_files_load_back(client, table, tmp_path, form):
    names = [field.name for field in _SCHEMA if field.name != "local" or form != "AVRO"]
    client.query(f"CREATE TABLE d.src AS SELECT {', '.join(names)} FROM {table}").result()
    kept = [field for field in client.get_table("proj.d.src").schema]
    config = bigquery.ExtractJobConfig(destination_format=form, use_avro_logical_types=True)
    client.extract_table("proj.d.src", f"file://{tmp_path}/out-*", job_config=config).result()
    options = bigquery.ParquetOptions()
    options.enable_list_inference = True
    load = bigquery.LoadJobConfig(
        source_format=form, schema=kept, use_avro_logical_types=True, parquet_options=options
    )

    client.load_table_from_uri(f"file://{tmp_path}/out-*", "proj.d.back", job_config=load).result()

    assert _rows(client.list_rows("proj.d.back")) == [
        {name: row[name] for name in names} for row in (_ROW, _NULLS)
    ]


def test_tables_and_views_are_managed(client, table):
    found = client.get_table(table)
    found.description = "changed"
    found.schema = [*found.schema, bigquery.SchemaField("more", "STRING")]
    client.update_table(found, ["description", "schema"])
    view = bigquery.Table("proj.d.v")
    view.view_query = "SELECT id FROM d.t"
    view = client.create_table(view)
    copied = client.copy_table(table, "proj.d.copy")
    copied.result()

    assert client.get_table(table).schema[-1].name == "more"
    assert [field.name for field in view.schema] == ["id"]
    assert sorted(t.table_id for t in client.list_tables("proj.d")) == ["copy", "t", "v"]
    assert client.get_table("proj.d.copy").num_rows == 2
    client.delete_dataset("proj.d", delete_contents=True)
    assert list(client.list_datasets()) == []


# --- Beam's own I/O ---------------------------------------------------------------------


@pytest.fixture
def beam_on_server(server, monkeypatch):
    """Beam 2.77 has no option for endpoints, so they are put where it keeps its defaults."""
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", server.rest_endpoint)
    monkeypatch.setattr(beam_rest.BigqueryV2, "BASE_URL", f"{server.rest_endpoint}/bigquery/v2/")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.rest_endpoint)
    monkeypatch.setattr("google.auth.default", lambda *_, **__: (AnonymousCredentials(), "proj"))
    monkeypatch.setattr(auth._Credentials, "_credentials_init", True)
    monkeypatch.setattr(
        auth._Credentials, "_credentials", auth._ApitoolsCredentialsAdapter(AnonymousCredentials())
    )
    with contextlib.ExitStack() as channels:

        def connect():
            channel = channels.enter_context(grpc.insecure_channel(server.storage_endpoint))
            return bigquery_storage.BigQueryReadClient(
                transport=transports.BigQueryReadGrpcTransport(channel=channel)
            )

        monkeypatch.setattr(beam_bigquery.bq_storage, "BigQueryReadClient", connect)
        yield server
    # Beam closes none of its clients: their sockets go here, not in somebody else's test.
    gc.collect()


def _pipeline():
    options = PipelineOptions(project="proj", temp_location="gs://bucket/temp")
    return beam.Pipeline(runner=FnApiRunner(), options=options)


@pytest.fixture
def events(server):
    rows = [{"id": n, "name": f"n{n % 7}"} for n in range(200)]
    fields = [{"name": "id", "type": "INT64"}, {"name": "name", "type": "STRING"}]
    server.create_table("proj.d.events", fields, rows=rows)
    return rows


def test_beam_direct_read(beam_on_server, events):
    with _pipeline() as p:
        rows = p | beam.io.ReadFromBigQuery(
            method="DIRECT_READ", table="proj:d.events", row_restriction="id < 150"
        )
        assert_that(rows, equal_to([row for row in events if row["id"] < 150]))


def test_beam_export_read(beam_on_server, events):
    with _pipeline() as p:
        rows = p | beam.io.ReadFromBigQuery(
            table="proj:d.events", gcs_location="gs://bucket/export"
        )
        assert_that(rows, equal_to(events))


def test_beam_query_read(beam_on_server, events):
    with _pipeline() as p:
        rows = p | beam.io.ReadFromBigQuery(
            query="SELECT name, COUNT(*) AS n FROM `proj.d.events` GROUP BY name",
            use_standard_sql=True,
            gcs_location="gs://bucket/export",
        )
        wanted = [{"name": f"n{k}", "n": len(range(k, 200, 7))} for k in range(7)]
        assert_that(rows, equal_to(wanted))


def test_beam_streaming_inserts(beam_on_server, events):
    with _pipeline() as p:
        _ = (
            p
            | beam.Create(events)
            | beam.io.WriteToBigQuery(
                "proj:d.streamed", schema="id:INTEGER,name:STRING", method="STREAMING_INSERTS"
            )
        )

    found = beam_on_server.visible_rows("proj.d.streamed")
    assert sorted(found, key=lambda row: row["id"]) == events


@pytest.mark.parametrize("form", ["NEWLINE_DELIMITED_JSON", "AVRO"])
def test_beam_file_loads(beam_on_server, events, form):
    with _pipeline() as p:
        _ = (
            p
            | beam.Create(events)
            | beam.io.WriteToBigQuery(
                "proj:d.loaded",
                schema="id:INTEGER,name:STRING",
                method="FILE_LOADS",
                custom_gcs_temp_location="gs://bucket/staging",
                temp_file_format=form,
                write_disposition="WRITE_TRUNCATE",
            )
        )

    found = beam_on_server.visible_rows("proj.d.loaded")
    assert sorted(found, key=lambda row: row["id"]) == events
    assert beam_on_server.counters["jobs.insert"] >= 1


@pytest.mark.parametrize(
    ("method", "kept"),
    [("STREAMING_INSERTS", '{"a":[1]}'), ("FILE_LOADS", '"{\\"a\\":[1]}"')],
)
def test_beam_writes_json_text_as_it_does_on_the_service(beam_on_server, method, kept):
    """By Beam's bigquery_json_it_test: streamed text is JSON, text in files a JSON string."""
    with _pipeline() as p:
        _ = (
            p
            | beam.Create([{"id": 1, "doc": '{"a":[1]}'}])
            | beam.io.WriteToBigQuery(
                "proj:d.docs",
                schema="id:INTEGER,doc:JSON",
                method=method,
                custom_gcs_temp_location="gs://bucket/staging",
            )
        )

    assert beam_on_server.visible_rows("proj.d.docs") == [{"id": 1, "doc": kept}]


def test_nan_and_infinity_survive_the_json_api(client, server):
    server.create_table(
        "proj.d.f", [{"name": "x", "type": "FLOAT64"}], rows=[{"x": math.inf}, {"x": math.nan}]
    )

    found = [row["x"] for row in client.list_rows("proj.d.f")]

    assert found[0] == math.inf
    assert math.isnan(found[1])


# --- google-cloud-storage -----------------------------------------------------------------


@pytest.fixture
def bucket(server, monkeypatch):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.rest_endpoint)
    with contextlib.closing(
        storage_client.Client(project="proj", credentials=AnonymousCredentials())
    ) as client:
        yield client.create_bucket("own")


def test_objects_are_written_read_listed_copied_and_deleted(bucket):
    bucket.blob("a/é 1.txt").upload_from_string(b"one")
    bucket.blob("a/2.txt").upload_from_file(io.BytesIO(b"x" * 1_000_000))
    with bucket.blob("b/3.txt").open("wb", chunk_size=256 * 1024) as file:
        file.write(b"y" * 1_000_000)

    assert bucket.blob("a/é 1.txt").download_as_bytes() == b"one"
    assert bucket.blob("a/2.txt").download_as_bytes(start=999_998) == b"xx"
    assert bucket.blob("b/3.txt").download_as_bytes() == b"y" * 1_000_000
    assert [blob.name for blob in bucket.list_blobs(prefix="a/")] == ["a/2.txt", "a/é 1.txt"]
    bucket.copy_blob(bucket.blob("a/2.txt"), bucket, "c.txt")
    bucket.delete_blobs(["a/2.txt", "a/é 1.txt"])
    with bucket.client.batch():
        bucket.blob("b/3.txt").delete()
    assert [blob.name for blob in bucket.list_blobs()] == ["c.txt"]


def test_object_is_written_once_under_a_generation_precondition(bucket):
    bucket.blob("once").upload_from_string(b"first", if_generation_match=0)

    with pytest.raises(exceptions.PreconditionFailed):
        bucket.blob("once").upload_from_string(b"second", if_generation_match=0)

    assert bucket.blob("once").download_as_bytes() == b"first"


def test_piece_of_an_object_that_leaves_a_gap_is_refused(bucket, server):
    begun = requests.post(
        f"{server.rest_endpoint}/upload/storage/v1/b/own/o?uploadType=resumable&name=x", json={}
    )
    place = begun.headers["Location"]
    requests.put(place, data=b"abc", headers={"Content-Range": "bytes 0-2/*"})

    gap = requests.put(place, data=b"ghi", headers={"Content-Range": "bytes 6-8/9"})
    whole = requests.put(place, data=b"defghi", headers={"Content-Range": "bytes 3-8/9"})

    assert gap.status_code == 400
    assert whole.status_code == 200
    assert bucket.blob("x").download_as_bytes() == b"abcdefghi"


def test_load_and_extract_use_objects(client, bucket):
    bucket.blob("in/1.json").upload_from_string(b'{"id": 1}\n')
    bucket.blob("in/2.json").upload_from_string(b'{"id": 2}\n')
    config = bigquery.LoadJobConfig(source_format="NEWLINE_DELIMITED_JSON", schema=_SCHEMA[:1])

    client.load_table_from_uri("gs://own/in/*.json", "proj.d.gcs", job_config=config).result()
    client.extract_table("proj.d.gcs", "gs://own/out-*.csv").result()

    assert bucket.blob("out-000000000000.csv").download_as_bytes() == b"id\n1\n2\n"
