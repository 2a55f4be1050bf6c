"""How fast whole pipelines read and write, beside Google's client and Beam's own transforms.

Everything runs on one emulator in a process of its own, with the same rows, in turn.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import grpc
import pyarrow as pa
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from benchmarks import beam_own, raw_client
from benchmarks.data import ARROW_SCHEMA, FIELDS, arrow_batch, in_order, proto_values, rows
from benchmarks.figures import Contest, Figure, Way, all_cpu, contest, cpu, wall
from benchmarks.server import PROJECT, Server

import bqflink_beam as bq

Method = bq.AtLeastOnce | bq.ExactlyOnce

ROWS = 100_000
ROUNDS = 3
# Beam's streaming inserts measure each row with `objsize`, at about a millisecond a row.
_INSERT_ROWS = 4_000
_LOAD_ROWS = 50_000
_ARROW_COPIES = 20
_REQUEST_ROWS = 10_000

# The runner works in this process, so a step can take rows from here, and leave them here.
# Not in a module that is run as __main__: that is pickled with all it holds.
_given: list[dict[str, Any]] = []
_kept: list[Any] = []


class _GiveFn(beam.DoFn):
    def process(self, element: bytes) -> Iterator[dict[str, Any]]:
        yield from _given


class _KeepFn(beam.DoFn):
    def process(self, element: Any) -> None:
        _kept.append(element)


class Bench:
    """The ways of reading and writing, on one server."""

    def __init__(self, server: Server, channel: grpc.Channel) -> None:
        self._server = server
        self._channel = channel

    def figures(self) -> list[Figure]:
        made = rows(ROWS)
        _given[:] = made
        writes, table = self._writes(made)
        dicts = self._dicts(table, in_order(pa.Table.from_batches([arrow_batch(made)])))
        batches = self._batches(made)
        inserts = self._peer(made[:_INSERT_ROWS], bq.AtLeastOnce(), beam_own.streaming_inserts)
        loads = self._peer(made[:_LOAD_ROWS], bq.ExactlyOnce(), beam_own.file_loads)
        return [
            dicts.rate("read_dict_rows_per_s", "ours"),
            dicts.rate("read_dict_rows_per_cpu_s", "ours", per_cpu=True),
            dicts.ratio("read_dict_vs_raw_client", "ours", "raw", cpu),
            dicts.ratio("read_dict_vs_beam_direct_read", "ours", "beam", cpu),
            batches.rate("read_arrow_rows_per_s", "ours"),
            batches.ratio("read_arrow_vs_raw_client", "ours", "raw", cpu),
            writes.rate("write_at_least_once_rows_per_s", "at least once"),
            writes.rate("write_at_least_once_rows_per_cpu_s", "at least once", per_cpu=True),
            writes.rate("write_exactly_once_bounded_rows_per_s", "exactly once"),
            writes.rate("write_exactly_once_bounded_rows_per_cpu_s", "exactly once", per_cpu=True),
            writes.ratio("write_vs_raw_append", "at least once", "ready bytes", wall),
            writes.ratio("write_vs_raw_append_cpu", "at least once", "ready bytes", all_cpu),
            writes.ratio("write_vs_encode_and_append_cpu", "at least once", "by hand", cpu),
            inserts.ratio("write_at_least_once_vs_beam_streaming_inserts", "ours", "beam", cpu),
            loads.ratio("write_exactly_once_vs_beam_file_loads", "ours", "beam", cpu),
        ]

    def _dicts(self, table: str, expected: pa.Table) -> Contest:
        ways = [
            Way("ours", self._read_with(self._ours), _of_dicts),
            Way("raw", lambda name: raw_client.read_dicts(self._channel, name), _of_dicts),
            Way("beam", self._read_with(beam_own.direct_read), _of_dicts),
        ]
        return contest(self._server, ways, table=lambda: table, expected=expected, rounds=ROUNDS)

    def _batches(self, made: list[dict[str, Any]]) -> Contest:
        table = str(self._server.new_table(FIELDS))
        for _ in range(_ARROW_COPIES):
            raw_client.append(self._channel, table, _encoded(made), _REQUEST_ROWS)
        ways = [
            Way("ours", self._read_with(lambda name: self._ours(name, "arrow")), _of_batches),
            Way("raw", lambda name: raw_client.read_batches(self._channel, name), _of_batches),
        ]
        expected = in_order(pa.Table.from_batches([arrow_batch(made)] * _ARROW_COPIES))
        return contest(self._server, ways, table=lambda: table, expected=expected, rounds=ROUNDS)

    def _writes(self, made: list[dict[str, Any]]) -> tuple[Contest, str]:
        """Returns the last table that was written, too."""
        ready = _encoded(made)
        tables: list[str] = []

        def new_table() -> str:
            tables.append(str(self._server.new_table(FIELDS)))
            return tables[-1]

        def append(name: str, encoded: list[bytes]) -> None:
            raw_client.append(self._channel, name, encoded, _REQUEST_ROWS)

        ways = [
            self._write("at least once", bq.AtLeastOnce()),
            self._write("exactly once", bq.ExactlyOnce()),
            Way("ready bytes", lambda name: append(name, ready), self._stored),
            Way("by hand", lambda name: append(name, _encoded(made)), self._stored),
        ]
        expected = in_order(pa.Table.from_batches([arrow_batch(made)]))
        done = contest(self._server, ways, table=new_table, expected=expected, rounds=ROUNDS)
        return done, tables[-1]

    def _peer(self, made: list[dict[str, Any]], method: Method, beams: Any) -> Contest:
        """Writes with ours and with one of Beam's own."""
        _given[:] = made
        ways = [
            self._write("ours", method),
            Way("beam", lambda name: _run(_Give() | "Write" >> beams(name)), self._stored),
        ]
        return contest(
            self._server,
            ways,
            table=lambda: str(self._server.new_table(FIELDS)),
            expected=in_order(pa.Table.from_batches([arrow_batch(made)])),
            rounds=ROUNDS,
        )

    def _ours(self, table: str, output: str = "dict") -> beam.PTransform:
        return bq.ReadFromBigQueryStorage(table, output=output, connection=self._server.connection)

    def _write(self, name: str, method: Method) -> Way:
        def run(table: str) -> None:
            write = bq.WriteToBigQueryStorage(
                table, method=method, connection=self._server.connection
            )
            _run(_Give() | write)

        return Way(name, run, self._stored)

    def _stored(self, table: str, _: Any) -> pa.Table:
        return _of_batches(table, raw_client.read_batches(self._channel, table))

    @staticmethod
    def _read_with(transform: Any) -> Any:
        def run(table: str) -> list[Any]:
            _kept.clear()
            _run(transform(table) | beam.ParDo(_KeepFn()))
            found = list(_kept)
            _kept.clear()
            return found

        return run


