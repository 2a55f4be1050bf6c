"""From a `ReadRequest` to a read session: which table, which columns, which rows."""

import dataclasses
import logging
from collections.abc import Sequence

import pyarrow as pa

from bqflink_beam.errors import ConfigError, InvalidRequestError, NotFoundError
from bqflink_beam.names import TableReference
from bqflink_beam.read import query
from bqflink_beam.read.request import ReadRequest
from bqflink_beam.schema import arrow
from bqflink_beam.schema.json import from_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.base import Client, ReadService, ReadSession, SessionRequest, Table

_LOG = logging.getLogger(__name__)
_KINDS_WITH_ROWS = frozenset({"TABLE", "SNAPSHOT"})
_PARTITION_COLUMNS = ("_partitiontime", "_partitiondate")


def open_session(request: ReadRequest, client: Client, *, run_id: str) -> ReadSession:
    """Makes the read session of a request, running its query first if it has one.

    Called by the planning step, once per attempt of its bundle. `run_id` names the run:
    a planning step that is tried again finds the query of the earlier try.

    Raises:
        ConfigError: no such table or column, a filter or query that BigQuery refuses.
        ServiceError: what BigQuery says otherwise.
    """
    if request.table is None:
        assert request.query is not None
        return _session_of_query(
            request, request.query, request.columns, client, run_id, request.location
        )
    table = _existing(request.table, client)
    columns = column_paths(table, request.columns)
    if table.kind in _KINDS_WITH_ROWS:
        session = _session(request, request.table, columns, request.row_filter, client.read)
        return _with_ranges(session, client, table.schema)
    _check_no_snapshot(request, table)
    text = view_query(request.table, columns, request.row_filter)
    return _session_of_query(request, text, columns, client, run_id, table.location or None)


def check(request: ReadRequest, client: Client) -> None:
    """Finds out whether a request can be served, without reading or paying for anything.

    Raises as `open_session` does.
    """
    if request.table is None:
        assert request.query is not None
        statistics = query.dry_run(client.jobs, request.query, location=request.location)
        fields = statistics.get("query", {}).get("schema", {}).get("fields")
        if fields:
            _canonical(from_json(fields), request.columns, "query")
        return
    table = _existing(request.table, client)
    columns = column_paths(table, request.columns)
    if table.kind in _KINDS_WITH_ROWS:
        _session(request, request.table, columns, request.row_filter, client.read, streams_max=1)
        return
    _check_no_snapshot(request, table)
    text = view_query(request.table, columns, request.row_filter)
    query.dry_run(client.jobs, text, location=table.location or None)


def column_paths(table: Table, columns: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns as the table spells them.

    Raises:
        ConfigError: the table has no such column; the message lists those it has.
    """
    pseudo: list[str] = []
    partitioning = table.resource.get("timePartitioning")
    if partitioning is not None and not partitioning.get("field"):
        pseudo = [column for column in columns if column.lower() in _PARTITION_COLUMNS]
    own = [column for column in columns if column not in pseudo]
    spelled = dict(zip(own, _canonical(table.schema, own, str(table.reference)), strict=True))
    return tuple(spelled.get(column, column.upper()) for column in columns)


def view_query(table: TableReference, columns: Sequence[str], row_filter: str) -> str:
    """Returns the query for the rows of something that has no rows of its own.

    It selects whole columns: a path into a STRUCT is cut out by the session, which
    keeps the nesting.
    """
    names = dict.fromkeys(path.partition(".")[0] for path in columns)
    selected = ", ".join(f"`{name}`" for name in names) or "*"
    text = f"SELECT {selected} FROM `{table.project}`.`{table.dataset}`.`{table.table}`"
    # On a line of its own: the filter may end in a comment.
    return f"{text}\nWHERE (\n{row_filter}\n)" if row_filter.strip() else text


def _session_of_query(
    request: ReadRequest,
    text: str,
    columns: Sequence[str],
    client: Client,
    run_id: str,
    location: str | None,
) -> ReadSession:
    row_filter = request.row_filter if request.query is not None else ""
    first_try = 0
    while True:
        result = query.run(
            client.jobs,
            text,
            run_id=run_id,
            location=location,
            labels=dict(request.labels) or None,
            first_try=first_try,
        )
        try:
            session = _session(request, result.table, columns, row_filter, client.read)
            return _with_ranges(session, client, None)
        except NotFoundError:
            # A job that was found lives longer than its result, which expires after a day.
            if not result.found:
                raise
            first_try = result.try_number + 1
            _LOG.info("result %s has expired, running the query again", result.table)


def _session(
    request: ReadRequest,
    table: TableReference,
    columns: Sequence[str],
    row_filter: str,
    service: ReadService,
    *,
    streams_max: int | None = None,
) -> ReadSession:
    wanted = SessionRequest(
        table=table,
        columns=tuple(columns),
        row_filter=row_filter,
        streams_max=request.streams_max if streams_max is None else streams_max,
        snapshot_s=request.snapshot_s,
    )
    try:
        return service.create_session(wanted)
    except InvalidRequestError as error:
        parts = [
            f"{name} {value!r}"
            for name, value in (
                ("row_filter", row_filter),
                ("columns", list(columns)),
                ("snapshot_time", request.snapshot_time and str(request.snapshot_time)),
            )
            if value
        ]
        raise ConfigError(
            f"BigQuery refuses to read {request.source} with {', '.join(parts) or 'no options'}: "
            f"{error.message}",
            table=request.source,
        ) from error


def _with_ranges(session: ReadSession, client: Client, known: TableSchema | None) -> ReadSession:
    """Returns the session with a schema that says which of its structs are RANGEs."""
    schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema))
    if not arrow.may_have_ranges(schema):
        return session
    table = known or _existing(session.table, client).schema
    declared = arrow.with_ranges(schema, table).serialize().to_pybytes()
    return dataclasses.replace(session, arrow_schema=declared)


def _existing(reference: TableReference, client: Client) -> Table:
    table = client.tables.get(reference)
    if table is None:
        raise ConfigError(
            f"table {reference} does not exist, or these credentials may not see it",
            table=str(reference),
        )
    return table


def _check_no_snapshot(request: ReadRequest, table: Table) -> None:
    if request.snapshot_time is not None:
        raise ConfigError(
            f"snapshot_time is for tables, and {table.reference} is a {table.kind}; use query= "
            "with FOR SYSTEM_TIME AS OF on its tables",
            table=request.source,
        )


def _canonical(schema: TableSchema, columns: Sequence[str], source: str) -> list[str]:
    return [_spelled(schema.fields, column, source) for column in columns]


def _spelled(fields: Sequence[Field], column: str, source: str) -> str:
    spelled: list[str] = []
    for name in column.split("."):
        found = next((field for field in fields if field.name.lower() == name.lower()), None)
        if found is None:
            where = f"{'.'.join(spelled)} has" if spelled else "there is"
            have = ", ".join(field.name for field in fields[:50]) or "no fields, it is no STRUCT"
            raise ConfigError(
                f"{source} has no column {column!r}; {where} {have}", table=source, column=column
            )
        spelled.append(found.name)
        fields = found.fields
    return ".".join(spelled)
