"""Whatever arrives over REST, the answer is JSON with a documented status, never a 500 or nothing."""

import base64
import http.client
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bqflink_beam.emulator.routes import make_jobs, routes
from bqflink_beam.emulator.server import EmulatorServer

DOCUMENTED = {200, 204, 308, 400, 401, 403, 404, 409, 412}
ROWS = [{"id": 1, "s": "x"}]
FIELDS = [{"name": "id", "type": "INT64"}, {"name": "s", "type": "STRING"}]


@pytest.fixture(scope="module")
def server():
    with EmulatorServer() as server:
        server.create_table("p.d.t", FIELDS, rows=ROWS)
        yield server


def _templates():
    server = EmulatorServer()
    found = [
        (r.verb, r.template) for r in routes(server.store, make_jobs(server.store, server.faults))
    ]
    server.stop()
    return sorted(set(found))


_scalars = (
    st.none() | st.booleans() | st.integers(-10, 2**70) | st.floats(allow_nan=False)
    | st.text(max_size=8) | st.sampled_from(["p", "d", "t", "id", "INT64", "STRUCT", "WRITE_EMPTY", "DAY", "gs://b/o*", "2020-01-01"])
)  # fmt: skip
_KEYS = st.sampled_from(
    ["tableReference", "projectId", "datasetId", "tableId", "datasetReference", "schema", "fields",
     "name", "type", "mode", "configuration", "jobReference", "jobId", "location", "query", "load",
     "copy", "extract", "destinationTable", "sourceTable", "sourceTables", "sourceUris", "sourceFormat",
     "useLegacySql", "rows", "json", "insertId", "timePartitioning", "clustering", "queryParameters",
     "parameterType", "parameterValue", "value", "labels", "view", "maxResults", "dryRun", "id", "s",
     "writeDisposition", "schemaUpdateOptions", "skipInvalidRows", "defaultDataset", "expirationTime"]
)  # fmt: skip
_json = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4),
    max_leaves=10,
)
_reference = st.fixed_dictionaries(
    {"projectId": st.just("p"), "datasetId": st.sampled_from(["d", "e"]), "tableId": st.sampled_from(["t", "u", ""])}
)  # fmt: skip
_SQL = st.sampled_from(
    ["SELECT 1", "SELECT * FROM d.t", "SELECT", "(", "'", "DELETE FROM d.t WHERE TRUE", "DROP TABLE d.t",
     "INSERT d.t (id) VALUES (1)", "CREATE TABLE d.u AS SELECT 1 AS a", "ALTER TABLE d.t ADD COLUMN z INT64",
     "SELECT @a", "SELECT * FROM d.INFORMATION_SCHEMA.COLUMNS", "CREATE VIEW d.v AS SELECT 1 AS x",
     "MERGE d.t USING d.t AS u ON FALSE WHEN MATCHED THEN DELETE", "TRUNCATE TABLE d.t"]
) | st.text(max_size=30)  # fmt: skip
_job = st.fixed_dictionaries(
    {
        "configuration": st.one_of(
            st.fixed_dictionaries({"query": st.fixed_dictionaries(
                {"query": _SQL, "useLegacySql": st.just(False)},
                optional={"destinationTable": _reference | _json, "queryParameters": _json, "writeDisposition": _json},
            )}),
            st.fixed_dictionaries({"load": st.fixed_dictionaries(
                {"destinationTable": _reference}, optional={"sourceUris": _json, "schema": _json, "sourceFormat": _json}
            )}),
            st.fixed_dictionaries({"copy": st.fixed_dictionaries(
                {"destinationTable": _reference, "sourceTables": st.lists(_reference | _json, max_size=2)}
            )}),
            _json,
        )
    },
    optional={"jobReference": _json},
)  # fmt: skip
_bodies = st.one_of(
    _json.map(lambda value: json.dumps(value).encode()),
    _job.map(lambda value: json.dumps(value).encode()),
    st.fixed_dictionaries({"query": _SQL, "useLegacySql": st.just(False)}, optional={"dryRun": st.booleans(), "queryParameters": _json}).map(lambda v: json.dumps(v).encode()),
    st.fixed_dictionaries({"rows": st.lists(st.fixed_dictionaries({"json": _json}), max_size=3) | _json}).map(lambda v: json.dumps(v).encode()),
    st.fixed_dictionaries({"tableReference": _reference | _json, "schema": _json}, optional={"view": _json, "timePartitioning": _json, "clustering": _json}).map(lambda v: json.dumps(v).encode()),
    st.binary(max_size=20),
)  # fmt: skip
_names = st.sampled_from(["p", "d", "t", "j", "x", "%00", "t$2020", "é".encode().hex()])
_parameters = st.dictionaries(
    st.sampled_from(["maxResults", "pageToken", "startIndex", "filter", "selectedFields", "timeoutMs", "deleteContents", "location", "stateFilter"]),
    st.sampled_from(["0", "1", "-1", "x", "", "id", "US", base64.b64encode(b"p1").decode()]),
    max_size=3,
)  # fmt: skip


def _ask(server, verb, path, body):
    connection = http.client.HTTPConnection(
        server.rest_endpoint.removeprefix("http://"), timeout=30
    )
    try:
        connection.request(verb, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _examples(count):
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


def _check(server, data):
    verb, template = data.draw(st.sampled_from(_TEMPLATES))
    parts = ["project", "dataset", "table", "job"]
    usual = {"project": "p", "dataset": "d", "table": "t", "job": "j"}
    path = template
    for part in parts:
        name = data.draw(st.just(usual[part]) | _names) if part in template else ""
        path = path.replace("{" + part + "}", name)
    query = "&".join(f"{k}={v}" for k, v in data.draw(_parameters).items())
    body = data.draw(_bodies) if verb in ("POST", "PUT", "PATCH") else None

    status, answer = _ask(server, verb, f"/bigquery/v2{path}?{query}", body)

    assert status in DOCUMENTED, (status, answer)
    if answer:
        found = json.loads(answer)
        assert (status >= 400) == ("error" in found)
        errors = found["error"]["errors"] if status >= 400 else []
        assert all(error["reason"] != "internalError" for error in errors)


_TEMPLATES = _templates()


@_examples(300)
@given(data=st.data())
def test_random_request_has_a_documented_answer(server, data):
    _check(server, data)


@pytest.mark.long
@pytest.mark.timeout(1800)
@_examples(10_000)
@given(data=st.data())
def test_ten_thousand_random_requests_have_documented_answers(server, data):
    _check(server, data)


def test_no_job_of_theirs_ended_with_an_internal_error(server):
    failed = [
        job["status"]["errorResult"]
        for job in server.store.list_documents("job").values()
        if job["status"].get("errorResult", {}).get("reason") == "internalError"
    ]

    assert failed == []
