"""Queries and predicates of the grammar agree with plain Python, or are refused, which is rare."""

import collections

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, event, given, settings

from bqflink_beam.emulator import values
from bqflink_beam.emulator.sql import InvalidQuery, TableInput, compile_text, filter_rows
from tests.unit.emulator.sql_grammar import (
    aggregations,
    plain,
    predicates,
    projections,
    unnestings,
)
from tests.unit.emulator.sql_rows import SCHEMA, tables

_SETTINGS = settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
_OUTCOMES = collections.Counter()


class _Catalog:
    def __init__(self, rows):
        self._rows = pa.Table.from_batches([values.batch_from_rows(SCHEMA, rows)])

    def table(self, path, at_s):
        assert path == ("d", "t")
        return TableInput(SCHEMA, lambda: self._rows)


def _run(sql, rows):
    """Returns the result as tuples, None if the query is refused."""
    try:
        result = compile_text(sql, _Catalog(rows), now_s=0.0).run()
    except InvalidQuery as refused:
        _OUTCOMES["refused"] += 1
        event(f"refused: {refused}")
        return None
    _OUTCOMES["answered"] += 1
    return [tuple(plain(value) for value in row.values()) for row in result.to_pylist()]


def _check(query, rows):
    found = _run(query.sql, rows)
    if found is None:
        return
    wanted = [tuple(plain(value) for value in row) for row in query.rows(rows)]
    if not query.ordered:
        found, wanted = sorted(found, key=repr), sorted(wanted, key=repr)
    assert found == wanted


@_SETTINGS
@given(query=projections(), rows=tables())
def test_projection_filter_and_order_agree(query, rows):
    _check(query, rows)


@_SETTINGS
@given(query=aggregations(), rows=tables())
def test_aggregates_agree(query, rows):
    _check(query, rows)


@_SETTINGS
@given(query=unnestings(), rows=tables())
def test_unnesting_agrees(query, rows):
    _check(query, rows)


@_SETTINGS
@given(predicate=predicates(), rows=tables())
def test_row_restriction_keeps_exactly_the_true_rows_in_order(predicate, rows):
    batch = values.batch_from_rows(SCHEMA, rows)

    try:
        kept = filter_rows(SCHEMA, batch, predicate.sql)
    except InvalidQuery as refused:
        _OUTCOMES["refused"] += 1
        event(f"refused: {refused}")
        return

    _OUTCOMES["answered"] += 1
    wanted = [row for row in rows if predicate.value(row) is True]
    assert kept.equals(values.batch_from_rows(SCHEMA, wanted), check_metadata=True) or [
        row["id"] for row in kept.to_pylist()
    ] == [row["id"] for row in wanted]


def test_few_of_the_grammar_are_refused():
    if not _OUTCOMES:
        pytest.skip("runs after the tests above")

    total = _OUTCOMES["answered"] + _OUTCOMES["refused"]

    assert _OUTCOMES["refused"] <= total / 10, _OUTCOMES
