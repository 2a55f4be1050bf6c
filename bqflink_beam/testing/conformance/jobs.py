"""REST v2 as the service has it: tables, job ids, queries; with `loads` the whole `JobConformance`."""

import base64
from typing import Any

import pytest

from bqflink_beam.testing.conformance.kit import rule
from bqflink_beam.testing.conformance.loads import (
    CopyConformance,
    InsertAllConformance,
    LoadConformance,
)
from bqflink_beam.testing.conformance.partitions import PartitionConformance
from bqflink_beam.testing.conformance.rest import HttpFailure, Rest, reason_of, succeeded
from bqflink_beam.testing.conformance.statements import StatementConformance

_ID = [{"name": "id", "type": "INTEGER"}]
_PAIR = [*_ID, {"name": "name", "type": "STRING"}]
_JOB = "docs: REST reference, Job resource"
_QUERY = "docs: REST reference, JobConfigurationQuery"
_WILDCARD = "docs: Querying multiple tables using a wildcard table"
_TABLES = "docs: REST reference, tables"
_TABLEDATA = "docs: REST reference, tabledata.list"


class TableConformance:
    """``datasets.*``, ``tables.*`` and ``tabledata.list``."""

    @rule(
        "tables.insert",
        "a name that is taken is a 409 duplicate",
        "docs: Error messages, duplicate",
    )
    def test_table_is_made_once(self, rest: Rest) -> None:
        name = rest.make_table(_ID)

        with pytest.raises(HttpFailure) as caught:
            rest(
                "POST",
                f"/datasets/{rest.dataset}/tables",
                {"tableReference": rest.reference(name), "schema": {"fields": _ID}},
            )

        assert (caught.value.status, caught.value.reasons) == (409, ["duplicate"])

    @rule(
        "tables.get",
        "a table that does not exist is a 404 notFound",
        "docs: Error messages, notFound",
    )
    def test_missing_table_is_not_found(self, rest: Rest) -> None:
        with pytest.raises(HttpFailure) as caught:
            rest.table("nowhere")

        assert (caught.value.status, caught.value.reasons) == (404, ["notFound"])

    @rule(
        "tables.get",
        "types are answered by their legacy names",
        "google test: python-bigquery system tests compare INTEGER, FLOAT, BOOLEAN, RECORD",
    )
    @rule("tables.get", "mode is NULLABLE where none was given", _TABLES)
    def test_schema_comes_back(self, rest: Rest) -> None:
        fields: list[Any] = [
            {"name": "i", "type": "INT64"},
            {"name": "f", "type": "FLOAT64", "mode": "REQUIRED"},
            {
                "name": "s",
                "type": "STRUCT",
                "mode": "REPEATED",
                "fields": [{"name": "b", "type": "BOOL"}],
            },
        ]

        found = rest.table(rest.make_table(fields))["schema"]["fields"]

        assert [(f["name"], f["type"], f["mode"]) for f in found] == [
            ("i", "INTEGER", "NULLABLE"),
            ("f", "FLOAT", "REQUIRED"),
            ("s", "RECORD", "REPEATED"),
        ]

    @rule(
        "tables.patch",
        "a stale etag in If-Match is a 412",
        "docs: REST reference, Avoiding race conditions with ETags",
    )
    @rule(
        "tables.patch",
        "every change gives a new etag",
        "docs: REST reference, Avoiding race conditions with ETags",
    )
    def test_stale_etag_is_refused(self, rest: Rest) -> None:
        name = rest.make_table(_ID)
        path = f"/datasets/{rest.dataset}/tables/{name}"
        before = rest.table(name)["etag"]
        rest("PATCH", path, {"description": "first"}, {"If-Match": before})

        with pytest.raises(HttpFailure) as caught:
            rest("PATCH", path, {"description": "second"}, {"If-Match": before})

        assert caught.value.status == 412
        assert rest.table(name)["description"] == "first"

    @rule(
        "tables.patch",
        "columns may be added at the end, NULLABLE or REPEATED",
        "docs: Modifying table schemas",
    )
    @rule("tables.patch", "REQUIRED may be relaxed to NULLABLE", "docs: Modifying table schemas")
    def test_schema_may_grow_and_relax(self, rest: Rest) -> None:
        name = rest.make_table([{"name": "id", "type": "INTEGER", "mode": "REQUIRED"}])

        rest("PATCH", f"/datasets/{rest.dataset}/tables/{name}", {"schema": {"fields": _PAIR}})

        found = rest.table(name)["schema"]["fields"]
        assert [(f["name"], f["mode"]) for f in found] == [("id", "NULLABLE"), ("name", "NULLABLE")]

    @rule("tables.patch", "a column may not go", "docs: Modifying table schemas")
    @rule("tables.patch", "a column may not become REQUIRED", "docs: Modifying table schemas")
    @rule("tables.patch", "a new column may not be REQUIRED", "docs: Modifying table schemas")
    @rule("tables.patch", "a column's type may not change", "docs: Modifying table schemas")
    @pytest.mark.parametrize(
        "fields",
        [
            _ID,
            [{"name": "id", "type": "INTEGER", "mode": "REQUIRED"}, _PAIR[1]],
            [*_PAIR, {"name": "new", "type": "STRING", "mode": "REQUIRED"}],
            [{"name": "id", "type": "STRING"}, _PAIR[1]],
        ],
    )
    def test_schema_may_not_shrink_or_tighten(self, rest: Rest, fields: Any) -> None:
        name = rest.make_table(_PAIR)

        with pytest.raises(HttpFailure) as caught:
            rest("PATCH", f"/datasets/{rest.dataset}/tables/{name}", {"schema": {"fields": fields}})

        assert caught.value.status == 400
        assert len(rest.table(name)["schema"]["fields"]) == 2

    @rule("tables.list", "pages of maxResults, joined by nextPageToken", _TABLES)
    def test_tables_are_listed_in_pages(self, rest: Rest) -> None:
        made = {rest.make_table(_ID) for _ in range(3)}
        found: list[str] = []
        token: dict[str, str] = {}

        while True:
            page = rest("GET", f"/datasets/{rest.dataset}/tables", maxResults=1, **token)
            assert len(page["tables"]) == 1
            found += [table["tableReference"]["tableId"] for table in page["tables"]]
            if "nextPageToken" not in page:
                break
            token = {"pageToken": page["nextPageToken"]}

        assert made <= set(found)
        assert len(found) == len(set(found))

    @rule(
        "datasets.delete",
        "a dataset with tables is deleted with deleteContents only",
        "docs: REST reference, datasets.delete",
    )
    def test_dataset_in_use_is_not_deleted(self, rest: Rest) -> None:
        rest.make_table(_ID)

        with pytest.raises(HttpFailure) as caught:
            rest("DELETE", f"/datasets/{rest.dataset}")

        assert (caught.value.status, caught.value.reasons) == (400, ["resourceInUse"])

    @rule("tabledata.list", "cells are text, nested under f and v", _TABLEDATA)
    @rule("tabledata.list", "BYTES are base64, BOOL true or false, NULL null", _TABLEDATA)
    @rule(
        "tabledata.list",
        "TIMESTAMP is seconds as a float by default",
        "client: python-bigquery parses float seconds without useInt64Timestamp",
    )
    @rule("tabledata.list", "TIMESTAMP is microseconds with useInt64Timestamp", _TABLEDATA)
    def test_cells_are_encoded_as_rest_has_them(self, rest: Rest) -> None:
        text = (
            "SELECT 1 AS i, 1.5 AS f, TRUE AS b, b'\\xff' AS y, NUMERIC '1.50' AS n, "
            "DATE '2020-01-31' AS d, DATETIME '2020-01-31 10:00:00' AS dt, "
            "TIMESTAMP '2020-01-01 00:00:00' AS ts, CAST(NULL AS STRING) AS s, "
            "[1, 2] AS a, STRUCT('x' AS k) AS r"
        )

        table = succeeded(rest.run_query(text))["configuration"]["query"]["destinationTable"]
        path = f"/datasets/{table['datasetId']}/tables/{table['tableId']}/data"
        (plain,) = rest("GET", path)["rows"]
        (exact,) = rest("GET", path, **{"formatOptions.useInt64Timestamp": "true"})["rows"]

        cells = [cell["v"] for cell in plain["f"]]
        assert cells[:7] == [
            "1", "1.5", "true", base64.b64encode(b"\xff").decode(), "1.5", "2020-01-31", "2020-01-31T10:00:00",
        ]  # fmt: skip
        assert float(cells[7]) == 1577836800.0
        assert cells[8:] == [None, [{"v": "1"}, {"v": "2"}], {"f": [{"v": "x"}]}]
        assert exact["f"][7]["v"] == "1577836800000000"

    @rule("tabledata.list", "pages of maxResults, joined by pageToken, from startIndex", _TABLEDATA)
    @rule("tabledata.list", "totalRows counts the whole table", _TABLEDATA)
    def test_rows_come_in_pages(self, rest: Rest) -> None:
        job = succeeded(
            rest.run_query("SELECT x FROM UNNEST(GENERATE_ARRAY(1, 5)) AS x ORDER BY x")
        )
        table = job["configuration"]["query"]["destinationTable"]
        path = f"/datasets/{table['datasetId']}/tables/{table['tableId']}/data"

        first = rest("GET", path, maxResults=2)
        second = rest("GET", path, maxResults=2, pageToken=first["pageToken"])
        late = rest("GET", path, startIndex=4)

        pages = [[row["f"][0]["v"] for row in page["rows"]] for page in (first, second, late)]
        assert pages == [["1", "2"], ["3", "4"], ["5"]]
        assert {page["totalRows"] for page in (first, second, late)} == {"5"}
        assert "pageToken" not in late


