"""What the codecs cost, as ratios within one run: CPU time, all refusals on.

Each function returns one figure with what is behind it. The row has ten columns of
mixed types; the limit of each figure is the least that Python can do for it.
"""

import datetime
import decimal
import gc
import random
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from benchmarks.figures import Figure, Unequal

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
from bqflink_beam.codec.batch_to_proto import BatchToProto
from bqflink_beam.codec.proto import RowDecoder, RowEncoder
from bqflink_beam.schema import proto
from bqflink_beam.schema.model import Field, TableSchema

ROWS = 20_000
_ROUNDS = 7
_UTC = datetime.timezone.utc
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)

SCHEMA = TableSchema(
    (
        Field(name="id", type="INT64"),
        Field(name="name", type="STRING"),
        Field(name="active", type="BOOL"),
        Field(name="score", type="FLOAT64"),
        Field(name="amount", type="NUMERIC"),
        Field(name="created", type="TIMESTAMP"),
        Field(name="day", type="DATE"),
        Field(name="payload", type="BYTES"),
        Field(name="tags", type="STRING", mode="REPEATED"),
        Field(
            name="address",
            type="STRUCT",
            fields=(Field(name="city", type="STRING"), Field(name="zip", type="INT64")),
        ),
    )
)


def make_rows(count: int) -> list[dict[str, Any]]:
    """Returns rows of `SCHEMA`, the same for the same count."""
    chance = random.Random(count)
    first = datetime.datetime(2024, 1, 1, tzinfo=_UTC)
    rows = []
    for index in range(count):
        created = first + datetime.timedelta(microseconds=chance.randrange(10**13))
        place = {"city": f"city{chance.randrange(1_000)}", "zip": chance.randrange(99_999)}
        rows.append(
            {
                "id": index,
                "name": f"name-{chance.randrange(10**15):015d}",
                "active": chance.random() < 0.5,
                "score": chance.random() * 1_000,
                "amount": decimal.Decimal(chance.randrange(10**9)).scaleb(-2),
                "created": created,
                "day": created.date(),
                "payload": chance.randbytes(16),
                "tags": [f"tag{chance.randrange(100)}" for _ in range(chance.randrange(4))],
                "address": None if chance.random() < 0.1 else place,
            }
        )
    return rows


def proto_encode_vs_upb() -> Figure:
    """Rows to proto, against protobuf alone on values that are ready for it."""
    rows = make_rows(ROWS)
    encoder = RowEncoder(SCHEMA)
    decoder = RowDecoder(SCHEMA, encoder.descriptor)
    class_ = proto.message_class(encoder.descriptor)
    ready = [_ready(row) for row in rows]
    equal = [decoder.decode(encoder.encode(row)) for row in rows] == rows
    return _figure(
        "proto_encode_vs_upb",
        lambda: [class_(**row).SerializeToString() for row in ready],
        lambda: [encoder.encode(row) for row in rows],
        equal,
    )


def arrow_encode_vs_from_pylist() -> Figure:
    """Rows to batches of 1,000, against pyarrow's own reading of dicts, which checks less."""
    parts = _parts(make_rows(ROWS))
    encoder = BatchEncoder(SCHEMA)
    decoder = BatchDecoder(encoder.arrow_schema)
    equal = [decoder.rows(encoder.encode(part)) for part in parts] == parts
    return _figure(
        "arrow_encode_vs_from_pylist",
        lambda: [pa.RecordBatch.from_pylist(part, schema=encoder.arrow_schema) for part in parts],
        lambda: [encoder.encode(part) for part in parts],
        equal,
    )


def arrow_decode_vs_to_pylist() -> Figure:
    """Batches of 1,000 to rows, against pyarrow's own."""
    parts = _parts(make_rows(ROWS))
    encoder = BatchEncoder(SCHEMA)
    decoder = BatchDecoder(encoder.arrow_schema)
    batches = [encoder.encode(part) for part in parts]
    equal = [decoder.rows(batch) for batch in batches] == parts
    return _figure(
        "arrow_decode_vs_to_pylist",
        lambda: [batch.to_pylist() for batch in batches],
        lambda: [decoder.rows(batch) for batch in batches],
        equal,
    )


