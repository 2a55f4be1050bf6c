"""`Refused`: the one way the embedded BigQuery says no, over gRPC and REST alike."""

from typing import Any

from bqflink_beam.errors import BqflinkError


class Refused(BqflinkError):
    """A request that the service answers with an error.

    `code` is a gRPC status name (``NOT_FOUND``); REST answers with its HTTP
    counterpart. `reason` is REST's word for it, made from the code where none is given.
    `storage_error` is the name of a ``StorageError`` code, with `entity` what it is about.
    `retry_after_s` asks the caller to wait, over gRPC.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "INVALID_ARGUMENT",
        reason: str | None = None,
        storage_error: str | None = None,
        entity: str = "",
        **about: Any,
    ) -> None:
        super().__init__(message, **about)
        self.code = code
        self.reason = reason or _REASONS.get(code, "invalid")
        self.storage_error = storage_error
        self.entity = entity
        self.retry_after_s: float | None = None

    def __str__(self) -> str:
        return self.message


_REASONS = {
    "NOT_FOUND": "notFound",
    "ALREADY_EXISTS": "duplicate",
    "FAILED_PRECONDITION": "conditionNotMet",
    "PERMISSION_DENIED": "accessDenied",
    "RESOURCE_EXHAUSTED": "rateLimitExceeded",
    "UNAVAILABLE": "backendError",
    "INTERNAL": "internalError",
}
