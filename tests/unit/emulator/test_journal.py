"""The journal: what was acknowledged is there after a restart, what was cut off is not."""

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import threading
import urllib.request

import grpc
import pyarrow as pa
import pytest

from bqflink_beam import testing
from bqflink_beam.emulator.journal import _HEADER, _MAGIC, FileJournal
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store
from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance import kit
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids

T = TableReference("p", "d", "t")
SCHEMA = {"fields": [{"name": "n", "type": "INT64"}]}


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


def opened(folder: pathlib.Path) -> tuple[Store, FileJournal]:
    journal = FileJournal(folder)
    return Store(testing.FakeClock(), journal=journal), journal


def rows(store: Store) -> list[int]:
    return [r["n"] for r in store.require_table(T).snapshot().to_table().to_pylist()]


@pytest.fixture
def filled(tmp_path):
    store, journal = opened(tmp_path)
    store.create_dataset("p", "d")
    store.create_table(T, {"schema": SCHEMA}).append([batch(1, 2)])
    store.require_table(T).append([batch(3)])
    journal.close()
    return tmp_path


def test_everything_comes_back(filled):
    store, journal = opened(filled)

    assert rows(store) == [1, 2, 3]
    assert store.get_dataset("p", "d")["location"] == "US"
    journal.close()


@pytest.mark.parametrize("cut", [1, 7, 20, "head", "in the head"])
def test_a_record_that_was_cut_off_is_forgotten_and_others_follow_it(filled, cut):
    path = filled / "journal"
    sizes = record_sizes(path)
    left = {"head": 16, "in the head": 5}.get(cut, sizes[-1] - cut if cut in (1, 7, 20) else 0)
    os.truncate(path, path.stat().st_size - sizes[-1] + left)

    store, journal = opened(filled)
    assert rows(store) == [1, 2]
    store.require_table(T).append([batch(4)])
    journal.close()

    store, journal = opened(filled)
    assert rows(store) == [1, 2, 4]
    journal.close()


def record_sizes(path: pathlib.Path) -> list[int]:
    data, sizes, at = path.read_bytes(), [], len(_MAGIC)
    while at < len(data):
        sizes.append(_HEADER.size + _HEADER.unpack_from(data, at)[0])
        at += sizes[-1]
    return sizes


# A length that is damaged must not make all that follows look like a record cut short.
@pytest.mark.parametrize("byte", range(0, 40, 3))
def test_damage_in_the_middle_is_told_and_not_skipped(filled, byte):
    path = filled / "journal"
    data = bytearray(path.read_bytes())
    data[len(_MAGIC) + byte] ^= 0xFF
    path.write_bytes(data)

    for _ in range(2):  # the folder is free again
        with pytest.raises(ConfigError, match="damaged at byte"):
            testing.Emulator(data_dir=filled)

    assert path.read_bytes() == data


def test_zeros_at_the_end_are_cut_away(filled):
    path = filled / "journal"
    size = path.stat().st_size
    os.truncate(path, size + 3_000_000)

    store, journal = opened(filled)

    assert rows(store) == [1, 2, 3]
    assert path.stat().st_size == size
    journal.close()


