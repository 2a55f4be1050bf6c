"""Datasets and tables over REST."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import ConfigError, ConflictError, NotFoundError, UnfitTableError
from bqflink_beam.names import TableReference
from bqflink_beam.retry import DEFAULT_BACKOFF, Backoff
from bqflink_beam.schema import json as schema_json
from bqflink_beam.service import status
from bqflink_beam.service.base import Table
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.rest import Rest

_REQUEST_S = 60.0
_NEW_S = 60.0


class RestTables:
    """`service.base.TableService`."""

    def __init__(
        self,
        rest: Rest,
        recent: Recent,
        *,
        backoff: Backoff = DEFAULT_BACKOFF,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._rest = rest
        self._recent = recent
        self._backoff = backoff
        self._clock = clock

    def get(self, table: TableReference) -> Table | None:
        try:
            resource = self._request("GET", _path(table), f"get table {table}", table)
        except NotFoundError:
            return None
        if self._is_new(resource):
            # Another worker has just made it, and the Storage API may not have heard of it.
            self._recent.created(table.path)
        try:
            schema = schema_json.from_json(resource.get("schema", {}).get("fields", []))
        except ConfigError as error:
            raise UnfitTableError(error.message, table=str(table), column=error.column) from error
        return Table(
            reference=table,
            schema=schema,
            kind=resource.get("type", "TABLE"),
            location=resource.get("location", ""),
            etag=resource.get("etag", ""),
            resource=resource,
        )

    def create(self, table: TableReference, resource: Mapping[str, Any]) -> None:
        reference = {
            "projectId": table.project,
            "datasetId": table.dataset,
            "tableId": table.table,
        }
        # A conflict: somebody was first, or an earlier try of ours was.
        try:
            self._request(
                "POST",
                f"{_dataset_path(table)}/tables",
                f"create table {table}",
                table,
                body={**resource, "tableReference": reference},
            )
        except ConflictError:
            pass
        except NotFoundError as error:
            raise _no_dataset(table, error) from error
        # Either way it may be so new that the Storage API has not heard of it.
        self._recent.created(table.path)

    def patch(self, table: TableReference, resource: Mapping[str, Any], *, etag: str) -> None:
        # Without an answer it is sent again; if the first was applied the etag no longer
        # fits, and the caller looks at the table anew, as after anybody else's change.
        self._request(
            "PATCH",
            _path(table),
            f"patch table {table}",
            table,
            body=resource,
            headers={"if-match": etag},
        )

    def delete(self, table: TableReference) -> None:
        try:
            self._request("DELETE", _path(table), f"delete table {table}", table)
        except NotFoundError:
            return

    def dataset_location(self, table: TableReference) -> str:
        dataset = f"{table.project}.{table.dataset}"
        try:
            resource = self._request("GET", _dataset_path(table), f"get dataset {dataset}", table)
        except NotFoundError as error:
            raise _no_dataset(table, error) from error
        return str(resource.get("location", ""))

    def _is_new(self, resource: Mapping[str, Any]) -> bool:
        created_ms = str(resource.get("creationTime", ""))
        # Either clock may be ahead.
        return created_ms.isdigit() and abs(self._clock.now_s() - int(created_ms) / 1000) < _NEW_S

    def _request(
        self,
        method: str,
        path: str,
        what: str,
        table: TableReference,
        *,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        call = status.Call(
            what=what,
            endpoint=self._rest.endpoint,
            changes=method != "GET",
            table=str(table),
        )
        return self._rest.patience.retried(
            lambda: self._rest.request(
                method, path, call=call, deadline_s=_REQUEST_S, body=body, headers=headers
            ),
            what=what,
            backoff=self._backoff,
            clock=self._clock,
        )


def _no_dataset(table: TableReference, error: NotFoundError) -> NotFoundError:
    return NotFoundError(
        f"the dataset {table.project}.{table.dataset} does not exist; make it first, since create= makes "
        f"tables only: {error.message}",
        table=str(table),
        code=error.code,
    )


def _dataset_path(table: TableReference) -> str:
    return f"/projects/{quote(table.project, safe='')}/datasets/{quote(table.dataset, safe='')}"


def _path(table: TableReference) -> str:
    return f"{_dataset_path(table)}/tables/{quote(table.table, safe='')}"
