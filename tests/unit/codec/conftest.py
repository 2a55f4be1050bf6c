import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from bqflink_beam.codec.values import Range


@pytest.fixture(
    params=[
        pytest.param(500, id="500"),
        pytest.param(20_000, id="20000", marks=[pytest.mark.long, pytest.mark.timeout(3_600)]),
    ]
)
def forall(request) -> Callable[..., None]:
    """Runs a property over drawn values: 500 of them in `make test`, 20,000 in `test-long`."""

    def run(strategy, body) -> None:
        checks = settings(
            max_examples=request.param,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        checks(given(strategy)(body))()

    return run


def identical(left: Any, right: Any) -> bool:
    """Equal in value and in Python type, NaN included and -0.0 told from 0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(identical(left[key], right[key]) for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(identical, left, right))
    if isinstance(left, Range):
        return identical(left.start, right.start) and identical(left.end, right.end)
    if isinstance(left, float):
        return (
            math.isnan(left)
            and math.isnan(right)
            or (left == right and math.copysign(1, left) == math.copysign(1, right))
        )
    if isinstance(left, datetime.datetime):
        return left == right and left.tzinfo == right.tzinfo
    if isinstance(left, decimal.Decimal):
        return left == right
    return left == right


@pytest.fixture
def same() -> Callable[[Any, Any], bool]:
    return identical
