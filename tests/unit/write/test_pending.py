"""What one bundle of a bounded write stages, whatever its tables do."""

import pytest

from bqflink_beam.errors import (
    AccessDeniedError,
    NotFoundError,
    PermanentError,
    RowsRejectedError,
    TransientError,
)
from bqflink_beam.service.base import StreamKind
from bqflink_beam.write import pending
from bqflink_beam.write.batching import ROW_OVERHEAD_BYTES, RowBatch
from bqflink_beam.write.pending import PendingWriter
from tests.sim.model_bigquery import ModelWrite


@pytest.fixture
def model():
    return ModelWrite()


def writer(model, **options):
    options.setdefault("prepare_table", lambda table: None)
    return PendingWriter(model, budget_s=1.0, request_bytes_max=20 + ROW_OVERHEAD_BYTES, **options)


def batch(*rows, table="p.d.t", descriptor=b""):
    return RowBatch(table, b"[]", descriptor, list(rows), [0] * len(rows))


def staged_rows(model, staged):
    found = {}
    for stream in staged:
        assert model.streams[stream.stream].finalized
        assert model.streams[stream.stream].kind is StreamKind.PENDING
        rows = model.streams[stream.stream].rows
        assert stream.rows == len(rows)
        found.setdefault(stream.table, []).append(rows)
    return found


def test_each_table_and_schema_has_its_stream(model):
    w = writer(model)
    w.append(batch(b"a", table="p.d.t"))
    w.append(batch(b"b", table="p.d.T"))
    w.append(batch(b"c", table="p.d.t", descriptor=b"later"))
    w.append(batch(b"d", table="p.d.t"))

    staged, rejected = w.finish()

    assert staged_rows(model, staged) == {"p.d.t": [[b"a", b"d"], [b"c"]], "p.d.T": [[b"b"]]}
    assert rejected == []
    assert w.streams_created == 3


def test_hundreds_of_tables_share_few_connections_and_lose_nothing(model, monkeypatch):
    monkeypatch.setattr(pending, "_CONNECTIONS_MAX", 7)
    w = writer(model)
    for turn in range(3):
        for index in range(300):
            w.append(batch(b"%d %d" % (index, turn), table=f"p.d.t{index}"))
            assert len(model.connections) <= 7

    staged, _ = w.finish()

    assert staged_rows(model, staged) == {
        f"p.d.t{index}": [[b"%d %d" % (index, turn) for turn in range(3)]] for index in range(300)
    }
    w.close()
    assert model.connections == []


def test_rows_refused_on_a_connection_that_was_closed_for_others_are_told_of(model, monkeypatch):
    monkeypatch.setattr(pending, "_CONNECTIONS_MAX", 1)
    model.refuse = lambda rows: (
        RowsRejectedError("row errors", rows=[(rows.index(b"bad"), "no good")])
        if b"bad" in rows
        else None
    )
    w = writer(model)

    told = w.append(batch(b"a", b"bad", table="p.d.a"))
    told += w.append(batch(b"b", table="p.d.b"))
    staged, last = w.finish()

    assert [(row.batch.table, row.index) for row in told + last] == [("p.d.a", 1)]
    assert staged_rows(model, staged) == {"p.d.a": [[b"a"]], "p.d.b": [[b"b"]]}


def test_bad_rows_are_told_of_while_the_bundle_lasts(model):
    model.refuse = lambda rows: RowsRejectedError("row errors", rows=[(0, "no good")])
    w = writer(model)

    told = [len(w.append(batch(b"bad %d" % index))) for index in range(100)]

    assert sum(told) > 50


@pytest.mark.parametrize("error", [NotFoundError("gone"), AccessDeniedError("not yours")])
def test_a_table_that_takes_no_stream_costs_its_rows_only_when_asked(model, error):
    def prepare(table):
        asked.append(str(table))
        if table.table == "gone":
            raise error

    asked = []
    strict = writer(model, prepare_table=prepare)
    with pytest.raises(type(error)):
        strict.append(batch(b"a", table="p.d.gone"))

    asked.clear()
    w = writer(model, prepare_table=prepare, forgives_tables=True)
    told = w.append(batch(b"a", b"b", table="p.d.gone"))
    told += w.append(batch(b"c"))
    told += w.append(batch(b"d", table="p.d.gone"))
    staged, last = w.finish()

    assert [(row.batch.rows[row.index], row.message) for row in told + last] == [
        (b"a", error.message),
        (b"b", error.message),
        (b"d", error.message),
    ]
    assert staged_rows(model, staged) == {"p.d.t": [[b"c"]]}
    assert asked == ["p.d.gone", "p.d.t"]


def test_a_table_that_goes_away_under_its_rows_fails_the_bundle_even_when_forgiven(model):
    w = writer(model, forgives_tables=True)
    w.append(batch(b"a"))
    model.refuse = lambda rows: NotFoundError("dropped")
    w.append(batch(b"b"))

    with pytest.raises(NotFoundError):
        w.finish()


def test_a_failure_of_another_table_is_not_forgiven_in_this_ones_name(model, monkeypatch):
    monkeypatch.setattr(pending, "_CONNECTIONS_MAX", 1)
    model.refuse = lambda rows: AccessDeniedError("no") if rows == [b"a"] else None
    w = writer(model, forgives_tables=True)
    w.append(batch(b"a", table="p.d.a"))

    with pytest.raises(AccessDeniedError):
        w.append(batch(b"b", table="p.d.b"))


def test_a_transient_failure_to_make_a_stream_is_not_a_bad_row(model):
    def prepare(table):
        raise TransientError("later")

    with pytest.raises(TransientError):
        writer(model, prepare_table=prepare, forgives_tables=True).append(batch(b"a"))


def test_a_stream_with_other_rows_than_were_acknowledged_is_not_staged(model):
    w = writer(model)
    w.append(batch(b"a"))
    next(iter(model.streams.values())).rows.append(b"not ours")

    with pytest.raises(PermanentError, match="holds 2 rows, but 1 were acknowledged"):
        w.finish()


def test_a_stream_whose_rows_were_all_bad_is_not_staged(model):
    model.refuse = lambda rows: RowsRejectedError("row errors", rows=[(0, "bad")])
    w = writer(model)
    told = w.append(batch(b"a"))

    staged, last = w.finish()

    assert staged == []
    assert [row.index for row in told + last] == [0]
