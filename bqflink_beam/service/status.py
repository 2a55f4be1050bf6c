"""What BigQuery's answers mean: gRPC and HTTP status to the errors of our tree, in one place.

Three kinds of answer come here: a gRPC call that failed (`from_rpc`), an error inside an
AppendRows response (`from_status`, nothing of the request was applied), and HTTP
(`from_http`, `from_transport`). The most specific fact wins: a ``StorageError`` detail,
then the code together with what the call was about, then the bare code.
"""

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any

import grpc
import requests
from google.cloud.bigquery_storage_v1 import types
from google.protobuf.message import DecodeError
from google.rpc import code_pb2, error_details_pb2, status_pb2

from bqflink_beam.errors import (
    AccessDeniedError,
    AlreadyWrittenError,
    BqflinkError,
    ConfigError,
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    OffsetGapError,
    OutcomeUnknownError,
    PermanentError,
    SchemaMismatchError,
    ServiceError,
    SessionExpiredError,
    StreamCommittedError,
    StreamFinalizedError,
    StreamGoneError,
    TransientError,
)

_StorageError = types.StorageError.pb()
_StorageErrorCode = _StorageError.DESCRIPTOR.enum_types_by_name["StorageErrorCode"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """What an answer is about: `what` names the call with the identifier to look up.

    `changes` says whether the call, had it been applied, would have changed something:
    without an answer only such a call is `OutcomeUnknownError`.
    """

    what: str
    endpoint: str
    changes: bool
    table: str | None = None
    stream: str | None = None

    @property
    def on_write_stream(self) -> bool:
        return self.stream is not None and "/tables/" in self.stream

    @property
    def on_read_stream(self) -> bool:
        return self.stream is not None and "/sessions/" in self.stream


# --- the table -------------------------------------------------------------------------

# Most specific: google.cloud.bigquery.storage.v1.StorageError.StorageErrorCode.
_BY_STORAGE_CODE: Mapping[str, type[BqflinkError]] = {
    "TABLE_NOT_FOUND": NotFoundError,
    "STREAM_ALREADY_COMMITTED": StreamCommittedError,
    "STREAM_NOT_FOUND": StreamGoneError,
    "INVALID_STREAM_TYPE": InvalidRequestError,
    # Garbage-collected, or in a state that takes no more rows: the owner gives it up.
    "INVALID_STREAM_STATE": StreamFinalizedError,
    "STREAM_FINALIZED": StreamFinalizedError,
    "SCHEMA_MISMATCH_EXTRA_FIELDS": SchemaMismatchError,
    "OFFSET_ALREADY_EXISTS": AlreadyWrittenError,
    "OFFSET_OUT_OF_RANGE": OffsetGapError,
    "CMEK_NOT_PROVIDED": PermanentError,
    "INVALID_CMEK_PROVIDED": PermanentError,
    "CMEK_ENCRYPTION_ERROR": PermanentError,
    "KMS_SERVICE_ERROR": TransientError,
    "KMS_PERMISSION_DENIED": AccessDeniedError,
}

# A code alone. The server refuses before it applies with the first two of the
# transient ones; for the others nobody can say whether the call was applied.
_BY_CODE: Mapping[str, type[BqflinkError]] = {
    "ABORTED": TransientError,
    "RESOURCE_EXHAUSTED": TransientError,
    "UNAVAILABLE": OutcomeUnknownError,
    "DEADLINE_EXCEEDED": OutcomeUnknownError,
    "CANCELLED": OutcomeUnknownError,
    "INTERNAL": OutcomeUnknownError,
    "UNKNOWN": OutcomeUnknownError,
    "DATA_LOSS": PermanentError,
    "UNIMPLEMENTED": PermanentError,
    "FAILED_PRECONDITION": PermanentError,
    "INVALID_ARGUMENT": InvalidRequestError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": ConflictError,
    "OUT_OF_RANGE": InvalidRequestError,
    "PERMISSION_DENIED": AccessDeniedError,
    "UNAUTHENTICATED": AccessDeniedError,
}

# A code on a write stream made by an application. NOT_FOUND on a default stream is the table.
_BY_CODE_ON_WRITE_STREAM: Mapping[str, type[BqflinkError]] = {
    "ALREADY_EXISTS": AlreadyWrittenError,
    "OUT_OF_RANGE": OffsetGapError,
    "NOT_FOUND": StreamGoneError,
}

# Texts that decide where the code does not.
_FINALIZED = re.compile(r"\bfinali[sz]ed\b", re.IGNORECASE)
_EXPIRED = re.compile(r"\bexpired?\b", re.IGNORECASE)
_TOO_LARGE = re.compile(r"message larger than max", re.IGNORECASE)
_NEVER_SENT = re.compile(
    r"failed to connect to all addresses|errors? resolving |name resolution fail|"
    r"DNS resolution failed|credentials unavailable: ",
    re.IGNORECASE,
)
# Broken for good, though gRPC calls them UNAVAILABLE.
_WRONG_CONNECTION = (
    (
        re.compile(r"WRONG_VERSION_NUMBER"),
        "the server does not speak TLS; for an emulator on this machine say plaintext=True",
    ),
    (
        re.compile(r"CERTIFICATE_VERIFY_FAILED"),
        "the server's certificate is not trusted; for a server of your own give ca_certificate=",
    ),
)
CREDENTIALS_REFUSED = "credentials refused: "
CREDENTIALS_UNAVAILABLE = "credentials unavailable: "
"""These begin the text of a call that was not made for want of a token (see `channel`)."""

_REASONS_TRANSIENT = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "jobRateLimitExceeded", "backendError"}
)
_BY_HTTP: Mapping[int, type[BqflinkError]] = {
    400: InvalidRequestError,
    401: AccessDeniedError,
    403: AccessDeniedError,
    404: NotFoundError,
    408: OutcomeUnknownError,
    409: ConflictError,
    412: ConflictError,
    429: TransientError,
    500: OutcomeUnknownError,
    502: OutcomeUnknownError,
    503: OutcomeUnknownError,
    504: OutcomeUnknownError,
}


