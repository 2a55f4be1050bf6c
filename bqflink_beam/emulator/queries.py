"""``jobs.query`` and ``jobs.getQueryResults``: a query and the pages of its rows."""

import hashlib
from collections.abc import Mapping
from typing import Any

from bqflink_beam.emulator import types
from bqflink_beam.emulator.destinations import table_reference
from bqflink_beam.emulator.jobs import Jobs
from bqflink_beam.emulator.pages import etag_of, integer_of
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store
from bqflink_beam.emulator.tables import rows_page

_WAIT_MS = 10_000
_WAIT_MS_MAX = 200_000
_QUERY_KEYS = (
    "query", "defaultDataset", "useLegacySql", "parameterMode", "queryParameters",
    "maximumBytesBilled", "useQueryCache", "connectionProperties", "createSession",
)  # fmt: skip
_JOB_KEYS = ("labels", "dryRun", "jobTimeoutMs")


class Queries:
    """Query methods of one server."""

    def __init__(self, store: Store, jobs: Jobs) -> None:
        self._store = store
        self._jobs = jobs

    def query(self, project: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """``jobs.query``: runs a query and answers with its first page, if it is done in time.

        Raises:
            Refused: the query failed.
        """
        configuration: dict[str, Any] = {key: body[key] for key in _JOB_KEYS if key in body}
        configuration["query"] = {key: body[key] for key in _QUERY_KEYS if key in body}
        reference = {"location": body["location"]} if body.get("location") else {}
        if body.get("requestId"):
            # The same request again, whose answer was lost, is the same job.
            digest = hashlib.sha256(str(body["requestId"]).encode()).hexdigest()
            reference["jobId"] = f"job_request_{digest[:32]}"
        job = self._insert(project, {"configuration": configuration, "jobReference": reference})
        if body.get("dryRun"):
            statistics = job["statistics"]["query"]
            return {
                "kind": "bigquery#queryResponse",
                "schema": statistics["schema"],
                "jobComplete": True,
                "totalBytesProcessed": statistics["totalBytesProcessed"],
                "jobReference": job["jobReference"],
            }
        parameters = {
            "timeoutMs": str(body.get("timeoutMs", _WAIT_MS)),
            "location": job["jobReference"]["location"],
        }
        if body.get("maxResults") is not None:
            parameters["maxResults"] = str(body["maxResults"])
        options = body.get("formatOptions") or {}
        if options.get("useInt64Timestamp"):
            parameters["formatOptions.useInt64Timestamp"] = "true"
        answer = self.results(project, job["jobReference"]["jobId"], parameters)
        del answer["etag"]
        return {**answer, **self._about(project, job), "kind": "bigquery#queryResponse"}

    def _about(self, project: str, job: Mapping[str, Any]) -> dict[str, Any]:
        """Returns what ``jobs.query`` says of its job, which clients need not ask for then."""
        reference = job["jobReference"]
        document = self._jobs.get(project, reference["jobId"], reference["location"])
        statistics = document["statistics"]
        about = {"queryId": reference["jobId"], "location": reference["location"]}
        about["totalBytesBilled"] = statistics.get("query", {}).get("totalBytesBilled", "0")
        times = ("creationTime", "startTime", "endTime")
        return {**about, **{key: statistics[key] for key in times if key in statistics}}

    def _insert(self, project: str, body: Mapping[str, Any]) -> dict[str, Any]:
        job_id = body["jobReference"].get("jobId")
        try:
            return self._jobs.insert(project, body)
        except Refused as refused:
            if job_id is None or refused.code != "ALREADY_EXISTS":
                raise
        return self._jobs.find(project, job_id)

    def results(self, project: str, job_id: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """``jobs.getQueryResults``: a page of the rows, or that the job is not done yet.

        Raises:
            Refused: there is no such job, or it failed.
        """
        timeout_ms = integer_of(parameters, "timeoutMs", _WAIT_MS) or 0
        key = self._jobs.key(project, job_id, parameters.get("location"))
        document = self._jobs.wait(key, min(timeout_ms, _WAIT_MS_MAX) / 1000)
        answer: dict[str, Any] = {
            "kind": "bigquery#getQueryResultsResponse",
            "jobReference": document["jobReference"],
            "jobComplete": document["status"]["state"] == "DONE",
        }
        if not answer["jobComplete"]:
            return {**answer, "etag": etag_of(answer)}
        statistics = self._jobs.result(document)["statistics"]["query"]
        answer["totalBytesProcessed"] = statistics.get("totalBytesProcessed", "0")
        answer["cacheHit"] = False
        if "numDmlAffectedRows" in statistics:
            answer["numDmlAffectedRows"] = statistics["numDmlAffectedRows"]
        destination = document["configuration"]["query"].get("destinationTable")
        if "schema" not in statistics or destination is None:
            answer.update(totalRows="0", schema=self._made(statistics))
            return {**answer, "etag": etag_of(answer)}
        table = self._store.require_table(table_reference(destination, "destinationTable"))
        snapshot = table.snapshot()
        schema = types.schema_to_rest(snapshot.schema)
        answer["etag"] = etag_of([answer, table.etag, sorted(parameters.items())])
        return {**answer, "schema": schema, **rows_page(snapshot, parameters)}

    def _made(self, statistics: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the schema that a statement without rows answers: of what it created."""
        target = statistics.get("ddlTargetTable")
        created = str(statistics.get("statementType")).startswith("CREATE_")
        reference = table_reference(target, "ddlTargetTable") if target and created else None
        table = self._store.get_table(reference) if reference else None
        return types.schema_to_rest(table.schema) if table else {"fields": []}
