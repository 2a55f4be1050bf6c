"""Runs a query once for a run, into a result table that expires by itself."""

import dataclasses
import hashlib
import logging
from collections.abc import Mapping
from typing import Any

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import (
    AccessDeniedError,
    ConfigError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    PermanentError,
    ServiceError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.retry import Backoff
from bqflink_beam.service.base import Job, JobService

_LOG = logging.getLogger(__name__)
_TRIES_MAX = 5
_PAUSE = Backoff(wait_initial_s=1.0, wait_max_s=30.0)
_WAIT_S = 6.5 * 3600
"""BigQuery ends a query after six hours."""

_REASONS_TRANSIENT = frozenset(
    {
        "backendError", "internalError", "jobBackendError", "jobInternalError",
        "rateLimitExceeded", "jobRateLimitExceeded", "tableUnavailable",
    }
)  # fmt: skip
_ERRORS_BY_REASON: Mapping[str, type[ServiceError]] = {
    "notFound": NotFoundError,
    "accessDenied": AccessDeniedError,
}


@dataclasses.dataclass(frozen=True)
class QueryResult:
    """Where the rows are. `found`: an earlier planning step had run the query already."""

    table: TableReference
    try_number: int
    found: bool


def job_id(run_id: str, text: str, try_number: int) -> str:
    """Returns the id of a try to run `text` in a run: the same wherever and whenever it is asked.

    A job that was inserted before a worker died is so found again, and not paid twice.
    """
    digest = hashlib.sha256(f"{run_id}\0{text}".encode()).hexdigest()[:40]
    return f"bqflink-read-{digest}-r{try_number}"


def run(
    jobs: JobService,
    text: str,
    *,
    run_id: str,
    location: str | None = None,
    labels: Mapping[str, str] | None = None,
    first_try: int = 0,
    clock: Clock = SYSTEM_CLOCK,
) -> QueryResult:
    """Runs the query, or finds it run already.

    The result is an anonymous table: BigQuery keeps it for about 24 hours and then
    drops it, so nothing is left behind. A try that failed for a reason that may pass
    is followed by one under the next id.

    Args:
        first_try: the try to begin with; a caller whose result table has expired goes
            on behind the try that made it.

    Raises:
        ConfigError: the query is wrong, not a SELECT, or its result too large.
        PermanentError: BigQuery could not run it, in its own words.
    """
    # Before anything runs: a DELETE must not. And outside the US and EU a job is only
    # found where it ran, which is where its tables are.
    location = _dry(jobs, text, location).location or location
    number = first_try
    while True:
        job, found = _done(jobs, job_id(run_id, text, number), text, location, labels)
        if job.error is None:
            return QueryResult(_result_of(job), number, found)
        reason = _reason_of(job)
        number += 1
        if reason not in _REASONS_TRANSIENT or number >= first_try + _TRIES_MAX:
            raise _failure(job, reason)
        if not found:
            clock.sleep(_PAUSE.wait_s(number, clock))
        _LOG.warning("query job %s failed, trying again: %s", job.id, job.error)


def dry_run(
    jobs: JobService,
    text: str,
    *,
    location: str | None = None,
) -> Mapping[str, Any]:
    """Has BigQuery check a query without running it; returns its statistics.

    Raises:
        ConfigError: the query is wrong, or not a SELECT.
    """
    statistics: Mapping[str, Any] = _dry(jobs, text, location).resource.get("statistics", {})
    return statistics


def _dry(jobs: JobService, text: str, location: str | None) -> Job:
    identity = job_id("check", text, 0)
    job = _insert(jobs, identity, {**_configuration(text), "dryRun": True}, location, None)
    if job.error is not None:
        raise _failure(job, _reason_of(job))
    _check_select(job.resource.get("statistics", {}), job.id)
    return job


def _done(
    jobs: JobService,
    identity: str,
    text: str,
    location: str | None,
    labels: Mapping[str, str] | None,
) -> tuple[Job, bool]:
    """Returns the job when it is done, and whether it had been inserted before."""
    earlier = None
    try:
        job = _insert(jobs, identity, _configuration(text), location, labels)
        _LOG.info("query job %s: started", identity)
    except ConflictError:
        earlier = jobs.get(identity, location=location)
        if earlier is None:
            raise ConfigError(
                f"query job {identity} exists, but not in {location or 'the US or the EU'}; give "
                "location= of the query's tables"
            ) from None
        job = earlier
    if not job.done:
        job = jobs.wait(identity, location=job.location or location, budget_s=_WAIT_S)
    return job, earlier is not None


def _insert(
    jobs: JobService,
    identity: str,
    configuration: Mapping[str, Any],
    location: str | None,
    labels: Mapping[str, str] | None,
) -> Job:
    try:
        return jobs.insert(identity, configuration, location=location, labels=labels)
    except InvalidRequestError as error:
        raise ConfigError(f"BigQuery refuses the query: {error.message}") from error


def _configuration(text: str) -> dict[str, Any]:
    return {"query": {"query": text, "useLegacySql": False, "priority": "INTERACTIVE"}}


def _result_of(job: Job) -> TableReference:
    _check_select(job.resource.get("statistics", {}), job.id)
    table = job.resource.get("configuration", {}).get("query", {}).get("destinationTable")
    if not table:
        raise PermanentError(f"query job {job.id} names no result table")
    return TableReference.parse(table)


def _check_select(statistics: Mapping[str, Any], identity: str) -> None:
    kind = statistics.get("query", {}).get("statementType", "SELECT")
    if kind != "SELECT":
        raise ConfigError(f"query must be a SELECT, got a {kind} (job {identity})")


def _reason_of(job: Job) -> str:
    result = job.resource.get("status", {}).get("errorResult") or {}
    return str(result.get("reason", ""))


def _failure(job: Job, reason: str) -> ConfigError | ServiceError:
    text = f"query job {job.id} failed ({reason or 'no reason given'}): {job.error}"
    if reason == "responseTooLarge":
        return ConfigError(
            f"{text}. Let the query write a table of yours (CREATE TABLE ... AS SELECT) and read "
            "that with table="
        )
    if reason in ("invalidQuery", "invalid"):
        return ConfigError(text)
    return _ERRORS_BY_REASON.get(reason, PermanentError)(text, code=reason or None)
