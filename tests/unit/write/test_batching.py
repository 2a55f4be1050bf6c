import pytest
from hypothesis import given
from hypothesis import strategies as st

from bqflink_beam.errors import BqflinkError
from bqflink_beam.write.batching import ROW_BYTES_LIMIT, BatchBuilder, RowBatch, fitting
from bqflink_beam.write.position import FlushMark, Position

ROWS = st.lists(st.tuples(st.binary(max_size=40), st.integers(-(2**62), 2**62)), max_size=30)


@given(st.text(max_size=50), st.binary(), st.binary(), ROWS)
def test_a_batch_survives_its_bytes(table, schema, descriptor, rows):
    batch = RowBatch(table, schema, descriptor, [r for r, _ in rows], tuple(t for _, t in rows))

    assert RowBatch.from_bytes(batch.to_bytes()) == batch


@given(st.text(), st.integers(0, 2**62), st.floats(allow_nan=False))
def test_positions_and_marks_survive_their_bytes(stream, offset, seconds):
    for value in (Position(stream, offset, seconds), FlushMark(stream, offset)):
        assert type(value).from_bytes(value.to_bytes()) == value


@pytest.mark.parametrize("kind", [RowBatch, Position, FlushMark])
def test_bytes_of_a_newer_version_are_refused(kind):
    with pytest.raises(BqflinkError, match="format 9"):
        kind.from_bytes(b"\x09" + bytes(40))


@given(ROWS, st.integers(1, 10), st.integers(20, 200))
def test_batches_keep_every_row_in_order_and_stay_in_bounds(rows, rows_max, bytes_max):
    builder = BatchBuilder("t", b"", b"", rows_max=rows_max, bytes_max=bytes_max)

    batches = [full for row, at in rows if (full := builder.add(row, at))]
    batches += [rest] if (rest := builder.take()) else []

    assert [(r, t) for b in batches for r, t in zip(b.rows, b.timestamps, strict=True)] == rows
    assert all(len(batch.rows) <= rows_max for batch in batches)
    assert all(len(b.rows) == 1 or sum(map(len, b.rows)) <= bytes_max for b in batches)
    assert builder.take() is None


@given(ROWS, st.integers(10, 100))
def test_requests_keep_every_row_in_order(rows, bytes_max):
    batch = RowBatch("t", b"", b"", [row for row, _ in rows], [at for _, at in rows])

    parts, too_large = fitting(batch, bytes_max)

    assert [index for part in parts for index in part] == list(range(len(rows)))
    assert too_large == []


def test_only_rows_that_no_request_can_hold_are_too_large():
    big, too_big = b"x" * (ROW_BYTES_LIMIT - 10), b"x" * ROW_BYTES_LIMIT
    batch = RowBatch("t", b"", b"", [b"a", big, too_big, b"b"], [0] * 4)

    parts, too_large = fitting(batch, 2_000_000)

    assert [list(part) for part in parts] == [[0], [1], [3]]
    assert [index for index, _ in too_large] == [2]
