"""What a write knows of its destination tables: their schema, and how to make a missing one."""

from bqflink_beam.clock import Clock
from bqflink_beam.errors import (
    AccessDeniedError,
    BqflinkError,
    InvalidRequestError,
    NotFoundError,
    PermanentError,
    SchemaMismatchError,
    UnfitTableError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import TableSchema
from bqflink_beam.service.base import TableService
from bqflink_beam.write.options import CreateTable

_NOT_A_TABLE = "rows can be written to tables only, and this is a {kind}"
_WHO_ASKS = ("UNAUTHENTICATED", "401")
_SAYS_NO_TO_A_TABLE = (NotFoundError, InvalidRequestError, SchemaMismatchError, UnfitTableError)


def schema_for(
    tables: TableService, table: TableReference, create: CreateTable | None
) -> TableSchema:
    """Returns the schema rows must have: the table's, or that of the table to be made.

    Makes nothing: whether a missing table may be made is for the writer to decide.

    Raises:
        NotFoundError: the table is missing and `create` is None.
        UnfitTableError: it is a view, or of another kind that takes no rows.
    """
    found = tables.get(table)
    if found is not None:
        if found.kind != "TABLE":
            raise UnfitTableError(_NOT_A_TABLE.format(kind=found.kind), table=str(table))
        return found.schema
    if create is None:
        raise _missing(table)
    return create.table_schema


def prepare(
    tables: TableService, table: TableReference, create: CreateTable | None, clock: Clock
) -> None:
    """Makes the table if it is missing and `create` says how. May be repeated, by many at once.

    Raises:
        NotFoundError: it is missing and `create` is None.
    """
    if tables.get(table) is not None:
        return
    if create is None:
        raise _missing(table)
    tables.create(table, create.resource(clock.now_s()))


def is_about_one_table(error: BqflinkError) -> bool:
    """Tells whether an error says no to one table, so that others may still take their rows.

    Credentials that are missing or refused, a server that is not BigQuery, a used-up quota
    concern every table: rows that meet them are not bad, and must not be put aside as such.
    """
    if isinstance(error, AccessDeniedError):
        return error.code not in _WHO_ASKS
    if isinstance(error, _SAYS_NO_TO_A_TABLE):
        return True
    # Nothing more is known: the table's state, or its key, does not allow it.
    return isinstance(error, PermanentError) and error.code == "FAILED_PRECONDITION"


def _missing(table: TableReference) -> NotFoundError:
    return NotFoundError(
        "the table does not exist; create it, or say how with create=CreateTable(schema=...)",
        table=str(table),
    )
