"""How fast the embedded BigQuery is, in a process of its own, and how much memory it takes.

Each timing counts only if what was written or served equals the rows that were made.
"""

import contextlib
import dataclasses
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.data import FIELDS, arrow_batch, hash_of, in_order, proto_values, rows
from benchmarks.figures import Figure, check
from benchmarks.raw_client import channel_to
from benchmarks.server import Server
from google.cloud.bigquery_storage_v1 import types

import bqflink_beam as bq
from bqflink_beam.testing.conformance.kit import (
    READ,
    WRITE,
    BigQuery,
    GrpcTransport,
    Writer,
    append_request,
    arrow_schema,
    message,
)

ROWS = 200_000
ROUNDS = 3
WRITER = Writer(
    id="int64",
    user="string",
    city="string",
    amount="bytes",
    score="double",
    active="bool",
    day="int32",
    at="int64",
    local="int64",
    note="string",
)
_REQUEST_ROWS = 5_000
_ARROW_COPIES = 5


class Bench:
    """One server under measurement."""

    def __init__(self, server: Server, channel: grpc.Channel) -> None:
        self.server = server
        self.channel = channel
        self.bigquery = BigQuery(GrpcTransport(channel), None, None, None)  # type: ignore[arg-type]
        self.figures: list[Figure] = []

    def timed(
        self,
        key: str,
        body: Callable[[], Any],
        found: Callable[[Any], pa.Table],
        expected: pa.Table,
        *,
        of: int | None = None,
    ) -> Figure:
        """Runs `body` and keeps rows per second, if `found` says that the rows are `expected`.

        `of`: how many rows were gone through, if not those expected.
        """
        count = of or expected.num_rows
        server_s, cpu_s, began = self.server.cpu_s(), time.process_time(), time.perf_counter()
        result = body()
        seconds = time.perf_counter() - began
        figure = Figure(
            key=key,
            value=count / seconds,
            rows=count,
            seconds=seconds,
            cpu_s=time.process_time() - cpu_s,
            server_cpu_s=self.server.cpu_s() - server_s,
            readback=hash_of(expected),
            wall=True,
        )
        check(key, found(result), expected)
        self.figures.append(figure)
        return figure

    def append(self, requests: Sequence[bytes]) -> None:
        """Sends requests without waiting in between; every answer must be good."""
        call = self.channel.stream_stream(
            f"/{WRITE}/AppendRows",
            response_deserializer=types.AppendRowsResponse.pb().FromString,
        )
        for answer in call(iter(requests)):
            assert answer.WhichOneof("response") == "append_result", answer

    def read_raw(self, session: Any) -> list[bytes]:
        """Reads all streams of a session; returns the responses, still serialized."""
        call = self.channel.unary_stream(
            f"/{READ}/ReadRows",
            request_serializer=types.ReadRowsRequest.pb().SerializeToString,
        )
        return [
            data
            for stream in session.streams
            for data in call(message("ReadRowsRequest", read_stream=stream.name))
        ]

    def rows_of(self, session: Any, responses: Sequence[bytes]) -> pa.Table:
        schema = arrow_schema(session)
        parse = types.ReadRowsResponse.pb().FromString
        batches = [
            pa.ipc.read_record_batch(
                pa.py_buffer(parse(data).arrow_record_batch.serialized_record_batch), schema
            )
            for data in responses
        ]
        return pa.Table.from_batches(batches, schema)

    def read_back(self, table: bq.TableReference) -> pa.Table:
        session = self.bigquery.create_session(table)
        return self.rows_of(session, self.read_raw(session))


def _proto_requests(stream: str, made: Sequence[dict[str, Any]]) -> list[bytes]:
    serialized = [WRITER.row(**proto_values(row)) for row in made]
    return [
        append_request(
            stream if not start else "",
            serialized[start : start + _REQUEST_ROWS],
            writer=WRITER if not start else None,
        ).SerializeToString()
        for start in range(0, len(serialized), _REQUEST_ROWS)
    ]


def _arrow_requests(stream: str, batch: pa.RecordBatch, repeat: int) -> list[bytes]:
    requests = []
    for _ in range(repeat):
        for start in range(0, batch.num_rows, 4 * _REQUEST_ROWS):
            piece = batch.slice(start, 4 * _REQUEST_ROWS)
            request = message("AppendRowsRequest")
            if not requests:
                request.write_stream = stream
                request.arrow_rows.writer_schema.serialized_schema = (
                    batch.schema.serialize().to_pybytes()
                )
            request.arrow_rows.rows.serialized_record_batch = piece.serialize().to_pybytes()
            requests.append(request.SerializeToString())
    return requests


