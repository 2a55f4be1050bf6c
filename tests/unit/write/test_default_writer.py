import collections

import pytest

from bqflink_beam.errors import (
    InvalidRequestError,
    NotFoundError,
    RowsRejectedError,
    TransientError,
)
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.default import DefaultWriter
from tests.sim.model_bigquery import ModelTicket


class DefaultStreams:
    """Takes rows of any default stream; `refuse` is asked for each request."""

    def __init__(self):
        self.rows = collections.defaultdict(list)
        self.refuse = lambda stream, rows: None

    def send(self, stream, descriptor, rows):
        error = self.refuse(stream, rows)
        if error is None:
            self.rows[stream] += rows
        return ModelTicket(None, error)


@pytest.fixture
def streams():
    return DefaultStreams()


def writer(streams, **options):
    options.setdefault("prepare_table", lambda table: None)
    return DefaultWriter(streams.send, request_bytes_max=20, **options)


def batch(*rows, table="p.d.t"):
    return RowBatch(table, b"[]", b"", list(rows), [0] * len(rows))


T = "projects/p/datasets/d/tables/t/streams/_default"


def test_all_good_rows_are_in_when_the_bundle_ends(streams):
    streams.refuse = lambda stream, rows: (
        RowsRejectedError("row errors", rows=[(rows.index(b"bad"), "no good")])
        if b"bad" in rows
        else None
    )
    w = writer(streams)

    w.append(batch(b"a", b"bad", b"b"))
    w.append(batch(b"c"))
    rejected = w.finish()

    assert sorted(streams.rows[T]) == [b"a", b"b", b"c"]
    assert [(row.index, row.message) for row in rejected] == [(1, "no good")]
    assert w.finish() == []


def test_a_table_is_asked_for_once_in_the_life_of_a_writer(streams):
    asked = []
    w = writer(streams, prepare_table=lambda table: asked.append(str(table)))

    for bundle in (b"a", b"b", b"c"):
        w.start_bundle()
        w.append(batch(bundle))
        w.append(batch(bundle, table="p.d.other"))
        w.finish()

    assert asked == ["p.d.t", "p.d.other"]


def test_what_a_failed_bundle_has_left_is_not_told_of_in_the_next(streams):
    w = writer(streams)
    streams.refuse = lambda stream, rows: TransientError("later")
    w.append(batch(b"a"))
    streams.refuse = lambda stream, rows: None
    w.start_bundle()
    w.append(batch(b"b"))

    assert w.finish() == []
    assert streams.rows[T] == [b"b"]


def test_bad_rows_are_told_of_while_the_bundle_lasts(streams):
    streams.refuse = lambda stream, rows: RowsRejectedError("row errors", rows=[(0, "no good")])
    w = writer(streams)

    told = [len(w.append(batch(b"bad"))) for _ in range(200)]

    assert sum(told) > 100


def test_a_transient_failure_goes_to_the_runner(streams):
    streams.refuse = lambda stream, rows: TransientError("later")
    w = writer(streams)
    w.append(batch(b"a"))

    with pytest.raises(TransientError):
        w.finish()


def test_a_schema_that_fits_no_row_is_an_error(streams):
    streams.refuse = lambda stream, rows: InvalidRequestError("malformed")
    w = writer(streams)
    w.append(batch(b"a", b"b"))

    with pytest.raises(InvalidRequestError):
        w.finish()


@pytest.mark.parametrize("forgives", [False, True])
def test_a_dropped_table_costs_its_own_rows_only_when_asked(streams, forgives):
    streams.refuse = lambda stream, rows: NotFoundError("dropped") if "gone" in stream else None
    w = writer(streams, forgives_tables=forgives)
    w.append(batch(b"a", b"b", table="p.d.gone"))
    w.append(batch(b"c"))

    if not forgives:
        with pytest.raises(NotFoundError):
            w.finish()
        return
    rejected = w.finish()

    assert [(row.batch.table, row.index, row.message) for row in rejected] == [
        ("p.d.gone", 0, "dropped"),
        ("p.d.gone", 1, "dropped"),
    ]
    assert streams.rows[T] == [b"c"]
