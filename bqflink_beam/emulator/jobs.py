"""Jobs: their ids, their states and their documents. What a job does is in ``*_job.py``.

A job is one document of the store. The document that says DONE is written in the same
transaction as the rows the job made, so a job is done exactly when its rows are there,
also after a crash.
"""

import concurrent.futures
import copy
import dataclasses
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from bqflink_beam.emulator.api_errors import error_proto, invalid, missing, refusal_of
from bqflink_beam.emulator.faults import Call, Faults
from bqflink_beam.emulator.pages import etag_of, integer_of, page
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store, Transaction

_KIND = "job"
_TYPES = ("query", "load", "copy", "extract")
_ID = re.compile(r"[A-Za-z0-9_-]{1,1024}\Z")
_LABEL = re.compile(r"[\w-]{0,63}\Z")
_DEFAULT_LOCATIONS = ("US", "EU")
_THREADS = 8


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as its executor sees it: who asks for what. `configuration` is its own part."""

    project: str
    id: str
    location: str
    kind: str
    configuration: Mapping[str, Any]
    upload: bytes | None = None


@dataclasses.dataclass
class Outcome:
    """What a job will do: `apply` stages it, in the transaction that makes the job DONE.

    `statistics` go to the part of the job's type; `configuration` are keys that the
    service fills in, such as the destination of an anonymous result. `errors` are
    warnings of a job that is successful nevertheless.
    """

    apply: Callable[[Transaction], None]
    statistics: dict[str, Any] = dataclasses.field(default_factory=dict)
    totals: dict[str, Any] = dataclasses.field(default_factory=dict)
    configuration: dict[str, Any] = dataclasses.field(default_factory=dict)
    errors: list[dict[str, Any]] = dataclasses.field(default_factory=list)


Executor = Callable[[Job], Outcome]
Locate = Callable[[str, str, Mapping[str, Any]], str | None]


class Jobs:
    """All jobs of one server.

    Args:
        executors: by type of job, what computes its outcome; raises `Refused` for a
            job that fails.
        locate: finds the location a job belongs to by the datasets it names; None if
            it names none that exists.
        checks: by type of job, what refuses a configuration before there is a job.
        dry_run: computes the outcome of a query that is not to run.
    """

    def __init__(
        self,
        store: Store,
        faults: Faults,
        executors: Mapping[str, Executor],
        locate: Locate,
        checks: Mapping[str, Callable[[Mapping[str, Any]], None]],
        dry_run: Executor,
    ) -> None:
        self._store = store
        self._faults = faults
        self._executors = executors
        self._locate = locate
        self._checks = checks
        self._dry = dry_run
        self._threads = concurrent.futures.ThreadPoolExecutor(_THREADS, "bigquery-job")
        self._done = threading.Condition()
        self._running: dict[str, Call] = {}

    def resume(self) -> None:
        """Runs the jobs that a crash left undone."""
        for key, document in self._store.list_documents(_KIND).items():
            if document["status"]["state"] != "DONE":
                self._start(key)

    def stop(self) -> None:
        """Lets running jobs go, and waits for their threads."""
        for call in list(self._running.values()):
            call.finish()
        self._threads.shutdown(wait=True, cancel_futures=True)

    # --- REST methods ---

    def insert(
        self, project: str, body: Mapping[str, Any], upload: bytes | None = None
    ) -> dict[str, Any]:
        """``jobs.insert``: registers a job and starts it.

        Raises:
            Refused: ALREADY_EXISTS, the id is taken; INVALID_ARGUMENT, it cannot be a job.
        """
        configuration = body.get("configuration") or {}
        kind = job_type(configuration)
        reference = body.get("jobReference") or {}
        job_id = reference.get("jobId") or f"job_{uuid.uuid4().hex}"
        if not _ID.match(job_id):
            raise invalid(f'Invalid job ID "{job_id}"')
        if reference.get("projectId") not in (None, project):
            raise invalid(
                f"Value {reference['projectId']} in content does not agree with value {project}"
            )
        _check_labels(configuration.get("labels") or {})
        self._checks[kind](configuration[kind])
        if configuration.get("dryRun") and kind != "query":
            raise invalid("Only query jobs can be dry-run")
        location = reference.get("location") or self._locate(project, kind, configuration[kind])
        location = location or "US"
        job = Job(project, job_id, location, kind, configuration[kind], upload)
        document = self._new(job, configuration, upload)
        if configuration.get("dryRun"):
            return self._dry_run(job, document)
        key = _key(project, location, job_id)
        with self._store.transaction() as change:
            if self._store.document(_KIND, key) is not None:
                raise Refused(
                    f"Already Exists: Job {project}:{location}.{job_id}", code="ALREADY_EXISTS"
                )
            change.put_document(_KIND, key, document)
        self._start(key)
        return self._shown(self._document(key))

    def get(self, project: str, job_id: str, location: str | None) -> dict[str, Any]:
        """``jobs.get``."""
        return self._shown(self._document(self.key(project, job_id, location)))

    def find(self, project: str, job_id: str) -> dict[str, Any]:
        """Returns the job of that id, wherever it is.

        Raises:
            Refused: NOT_FOUND.
        """
        for document in self._store.list_documents(_KIND).values():
            reference = document["jobReference"]
            if (reference["projectId"], reference["jobId"]) == (project, job_id):
                return self._shown(document)
        raise Refused(f"Not found: Job {project}:{job_id}", code="NOT_FOUND")

    def list(self, project: str, parameters: Mapping[str, str]) -> dict[str, Any]:
        """``jobs.list``, newest first."""
        state = parameters.get("stateFilter", "").upper()
        since = integer_of(parameters, "minCreationTime", 0) or 0
        until = integer_of(parameters, "maxCreationTime", None)
        found = []
        for document in reversed(self._store.list_documents(_KIND).values()):
            created = int(document["statistics"]["creationTime"])
            if (
                document["jobReference"]["projectId"] == project
                and state in ("", document["status"]["state"])
                and created >= since
                and (until is None or created <= until)
            ):
                found.append({**self._shown(document), "state": document["status"]["state"]})
        items, token = page(found, parameters)
        answer: dict[str, Any] = {"kind": "bigquery#jobList", "jobs": items}
        answer["etag"] = etag_of(answer)
        return {**answer, "nextPageToken": token} if token else answer

    def cancel(self, project: str, job_id: str, location: str | None) -> dict[str, Any]:
        """``jobs.cancel``: a job that is not done yet never takes effect."""
        key = self.key(project, job_id, location)
        refused = Refused(
            "Job execution was cancelled: User requested cancellation", reason="stopped"
        )
        self._finish(key, None, refused)
        if (call := self._running.get(key)) is not None:
            call.finish()
        return {"kind": "bigquery#jobCancelResponse", "job": self._shown(self._document(key))}

    def delete(self, project: str, job_id: str, location: str | None) -> None:
        """``jobs.delete``: forgets the metadata of a job that is done."""
        key = self.key(project, job_id, location)
        if self._document(key)["status"]["state"] != "DONE":
            raise invalid("Cannot delete a job that is running")
        with self._store.transaction() as change:
            change.drop_document(_KIND, key)

    # --- waiting ---

    def key(self, project: str, job_id: str, location: str | None) -> str:
        """Returns the key of a job's document.

        Raises:
            Refused: NOT_FOUND. Without a location only US and EU are searched.
        """
        for place in (location,) if location else _DEFAULT_LOCATIONS:
            key = _key(project, place, job_id)
            if self._store.document(_KIND, key) is not None:
                return key
        raise Refused(f"Not found: Job {project}:{job_id}", code="NOT_FOUND")

    def wait(self, key: str, timeout_s: float) -> Mapping[str, Any]:
        """Waits until a job is done, but not longer; returns its document."""
        with self._done:
            self._done.wait_for(lambda: self._is_done(key), timeout_s)
        return self._document(key)

    def result(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Returns the document of a job that is done and did not fail.

        Raises:
            Refused: it failed; as the service answers who asks for its results.
        """
        error = document["status"].get("errorResult")
        if error:
            raise refusal_of(error)
        return document

    # --- running ---

    def _new(
        self, job: Job, configuration: Mapping[str, Any], upload: bytes | None
    ) -> dict[str, Any]:
        now_ms = str(int(self._store.clock.now_s() * 1000))
        document = {
            "kind": "bigquery#job",
            "id": f"{job.project}:{job.location}.{job.id}",
            "selfLink": (
                f"https://bigquery.googleapis.com/bigquery/v2/projects/{job.project}"
                f"/jobs/{job.id}?location={job.location}"
            ),
            "jobReference": {
                "projectId": job.project,
                "jobId": job.id,
                "location": job.location,
            },
            "configuration": {**copy.deepcopy(dict(configuration)), "jobType": job.kind.upper()},
            "status": {"state": "PENDING"},
            "statistics": {"creationTime": now_ms},
            "user_email": "emulator@localhost",
        }
        if upload is not None:
            document["_upload"] = upload.hex()
        return document

    def _dry_run(self, job: Job, document: dict[str, Any]) -> dict[str, Any]:
        outcome = self._dry(job)
        done = _finished(document, outcome, None, self._store.clock.now_s())
        return self._shown(done)

    def _start(self, key: str) -> None:
        call = self._running[key] = Call()
        self._threads.submit(self._run, key, call)

    def _run(self, key: str, call: Call) -> None:
        document = self._document(key)
        job = job_of(document)
        try:
            acting = self._faults.arrive("jobs.run", call=call)
            acting.before()
            self._set_running(key)
            outcome = self._executors[job.kind](job)
            self._finish(key, outcome, None)
            acting.after()
        except Refused as refused:
            self._finish(key, None, refused)
        except Exception as error:
            # The job must end whatever happens, or its caller waits for ever.
            self._finish(key, None, Refused(f"{type(error).__name__}: {error}", code="INTERNAL"))
            raise
        finally:
            self._running.pop(key, None)
            call.finish()

    def _set_running(self, key: str) -> None:
        with self._store.transaction() as change:
            document = self._document(key)
            if document["status"]["state"] == "PENDING":
                now_ms = str(int(self._store.clock.now_s() * 1000))
                statistics = {**document["statistics"], "startTime": now_ms}
                change.put_document(
                    _KIND,
                    key,
                    {**document, "status": {"state": "RUNNING"}, "statistics": statistics},
                )

    def _finish(self, key: str, outcome: Outcome | None, refused: Refused | None) -> None:
        """Makes the job DONE with its outcome, or with an error. The first one to come counts."""
        try:
            with self._store.transaction() as change:
                document = self._document(key)
                if document["status"]["state"] == "DONE":
                    return
                if outcome is not None:
                    outcome.apply(change)
                done = _finished(document, outcome, refused, self._store.clock.now_s())
                change.put_document(_KIND, key, done)
        except Refused as late:
            if outcome is None:
                raise
            self._finish(key, None, late)
            return
        with self._done:
            self._done.notify_all()

    def _document(self, key: str) -> dict[str, Any]:
        found = self._store.document(_KIND, key)
        if found is None:
            raise Refused(f"Not found: Job {key}", code="NOT_FOUND")
        return found

    def _is_done(self, key: str) -> bool:
        found = self._store.document(_KIND, key)
        return found is None or found["status"]["state"] == "DONE"

    def _shown(self, document: Mapping[str, Any]) -> dict[str, Any]:
        shown = {
            key: copy.deepcopy(value) for key, value in document.items() if not key.startswith("_")
        }
        return {**shown, "etag": etag_of(shown)}


