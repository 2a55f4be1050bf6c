"""Many at once: no caller starves, nothing locks up, every acknowledged row is there."""

import collections
import concurrent.futures
import contextlib
import dataclasses
import sys
import threading
import time
import uuid

import grpc
import pytest

from bqflink_beam import testing
from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    GrpcTransport,
    Writer,
    append_request,
    error_of,
    message,
    offset_of,
)
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids

T = TableReference("p", "d", "t")
# A channel carries a hundred calls at once by default, so many callers need many channels.
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


@pytest.fixture
def server():
    with testing.Emulator() as server:
        server.create_table(str(T), FIELDS)
        yield server


@contextlib.contextmanager
def connect(server):
    with grpc.insecure_channel(server.storage_endpoint, options=OPTIONS) as channel:
        yield BigQuery(GrpcTransport(channel), None, None, None)


def test_500_open_connections_do_not_starve_a_unary_call(server):
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(10)]
        for number in range(500):
            append = stack.enter_context(clients[number % 10].connection())
            answer = append(append_request(T.default_stream, ids(number), writer=WRITER))
            assert answer.WhichOneof("response") == "append_result"

        began = time.monotonic()
        found = clients[0].get_stream(T.default_stream)
        seconds = time.monotonic() - began

        assert found.type_ == 1
        assert seconds < 5
    assert sorted(row["id"] for row in server.visible_rows(T)) == list(range(500))


@pytest.mark.parametrize("seconds", [5.0, pytest.param(60.0, marks=pytest.mark.long)])
def test_writers_readers_and_queries_at_once(server, seconds):
    until = time.monotonic() + seconds
    written: collections.Counter[int] = collections.Counter()
    lock = threading.Lock()

    def keep(numbers):
        with lock:
            written.update(numbers)

    with concurrent.futures.ThreadPoolExecutor(80) as pool:
        writers = [pool.submit(write, server, number, until, keep) for number in range(64)]
        readers = [pool.submit(read, server, until) for _ in range(8)]
        queries = pool.submit(query, server, until)
        for future in [*writers, *readers, queries]:
            future.result(timeout=seconds + 120)

    assert collections.Counter(row["id"] for row in server.visible_rows(T)) == written
    assert sum(written.values()) > 64
    assert queries.result() > 0


def write(server, number, until, keep) -> None:
    """One writer, on each kind of stream in turn; keeps what was acknowledged as visible."""
    kind = ("DEFAULT", "COMMITTED", "BUFFERED", "PENDING")[number % 4]
    next_id = number * 1_000_000
    with connect(server) as bigquery:
        while time.monotonic() < until:
            name = T.default_stream if kind == "DEFAULT" else bigquery.create_stream(T, kind)
            sent = []
            with bigquery.connection() as append:
                for request in range(5):
                    batch = list(range(next_id, next_id + 10))
                    next_id += 10
                    offset = None if kind == "DEFAULT" else request * 10
                    answer = append(
                        append_request(
                            "" if request else name, ids(*batch), writer=WRITER, offset=offset
                        )
                    )
                    assert offset_of(answer) == offset
                    sent += batch
            if kind == "BUFFERED":
                bigquery.flush(name, len(sent) - 1)
            if kind == "PENDING":
                bigquery.finalize(name)
                assert bigquery.commit(T, name).HasField("commit_time")
            keep(sent)


def read(server, until) -> None:
    """One reader: each session is whole and never shrinks."""
    before = 0
    with connect(server) as bigquery:
        while time.monotonic() < until:
            session = bigquery.create_session(T)
            rows = sum(
                response.row_count
                for stream in session.streams
                for response in bigquery.read(stream.name)
            )
            assert rows == session.estimated_row_count
            assert rows >= before
            before = rows


def query(server, until) -> int:
    """A query loop over REST; returns how many were answered."""
    client = dataclasses.replace(server.connection, billing_project="p").open()
    answered, before = 0, 0
    try:
        while time.monotonic() < until:
            configuration = {
                "query": {"query": f"SELECT COUNT(*) AS n FROM `{T}`", "useLegacySql": False}
            }
            job_id = uuid.uuid4().hex
            client.jobs.insert(job_id, configuration, location="US")
            job = client.jobs.wait(job_id, location="US", budget_s=60)
            assert job.error is None
            (row,) = client.jobs.query_rows(job_id, location="US")
            count = int(next(iter(row.values())))
            assert count >= before
            before, answered = count, answered + 1
    finally:
        client.close()
    return answered


