"""Which REST method is where, and ``serve``: the REST side of one server put together."""

from collections.abc import Callable, Mapping
from typing import Any

from bqflink_beam.emulator.datasets import Datasets
from bqflink_beam.emulator.faults import Faults
from bqflink_beam.emulator.jobs import Jobs
from bqflink_beam.emulator.queries import Queries
from bqflink_beam.emulator.query_job import QueryJobs, check_query
from bqflink_beam.emulator.rest import Request, RestServer, Route
from bqflink_beam.emulator.store import Store
from bqflink_beam.emulator.tables import Tables


def make_jobs(store: Store, faults: Faults) -> Jobs:
    """Returns the jobs of a server, ready to run."""
    queries = QueryJobs(store)

    def locate(project: str, kind: str, configuration: Mapping[str, Any]) -> str | None:
        return queries.locate(project, configuration)

    return Jobs(
        store,
        faults,
        {"query": queries.run},
        locate,
        {"query": check_query},
        queries.dry_run,
    )


def serve(
    store: Store, jobs: Jobs, faults: Faults, host: str = "127.0.0.1", port: int = 0
) -> RestServer:
    """Starts the REST server.

    Raises:
        OSError: the port is taken.
    """
    return RestServer(routes(store, jobs), faults, host, port)


def routes(store: Store, jobs: Jobs) -> list[Route]:
    """Returns every method of the API."""
    return [
        *_dataset_routes(Datasets(store)),
        *_table_routes(Tables(store)),
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


def _table_routes(tables: Tables) -> list[Route]:
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
        Route("DELETE", _TABLE, "tables.delete", lambda r: tables.delete(*names(r))),
        Route(
            "GET",
            _TABLE + "/data",
            "tabledata.list",
            lambda r: tables.rows(*names(r), r.parameters),
        ),
    ]


def _job_routes(jobs: Jobs, queries: Queries) -> list[Route]:
    def on(method: Callable[..., Any]) -> Callable[[Request], Any]:
        return lambda r: method(r.path["project"], r.path["job"], r.parameters.get("location"))

    return [
        Route(
            "POST",
            _PROJECT + "/jobs",
            "jobs.insert",
            lambda r: jobs.insert(r.path["project"], r.json()),
        ),
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
