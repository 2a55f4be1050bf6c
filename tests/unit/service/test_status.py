"""The one table from what BigQuery answers to what the caller may do about it."""

import grpc
import pytest
import requests
from google.cloud.bigquery_storage_v1 import types
from google.rpc import code_pb2, status_pb2

from bqflink_beam import errors
from bqflink_beam.service import status
from tests.unit.service.scripted_storage import STREAM, TABLE, packed, retry_info, storage_error

_SESSION = "projects/p/locations/us/sessions/s/streams/r"
_CHANGE = status.Call(what="flush", endpoint="host:1", changes=True, table="p.d.t", stream=STREAM)
_LOOK = status.Call(what="get", endpoint="host:1", changes=False, table="p.d.t")
_READ = status.Call(what="read", endpoint="host:1", changes=False, stream=_SESSION)
_TABLE_CALL = status.Call(what="create", endpoint="host:1", changes=True, table="p.d.t")


class Failed(grpc.RpcError):
    """What gRPC raises when a call fails."""

    def __init__(self, code, details="words", *facts):
        self._code, self._details = grpc.StatusCode[code], details
        message = status_pb2.Status(code=self._code.value[0], details=[packed(f) for f in facts])
        self._trailing = (
            (("grpc-status-details-bin", message.SerializeToString()),) if facts else None
        )

    def code(self):
        return self._code

    def details(self):
        return self._details

    def trailing_metadata(self):
        return self._trailing


def test_details_that_are_garbage_leave_the_code():
    failed = Failed("ABORTED")
    failed._trailing = (("grpc-status-details-bin", b"\xff no status"),)

    assert type(status.from_rpc(failed, _LOOK)) is errors.TransientError


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ABORTED", errors.TransientError),
        ("RESOURCE_EXHAUSTED", errors.TransientError),
        ("UNAVAILABLE", errors.OutcomeUnknownError),
        ("DEADLINE_EXCEEDED", errors.OutcomeUnknownError),
        ("CANCELLED", errors.OutcomeUnknownError),
        ("INTERNAL", errors.OutcomeUnknownError),
        ("UNKNOWN", errors.OutcomeUnknownError),
        ("DATA_LOSS", errors.PermanentError),
        ("UNIMPLEMENTED", errors.PermanentError),
        ("FAILED_PRECONDITION", errors.PermanentError),
        ("INVALID_ARGUMENT", errors.InvalidRequestError),
        ("NOT_FOUND", errors.NotFoundError),
        ("ALREADY_EXISTS", errors.ConflictError),
        ("OUT_OF_RANGE", errors.InvalidRequestError),
        ("PERMISSION_DENIED", errors.AccessDeniedError),
        ("UNAUTHENTICATED", errors.AccessDeniedError),
    ],
)
def test_every_code_of_a_call_that_changes_something_has_a_meaning(code, kind):
    error = status.from_rpc(Failed(code), _TABLE_CALL)

    assert type(error) is kind
    assert error.code == code
    assert "host:1" in str(error) and "words" in str(error) and "p.d.t" in str(error)


def test_all_codes_of_grpc_are_in_the_table():
    assert set(status._BY_CODE) == {c.name for c in grpc.StatusCode} - {"OK"}


def test_call_that_only_looks_has_no_unknown_outcome():
    for code in ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "INTERNAL", "UNKNOWN"):
        assert type(status.from_rpc(Failed(code), _LOOK)) is errors.TransientError


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("TABLE_NOT_FOUND", errors.NotFoundError),
        ("STREAM_ALREADY_COMMITTED", errors.StreamCommittedError),
        ("STREAM_NOT_FOUND", errors.StreamGoneError),
        ("INVALID_STREAM_TYPE", errors.InvalidRequestError),
        ("INVALID_STREAM_STATE", errors.StreamFinalizedError),
        ("STREAM_FINALIZED", errors.StreamFinalizedError),
        ("SCHEMA_MISMATCH_EXTRA_FIELDS", errors.SchemaMismatchError),
        ("OFFSET_ALREADY_EXISTS", errors.AlreadyWrittenError),
        ("OFFSET_OUT_OF_RANGE", errors.OffsetGapError),
        ("CMEK_NOT_PROVIDED", errors.PermanentError),
        ("INVALID_CMEK_PROVIDED", errors.PermanentError),
        ("CMEK_ENCRYPTION_ERROR", errors.PermanentError),
        ("KMS_SERVICE_ERROR", errors.TransientError),
        ("KMS_PERMISSION_DENIED", errors.AccessDeniedError),
    ],
)
def test_storage_error_wins_over_the_code_in_a_call_and_inside_one(name, kind):
    detail = storage_error(name)
    inside = status_pb2.Status(code=code_pb2.INTERNAL, message="m", details=[packed(detail)])

    assert type(status.from_rpc(Failed("UNKNOWN", "m", detail), _CHANGE)) is kind
    assert type(status.from_status(inside, _CHANGE)) is kind


def test_all_storage_errors_are_in_the_table():
    names = {code.name for code in types.StorageError.StorageErrorCode}
    assert set(status._BY_STORAGE_CODE) == names - {"STORAGE_ERROR_CODE_UNSPECIFIED"}


