"""The journal: what was acknowledged is there after a restart, what was cut off is not."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import urllib.request

import grpc
import pyarrow as pa
import pytest

from bqflink_beam import testing
from bqflink_beam.emulator.journal import FileJournal
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


@pytest.mark.parametrize("cut", [1, 7, 20])
def test_a_record_that_was_cut_off_is_forgotten_and_others_follow_it(filled, cut):
    path = filled / "journal"
    os.truncate(path, path.stat().st_size - cut)

    store, journal = opened(filled)
    assert rows(store) == [1, 2]
    store.require_table(T).append([batch(4)])
    journal.close()

    store, journal = opened(filled)
    assert rows(store) == [1, 2, 4]
    journal.close()


def test_damage_in_the_middle_is_told_and_not_skipped(filled):
    path = filled / "journal"
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)

    journal = FileJournal(filled)
    with pytest.raises(ConfigError, match="damaged at byte"):
        Store(testing.FakeClock(), journal=journal)
    journal.close()


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


class Process:
    """An emulator in a process of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bqflink_beam", "emulator", "--port", "0"]
            + ["--storage-port", "0", "--admin-port", "0", "--data-dir", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        line = self.process.stdout.readline()
        self.endpoints = dict(re.findall(r"(\w+)=(\S+)", line))

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdout.close()

    def admin(self, path: str) -> object:
        with urllib.request.urlopen(self.endpoints["admin"] + path) as answer:
            return json.load(answer)


def kill_round(folder: pathlib.Path, number: int, kept: dict[str, int]) -> None:
    """Starts a server, checks what should be there, appends until it is killed."""
    server = Process(folder)
    channel = grpc.insecure_channel(server.endpoints["storage"])
    bigquery = kit.BigQuery(kit.GrpcTransport(channel), None, None, None)
    try:
        if number:
            check_kept(server, kept)
        else:
            make_table(server)
        stream = bigquery.create_stream(T, ("COMMITTED", "BUFFERED", "PENDING")[number % 3])
        append_until_killed(server, bigquery, stream, number, kept)
    finally:
        server.kill()
        channel.close()


def make_table(server: Process) -> None:
    def post(path: str, body: dict) -> None:
        request = urllib.request.Request(
            server.endpoints["rest"] + path,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()

    post(
        "/bigquery/v2/projects/p/datasets",
        {"datasetReference": {"projectId": "p", "datasetId": "d"}},
    )
    reference = {"projectId": "p", "datasetId": "d", "tableId": "t"}
    post(
        "/bigquery/v2/projects/p/datasets/d/tables",
        {"tableReference": reference, "schema": {"fields": FIELDS}},
    )


def append_until_killed(server, bigquery, stream, number, kept) -> None:
    """Appends and flushes or commits; kills the server while a request is under way."""
    acknowledged = 0
    kind = ("COMMITTED", "BUFFERED", "PENDING")[number % 3]
    with bigquery.connection() as append:
        for offset in range(20):
            row = WRITER.row(id=number * 1000 + offset)
            answer = append(
                kit.append_request(
                    stream if not offset else "", [row], writer=WRITER, offset=offset
                )
            )
            assert kit.offset_of(answer) == offset
            acknowledged = offset + 1
    if kind == "BUFFERED":
        bigquery.flush(stream, acknowledged - 1)
    if kind == "PENDING":
        bigquery.finalize(stream)
        bigquery.commit(T, stream)
    kept[stream] = acknowledged
    # One more, under way when the server dies: it may be in, whole, or not.
    late = bigquery.transport.append_rows()
    rows = [WRITER.row(id=-number * 1000 - part) for part in range(1, 200)]
    late.send(kit.append_request(T.default_stream, rows, writer=WRITER))
    os.kill(server.process.pid, signal.SIGKILL)


def check_kept(server: Process, kept: dict[str, int]) -> None:
    states = {state["name"]: state for state in server.admin("/streams?table=p.d.t")}
    assert {name: states[name]["rows"] for name in kept} == kept
    cells = [int(row["f"][0]["v"]) for row in server.admin("/rows?table=p.d.t")]
    assert len(cells) == len(set(cells)), "a row is there twice"
    whole = sorted(number for number in cells if number >= 0)
    rounds = len(kept)
    assert whole == [r * 1000 + offset for r in range(rounds) for offset in range(20)]
    late = [number for number in cells if number < 0]
    assert len(late) % 199 == 0, "half of a request is there"


@pytest.mark.parametrize("rounds", [4, pytest.param(50, marks=pytest.mark.long)])
def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path, rounds):
    kept: dict[str, int] = {}

    for number in range(rounds):
        kill_round(tmp_path, number, kept)

    server = Process(tmp_path)
    try:
        check_kept(server, kept)
    finally:
        server.kill()