def job_of(document: Mapping[str, Any]) -> Job:
    """Returns the job that a document describes."""
    reference = document["jobReference"]
    kind = document["configuration"]["jobType"].lower()
    upload = document.get("_upload")
    return Job(
        reference["projectId"],
        reference["jobId"],
        reference["location"],
        kind,
        document["configuration"][kind],
        bytes.fromhex(upload) if upload is not None else None,
    )


def job_type(configuration: Mapping[str, Any]) -> str:
    """Returns which of query, load, copy and extract a configuration is of.

    Raises:
        Refused: none, or several.
    """
    kinds = [kind for kind in _TYPES if kind in configuration]
    if len(kinds) != 1:
        raise missing("configuration: exactly one of query, load, copy, extract")
    if not isinstance(configuration[kinds[0]], Mapping):
        raise invalid(f"Invalid value at 'configuration.{kinds[0]}'")
    return kinds[0]


def _key(project: str, location: str, job_id: str) -> str:
    return f"{project}:{location.upper()}.{job_id}"


def _check_labels(labels: Mapping[str, Any]) -> None:
    for key, value in labels.items():
        plain = isinstance(value, str) and key == key.lower() and value == value.lower()
        if not (plain and key and _LABEL.match(key) and _LABEL.match(value)):
            raise invalid(f"Label {key!r}: {value!r} has invalid characters or is too long")


def _finished(
    document: dict[str, Any], outcome: Outcome | None, refused: Refused | None, now_s: float
) -> dict[str, Any]:
    """Returns the document of a job that is done."""
    now_ms = str(int(now_s * 1000))
    kind = document["configuration"]["jobType"].lower()
    status: dict[str, Any] = {"state": "DONE"}
    statistics = {"startTime": now_ms, **document["statistics"], "endTime": now_ms}
    configuration = document["configuration"]
    if refused is not None:
        status["errorResult"] = error_proto(refused)
        status["errors"] = [error_proto(refused)]
    if outcome is not None:
        statistics = {**statistics, **outcome.totals, kind: outcome.statistics}
        if outcome.errors:
            status["errors"] = outcome.errors
        own = {**configuration[kind], **outcome.configuration}
        configuration = {**configuration, kind: own}
    return {
        **document,
        "status": status,
        "statistics": statistics,
        "configuration": configuration,
    }