@pytest.mark.parametrize("code", range(17))
def test_refusal_inside_a_call_never_has_an_unknown_outcome(code):
    error = status.from_status(status_pb2.Status(code=code, message="m"), _CHANGE)

    assert not isinstance(error, errors.OutcomeUnknownError)


@pytest.mark.parametrize(
    ("code", "text", "call", "kind"),
    [
        ("ALREADY_EXISTS", "flushed", _CHANGE, errors.AlreadyWrittenError),
        ("OUT_OF_RANGE", "beyond the end", _CHANGE, errors.OffsetGapError),
        ("NOT_FOUND", "gone", _CHANGE, errors.StreamGoneError),
        ("INVALID_ARGUMENT", "Stream is finalized", _CHANGE, errors.StreamFinalizedError),
        ("FAILED_PRECONDITION", "Stream has been finalized", _CHANGE, errors.StreamFinalizedError),
        ("INVALID_ARGUMENT", "something else", _CHANGE, errors.InvalidRequestError),
        ("FAILED_PRECONDITION", "session expired at 12:00", _READ, errors.SessionExpiredError),
        ("NOT_FOUND", "Session has expired", _READ, errors.SessionExpiredError),
        (
            "FAILED_PRECONDITION",
            "offset 9 has not been allocated yet",
            _READ,
            errors.InvalidRequestError,
        ),
        ("OUT_OF_RANGE", "offset", _READ, errors.InvalidRequestError),
        ("RESOURCE_EXHAUSTED", "Sent message larger than max", _READ, errors.InvalidRequestError),
        ("UNAVAILABLE", "failed to connect to all addresses", _CHANGE, errors.TransientError),
        ("UNAVAILABLE", "errors resolving x:1: [not found]", _CHANGE, errors.TransientError),
        ("UNAVAILABLE", "Socket closed", _CHANGE, errors.OutcomeUnknownError),
    ],
)
def test_text_and_subject_decide_where_the_code_does_not(code, text, call, kind):
    assert type(status.from_rpc(Failed(code, text), call)) is kind


def test_not_found_on_a_default_stream_is_the_table():
    call = status.Call(
        what="append", endpoint="h:1", changes=True, stream=f"{TABLE}/streams/_default"
    )

    assert type(status.from_rpc(Failed("NOT_FOUND"), call)) is errors.NotFoundError


def test_wish_for_a_pause_is_kept_in_a_call_and_inside_one():
    inside = status_pb2.Status(code=code_pb2.RESOURCE_EXHAUSTED, details=[packed(retry_info(7))])

    assert (
        status.from_rpc(Failed("RESOURCE_EXHAUSTED", "", retry_info(7)), _READ).retry_after_s == 7
    )
    assert status.from_status(inside, _CHANGE).retry_after_s == 7


@pytest.mark.parametrize(
    ("code", "reason", "changes", "kind"),
    [
        (400, "invalid", True, errors.InvalidRequestError),
        (400, "invalidQuery", True, errors.InvalidRequestError),
        (401, "authError", True, errors.AccessDeniedError),
        (403, "accessDenied", True, errors.AccessDeniedError),
        (403, "rateLimitExceeded", True, errors.TransientError),
        (403, "userRateLimitExceeded", True, errors.TransientError),
        (400, "jobRateLimitExceeded", True, errors.TransientError),
        (403, "quotaExceeded", True, errors.PermanentError),
        (404, "notFound", True, errors.NotFoundError),
        (409, "duplicate", True, errors.ConflictError),
        (412, "conditionNotMet", True, errors.ConflictError),
        (429, "", True, errors.TransientError),
        (500, "internalError", True, errors.OutcomeUnknownError),
        (500, "internalError", False, errors.TransientError),
        (502, "", True, errors.OutcomeUnknownError),
        (503, "backendError", True, errors.OutcomeUnknownError),
        (503, "backendError", False, errors.TransientError),
        (504, "", True, errors.OutcomeUnknownError),
        (599, "", True, errors.OutcomeUnknownError),
        (418, "", True, errors.PermanentError),
    ],
)
def test_http_status_and_reason(code, reason, changes, kind):
    error = status.from_http(code, reason, "words", _TABLE_CALL if changes else _LOOK)

    assert type(error) is kind
    assert "words" in str(error) and "host:1" in str(error)


@pytest.mark.parametrize(
    ("error", "call", "kind"),
    [
        (requests.exceptions.ConnectTimeout(), _TABLE_CALL, errors.TransientError),
        (requests.exceptions.ReadTimeout(), _TABLE_CALL, errors.OutcomeUnknownError),
        (requests.exceptions.ReadTimeout(), _LOOK, errors.TransientError),
        (requests.exceptions.ConnectionError("reset"), _TABLE_CALL, errors.OutcomeUnknownError),
        (requests.exceptions.SSLError(), _LOOK, errors.ConfigError),
    ],
)
def test_no_http_answer_at_all(error, call, kind):
    assert type(status.from_transport(error, call)) is kind