def _measure_appends(bench: Bench, made: Sequence[dict[str, Any]], key: str) -> None:
    table = bench.server.new_table(FIELDS)
    requests = _proto_requests(table.default_stream, made)
    expected = in_order(pa.Table.from_batches([arrow_batch(made)]))

    bench.timed(key, lambda: bench.append(requests), lambda _: bench.read_back(table), expected)


def _measure_arrow(bench: Bench, made: Sequence[dict[str, Any]]) -> None:
    batch = arrow_batch(made)
    table = bench.server.new_table(FIELDS)
    requests = _arrow_requests(table.default_stream, batch, _ARROW_COPIES)
    expected = in_order(pa.Table.from_batches([batch] * _ARROW_COPIES))
    base_bytes = bench.server.rss_bytes()
    stored_bytes: list[int] = []

    def read_back(_: None) -> pa.Table:
        stored_bytes.append(bench.server.rss_bytes() - base_bytes)
        return bench.read_back(table)

    appended = bench.timed(
        "emulator_arrow_append_rows_per_s", lambda: bench.append(requests), read_back, expected
    )
    bench.figures.append(
        dataclasses.replace(
            appended,
            key="emulator_rss_per_stored_byte",
            value=stored_bytes[0] / (batch.nbytes * _ARROW_COPIES),
            wall=False,
        )
    )
    _measure_serving(bench, table, expected)
    _measure_filtered(bench, table, expected)


def _measure_serving(bench: Bench, table: bq.TableReference, expected: pa.Table) -> None:
    session = bench.bigquery.create_session(table)
    responses: list[bytes] = []
    served = bench.timed(
        "emulator_arrow_rows_per_s",
        lambda: responses.extend(bench.read_raw(session)),
        lambda _: bench.rows_of(session, responses),
        expected,
    )
    bench.figures.append(
        dataclasses.replace(
            served,
            key="emulator_arrow_mb_per_s",
            value=sum(map(len, responses)) / 1e6 / served.seconds,
        )
    )


def _measure_filtered(bench: Bench, table: bq.TableReference, expected: pa.Table) -> None:
    def read() -> tuple[Any, list[bytes]]:
        session = bench.bigquery.create_session(table, row_restriction="active AND city != 'Osaka'")
        return session, bench.read_raw(session)

    kept = expected.filter(
        pc.and_(expected.column("active"), pc.not_equal(expected.column("city"), "Osaka"))
    )
    bench.timed(
        "emulator_arrow_filtered_rows_per_s",
        read,
        lambda answer: bench.rows_of(*answer),
        in_order(kept),
        of=expected.num_rows,
    )


@contextlib.contextmanager
def _bench(*arguments: str) -> Iterator[Bench]:
    server = Server(*arguments)
    try:
        with channel_to(server.storage) as channel:
            yield Bench(server, channel)
    finally:
        server.stop()


def _start() -> Figure:
    """Returns how long a server takes from after the imports until it answers."""
    script = (
        "import time\n"
        "from bqflink_beam.emulator.server import EmulatorServer\n"
        "import bqflink_beam.emulator.sql\n"
        "began, cpu_s = time.monotonic(), time.process_time()\n"
        "server = EmulatorServer().start()\n"
        "print(time.monotonic() - began, time.process_time() - cpu_s, flush=True)\n"
        "server.stop()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    seconds, cpu_s = map(float, answer.stdout.split())
    return Figure(
        key="emulator_start_s",
        value=seconds,
        rows=0,
        seconds=seconds,
        cpu_s=0.0,
        server_cpu_s=cpu_s,
        wall=True,
    )


def _round(made: Sequence[dict[str, Any]]) -> list[Figure]:
    found = [_start()]
    with _bench() as bench:
        _measure_appends(bench, made, "emulator_proto_append_rows_per_s")
        _measure_arrow(bench, made)
        found += bench.figures
    with _bench("--validation", "off") as bench:
        _measure_appends(bench, made, "emulator_proto_append_unvalidated_rows_per_s")
        found += bench.figures
    return found


def figures() -> list[Figure]:
    """Returns every figure of the embedded BigQuery: of each, the round in the middle."""
    made = rows(ROWS)
    rounds = [_round(made) for _ in range(ROUNDS)]
    return [_middle(same) for same in zip(*rounds, strict=True)]


def _middle(same: Sequence[Figure]) -> Figure:
    values = [figure.value for figure in same]
    middle = same[values.index(statistics.median_low(values))]
    return dataclasses.replace(middle, spread=(max(values) - min(values)) / middle.value)
