"""Which errors cost only the rows of one table, and which must stop the job."""

import pytest

from bqflink_beam.errors import (
    AccessDeniedError,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    OutcomeUnknownError,
    PermanentError,
    SchemaMismatchError,
    TransientError,
    UnfitTableError,
)
from bqflink_beam.write.tables import is_about_one_table


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError("no such table"),
        AccessDeniedError("may not", code="PERMISSION_DENIED"),
        AccessDeniedError("may not", code="403"),
        SchemaMismatchError("extra fields"),
        InvalidRequestError("malformed"),
        UnfitTableError("a view"),
        PermanentError("its key is disabled", code="FAILED_PRECONDITION"),
    ],
)
def test_what_one_table_refuses_may_cost_its_rows_only(error):
    assert is_about_one_table(error)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("no credentials on this machine"),
        ConfigError("not TLS", table="p.d.t"),
        AccessDeniedError("token refused", code="UNAUTHENTICATED"),
        AccessDeniedError("token refused", code="401"),
        PermanentError("HTTP 302, not from BigQuery", code="302"),
        PermanentError("quotaExceeded", code="403"),
        PermanentError("this append connection is closed"),
        TransientError("later"),
        OutcomeUnknownError("no answer"),
    ],
)
def test_what_would_meet_any_table_is_no_reason_to_put_rows_aside(error):
    assert not is_about_one_table(error)