def test_a_write_that_fails_half_way_leaves_the_journal_whole(filled):
    store, journal = opened(filled)
    size = (filled / "journal").stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, hard))
    try:
        with pytest.raises(Refused, match="cannot be written"):
            store.require_table(T).append([batch(*range(1000))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert (filled / "journal").stat().st_size == size + 100

    assert rows(store) == [1, 2, 3]
    store.require_table(T).append([batch(4)])
    journal.close()

    store, journal = opened(filled)
    assert rows(store) == [1, 2, 3, 4]
    journal.close()


def test_a_journal_that_is_closed_writes_into_no_other_file(filled, tmp_path_factory):
    store, journal = opened(filled)
    journal.close()
    path = tmp_path_factory.mktemp("other") / "file"
    with path.open("wb"), pytest.raises(Refused, match="cannot be written"):
        store.require_table(T).append([batch(4)])

    assert path.read_bytes() == b""
    assert rows(store) == [1, 2, 3]


def test_two_servers_do_not_share_a_folder(filled):
    journal = FileJournal(filled)

    with pytest.raises(ConfigError, match="in use"):
        FileJournal(filled)
    journal.close()


def test_a_file_that_is_no_journal_is_left_alone(tmp_path):
    (tmp_path / "journal").write_text("precious notes, nothing else")

    with pytest.raises(ConfigError, match="no journal"):
        FileJournal(tmp_path)

    assert (tmp_path / "journal").read_text() == "precious notes, nothing else"


def test_a_transaction_that_cannot_be_written_does_not_happen(tmp_path):
    class FullDisk:
        full = False

        def write(self, operations):
            if self.full:
                raise Refused("no space", code="UNAVAILABLE")

        def replay(self):
            return iter(())

    disk = FullDisk()
    store = Store(testing.FakeClock(), journal=disk)
    store.create_dataset("p", "d")
    table = store.create_table(T, {"schema": SCHEMA})
    disk.full = True

    with pytest.raises(Refused, match="no space"):
        table.append([batch(1)])

    disk.full = False
    assert rows(store) == []
    table.append([batch(2)])
    assert rows(store) == [2]


def test_streams_and_sessions_go_on_after_a_restart(tmp_path):
    def connect(server):
        channel = grpc.insecure_channel(server.storage_endpoint)
        return channel, kit.BigQuery(kit.GrpcTransport(channel), None, None, None)

    with testing.Emulator(data_dir=tmp_path) as server:
        server.create_table("p.d.t", FIELDS)
        channel, bigquery = connect(server)
        bigquery.append(T.default_stream, WRITER, ids(*range(10)))
        session = bigquery.create_session(T, row_restriction="id >= 5", streams_max=1)
        primary, remainder = bigquery.split(session.streams[0].name, 0.7)
        buffered = bigquery.create_stream(T, "BUFFERED")
        pending = bigquery.create_stream(T, "PENDING")
        for name in (buffered, pending):
            bigquery.append(name, WRITER, ids(20, 21), offset=0)
        bigquery.flush(buffered, 0)
        bigquery.finalize(pending)
        channel.close()

    with testing.Emulator(data_dir=tmp_path) as server:
        channel, bigquery = connect(server)
        again = bigquery.append(buffered, WRITER, ids(99), offset=0)
        bigquery.append(buffered, WRITER, ids(22), offset=2)
        bigquery.flush(buffered, 2)
        committed = bigquery.commit(T, pending)
        parts = [bigquery.stream_rows(session, name) for name in (primary, remainder)]
        channel.close()

        assert kit.error_of(again).code == "ALREADY_EXISTS"
        assert committed.HasField("commit_time")
        assert [[row["id"] for row in part] for part in parts] == [[5, 6], [7, 8, 9]]
        assert sorted(row["id"] for row in server.visible_rows("p.d.t")) == sorted(
            [*range(10), 20, 21, 20, 21, 22]
        )


def test_a_session_reads_the_rows_of_before_the_changes_also_after_a_restart(tmp_path):
    def connect(server):
        channel = grpc.insecure_channel(server.storage_endpoint)
        return channel, kit.BigQuery(kit.GrpcTransport(channel), None, None, None)

    def read():
        return [
            (row["id"], row["name"])
            for stream in session.streams
            for row in bigquery.stream_rows(session, stream.name)
        ]

    clock = testing.FakeClock()
    writer = kit.Writer(id="int64", name="string", _CHANGE_TYPE="string")
    with testing.Emulator(data_dir=tmp_path, clock=clock) as server:
        server.create_table("p.d.t", FIELDS, tableConstraints={"primaryKey": {"columns": ["id"]}})
        channel, bigquery = connect(server)
        bigquery.append(T.default_stream, WRITER, ids(1, 2, 3))
        clock.advance(1)
        session = bigquery.create_session(T)
        # In the same instant as the session.
        changes = [
            writer.row(id=2, name="new", _CHANGE_TYPE="UPSERT"),
            writer.row(id=3, _CHANGE_TYPE="DELETE"),
        ]
        bigquery.append(T.default_stream, writer, changes)
        before = read()
        channel.close()

    with testing.Emulator(data_dir=tmp_path, clock=clock) as server:
        channel, bigquery = connect(server)
        after = read()
        channel.close()

        assert before == after == [(1, None), (2, None), (3, None)]
        assert [(row["id"], row["name"]) for row in server.visible_rows("p.d.t")] == [
            (1, None),
            (2, "new"),
        ]


class Zygote:
    """Starts emulators in processes of their own, quickly."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(pathlib.Path(__file__).with_name("zygote.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, folder: pathlib.Path) -> "Process":
        arguments = {"data_dir": str(folder / "data"), "files_root": str(folder)}
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        lines = [self._process.stdout.readline() for _ in range(2)]
        return Process(dict(re.findall(r"(\w+)=(\S+)", " ".join(lines))))

    def stop(self) -> None:
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Process:
    """An emulator in a process of its own."""

    def __init__(self, endpoints: dict[str, str]) -> None:
        self.pid = int(endpoints["pid"])
        self.endpoints = endpoints

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.kill(self.pid, signal.SIGKILL)
                threading.Event().wait(0.005)

    def admin(self, path: str) -> object:
        with urllib.request.urlopen(self.endpoints["admin"] + path) as answer:
            return json.load(answer)

    def rest(self, path: str, body: dict | None = None) -> dict:
        request = urllib.request.Request(
            f"{self.endpoints['rest']}/bigquery/v2/projects/p/{path}",
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


LOADED_ROWS = 300
LATE_ROWS = 199


class Rounds:
    """Servers on one folder, each killed in the middle of something.

    Row ids: what a round appends on its own stream is ``round * 1000 + offset``; the
    request under way at the kill has negative ids; the load under way has ids from
    a million on.
    """

    def __init__(self, zygote: Zygote, folder: pathlib.Path) -> None:
        self._zygote = zygote
        self._folder = folder
        self._kept: dict[str, int] = {}

    def run(self, number: int) -> None:
        server = self._zygote.start(self._folder)
        channel = grpc.insecure_channel(server.endpoints["storage"])
        bigquery = kit.BigQuery(kit.GrpcTransport(channel), None, None, None)
        try:
            if number:
                self._check(server, number)
            else:
                self._make_table(server)
            if number % 2:
                self._append(bigquery, number)
                self._begin_load(server, number)
                self._send_late(bigquery, number)
            else:
                # The last thing before the kill is an answer that says: it is in.
                self._begin_load(server, number)
                self._load_is_done(server, number)
                self._append(bigquery, number)
        finally:
            server.kill()
            channel.close()

    def finish(self, rounds: int) -> None:
        server = self._zygote.start(self._folder)
        try:
            self._check(server, rounds)
        finally:
            server.kill()

    def _make_table(self, server: Process) -> None:
        server.rest("datasets", {"datasetReference": {"projectId": "p", "datasetId": "d"}})
        reference = {"projectId": "p", "datasetId": "d", "tableId": "t"}
        server.rest(
            "datasets/d/tables", {"tableReference": reference, "schema": {"fields": FIELDS}}
        )

    def _append(self, bigquery: kit.BigQuery, number: int) -> None:
        kind = ("COMMITTED", "BUFFERED", "PENDING")[number % 3]
        stream = bigquery.create_stream(T, kind)
        with bigquery.connection() as append:
            for offset in range(20):
                row = WRITER.row(id=number * 1000 + offset)
                name = "" if offset else stream
                request = kit.append_request(name, [row], writer=WRITER, offset=offset)
                assert kit.offset_of(append(request)) == offset
        if kind == "BUFFERED":
            bigquery.flush(stream, 19)
        if kind == "PENDING":
            bigquery.finalize(stream)
            bigquery.commit(T, stream)
        self._kept[stream] = 20

    def _send_late(self, bigquery: kit.BigQuery, number: int) -> None:
        """Sends a request that is under way when the server dies: it may be in, whole, or not."""
        rows = [WRITER.row(id=-number * 1000 - part) for part in range(1, LATE_ROWS + 1)]
        request = kit.append_request(T.default_stream, rows, writer=WRITER)
        bigquery.transport.append_rows().send(request)

    def _begin_load(self, server: Process, number: int) -> None:
        path = self._folder / f"{number}.json"
        first = 1_000_000 + number * 1000
        path.write_text("".join(f'{{"id": {first + row}}}\n' for row in range(LOADED_ROWS)))
        load = {
            "sourceUris": [path.as_uri()],
            "sourceFormat": "NEWLINE_DELIMITED_JSON",
            "destinationTable": {"projectId": "p", "datasetId": "d", "tableId": "t"},
            "writeDisposition": "WRITE_APPEND",
        }
        reference = {"projectId": "p", "jobId": f"load-{number}", "location": "US"}
        server.rest("jobs", {"jobReference": reference, "configuration": {"load": load}})

    def _check(self, server: Process, rounds: int) -> None:
        states = {state["name"]: state for state in server.admin("/streams?table=p.d.t")}
        assert {name: states[name]["rows"] for name in self._kept} == self._kept
        done = [self._load_is_done(server, number) for number in range(rounds)]
        cells = [int(row["f"][0]["v"]) for row in server.admin("/rows?table=p.d.t")]
        assert len(cells) == len(set(cells)), "a row is there twice"
        appended = sorted(number for number in cells if 0 <= number < 1_000_000)
        assert appended == [r * 1000 + offset for r in range(rounds) for offset in range(20)]
        late = [number for number in cells if number < 0]
        assert len(late) % LATE_ROWS == 0, "half of a request is there"
        loaded = [sum(c // 1000 == 1000 + r for c in cells) for r in range(rounds)]
        assert loaded == [LOADED_ROWS if each else 0 for each in done]

    def _load_is_done(self, server: Process, number: int) -> bool:
        """Waits for a load that was acknowledged before a kill; tells whether it succeeded."""
        for _ in range(1_000):
            status = server.rest(f"jobs/load-{number}?location=US")["status"]
            if status["state"] == "DONE":
                return "errorResult" not in status
            threading.Event().wait(0.01)
        raise AssertionError(f"load {number} never ends")


@pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=pytest.mark.long)])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path, rounds):
    zygote = Zygote()
    try:
        killed = Rounds(zygote, tmp_path)
        for number in range(rounds):
            killed.run(number)
        killed.finish(rounds)
    finally:
        zygote.stop()
