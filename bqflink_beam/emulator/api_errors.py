"""REST's way of saying no: HTTP statuses and Google's JSON error bodies."""

from typing import Any

from bqflink_beam.emulator.refused import Refused

_HTTP = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 412,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "CANCELLED": 499,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "DATA_LOSS": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
# The gRPC code that a job's error reason stands for, where a failed job is answered as an error.
_CODES = {
    "notFound": "NOT_FOUND",
    "duplicate": "ALREADY_EXISTS",
    "accessDenied": "PERMISSION_DENIED",
    "rateLimitExceeded": "RESOURCE_EXHAUSTED",
    "quotaExceeded": "RESOURCE_EXHAUSTED",
    "backendError": "UNAVAILABLE",
    "internalError": "INTERNAL",
    "stopped": "INVALID_ARGUMENT",
}
_IN_QUERY = "invalidQuery"


def http_status(refused: Refused) -> int:
    """Returns the HTTP status of a refusal."""
    return _HTTP[refused.code]


def error_body(refused: Refused) -> dict[str, Any]:
    """Returns ``{"error": {...}}`` as Google's servers write it."""
    error = {"message": refused.message, "domain": "global", "reason": refused.reason}
    if refused.reason == _IN_QUERY:
        error.update(location="query", locationType="parameter")
    return {
        "error": {
            "code": http_status(refused),
            "message": refused.message,
            "errors": [error],
            "status": refused.code,
        }
    }


def error_proto(refused: Refused, location: str | None = None) -> dict[str, Any]:
    """Returns a refusal as a job's ``errorResult``."""
    error = {"reason": refused.reason, "message": refused.message}
    if location is None and refused.reason == _IN_QUERY:
        location = "query"
    return {**error, "location": location} if location else error


def refusal_of(error: dict[str, Any]) -> Refused:
    """Returns a job's ``errorResult`` as the refusal that asking for its results gets."""
    code = _CODES.get(error["reason"], "INVALID_ARGUMENT")
    return Refused(error["message"], code=code, reason=error["reason"])


def missing(what: str) -> Refused:
    """Returns the refusal of a request that leaves a required parameter out."""
    return Refused(f"Required parameter is missing: {what}", reason="required")


def invalid(message: str) -> Refused:
    """Returns a plain 400."""
    return Refused(message, reason="invalid")