class JobIdConformance:
    """``jobs.insert`` and the id that is the fence against doing work twice."""

    @rule(
        "jobs.insert",
        "an id that is taken is a 409 duplicate",
        "docs: Running jobs programmatically, generating a job ID",
    )
    @rule(
        "jobs.insert",
        "a job whose id is taken does not run",
        "docs: Running jobs programmatically, generating a job ID",
    )
    def test_job_id_is_used_once(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        uri = rest.put_file("one.json", b'{"id": 1}\n')
        configuration = {
            "load": {
                "destinationTable": rest.reference(table),
                "sourceUris": [uri],
                "sourceFormat": "NEWLINE_DELIMITED_JSON",
            }
        }
        job_id = rest.name("conformance_once_")
        succeeded(rest.run_job(configuration, job_id))

        with pytest.raises(HttpFailure) as caught:
            rest.insert_job(configuration, job_id)

        assert (caught.value.status, caught.value.reasons) == (409, ["duplicate"])
        assert rest.rows(table) == [["1"]]

    @rule(
        "jobs.insert",
        "an id of a job that failed is taken too",
        "measured: Beam's file loads hang on a failed job's id and cannot retry it",
    )
    def test_id_of_a_failed_job_stays_taken(self, rest: Rest) -> None:
        job_id = rest.name("conformance_failed_")
        configuration = {"query": {"query": "SELECT nope", "useLegacySql": False}}
        assert reason_of(rest.run_job(configuration, job_id)) == "invalidQuery"

        with pytest.raises(HttpFailure) as caught:
            rest.insert_job({"query": {"query": "SELECT 1", "useLegacySql": False}}, job_id)

        assert caught.value.status == 409

    @rule("jobs.get", "the query's text comes back letter by letter", _QUERY)
    @rule("jobs.get", "labels come back", _JOB)
    def test_query_text_and_labels_come_back(self, rest: Rest) -> None:
        text = "SELECT 1 AS x -- " + "comment é 'quoted' \\ " * 1000
        job = rest.run_job(
            {"query": {"query": text, "useLegacySql": False}, "labels": {"run": "a_1"}}
        )

        reference = succeeded(job)["jobReference"]
        found = rest("GET", f"/jobs/{reference['jobId']}", location=reference["location"])

        assert found["configuration"]["query"]["query"] == text
        assert found["configuration"]["labels"] == {"run": "a_1"}

    @rule("jobs.get", "a job that does not exist is a 404", "docs: Error messages, notFound")
    def test_missing_job_is_not_found(self, rest: Rest) -> None:
        with pytest.raises(HttpFailure) as caught:
            rest("GET", "/jobs/nowhere")

        assert (caught.value.status, caught.value.reasons) == (404, ["notFound"])

    @rule("jobs.insert", "a job id has letters, digits, _ and - only", _JOB)
    @rule("jobs.insert", "a configuration without a kind of job is a 400", _JOB)
    def test_impossible_job_is_refused_at_once(self, rest: Rest) -> None:
        with pytest.raises(HttpFailure) as bad_id:
            rest.insert_job({"query": {"query": "SELECT 1", "useLegacySql": False}}, "a b")
        with pytest.raises(HttpFailure) as bad_kind:
            rest.insert_job({})

        assert (bad_id.value.status, bad_kind.value.status) == (400, 400)

    @rule("jobs.list", "newest first, with the state of each", "docs: REST reference, jobs.list")
    def test_jobs_are_listed(self, rest: Rest) -> None:
        ids = [rest.name("conformance_list_") for _ in range(2)]
        for job_id in ids:
            rest.run_job({"query": {"query": "SELECT 1", "useLegacySql": False}}, job_id)

        listed = [
            job["jobReference"]["jobId"] for job in rest("GET", "/jobs", maxResults=50)["jobs"]
        ]

        assert listed.index(ids[1]) < listed.index(ids[0])

    @rule(
        "jobs.cancel",
        "cancelling a job that is done changes nothing",
        "docs: REST reference, jobs.cancel",
    )
    def test_cancel_of_a_done_job_is_harmless(self, rest: Rest) -> None:
        job = rest.run_query("SELECT 1 AS x")
        reference = job["jobReference"]

        answer = rest("POST", f"/jobs/{reference['jobId']}/cancel", location=reference["location"])

        assert answer["job"]["status"] == {"state": "DONE"}


class QueryConformance:
    """Query jobs and their results."""

    @rule("jobs.insert", "without a destination the rows go to an anonymous table", _QUERY)
    @rule(
        "jobs.insert",
        "an anonymous table expires",
        "docs: Using cached query results, about 24 hours",
    )
    def test_anonymous_result_is_a_table_with_an_expiry(self, rest: Rest) -> None:
        table = succeeded(rest.run_query("SELECT 7 AS x"))["configuration"]["query"][
            "destinationTable"
        ]

        found = rest("GET", f"/datasets/{table['datasetId']}/tables/{table['tableId']}")

        assert int(found["expirationTime"]) > int(found["creationTime"])
        assert found["numRows"] == "1"

    @rule(
        "datasets.list",
        "datasets that begin with _ are hidden",
        "docs: Listing datasets, hidden datasets",
    )
    def test_anonymous_dataset_is_not_listed(self, rest: Rest) -> None:
        succeeded(rest.run_query("SELECT 7 AS x"))

        listed = rest("GET", "/datasets").get("datasets", ())

        assert not [d for d in listed if d["datasetReference"]["datasetId"].startswith("_")]

    @rule(
        "jobs.insert",
        "the default for a destination is WRITE_EMPTY: duplicate if it has rows",
        _QUERY,
    )
    @rule("jobs.insert", "WRITE_TRUNCATE puts rows and schema in the table's place", _QUERY)
    @rule("jobs.insert", "WRITE_APPEND adds rows", _QUERY)
    def test_destination_is_written_as_the_disposition_says(self, rest: Rest) -> None:
        table = rest.name("dest")
        target = {"destinationTable": rest.reference(table)}

        succeeded(rest.run_query("SELECT 1 AS id", **target))
        refused = rest.run_query("SELECT 2 AS id", **target)
        succeeded(rest.run_query("SELECT 2 AS id", **target, writeDisposition="WRITE_APPEND"))
        appended = rest.rows(table)
        succeeded(
            rest.run_query("SELECT 'x' AS other", **target, writeDisposition="WRITE_TRUNCATE")
        )

        assert reason_of(refused) == "duplicate"
        assert appended == [["1"], ["2"]]
        assert rest.rows(table) == [["x"]]
        assert [f["name"] for f in rest.table(table)["schema"]["fields"]] == ["other"]

    @rule("jobs.insert", "CREATE_NEVER and no table is notFound", _QUERY)
    def test_create_never_needs_the_table(self, rest: Rest) -> None:
        job = rest.run_query(
            "SELECT 1 AS id",
            destinationTable=rest.reference("never"),
            createDisposition="CREATE_NEVER",
        )

        assert reason_of(job) == "notFound"

    @rule(
        "jobs.insert",
        "wrong SQL fails the job with invalidQuery",
        "docs: Error messages, invalidQuery",
    )
    def test_wrong_query_fails_its_job(self, rest: Rest) -> None:
        assert reason_of(rest.run_query("SELECT nope FROM UNNEST([1]) AS x")) == "invalidQuery"

    @rule("jobs.query", "wrong SQL is a 400 invalidQuery", "docs: Error messages, invalidQuery")
    def test_wrong_query_is_a_400(self, rest: Rest) -> None:
        with pytest.raises(HttpFailure) as caught:
            rest.query("SELEC 1")

        assert (caught.value.status, caught.value.reasons) == (400, ["invalidQuery"])

    @rule(
        "jobs.getQueryResults",
        "asking for the rows of a failed job is its error",
        "client: python-bigquery raises from getQueryResults",
    )
    def test_results_of_a_failed_job_are_itsreason_of(self, rest: Rest) -> None:
        reference = rest.run_query("SELECT 1 / 0 AS x")["jobReference"]

        with pytest.raises(HttpFailure) as caught:
            rest("GET", f"/queries/{reference['jobId']}", location=reference["location"])

        assert caught.value.status == 400

    @rule(
        "jobs.insert",
        "a dry run has a schema, does not run and keeps no job",
        "docs: Running jobs programmatically, dry run",
    )
    def test_dry_run_changes_nothing(self, rest: Rest) -> None:
        table = rest.name("dry")
        query = {
            "query": "SELECT 1 AS id",
            "useLegacySql": False,
            "destinationTable": rest.reference(table),
        }

        job = rest.insert_job({"query": query, "dryRun": True}, rest.name("conformance_dry_"))

        assert job["statistics"]["query"]["schema"]["fields"][0]["name"] == "id"
        with pytest.raises(HttpFailure):
            rest.table(table)
        with pytest.raises(HttpFailure):
            rest("GET", f"/jobs/{job['jobReference']['jobId']}")

    @rule("jobs.query", "named parameters are bound by type", "docs: Running parameterized queries")
    @rule(
        "jobs.query",
        "positional parameters are bound in order",
        "docs: Running parameterized queries",
    )
    def test_parameters_are_bound(self, rest: Rest) -> None:
        def parameter(kind: str, value: str, **more: Any) -> Any:
            return {"parameterType": {"type": kind}, "parameterValue": {"value": value}, **more}

        named = rest.query(
            "SELECT @a + 1, @b || 'y'",
            parameterMode="NAMED",
            queryParameters=[
                parameter("INT64", "41", name="a"),
                parameter("STRING", "it's", name="b"),
            ],
        )
        placed = rest.query(
            "SELECT ? - ?",
            parameterMode="POSITIONAL",
            queryParameters=[parameter("INT64", "5"), parameter("INT64", "3")],
        )

        assert (named, placed) == ([["42", "it'sy"]], [["2"]])

    @rule("jobs.query", "DML reports numDmlAffectedRows", "docs: REST reference, QueryResponse")
    @rule("jobs.query", "DML changes what its WHERE says", "docs: DML syntax")
    def test_dml_counts_and_changes(self, rest: Rest) -> None:
        table = rest.make_table(_PAIR)
        name = f"{rest.dataset}.{table}"
        rest.query(f"INSERT INTO {name} (id, name) VALUES (1, 'a'), (2, 'b'), (3, NULL)")

        answer = rest(
            "POST",
            "/queries",
            {"query": f"UPDATE {name} SET name = 'z' WHERE id > 1", "useLegacySql": False},
        )
        rest.query(f"DELETE FROM {name} WHERE id = 1")

        assert answer["numDmlAffectedRows"] == "2"
        assert rest.rows(table) == [["2", "z"], ["3", "z"]]

    @rule("jobs.query", "a wildcard reads all tables of its prefix", _WILDCARD)
    @rule("jobs.query", "_TABLE_SUFFIX is what the star stands for, and in no *", _WILDCARD)
    @rule("jobs.query", "the newest table's schema counts; others are NULL there", _WILDCARD)
    def test_wildcard_tables(self, rest: Rest) -> None:
        prefix = f"{rest.dataset}.{rest.name('wild')}_"
        rest.query(f"CREATE TABLE {prefix}1 AS SELECT 1 AS id, 'gone' AS old")
        rest.query(f"CREATE TABLE {prefix}2 AS SELECT 2 AS id, 'b' AS name")

        found = rest.query(f"SELECT * FROM `{prefix}*` ORDER BY id")
        suffixes = rest.query(f"SELECT id FROM `{prefix}*` WHERE _TABLE_SUFFIX = '1'")
        with pytest.raises(HttpFailure) as nothing:
            rest.query(f"SELECT id FROM `{prefix}nothing*`")

        assert found == [["1", None], ["2", "b"]]
        assert suffixes == [["1"]]
        assert nothing.value.status == 400

    @rule(
        "jobs.insert",
        "columns of one name are renamed in an anonymous result",
        "measured: bqemulator's recordings of the service, wildcard_join_self",
    )
    @rule(
        "jobs.insert",
        "columns of one name fail a query with a destination",
        "docs: Troubleshoot query issues, duplicate column names",
    )
    def test_columns_of_one_name(self, rest: Rest) -> None:
        text = "SELECT 1 AS a, 2 AS a"

        found = succeeded(rest.run_query(text))["statistics"]["query"]["schema"]["fields"]
        refused = rest.run_query(text, destinationTable=rest.reference(rest.name("twice")))

        assert [field["name"] for field in found] == ["a", "a_1"]
        assert reason_of(refused) == "invalidQuery"

    @rule("jobs.query", "the answer says where and when its job ran", "docs: QueryResponse")
    @rule("jobs.get", "a job has an etag and a selfLink", _JOB)
    @rule(
        "jobs.query",
        "maxResults of 0 answers no rows, and the token of the first page",
        "measured: bqemulator's recordings of the service, page_max_results_zero",
    )
    def test_query_answer_tells_of_its_job(self, rest: Rest) -> None:
        text = "SELECT x FROM UNNEST([1, 2]) AS x ORDER BY x"

        answer = rest("POST", "/queries", {"query": text, "useLegacySql": False, "maxResults": 0})
        reference = answer["jobReference"]
        job = rest("GET", f"/jobs/{reference['jobId']}", location=reference["location"])
        page = rest(
            "GET",
            f"/queries/{reference['jobId']}",
            location=reference["location"],
            pageToken=answer["pageToken"],
        )

        assert "rows" not in answer
        assert answer["location"] == reference["location"]
        assert int(answer["creationTime"]) <= int(answer["endTime"])
        assert [row["f"][0]["v"] for row in page["rows"]] == ["1", "2"]
        assert job["etag"]
        assert reference["jobId"] in job["selfLink"]


class JobConformance(
    TableConformance,
    JobIdConformance,
    QueryConformance,
    LoadConformance,
    CopyConformance,
    InsertAllConformance,
    PartitionConformance,
    StatementConformance,
):
    """REST v2: everything that reads, writes and file loads stand on."""