def test_splits_of_one_session_from_many_threads(server):
    with connect(server) as bigquery:
        bigquery.append(T.default_stream, WRITER, ids(*range(1000)))
        (whole,) = bigquery.create_session(T, streams_max=1).streams

    def split(seed: float) -> list[str]:
        """Cuts the stream into ever smaller pieces; returns those that are together the whole."""
        with connect(server) as bigquery:
            pieces = [whole.name]
            for step in range(60):
                name = pieces.pop(step % len(pieces))
                parts = bigquery.split(name, 0.1 + 0.8 * (seed * (step + 1) % 1.0))
                pieces += [name] if parts == ("", "") else parts
            return pieces

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(split, (0.137 * (number + 1) for number in range(8))))

    names = [name for pieces in found for name in pieces]
    assert len(set(names)) == len(names)
    with connect(server) as bigquery:
        for pieces in found[:2]:
            counts = [sum(r.row_count for r in bigquery.read(name)) for name in pieces]
            assert sum(counts) == 1000


def test_changes_while_the_table_is_altered(server):
    keyed = TableReference("p", "d", "keyed")
    server.create_table(str(keyed), FIELDS, tableConstraints={"primaryKey": {"columns": ["id"]}})
    writer = Writer(id="int64", name="string", _CHANGE_TYPE="string")
    done = threading.Event()

    def change(first: int) -> dict[int, str]:
        last: dict[int, str] = {}
        with connect(server) as bigquery, bigquery.connection() as append:
            for number in range(60):
                rows = {first + number % 7: f"n{number}", first + number % 5: f"m{number}"}
                request = append_request(
                    "" if number else keyed.default_stream,
                    [writer.row(id=k, name=v, _CHANGE_TYPE="UPSERT") for k, v in rows.items()],
                    writer=writer,
                )
                assert offset_of(append(request)) is None
                last |= rows
        return last

    def alter() -> None:
        for number in range(40):
            if done.wait(0.01):
                return
            table = server.store.require_table(keyed)
            added = {"name": f"added{number}", "type": "STRING"}
            fields = [*table.resource["schema"]["fields"], added]
            server.store.update_table(table, {**table.resource, "schema": {"fields": fields}})

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        altering = pool.submit(alter)
        with ending(done):
            written = list(pool.map(change, (0, 100, 200)))
        altering.result()

    rows = server.visible_rows(str(keyed))
    expected = {key: value for last in written for key, value in last.items()}
    assert {row["id"]: row["name"] for row in rows} == expected
    assert len(rows) == len(expected)
    # No value of a change column has slipped into a column that came meanwhile.
    assert {v for row in rows for k, v in row.items() if k.startswith("added")} == {None}


@contextlib.contextmanager
def together(server, method, count):
    """Lets the calls of the block in only when `count` more of them have arrived, and makes
    threads take turns as often as they can, so that races happen."""
    wanted = server.counters.get(method, 0) + count
    arrived = threading.Event()

    def hold() -> None:
        with server.store.lock:
            held.set()
            while server.counters.get(method, 0) < wanted:
                arrived.wait(0.001)

    held = threading.Event()
    gate = threading.Thread(target=hold)
    gate.start()
    held.wait()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
        gate.join()
    finally:
        sys.setswitchinterval(interval)


@contextlib.contextmanager
def ending(event):
    """Sets an event at the end of the block, also where it fails."""
    try:
        yield
    finally:
        event.set()


