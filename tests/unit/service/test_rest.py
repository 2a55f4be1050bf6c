"""Jobs and tables over REST: requests as BigQuery wants them, answers as errors of ours."""

import json

import pytest

from bqflink_beam.errors import (
    AccessDeniedError,
    ConfigError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    PermanentError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.retry import Backoff
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.jobs import RestJobs
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.rest import Rest
from bqflink_beam.service.tables import RestTables
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_rest import DROP, error

_TABLE = TableReference("p", "d", "t")
_PATH = "/bigquery/v2/projects/p/datasets/d/tables/t"
_JOB = {"jobReference": {"projectId": "payer", "jobId": "j", "location": "EU"}}
_DONE = {**_JOB, "status": {"state": "DONE"}}
_RUNNING = {**_JOB, "status": {"state": "RUNNING"}}


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def recent(clock):
    return Recent(clock)


@pytest.fixture
def session(rest, opened):
    connection = Connection(rest_endpoint=rest.url, billing_project="payer")
    return opened(Rest(connection, lambda: None))


@pytest.fixture
def jobs(rest, session, clock):
    connection = Connection(rest_endpoint=rest.url, billing_project="payer")
    return RestJobs(session, connection, backoff=Backoff(budget_s=60.0), clock=clock)


@pytest.fixture
def tables(session, recent, clock):
    return RestTables(session, recent, backoff=Backoff(budget_s=60.0), clock=clock)


def test_job_is_inserted_under_its_id_and_location_in_the_billing_project(rest, jobs):
    rest.script.append((200, _RUNNING))

    job = jobs.insert(
        "j",
        {"query": {"query": "SELECT 1"}, "labels": {"a": "1"}},
        location="EU",
        labels={"b": "2"},
    )

    (asked,) = rest.asked
    assert (asked.method, asked.path) == ("POST", "/bigquery/v2/projects/payer/jobs")
    assert asked.query == {"prettyPrint": "false"}
    assert asked.body == {
        "jobReference": {"projectId": "payer", "jobId": "j", "location": "EU"},
        "configuration": {"query": {"query": "SELECT 1"}, "labels": {"a": "1", "b": "2"}},
    }
    assert asked.headers["user-agent"].startswith("bqflink_beam/")
    assert (job.id, job.location, job.done, job.error) == ("j", "EU", False, None)


def test_used_job_id_is_a_conflict(rest, jobs):
    rest.script.append(error(409, "duplicate", "Already Exists: Job payer:EU.j"))

    with pytest.raises(ConflictError, match="Already Exists"):
        jobs.insert("j", {}, location="EU")


@pytest.mark.parametrize("loss", [DROP, error(503, "backendError"), error(500, "internalError")])
def test_insert_without_an_answer_is_repeated_because_the_id_is_the_fence(rest, jobs, loss):
    rest.script.extend([loss, error(409, "duplicate")])

    with pytest.raises(ConflictError):
        jobs.insert("j", {}, location=None)
    assert rest.asked[0].body == rest.asked[1].body


def test_rate_limit_is_waited_for_as_long_as_the_service_says(rest, jobs, clock):
    rest.script.extend([(*error(429, "rateLimitExceeded"), {"retry-after": "17"}), (200, _DONE)])

    assert jobs.get("j", location="EU").done
    assert clock.slept == [17.0]


def test_job_is_got_from_its_location(rest, jobs):
    rest.script.append((200, _DONE))

    assert jobs.get("j", location="EU").done
    assert rest.asked[0].path == "/bigquery/v2/projects/payer/jobs/j"
    assert rest.asked[0].query["location"] == "EU"


def test_job_that_is_not_there_is_none(rest, jobs):
    rest.script.append(error(404, "notFound"))

    assert jobs.get("j", location="EU") is None


def test_waiting_ends_when_the_job_is_done_and_a_failed_one_is_returned(rest, jobs, clock):
    failed = {"state": "DONE", "errorResult": {"reason": "invalid", "message": "bad file"}}
    rest.script.extend([(200, _RUNNING), (200, _RUNNING), (200, {**_JOB, "status": failed})])

    job = jobs.wait("j", location="EU", budget_s=100.0)

    assert job.done
    assert job.error == "invalid: bad file"
    assert len(clock.slept) == 2


def test_waiting_has_an_end(rest, jobs, clock):
    rest.script.extend([(200, _RUNNING)] * 1000)

    with pytest.raises(OutcomeUnknownError, match="job j"):
        jobs.wait("j", location="EU", budget_s=30.0)
    assert sum(clock.slept) <= 30.0


def test_waiting_for_no_job_is_an_error(rest, jobs):
    rest.script.append(error(404, "notFound"))

    with pytest.raises(NotFoundError, match="job j"):
        jobs.wait("j", location="EU", budget_s=30.0)


def test_query_rows_come_from_all_pages_as_plain_values(rest, jobs):
    schema = {
        "fields": [
            {"name": "n", "type": "INTEGER"},
            {"name": "tags", "type": "STRING", "mode": "REPEATED"},
            {"name": "r", "type": "RECORD", "fields": [{"name": "x", "type": "FLOAT"}]},
            {
                "name": "rs",
                "type": "RECORD",
                "mode": "REPEATED",
                "fields": [{"name": "x", "type": "FLOAT"}],
            },
        ]
    }
    one = {
        "f": [
            {"v": "1"},
            {"v": [{"v": "a"}, {"v": "b"}]},
            {"v": {"f": [{"v": "0.5"}]}},
            {"v": [{"v": {"f": [{"v": None}]}}]},
        ]
    }
    two = {"f": [{"v": None}, {"v": []}, {"v": None}, {"v": []}]}
    rest.script.extend(
        [
            (200, {"jobComplete": True, "schema": schema, "rows": [one], "pageToken": "next"}),
            (200, {"jobComplete": True, "schema": schema, "rows": [two]}),
        ]
    )

    rows = list(jobs.query_rows("j", location="EU"))

    assert rows == [
        {"n": "1", "tags": ["a", "b"], "r": {"x": "0.5"}, "rs": [{"x": None}]},
        {"n": None, "tags": [], "r": None, "rs": []},
    ]
    assert [asked.query.get("pageToken") for asked in rest.asked] == [None, "next"]
    assert rest.asked[0].path == "/bigquery/v2/projects/payer/queries/j"


def test_rows_of_an_unfinished_query_are_not_taken_for_none(rest, jobs):
    rest.script.append((200, {"jobComplete": False}))

    with pytest.raises(OutcomeUnknownError, match="not done"):
        list(jobs.query_rows("j", location="EU"))


def test_jobs_need_somebody_who_pays(rest, session, clock):
    jobs = RestJobs(session, Connection(rest_endpoint=rest.url), clock=clock)

    with pytest.raises(ConfigError, match="billing_project"):
        jobs.insert("j", {}, location="EU")
    assert rest.asked == []


def test_table_is_read_with_its_schema(rest, tables):
    resource = {
        "schema": {"fields": [{"name": "a", "type": "INTEGER", "mode": "REQUIRED"}]},
        "type": "VIEW",
        "location": "EU",
        "etag": "e1",
    }
    rest.script.append((200, resource))

    table = tables.get(_TABLE)

    assert rest.asked[0].path == _PATH
    assert table.schema == TableSchema((Field(name="a", type="INT64", mode="REQUIRED"),))
    assert (table.kind, table.location, table.etag) == ("VIEW", "EU", "e1")
    assert table.resource == resource


@pytest.mark.parametrize(("age_s", "young"), [(5, True), (-5, True), (70, False), (None, False)])
def test_table_that_another_worker_has_just_made_may_be_unknown_for_a_while(
    rest, tables, recent, clock, age_s, young
):
    resource = {"tableReference": {}, "schema": {"fields": []}}
    if age_s is not None:
        resource["creationTime"] = str(round((clock.now_s() - age_s) * 1000))
    rest.script.append((200, resource))

    tables.get(_TABLE)

    assert recent.is_young(_TABLE.path) == young


def test_table_that_is_not_there_is_none(rest, tables):
    rest.script.append(error(404, "notFound"))

    assert tables.get(_TABLE) is None


def test_denied_table_is_not_taken_for_a_missing_one(rest, tables):
    rest.script.append(error(403, "accessDenied", "Permission bigquery.tables.get denied"))

    with pytest.raises(AccessDeniedError) as caught:
        tables.get(_TABLE)
    assert caught.value.table == "p.d.t"


@pytest.mark.parametrize("answer", [(200, {}), error(409, "duplicate")])
def test_created_table_is_there_whoever_was_first_and_may_be_unknown_for_a_while(
    rest, tables, recent, answer
):
    rest.script.append(answer)

    tables.create(_TABLE, {"schema": {"fields": []}})

    assert rest.asked[0].path == "/bigquery/v2/projects/p/datasets/d/tables"
    assert rest.asked[0].body == {
        "schema": {"fields": []},
        "tableReference": {"projectId": "p", "datasetId": "d", "tableId": "t"},
    }
    assert recent.is_young(_TABLE.default_stream)


def test_table_is_not_created_in_a_dataset_that_is_not_there(rest, tables, recent):
    rest.script.append(error(404, "notFound", "Not found: Dataset p:d"))

    with pytest.raises(NotFoundError, match=r"dataset p\.d does not exist; make it first.*p:d"):
        tables.create(_TABLE, {})
    assert not recent.is_young(_TABLE.path)


def test_dataset_that_is_not_there_has_no_location(rest, tables):
    rest.script.append(error(404, "notFound", "Not found: Dataset p:d"))

    with pytest.raises(NotFoundError, match=r"dataset p\.d does not exist; make it first.*p:d"):
        tables.dataset_location(_TABLE)


def test_patch_names_the_version_it_changes(rest, tables):
    tables.patch(_TABLE, {"description": "x"}, etag='"e1"')

    (asked,) = rest.asked
    assert (asked.method, asked.headers["if-match"]) == ("PATCH", '"e1"')
    assert asked.body == {"description": "x"}


def test_patch_of_another_version_is_a_conflict(rest, tables):
    rest.script.append(error(412, "conditionNotMet"))

    with pytest.raises(ConflictError):
        tables.patch(_TABLE, {}, etag="e1")


@pytest.mark.parametrize("answer", [(204, ""), error(404, "notFound")])
def test_deleted_table_is_gone_whoever_deleted_it(rest, tables, answer):
    rest.script.append(answer)

    tables.delete(_TABLE)

    assert rest.asked[0].method == "DELETE"


def test_dataset_tells_its_location(rest, tables):
    rest.script.append((200, {"location": "EU"}))

    assert tables.dataset_location(_TABLE) == "EU"


def test_names_are_quoted_in_addresses(rest, tables):
    tables.get(TableReference("example.com:p", "d", "t ü$20240101"))

    path = "/bigquery/v2/projects/example.com%3Ap/datasets/d/tables/t%20%C3%BC%2420240101"
    assert rest.asked[0].path == path


def test_server_that_is_not_bigquery_is_told_apart_from_a_missing_table(rest, tables):
    rest.script.append((404, "<html>nginx</html>"))

    with pytest.raises(PermanentError, match="is rest_endpoint right.*nginx") as caught:
        tables.get(_TABLE)
    assert not isinstance(caught.value, NotFoundError)


@pytest.mark.parametrize(
    "answer", [(200, "<html>login</html>"), (302, "", {"location": "/login"}), (200, [])]
)
def test_page_instead_of_json_is_an_error_not_an_empty_table(rest, tables, answer):
    rest.script.append(answer)

    with pytest.raises(PermanentError, match="not from BigQuery"):
        tables.get(_TABLE)


def test_gateway_without_json_is_tried_again(rest, tables):
    rest.script.extend([(502, "<html>Bad Gateway</html>"), (429, ""), error(404, "notFound")])

    assert tables.get(_TABLE) is None


def test_reading_gives_up_with_the_last_reason(rest, tables):
    rest.script.extend([error(503, "backendError", "try later")] * 1000)

    with pytest.raises(TransientError, match="try later"):
        tables.get(_TABLE)


def test_proxy_of_the_environment_is_not_asked_about_this_machine(rest, tables, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")

    tables.delete(_TABLE)

    assert len(rest.asked) == 1


def test_request_body_is_json(rest, tables):
    tables.patch(_TABLE, {"description": "ü"}, etag="e")

    assert json.dumps(rest.asked[0].body, ensure_ascii=False) == '{"description": "ü"}'
