"""Every exception the package raises on purpose.

The class says what the caller may do about it.

* BqflinkError
  x ConfigError (ValueError)        fix: the caller's mistake, raised while the pipeline is built where possible
    + UnfitTableError               the table takes no rows at all from us: a view, a type that is not known
  x RowError (ValueError)           drop: one row cannot be written; goes to the failed-rows output
  x ServiceError                    BigQuery said no, or said nothing
    + TransientError                resend: nothing was applied
    + OutcomeUnknownError           find out: sent, never answered; may have been applied
    + PermanentError                stop: will fail the same way next time
      - NotFoundError               the table, dataset, job or session does not exist
      - ConflictError               a resource with that name exists already (HTTP 409)
      - AccessDeniedError           the credentials may not do this, or the thing is hidden from them
      - InvalidRequestError         the service calls the request malformed
      - SchemaMismatchError         the rows have columns that the table has not
      - SessionExpiredError         the read session is older than the service keeps one
      - RunAlreadyCommittedError    this run id has already written other rows
      - StreamLostError             flushed or acknowledged rows may be gone with their stream
    + RowsRejectedError             drop the listed rows, send the rest again
  x StreamError                     the write stream is not where we thought it was
    + AlreadyWrittenError           rows at this offset are in; success only for a resend
    + OffsetGapError                an earlier append is missing; never skip past it
    + StreamGoneError               no such stream: expired, or of a table dropped since
    + StreamFinalizedError          no more rows can be appended to or flushed on it
    + StreamCommittedError          a pending stream that has been committed before

All of them pickle: the message comes first, facts are keywords with defaults.
"""

from collections.abc import Sequence
from typing import Any

_VALUE_CHARS_MAX = 120


class BqflinkError(Exception):
    """Root of the tree. `table`, `stream`, `column` name what it is about, where known.

    They are part of the text from the start: a Beam worker makes a new error of the same
    class from nothing but the text, to add the name of the step.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        stream: str | None = None,
        column: str | None = None,
    ) -> None:
        facts = {"table": table, "column": column, "stream": stream}
        about = [
            f"{name}={value}" for name, value in facts.items() if value and value not in message
        ]
        super().__init__(message + (f" [{', '.join(about)}]" if about else ""))
        self.message = message
        """The text alone, as given to the constructor."""
        self.table = table
        self.stream = stream
        self.column = column


class ConfigError(BqflinkError, ValueError):
    """The caller's mistake: an option, a name, a combination that cannot work."""


class UnfitTableError(ConfigError):
    """This one table is of a kind, or has a column of a type, that cannot be served."""


class RowError(BqflinkError, ValueError):
    """One row cannot be written. `column` is the path (``a.b[2].c``), `value` a shortened repr."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        stream: str | None = None,
        column: str | None = None,
        value: str | None = None,
    ) -> None:
        super().__init__(message, table=table, stream=stream, column=column)
        self.value = value


class ServiceError(BqflinkError):
    """BigQuery refused, or did not answer. `code` is the gRPC or HTTP code as text."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        stream: str | None = None,
        column: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message, table=table, stream=stream, column=column)
        self.code = code


class TransientError(ServiceError):
    """Nothing was applied; safe to send again. `retry_after_s` is the service's own wish."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        stream: str | None = None,
        column: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, table=table, stream=stream, column=column, code=code)
        self.retry_after_s = retry_after_s


class OutcomeUnknownError(ServiceError):
    """Sent, never answered; may have been applied."""


class PermanentError(ServiceError):
    """Will fail the same way next time."""


class NotFoundError(PermanentError):
    """The table, dataset, job or session does not exist."""


class ConflictError(PermanentError):
    """A resource with that name exists already (HTTP 409)."""


class AccessDeniedError(PermanentError):
    """The credentials may not do this, are missing, or the thing is hidden from them."""


class InvalidRequestError(PermanentError):
    """The service calls the request malformed (INVALID_ARGUMENT, HTTP 400) and names no row."""


class SchemaMismatchError(PermanentError):
    """The rows have columns that the table has not (SCHEMA_MISMATCH_EXTRA_FIELDS)."""


class SessionExpiredError(PermanentError):
    """The read session is older than the service keeps one (six hours or more)."""


class RunAlreadyCommittedError(PermanentError):
    """This run id has already written other rows."""


class StreamLostError(PermanentError):
    """Acknowledged rows may be gone together with their stream."""


class RowsRejectedError(ServiceError):
    """The service lists rows it will not take; nothing of the request was applied.

    `rows` holds ``(index in the request, the service's words)``; the list may be
    shorter than the truth, so the rest must be sent again and may be rejected again.
    """

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        stream: str | None = None,
        column: str | None = None,
        code: str | None = None,
        rows: Sequence[tuple[int, str]] = (),
    ) -> None:
        super().__init__(message, table=table, stream=stream, column=column, code=code)
        self.rows = tuple(rows)


class StreamError(BqflinkError):
    """The write stream is not where we thought it was."""


class AlreadyWrittenError(StreamError):
    """Rows at this offset are in. `resent`: this connection had sent the same request before."""

    def __init__(
        self,
        message: str,
        *,
        table: str | None = None,
        stream: str | None = None,
        column: str | None = None,
        resent: bool = False,
    ) -> None:
        super().__init__(message, table=table, stream=stream, column=column)
        self.resent = resent


class OffsetGapError(StreamError):
    """An earlier append is missing; never skip past it."""


class StreamGoneError(StreamError):
    """No such stream: expired, or of a table that was dropped since."""


class StreamFinalizedError(StreamError):
    """No more rows can be appended to, or flushed on, this stream."""


class StreamCommittedError(StreamError):
    """A pending stream that has been committed before."""


def shorten(value: Any) -> str:
    """Returns a repr of `value` short enough for a message; whole rows never appear in errors."""
    try:
        text = repr(value)
    except Exception:  # a user's `__repr__` may raise anything, and a deep list has none
        text = f"a {type(value).__name__} without a repr"
    return text if len(text) <= _VALUE_CHARS_MAX else text[: _VALUE_CHARS_MAX - 1] + "…"
