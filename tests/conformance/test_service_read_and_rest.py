"""Reading, jobs and tables through the service floor, on the embedded BigQuery."""

import pyarrow as pa
import pytest

from bqflink_beam.emulator.settings import Settings
from bqflink_beam.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    SessionExpiredError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.base import SessionRequest
from bqflink_beam.testing import Fault
from bqflink_beam.testing.emulator import Emulator

_TABLE = TableReference("p", "d", "t")
_SCHEMA = TableSchema(
    (Field(name="id", type="INT64", mode="REQUIRED"), Field(name="name", type="STRING"))
)
_ROWS = [{"id": n, "name": f"row {n}"} for n in range(100)]


@pytest.fixture
def server():
    with Emulator(settings=Settings(response_rows_max=7, streams_min=3)) as server:
        server.create_table(str(_TABLE), _SCHEMA, rows=_ROWS)
        yield server


@pytest.fixture
def client(server, opened):
    import dataclasses

    return opened(dataclasses.replace(server.connection, billing_project="payer").open())


def ids_of(session, responses):
    schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema))
    ids = []
    for response in responses:
        batch = pa.ipc.read_record_batch(pa.py_buffer(response.arrow_batch), schema)
        assert batch.num_rows == response.rows
        ids += batch.column("id").to_pylist()
    return ids


def read_all(client, session, streams=None):
    ids = []
    for stream in streams or session.streams:
        ids += ids_of(session, client.read.read_rows(stream, 0))
    return ids


def test_streams_of_a_session_hold_every_row_once(client):
    session = client.read.create_session(SessionRequest(table=_TABLE, streams_max=3))

    assert len(session.streams) == 3
    assert sorted(read_all(client, session)) == list(range(100))
    assert session.expire_s > 0


def test_filter_and_columns_are_the_services_work(client):
    request = SessionRequest(table=_TABLE, columns=("id",), row_filter="id >= 95", streams_max=1)
    session = client.read.create_session(request)

    assert sorted(read_all(client, session)) == [95, 96, 97, 98, 99]
    assert pa.ipc.read_schema(pa.py_buffer(session.arrow_schema)).names == ["id"]


@pytest.mark.parametrize("offset", [0, 1, 7, 50, 100])
def test_reading_resumes_at_any_row(client, offset):
    session = client.read.create_session(SessionRequest(table=_TABLE, streams_max=1))
    (stream,) = session.streams

    assert ids_of(session, client.read.read_rows(stream, offset)) == list(range(100))[offset:]


def test_offset_beyond_the_rows_is_an_invalid_request(client):
    session = client.read.create_session(SessionRequest(table=_TABLE, streams_max=1))

    with pytest.raises(InvalidRequestError):
        next(client.read.read_rows(session.streams[0], 101))


def test_halves_of_a_split_are_the_whole(client):
    session = client.read.create_session(SessionRequest(table=_TABLE, streams_max=1))

    halves = client.read.split_stream(session.streams[0], 0.5, deadline_s=5.0)

    assert halves is not None
    assert read_all(client, session, halves) == list(range(100))


def test_table_without_rows_has_no_streams(server, client):
    server.create_table("p.d.empty", _SCHEMA)

    session = client.read.create_session(SessionRequest(table=TableReference("p", "d", "empty")))

    assert session.streams == ()


@pytest.mark.parametrize("code", ["UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED"])
def test_read_that_breaks_goes_on_at_the_next_row(server, client, code):
    session = client.read.create_session(SessionRequest(table=_TABLE, streams_max=1))
    server.faults.add(Fault(method="ReadRows", code=code, after_responses=3))
    (stream,) = session.streams
    got = []

    with pytest.raises(TransientError):
        for response in client.read.read_rows(stream, 0):
            got += ids_of(session, [response])
    got += ids_of(session, client.read.read_rows(stream, len(got)))

    assert got == list(range(100))


