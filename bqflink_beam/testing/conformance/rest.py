"""How the suites speak REST: plain HTTP and JSON, no client library between."""

import http.client
import itertools
import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bqflink_beam.clock import SYSTEM_CLOCK

_DEADLINE_S = 60.0
_POLLS_MAX = 100
_POLL_S = 0.02


class HttpFailure(Exception):
    """An answer that is an error: its HTTP status, and the reason and words in its body."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        error = body.get("error") or {}
        super().__init__(f"{status}: {error.get('message')}")
        self.status = status
        self.text = str(error.get("message"))
        self.reasons = [item.get("reason") for item in error.get("errors") or ()]


class Rest:
    """The REST side of the service under test, with a dataset of its own.

    Args:
        endpoint: ``http://host:port`` or ``https://...``.
        put_file: stores a file where load jobs find it; returns its URI.
        headers: sent with every request, such as an authorization.
        prefix: begins every name; needed where others have used the dataset before.
    """

    def __init__(
        self,
        endpoint: str,
        project: str,
        dataset: str,
        put_file: Callable[[str, bytes], str],
        headers: Mapping[str, str] | None = None,
        prefix: str = "",
    ) -> None:
        self._url = urllib.parse.urlsplit(endpoint)
        self._headers = dict(headers or {})
        self._numbers = itertools.count()
        self._prefix = prefix
        self.project = project
        self.dataset = dataset
        self.put_file = put_file

    def __call__(
        self,
        verb: str,
        path: str,
        body: Any = None,
        headers: Any = None,  # a mapping; Any, for a type checker sees it in **parameters too
        **parameters: Any,
    ) -> Any:
        """Calls ``/bigquery/v2/projects/PROJECT`` + `path`; returns the JSON answer.

        Raises:
            HttpFailure: the answer is an error.
        """
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        secure = self._url.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._url.hostname or "", self._url.port, timeout=_DEADLINE_S)
        try:
            connection.request(
                verb,
                f"/bigquery/v2/projects/{self.project}{path}{query}",
                None if body is None else json.dumps(body),
                {"Content-Type": "application/json", **self._headers, **(headers or {})},
            )
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        found = json.loads(data) if data else {}
        if answer.status >= 400:
            raise HttpFailure(answer.status, found)
        return found

    # --- names ---

    def name(self, prefix: str) -> str:
        """Returns a name that is new to this dataset."""
        return f"{self._prefix}{prefix}{next(self._numbers)}"

    def reference(self, table: str) -> dict[str, str]:
        return {"projectId": self.project, "datasetId": self.dataset, "tableId": table}

    # --- tables ---

    def make_table(self, fields: Sequence[Mapping[str, Any]], **resource: Any) -> str:
        """Makes a table; returns its name."""
        name = self.name("t")
        body = {"tableReference": self.reference(name), "schema": {"fields": fields}, **resource}
        self("POST", f"/datasets/{self.dataset}/tables", body)
        return name

    def table(self, name: str) -> Any:
        return self("GET", f"/datasets/{self.dataset}/tables/{name}")

    def rows(self, table: str) -> list[list[Any]]:
        """Returns all rows of a table as lists of cells, sorted."""
        cells: list[list[Any]] = []
        token: dict[str, str] = {}
        while True:
            page = self("GET", f"/datasets/{self.dataset}/tables/{table}/data", **token)
            cells += [[cell["v"] for cell in row["f"]] for row in page.get("rows", ())]
            if not page.get("pageToken"):
                return sorted(cells, key=repr)
            token = {"pageToken": page["pageToken"]}

    def insert_rows(self, table: str, rows: Sequence[Mapping[str, Any]], **more: Any) -> Any:
        body = {"rows": [{"json": row} for row in rows], **more}
        return self("POST", f"/datasets/{self.dataset}/tables/{table}/insertAll", body)

    # --- jobs ---

    def insert_job(
        self, configuration: Mapping[str, Any], job_id: str | None = None, **more: Any
    ) -> Any:
        reference = {"projectId": self.project, **more}
        if job_id is not None:
            reference["jobId"] = job_id
        return self("POST", "/jobs", {"configuration": configuration, "jobReference": reference})

    def run_job(self, configuration: Mapping[str, Any], job_id: str | None = None) -> Any:
        """Inserts a job and waits for its end; returns its resource, also of a job that failed."""
        job = self.insert_job(configuration, job_id)
        reference = job["jobReference"]
        for number in range(_POLLS_MAX):
            if job["status"]["state"] == "DONE":
                return job
            SYSTEM_CLOCK.sleep(_POLL_S * number)
            if "query" in configuration:
                self._wait(reference)
            job = self("GET", f"/jobs/{reference['jobId']}", location=reference["location"])
        raise AssertionError(f"job {reference['jobId']} does not end")

    def _wait(self, reference: Mapping[str, str]) -> None:
        try:
            self(
                "GET",
                f"/queries/{reference['jobId']}",
                location=reference["location"],
                maxResults=0,
                timeoutMs=10_000,
            )
        except HttpFailure:
            return  # the job's own resource will say what is wrong

    def query(self, text: str, **more: Any) -> list[list[Any]]:
        """Runs a query by ``jobs.query``; returns its first page."""
        answer = self("POST", "/queries", {"query": text, "useLegacySql": False, **more})
        assert answer["jobComplete"]
        return [[cell["v"] for cell in row["f"]] for row in answer.get("rows", ())]

    def run_query(self, text: str, **more: Any) -> Any:
        """Runs a query by ``jobs.insert``; returns its job's resource."""
        return self.run_job({"query": {"query": text, "useLegacySql": False, **more}})

    def load(self, table: str, *uris: str, **more: Any) -> Any:
        """Runs a load job; returns its resource."""
        configuration = {
            "destinationTable": self.reference(table),
            "sourceUris": list(uris),
            "sourceFormat": "NEWLINE_DELIMITED_JSON",
            **more,
        }
        return self.run_job({"load": configuration})

    def copy(self, sources: Sequence[str], table: str, **more: Any) -> Any:
        configuration = {
            "sourceTables": [self.reference(source) for source in sources],
            "destinationTable": self.reference(table),
            **more,
        }
        return self.run_job({"copy": configuration})


def reason_of(job: Any) -> str:
    """Returns the reason of a job that failed."""
    assert job["status"]["state"] == "DONE"
    return str(job["status"]["errorResult"]["reason"])


def succeeded(job: Any) -> Any:
    """Returns a job that must not have failed."""
    assert "errorResult" not in job["status"], job["status"]
    return job