def test_racing_commits_take_effect_once_and_readers_see_all_of_it_or_nothing(server):
    done = threading.Event()

    def stage(bigquery) -> list[str]:
        names = []
        for _ in range(5):
            names.append(bigquery.create_stream(T, "PENDING"))
            bigquery.append(names[-1], WRITER, ids(*range(10)))
            bigquery.finalize(names[-1])
        return names

    def look() -> set[int]:
        counts = set()
        with connect(server) as bigquery:
            while not done.is_set():
                session = bigquery.create_session(T)
                read = [r for each in session.streams for r in bigquery.read(each.name)]
                counts.add(sum(response.row_count for response in read))
        return counts

    def commit(names) -> bool:
        with connect(server) as bigquery:
            return bool(bigquery.commit(T, *names).HasField("commit_time"))

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(look) for _ in range(3)]
        with connect(server) as bigquery, ending(done):
            for _ in range(15):
                names = stage(bigquery)
                with together(server, "BatchCommitWriteStreams", 3):
                    applied = list(pool.map(commit, [names] * 3))
                assert sorted(applied) == [False, False, True]
        counts = set.union(*(reader.result() for reader in readers))

    assert counts <= {50 * commits for commits in range(16)}
    assert len(server.visible_rows(T)) == 15 * 50


def test_of_many_appends_at_one_offset_one_is_taken(server):
    with connect(server) as bigquery:
        name = bigquery.create_stream(T, "COMMITTED")

    def append(offset, number) -> int:
        with connect(server) as bigquery:
            answer = bigquery.append(name, WRITER, ids(number), offset=offset)
        return number if answer.WhichOneof("response") == "append_result" else -1

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        taken = []
        for offset in range(15):
            with together(server, "AppendRows", 8):
                answers = list(pool.map(append, [offset] * 8, range(offset * 8, offset * 8 + 8)))
            taken.append([number for number in answers if number >= 0])

    assert [len(numbers) for numbers in taken] == [1] * 15
    assert [row["id"] for row in server.visible_rows(T)] == [numbers[0] for numbers in taken]


def test_one_stream_in_many_hands(server):
    """Appends at claimed offsets, flushes and a finalize race: every answer was true."""
    with connect(server) as bigquery:
        name = bigquery.create_stream(T, "BUFFERED")
    written: dict[int, list[int]] = {}
    lock = threading.Lock()

    def work(number: int) -> None:
        with connect(server) as bigquery:
            for step in range(40):
                rows = [number * 1000 + step * 3 + part for part in range(3)]
                with lock:
                    claimed = len(written) * 3 if step % 4 else None
                answer = bigquery.append(name, WRITER, ids(*rows), offset=claimed)
                if answer.WhichOneof("response") == "append_result":
                    with lock:
                        written[offset_of(answer)] = rows
                else:
                    assert error_of(answer).code in ("ALREADY_EXISTS", "OUT_OF_RANGE")
                with contextlib.suppress(Failure):
                    bigquery.flush(name, step * 5)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))

    (state,) = server.streams()
    rows = [row for offset in sorted(written) for row in written[offset]]
    assert sorted(written) == list(range(0, len(rows), 3))
    assert state.rows == len(rows)
    assert [row["id"] for row in server.visible_rows(T)] == rows[: state.flushed]


def test_a_server_that_stops_leaves_no_thread_and_can_start_again():
    for _ in range(3):
        with testing.Emulator() as server:
            server.create_table(str(T), FIELDS)
            with connect(server) as bigquery, bigquery.connection() as append:
                append(append_request(T.default_stream, ids(1), writer=WRITER))
                bigquery.write(
                    "GetWriteStream", message("GetWriteStreamRequest", name=T.default_stream)
                )
                server.stop()

        left = [t.name for t in threading.enumerate() if t.name.startswith("bigquery")]
        assert left == []


def test_several_servers_in_one_process_share_nothing():
    with testing.Emulator() as first, testing.Emulator() as second:
        for server in (first, second):
            server.create_table(str(T), FIELDS)
        with connect(first) as bigquery:
            bigquery.append(T.default_stream, WRITER, ids(1))
        first.faults.add(testing.Fault(method="AppendRows", code="UNAVAILABLE"))
        with connect(second) as bigquery:
            bigquery.append(T.default_stream, WRITER, ids(2))

        assert [row["id"] for row in first.visible_rows(T)] == [1]
        assert [row["id"] for row in second.visible_rows(T)] == [2]
        assert second.counters["AppendRows"] == 1