def batch_to_proto_vs_dicts() -> Figure:
    """Batches of 1,000 straight to proto rows, against our own way through dicts."""
    parts = _parts(make_rows(ROWS))
    batches_of, rows_of = BatchEncoder(SCHEMA), RowEncoder(SCHEMA)
    decoder = BatchDecoder(batches_of.arrow_schema)
    direct = BatchToProto(batches_of.arrow_schema, SCHEMA)
    reader = RowDecoder(SCHEMA, direct.descriptor)
    batches = [batches_of.encode(part) for part in parts]
    equal = [[reader.decode(data) for data in direct.encode(each)] for each in batches] == parts
    return _figure(
        "batch_to_proto_vs_dicts",
        lambda: [[rows_of.encode(row) for row in decoder.rows(batch)] for batch in batches],
        lambda: [direct.encode(batch) for batch in batches],
        equal,
    )


def wide_row_vs_narrow() -> Figure:
    """A row of 10 columns, times 100, against a row of 1,000: at least 1/1.1."""
    narrow, wide = _Integers(10), _Integers(1_000)
    return _figure(
        "wide_row_vs_narrow",
        lambda: [narrow.encode() for _ in range(10_000)],
        lambda: [wide.encode() for _ in range(100)],
        narrow.comes_back() and wide.comes_back(),
        rows=100,
    )


ALL: tuple[Callable[[], Figure], ...] = (
    proto_encode_vs_upb,
    arrow_encode_vs_from_pylist,
    arrow_decode_vs_to_pylist,
    batch_to_proto_vs_dicts,
    wide_row_vs_narrow,
)


class _Integers:
    """One row of so many INT64 columns, and its encoder."""

    def __init__(self, columns: int) -> None:
        names = [f"c{index}" for index in range(columns)]
        self._schema = TableSchema(tuple(Field(name=name, type="INT64") for name in names))
        self._encoder = RowEncoder(self._schema)
        self._row = dict(zip(names, range(columns), strict=True))

    def encode(self) -> bytes:
        return self._encoder.encode(self._row)

    def comes_back(self) -> bool:
        decoder = RowDecoder(self._schema, self._encoder.descriptor)
        return decoder.decode(self.encode()) == self._row


def _ready(row: dict[str, Any]) -> dict[str, Any]:
    since = row["created"] - _EPOCH
    micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    day = row["day"].toordinal() - 719_163
    return {**row, "amount": str(row["amount"]), "created": micros, "day": day}


def _parts(rows: list[Any], size: int = 1_000) -> list[list[Any]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def _figure(
    name: str,
    limit: Callable[[], Any],
    ours: Callable[[], Any],
    equal: bool,
    *,
    rows: int = ROWS,
) -> Figure:
    """Runs both in turn, so that a slower moment of the machine meets both; the best of each counts."""
    if not equal:
        raise Unequal(f"{name}: the rows decoded are not those encoded")
    start = time.perf_counter()
    rounds = [(_cpu_s(limit), _cpu_s(ours)) for _ in range(_ROUNDS)]
    seconds = time.perf_counter() - start
    limit_s, ours_s = (min(each[side] for each in rounds) for side in (0, 1))
    ratios = [each[0] / each[1] for each in rounds]
    return Figure(
        key=name,
        value=limit_s / ours_s,
        rows=rows,
        seconds=seconds,
        cpu_s=ours_s,
        spread=(max(ratios) - min(ratios)) / (limit_s / ours_s),
    )


def _cpu_s(work: Callable[[], Any]) -> float:
    gc.collect()
    start = time.process_time()
    work()
    return time.process_time() - start


def figures() -> list[Figure]:
    return [measure() for measure in ALL]