# --- gRPC ------------------------------------------------------------------------------


def from_rpc(error: grpc.RpcError, call: Call) -> BqflinkError:
    """Returns what a failed gRPC call means."""
    code = error.code().name
    details = error.details() or ""
    status = _status_of(error)
    text = f"{call.what} at {call.endpoint}: {code}: {details}"
    for pattern, advice in _WRONG_CONNECTION:
        if code == "UNAVAILABLE" and pattern.search(details):
            return ConfigError(f"{call.what} at {call.endpoint}: {advice}", table=call.table)
    if CREDENTIALS_REFUSED in details:
        return _made(AccessDeniedError, text, call, "UNAUTHENTICATED", None)
    if code in ("UNAVAILABLE", "DEADLINE_EXCEEDED") and never_sent(error):
        advice = "" if CREDENTIALS_UNAVAILABLE in details else " (is the endpoint right, and up?)"
        return _made(TransientError, text + advice, call, code, None)
    kind = _kind(code, details, status, call)
    if kind is OutcomeUnknownError and not call.changes:
        kind = TransientError
    return _made(kind, text, call, code, retry_after_s(status))


def never_sent(error: grpc.RpcError) -> bool:
    """Tells whether a call failed before any byte of it left this machine."""
    return bool(_NEVER_SENT.search(error.details() or ""))


def from_status(status: Any, call: Call) -> BqflinkError:
    """Returns what an error inside an AppendRows response means.

    Such a request was not accepted, whatever the code says.
    """
    code = code_pb2.Code.Name(status.code) if 0 <= status.code <= 16 else str(status.code)
    kind = _kind(code, status.message, status, call)
    if kind is OutcomeUnknownError:
        kind = TransientError
    text = f"{call.what}: {code}: {status.message}"
    return _made(kind, text, call, code, retry_after_s(status))


def retry_after_s(status: Any) -> float | None:
    """Returns the pause that a ``RetryInfo`` detail asks for."""
    for detail in () if status is None else status.details:
        if detail.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            info = error_details_pb2.RetryInfo.FromString(detail.value)
            return float(info.retry_delay.seconds + info.retry_delay.nanos / 1e9)
    return None


def storage_code(status: Any) -> str | None:
    """Returns the name of the ``StorageError`` detail's code, if there is one that says something."""
    for detail in () if status is None else status.details:
        if detail.Is(_StorageError.DESCRIPTOR):
            number = _StorageError.FromString(detail.value).code
            known = _StorageErrorCode.values_by_number.get(number)
            return known.name if known is not None and number else None
    return None


