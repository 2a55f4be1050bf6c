"""Which REST method is where, and ``serve``: the REST side of one server put together."""

from collections.abc import Callable, Mapping
from typing import Any

from bqflink_beam.emulator.copy_job import CopyJobs, check_copy
from bqflink_beam.emulator.datasets import Datasets
from bqflink_beam.emulator.extract_job import ExtractJobs, check_extract
from bqflink_beam.emulator.faults import Faults
from bqflink_beam.emulator.files import Files
from bqflink_beam.emulator.inserts import Inserts
from bqflink_beam.emulator.jobs import Jobs
from bqflink_beam.emulator.load_job import LoadJobs, check_load
from bqflink_beam.emulator.objects import Objects, object_routes
from bqflink_beam.emulator.queries import Queries
from bqflink_beam.emulator.query_job import QueryJobs, check_query
from bqflink_beam.emulator.rest import Request, RestServer, Route
from bqflink_beam.emulator.store import Store
from bqflink_beam.emulator.tables import Tables
from bqflink_beam.emulator.uploads import Uploads


def make_jobs(store: Store, faults: Faults, files: Files | None = None) -> Jobs:
    """Returns the jobs of a server, ready to run.

    Args:
        files: where load and extract jobs find files; by default they find none.
    """
    files = files or Files()
    queries = QueryJobs(store)

    def locate(project: str, kind: str, configuration: Mapping[str, Any]) -> str | None:
        if kind == "query":
            return queries.locate(project, configuration)
        for key in ("destinationTable", "sourceTable"):
            reference = configuration.get(key) or {}
            found = store.get_dataset(
                reference.get("projectId") or project, reference.get("datasetId") or ""
            )
            if found is not None:
                return str(found["location"])
        return None

    return Jobs(
        store,
        faults,
        {
            "query": queries.run,
            "load": LoadJobs(store, files).run,
            "copy": CopyJobs(store).run,
            "extract": ExtractJobs(store, files).run,
        },
        locate,
        {"query": check_query, "load": check_load, "copy": check_copy, "extract": check_extract},
        queries.dry_run,
    )


def serve(
    store: Store,
    jobs: Jobs,
    faults: Faults,
    host: str = "127.0.0.1",
    port: int = 0,
    objects: Objects | None = None,
) -> RestServer:
    """Starts the REST server.

    Args:
        objects: a Cloud Storage to serve at the same port.

    Raises:
        OSError: the port is taken.
    """
    found = [*routes(store, jobs), *(object_routes(objects) if objects else ())]
    return RestServer(found, faults, host, port)


def routes(store: Store, jobs: Jobs) -> list[Route]:
    """Returns every method of the API."""
    return [
        *_dataset_routes(Datasets(store)),
        *_table_routes(Tables(store), Inserts(store)),
        *_job_routes(jobs, Queries(store, jobs)),
    ]


_PROJECT = "/projects/{project}"
_DATASET = _PROJECT + "/datasets/{dataset}"
_TABLE = _DATASET + "/tables/{table}"


def _dataset_routes(datasets: Datasets) -> list[Route]:
    def on(method: Callable[..., Any]) -> Callable[[Request], Any]:
        def handle(request: Request) -> Any:
            path = request.path
            return method(
                path["project"], path["dataset"], request.json(), request.headers.get("if-match")
            )

        return handle

    return [
        Route(
            "POST",
            _PROJECT + "/datasets",
            "datasets.insert",
            lambda r: datasets.insert(r.path["project"], r.json()),
        ),
        Route(
            "GET",
            _PROJECT + "/datasets",
            "datasets.list",
            lambda r: datasets.list(r.path["project"], r.parameters),
        ),
        Route(
            "GET",
            _DATASET,
            "datasets.get",
            lambda r: datasets.get(r.path["project"], r.path["dataset"]),
        ),
        Route("PATCH", _DATASET, "datasets.patch", on(datasets.patch)),
        Route("PUT", _DATASET, "datasets.update", on(datasets.update)),
        Route(
            "DELETE",
            _DATASET,
            "datasets.delete",
            lambda r: datasets.delete(r.path["project"], r.path["dataset"], r.parameters),
        ),
    ]


def _table_routes(tables: Tables, inserts: Inserts) -> list[Route]:
    def names(request: Request) -> tuple[str, str, str]:
        return request.path["project"], request.path["dataset"], request.path["table"]

    def on(method: Callable[..., Any]) -> Callable[[Request], Any]:
        return lambda r: method(*names(r), r.json(), r.headers.get("if-match"))

    return [
        Route(
            "POST",
            _DATASET + "/tables",
            "tables.insert",
            lambda r: tables.insert(r.path["project"], r.path["dataset"], r.json()),
        ),
        Route(
            "GET",
            _DATASET + "/tables",
            "tables.list",
            lambda r: tables.list(r.path["project"], r.path["dataset"], r.parameters),
        ),
        Route("GET", _TABLE, "tables.get", lambda r: tables.get(*names(r))),
        Route("PATCH", _TABLE, "tables.patch", on(tables.patch)),
        Route("PUT", _TABLE, "tables.update", on(tables.update)),
        Route(
            "DELETE",
            _TABLE,
            "tables.delete",
            lambda r: tables.delete(*names(r), r.headers.get("if-match")),
        ),
        Route(
            "GET",
            _TABLE + "/data",
            "tabledata.list",
            lambda r: tables.rows(*names(r), r.parameters),
        ),
        Route(
            "POST",
            _TABLE + "/insertAll",
            "tabledata.insertAll",
            lambda r: inserts.insert_all(*names(r), r.json(), len(r.body)),
        ),
    ]


def _job_routes(jobs: Jobs, queries: Queries) -> list[Route]:
    uploads = Uploads(jobs)

    def on(method: Callable[..., Any]) -> Callable[[Request], Any]:
        return lambda r: method(r.path["project"], r.path["job"], r.parameters.get("location"))

    def insert(request: Request) -> Any:
        if request.uploading:
            return uploads.post(request)
        return jobs.insert(request.path["project"], request.json())

    return [
        Route("POST", _PROJECT + "/jobs", "jobs.insert", insert),
        Route("PUT", _PROJECT + "/jobs", "jobs.insert", uploads.put),
        Route(
            "GET",
            _PROJECT + "/jobs",
            "jobs.list",
            lambda r: jobs.list(r.path["project"], r.parameters),
        ),
        Route("GET", _PROJECT + "/jobs/{job}", "jobs.get", on(jobs.get)),
        Route("POST", _PROJECT + "/jobs/{job}/cancel", "jobs.cancel", on(jobs.cancel)),
        Route("DELETE", _PROJECT + "/jobs/{job}/delete", "jobs.delete", on(jobs.delete)),
        Route(
            "POST",
            _PROJECT + "/queries",
            "jobs.query",
            lambda r: queries.query(r.path["project"], r.json()),
        ),
        Route(
            "GET",
            _PROJECT + "/queries/{job}",
            "jobs.getQueryResults",
            lambda r: queries.results(r.path["project"], r.path["job"], r.parameters),
        ),
    ]