def test_expired_session_says_so(server, client):
    session = client.read.create_session(SessionRequest(table=_TABLE, streams_max=1))
    server.faults.add(Fault(method="ReadRows", action="expire"))

    with pytest.raises(SessionExpiredError):
        next(client.read.read_rows(session.streams[0], 0))


@pytest.mark.parametrize(
    ("request_", "kind"),
    [
        (SessionRequest(table=TableReference("p", "d", "none")), NotFoundError),
        (SessionRequest(table=_TABLE, columns=("none",)), InvalidRequestError),
        (SessionRequest(table=_TABLE, row_filter="id >"), InvalidRequestError),
    ],
)
def test_mistake_in_a_session_request_names_the_table(client, request_, kind):
    with pytest.raises(kind) as caught:
        client.read.create_session(request_)
    assert caught.value.table == str(request_.table)


def test_query_job_runs_once_under_its_id(server, client):
    configuration = {"query": {"query": "SELECT id FROM `p.d.t` WHERE id < 3 ORDER BY id"}}
    server.faults.add(Fault(method="jobs.insert", code="UNAVAILABLE", when="after"))

    # The first answer is lost, so the insert was repeated and met its own job.
    configuration["query"]["useLegacySql"] = False
    with pytest.raises(ConflictError):
        client.jobs.insert("job-1", configuration, location="US")
    job = client.jobs.wait("job-1", location="US", budget_s=30.0)

    assert (job.id, job.location, job.done, job.error) == ("job-1", "US", True, None)
    rows = [row["id"] for row in client.jobs.query_rows("job-1", location="US")]
    assert rows == ["0", "1", "2"]


def test_job_that_fails_is_returned_with_the_services_words(client):
    query = {"query": "SELECT id FROM `p.d.none`", "useLegacySql": False}
    client.jobs.insert("job-2", {"query": query}, location="US", labels={"a": "b"})

    job = client.jobs.wait("job-2", location="US", budget_s=30.0)

    assert job.done
    assert job.error is not None and "none" in job.error
    assert job.resource["configuration"]["labels"] == {"a": "b"}


def test_job_that_is_not_there_is_none(client):
    assert client.jobs.get("no-such-job", location="US") is None


def test_table_is_made_changed_and_deleted(client):
    table = TableReference("p", "d", "made")
    resource = {"schema": {"fields": [{"name": "a", "type": "INTEGER", "mode": "REQUIRED"}]}}

    client.tables.create(table, resource)
    client.tables.create(table, resource)
    made = client.tables.get(table)
    client.tables.patch(table, {"description": "words"}, etag=made.etag)
    with pytest.raises(ConflictError):
        client.tables.patch(table, {"description": "late"}, etag=made.etag)
    changed = client.tables.get(table)
    client.tables.delete(table)
    client.tables.delete(table)

    assert made.schema == TableSchema((Field(name="a", type="INT64", mode="REQUIRED"),))
    assert made.kind == "TABLE"
    assert changed.resource["description"] == "words"
    assert client.tables.get(table) is None


def test_dataset_tells_its_location_or_is_not_found(server, client):
    server.create_dataset("p", "europe", location="EU")

    assert client.tables.dataset_location(TableReference("p", "europe", "t")) == "EU"
    with pytest.raises(NotFoundError):
        client.tables.dataset_location(TableReference("p", "nowhere", "t"))
    assert client.tables.get(TableReference("p", "nowhere", "t")) is None


@pytest.mark.parametrize("when", ["before", "after"])
def test_table_is_made_once_though_the_answer_is_lost(server, client, when):
    table = TableReference("p", "d", "lost")
    server.faults.add(Fault(method="tables.insert", code="UNAVAILABLE", when=when))

    client.tables.create(table, {"schema": {"fields": [{"name": "a", "type": "INT64"}]}})

    assert client.tables.get(table).schema == TableSchema((Field(name="a", type="INT64"),))