def storage_code_name(number: int) -> str:
    """Returns the name of a ``StorageErrorCode``."""
    known = _StorageErrorCode.values_by_number.get(number)
    return known.name if known is not None else str(number)


def _kind(code: str, details: str, status: Any, call: Call) -> type[BqflinkError]:
    kind = _BY_STORAGE_CODE.get(storage_code(status) or "")
    if kind is not None:
        return kind
    if _TOO_LARGE.search(details):
        return InvalidRequestError
    if call.on_write_stream:
        if code in ("INVALID_ARGUMENT", "FAILED_PRECONDITION") and _FINALIZED.search(details):
            return StreamFinalizedError
        kind = _BY_CODE_ON_WRITE_STREAM.get(code)
        if kind is StreamGoneError and str(call.stream).endswith("/_default"):
            return NotFoundError
        if kind is not None:
            return kind
    if call.on_read_stream and code in ("FAILED_PRECONDITION", "NOT_FOUND", "INVALID_ARGUMENT"):
        if _EXPIRED.search(details):
            return SessionExpiredError
        if code == "FAILED_PRECONDITION":
            return InvalidRequestError
    return _BY_CODE.get(code, PermanentError)


def _status_of(error: grpc.RpcError) -> Any:
    """Returns the google.rpc.Status among the trailing metadata, None without one."""
    trailing: Iterable[tuple[str, Any]] = error.trailing_metadata() or ()
    for key, value in trailing:
        if key == "grpc-status-details-bin":
            try:
                return status_pb2.Status.FromString(value)
            except DecodeError:  # of a proxy; the code and its text are there still
                return None
    return None


def _made(
    kind: type[BqflinkError], text: str, call: Call, code: str, retry_after: float | None
) -> BqflinkError:
    if kind is TransientError:
        return TransientError(
            text, table=call.table, stream=call.stream, code=code, retry_after_s=retry_after
        )
    if issubclass(kind, ServiceError):
        return kind(text, table=call.table, stream=call.stream, code=code)
    return kind(text, table=call.table, stream=call.stream)


# --- HTTP ------------------------------------------------------------------------------


def from_http(
    code: int, reason: str, message: str, call: Call, *, retry_after: float | None = None
) -> BqflinkError:
    """Returns what an HTTP answer other than 2xx means; `reason` is BigQuery's own word."""
    kind = _BY_HTTP.get(code, OutcomeUnknownError if code >= 500 else PermanentError)
    if reason in _REASONS_TRANSIENT and code < 500:
        kind = TransientError
    if reason == "quotaExceeded":
        kind = PermanentError
    if kind is OutcomeUnknownError and not call.changes:
        kind = TransientError
    words = f"{code} {reason}".rstrip()
    return _made(
        kind, f"{call.what} at {call.endpoint}: {words}: {message}", call, str(code), retry_after
    )


def from_transport(error: Exception, call: Call) -> BqflinkError:
    """Returns what it means that an HTTP request got no answer at all."""
    text = f"{call.what} at {call.endpoint}"
    if isinstance(error, requests.exceptions.SSLError):
        return ConfigError(
            f"{text}: TLS failed; is it an https server, and is its certificate trusted "
            "(ca_certificate=)?",
            table=call.table,
        )
    if is_refused(error):
        return _made(
            TransientError,
            f"{text}: cannot connect (is the endpoint right, and up?)",
            call,
            "UNAVAILABLE",
            None,
        )
    kind = OutcomeUnknownError if call.changes else TransientError
    return _made(kind, f"{text}: no answer ({type(error).__name__})", call, "UNAVAILABLE", None)


def is_refused(error: Exception) -> bool:
    """Tells whether an HTTP request failed before any byte of it left this machine."""
    # ConnectTimeout is a ConnectionError too; a connection that broke later is one as well.
    if isinstance(error, requests.exceptions.ConnectTimeout):
        return True
    words = ("NewConnectionError", "NameResolutionError", "Connection refused")
    return isinstance(error, requests.exceptions.ConnectionError) and any(
        word in repr(error) for word in words
    )