class _Give(beam.PTransform):
    """The rows to write, as any step before a write would give them."""

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        return begin | beam.Impulse() | beam.ParDo(_GiveFn())


def _run(steps: beam.PTransform) -> None:
    options = PipelineOptions(project=PROJECT, temp_location="gs://bench/temp")
    with beam.Pipeline(runner=FnApiRunner(), options=options) as pipeline:
        _ = pipeline | steps


def _encoded(made: list[dict[str, Any]]) -> list[bytes]:
    return [raw_client.Row(**proto_values(row)).SerializeToString() for row in made]


def _of_batches(_: str, found: list[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(found)


def _of_dicts(_: str, found: list[dict[str, Any]]) -> pa.Table:
    # Beam reads Avro, where a DATETIME is text.
    if isinstance(found[0]["local"], str):
        texts = pa.array([row["local"] for row in found]).cast(pa.timestamp("us"))
        rest = pa.Table.from_pylist(found, schema=ARROW_SCHEMA.remove(8))
        return rest.add_column(8, ARROW_SCHEMA.field("local"), texts)
    return pa.Table.from_pylist(found, schema=ARROW_SCHEMA)


@contextlib.contextmanager
def _bench() -> Iterator[Bench]:
    server = Server()
    try:
        with raw_client.channel_to(server.storage) as channel, beam_own.pointed_at(server):
            yield Bench(server, channel)
    finally:
        server.stop()


def figures() -> list[Figure]:
    with _bench() as bench:
        return bench.figures()
