"""How fast the embedded BigQuery is, in a process of its own, and how much memory it takes.

    python tests/benchmarks/emulator.py

prints one JSON object of key to number. Each timing counts only if what was written or
served equals the rows that were made.
"""

import contextlib
import datetime
import decimal
import json
import pathlib
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import pyarrow as pa
from google.cloud.bigquery_storage_v1 import types

from bqflink_beam.names import TableReference
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import Anonymous
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

FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "user", "type": "STRING", "maxLength": "64"},
    {"name": "city", "type": "STRING"},
    {"name": "amount", "type": "NUMERIC"},
    {"name": "score", "type": "FLOAT64"},
    {"name": "active", "type": "BOOL"},
    {"name": "day", "type": "DATE"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "local", "type": "DATETIME"},
    {"name": "note", "type": "STRING"},
]
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
_CITIES = ("Amsterdam", "Nairobi", "Montevideo", "Osaka", "Tromsø")
_REQUEST_ROWS = 5_000
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


def rows(count: int) -> list[dict[str, Any]]:
    """Makes rows of about 100 bytes, the same ones every time."""
    chance = random.Random(1)
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc)
    made = []
    for number in range(count):
        at = start + datetime.timedelta(seconds=number, microseconds=chance.randrange(10**6))
        made.append(
            {
                "id": number,
                "user": f"user-{chance.randrange(10**6):07d}",
                "city": chance.choice(_CITIES),
                "amount": decimal.Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2),
                "score": chance.random() if number % 10 else None,
                "active": chance.random() < 0.5,
                "day": at.date(),
                "at": at,
                "local": at.replace(tzinfo=None),
                "note": f"order {number} is on its way" if number % 3 else None,
            }
        )
    return made


def proto_row(row: dict[str, Any]) -> bytes:
    """Serializes one row as Google's clients do: packed DATETIME, NUMERIC as bytes."""
    local = row["local"]
    packed = (
        (local.year << 26 | local.month << 22 | local.day << 17)
        | (local.hour << 12 | local.minute << 6 | local.second)
    ) << 20 | local.microsecond
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
    values = {
        **row,
        "amount": int(row["amount"].scaleb(9)).to_bytes(9, "little", signed=True),
        "day": (row["day"] - epoch.date()).days,
        "at": (row["at"] - epoch) // datetime.timedelta(microseconds=1),
        "local": packed,
    }
    return WRITER.row(**{name: value for name, value in values.items() if value is not None})


