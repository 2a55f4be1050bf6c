"""Jobs over REST."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import ConfigError, NotFoundError, OutcomeUnknownError
from bqflink_beam.retry import DEFAULT_BACKOFF, Backoff
from bqflink_beam.service import status
from bqflink_beam.service.base import Job
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.rest import Rest

_REQUEST_S = 60.0
_PAGE_ROWS_MAX = 10_000
_POLL = Backoff(wait_initial_s=0.1, wait_max_s=5.0)


class RestJobs:
    """`service.base.JobService`. Jobs run in the connection's billing project."""

    def __init__(
        self,
        rest: Rest,
        connection: Connection,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._rest = rest
        self._connection = connection
        self._backoff = backoff
        self._clock = clock

    def insert(
        self,
        job_id: str,
        configuration: Mapping[str, Any],
        *,
        location: str | None,
        labels: Mapping[str, str] | None = None,
    ) -> Job:
        reference = {"projectId": self._project(), "jobId": job_id}
        if location:
            reference["location"] = location
        body = {"jobReference": reference, "configuration": dict(configuration)}
        if labels:
            merged = {**configuration.get("labels", {}), **labels}
            body["configuration"] = {**configuration, "labels": merged}
        return _job(
            self._request(
                "POST", self._path("jobs"), f"insert job {job_id}", body=body, changes=True
            )
        )

    def get(self, job_id: str, *, location: str | None) -> Job | None:
        try:
            return _job(
                self._request(
                    "GET",
                    self._path("jobs", job_id),
                    f"get job {job_id}",
                    query=_located(location),
                )
            )
        except NotFoundError:
            return None

    def wait(self, job_id: str, *, location: str | None, budget_s: float) -> Job:
        start_s = self._clock.monotonic_s()
        attempt = 0
        while True:
            job = self.get(job_id, location=location)
            if job is None:
                raise NotFoundError(f"job {job_id} in location {location} does not exist")
            if job.done:
                return job
            attempt += 1
            wait_s = _POLL.wait_s(attempt, self._clock)
            if self._clock.monotonic_s() - start_s + wait_s > budget_s:
                raise OutcomeUnknownError(f"job {job_id} is not done after {budget_s:g} s")
            self._clock.sleep(wait_s)

    def query_rows(self, job_id: str, *, location: str | None) -> Iterator[Mapping[str, Any]]:
        token = ""
        while True:
            query = {**_located(location), "maxResults": str(_PAGE_ROWS_MAX)}
            if token:
                query["pageToken"] = token
            page = self._request(
                "GET", self._path("queries", job_id), f"read results of job {job_id}", query=query
            )
            if not page.get("jobComplete", True):
                raise OutcomeUnknownError(f"job {job_id} is not done; wait for it first")
            fields = page.get("schema", {}).get("fields", [])
            for row in page.get("rows", []):
                yield _record(fields, row)
            token = page.get("pageToken") or ""
            if not token:
                return

    def _project(self) -> str:
        if not self._connection.billing_project:
            raise ConfigError(
                "jobs need a project that pays for them; give Connection(billing_project=...) "
                "or --bq_billing_project"
            )
        return self._connection.billing_project

    def _path(self, *parts: str) -> str:
        return "/".join(
            ["/projects", *(quote(part, safe="") for part in (self._project(), *parts))]
        )

    def _request(
        self,
        method: str,
        path: str,
        what: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        changes: bool = False,
    ) -> dict[str, Any]:
        call = status.Call(what=what, endpoint=self._rest.endpoint, changes=changes)
        # An insert may be repeated: a second one under the same id is refused.
        return self._rest.patience.retried(
            lambda: self._rest.request(
                method, path, call=call, deadline_s=_REQUEST_S, query=query, body=body
            ),
            what=what,
            backoff=self._backoff,
            clock=self._clock,
        )


def _located(location: str | None) -> dict[str, str]:
    return {"location": location} if location else {}


def _job(resource: Mapping[str, Any]) -> Job:
    reference = resource.get("jobReference", {})
    state = resource.get("status", {})
    error = state.get("errorResult")
    return Job(
        id=reference.get("jobId", ""),
        location=reference.get("location", ""),
        done=state.get("state") == "DONE",
        error=None if error is None else f"{error.get('reason')}: {error.get('message')}",
        resource=resource,
    )


def _record(fields: Sequence[Mapping[str, Any]], row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field["name"]: _value(field, cell.get("v"))
        for field, cell in zip(fields, row.get("f", []), strict=True)
    }


def _value(field: Mapping[str, Any], value: Any) -> Any:
    if value is None:
        return None
    if field.get("mode") == "REPEATED":
        single = {**field, "mode": "NULLABLE"}
        return [_value(single, item.get("v")) for item in value]
    if field.get("type") in ("RECORD", "STRUCT"):
        return _record(field.get("fields", []), value)
    return value