def arrow_batch(made: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    kinds = {
        "id": pa.int64(),
        "user": pa.string(),
        "city": pa.string(),
        "amount": pa.decimal128(38, 9),
        "score": pa.float64(),
        "active": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
        "note": pa.string(),
    }
    return pa.RecordBatch.from_pylist(list(made), schema=pa.schema(list(kinds.items())))


class Server:
    """An emulator process, and what it uses."""

    def __init__(self, *arguments: str) -> None:
        began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bqflink_beam", "emulator", "--port", "0"]
            + ["--storage-port", "0", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.seconds_to_start = time.monotonic() - began
        endpoints = dict(re.findall(r"(\w+)=(\S+)", line))
        self.storage = endpoints["storage"]
        self.connection = Connection(
            rest_endpoint=endpoints["rest"],
            storage_endpoint=self.storage,
            plaintext=True,
            credentials=Anonymous(),
        )

    def rss_bytes(self) -> int:
        text = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert match is not None
        return int(match[1]) * 1024

    def cpu_s(self) -> float:
        fields = (
            pathlib.Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        )
        return (int(fields[11]) + int(fields[12])) / 100

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Bench:
    """One server under measurement."""

    def __init__(self, server: Server, channel: grpc.Channel) -> None:
        self.server = server
        self.channel = channel
        self.bigquery = BigQuery(GrpcTransport(channel), None, None, None)  # type: ignore[arg-type]
        self._client = server.connection.open()
        self._tables = 0
        self.figures: dict[str, float] = {}

    def close(self) -> None:
        self._client.close()

    def new_table(self) -> TableReference:
        self._tables += 1
        reference = TableReference("p", "d", f"t{self._tables}")
        self._client.tables.create(reference, {"schema": {"fields": FIELDS}})
        return reference

    def timed(self, key: str, count: int, body: Any) -> Any:
        """Runs `body` and keeps rows per second, and the server's CPU for it."""
        cpu_s, began = self.server.cpu_s(), time.perf_counter()
        result = body()
        seconds = time.perf_counter() - began
        self.figures[key] = round(count / seconds)
        self.figures[key.replace("_rows_per_s", "_cpu_s")] = round(self.server.cpu_s() - cpu_s, 3)
        self.figures[key.replace("_rows_per_s", "_s")] = round(seconds, 3)
        return result

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

    def read_back(self, table: TableReference) -> pa.Table:
        session = self.bigquery.create_session(table)
        return self.rows_of(session, self.read_raw(session))


def _same(found: pa.Table, expected: pa.Table) -> bool:
    order = [("id", "ascending")]
    ours = found.sort_by(order).combine_chunks()
    return ours.cast(expected.schema).equals(expected.sort_by(order).combine_chunks())


def _proto_requests(stream: str, made: Sequence[dict[str, Any]]) -> list[bytes]:
    serialized = [proto_row(row) for row in made]
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
    for number in range(repeat):
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
        del number
    return requests


def _measure_appends(bench: Bench, count: int, key: str) -> None:
    made = rows(count)
    expected = pa.Table.from_batches([arrow_batch(made)])
    table = bench.new_table()
    requests = _proto_requests(table.default_stream, made)

    bench.timed(key, count, lambda: bench.append(requests))

    assert _same(bench.read_back(table), expected), "appended rows differ"


def _measure_arrow(bench: Bench, count: int) -> None:
    batch = arrow_batch(rows(count))
    repeat = 5
    table = bench.new_table()
    requests = _arrow_requests(table.default_stream, batch, repeat)
    base_bytes = bench.server.rss_bytes()

    bench.timed("emulator_arrow_append_rows_per_s", count * repeat, lambda: bench.append(requests))

    bench.figures["emulator_rss_per_stored_byte"] = round(
        (bench.server.rss_bytes() - base_bytes) / (batch.nbytes * repeat), 3
    )
    expected = pa.Table.from_batches([batch] * repeat)
    assert _same(bench.read_back(table), expected), "appended rows differ"
    session = bench.bigquery.create_session(table)
    responses = bench.timed(
        "emulator_arrow_rows_per_s", count * repeat, lambda: bench.read_raw(session)
    )
    served_bytes = sum(map(len, responses))
    bench.figures["emulator_arrow_mb_per_s"] = round(
        served_bytes / 1e6 / bench.figures["emulator_arrow_s"], 1
    )
    assert _same(bench.rows_of(session, responses), expected), "served rows differ"
    _measure_filtered(bench, table, expected)


def _measure_filtered(bench: Bench, table: TableReference, expected: pa.Table) -> None:
    def read() -> tuple[Any, list[bytes]]:
        session = bench.bigquery.create_session(table, row_restriction="active AND city != 'Osaka'")
        return session, bench.read_raw(session)

    session, responses = bench.timed("emulator_arrow_filtered_rows_per_s", expected.num_rows, read)

    import pyarrow.compute as pc

    kept = expected.filter(
        pc.and_(expected.column("active"), pc.not_equal(expected.column("city"), "Osaka"))
    )
    assert _same(bench.rows_of(session, responses), kept), "filtered rows differ"


@contextlib.contextmanager
def _bench(*arguments: str) -> Iterator[Bench]:
    server = Server(*arguments)
    with grpc.insecure_channel(server.storage, options=_OPTIONS) as channel:
        bench = Bench(server, channel)
        try:
            bench._client.tables  # noqa: B018
            yield bench
        finally:
            bench.close()
            server.stop()


def _start_s() -> float:
    """Returns how long a server takes from after the imports until it answers."""
    script = (
        "import time\n"
        "from bqflink_beam.emulator.server import EmulatorServer\n"
        "import bqflink_beam.emulator.sql\n"
        "began = time.monotonic()\n"
        "server = EmulatorServer().start()\n"
        "print(time.monotonic() - began, flush=True)\n"
        "server.stop()\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return float(answer.stdout)


def figures(count: int = 200_000) -> dict[str, float]:
    """Returns every figure of the embedded BigQuery, after checking what was read back."""
    found: dict[str, float] = {"emulator_start_s": round(_start_s(), 3)}
    with _bench() as bench:
        make_dataset(bench)
        _measure_appends(bench, count, "emulator_proto_append_rows_per_s")
        _measure_arrow(bench, count)
        found.update(bench.figures)
    with _bench("--validation", "off") as bench:
        make_dataset(bench)
        _measure_appends(bench, count, "emulator_proto_append_unvalidated_rows_per_s")
        found.update(bench.figures)
    return found


def make_dataset(bench: Bench) -> None:
    import urllib.request

    request = urllib.request.Request(
        f"{bench.server.connection.rest_endpoint}/bigquery/v2/projects/p/datasets",
        data=json.dumps({"datasetReference": {"projectId": "p", "datasetId": "d"}}).encode(),
        headers={"Content-Type": "application/json"},
    )
    urllib.request.urlopen(request).close()


if __name__ == "__main__":
    print(json.dumps(figures(), indent=2))
