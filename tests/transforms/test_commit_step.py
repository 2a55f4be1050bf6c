"""The step that commits a bounded run: what it is handed, and what it makes of it."""

import concurrent.futures
import dataclasses
import subprocess
import sys
import threading

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.service import client as client_module
from bqflink_beam.testing import Fault
from bqflink_beam.transforms import write_bounded
from bqflink_beam.transforms.write_encode import Destination, Front
from bqflink_beam.write.manifest import RunIdentity
from bqflink_beam.write.pending import StagedStream
from bqflink_beam.write.tables import prepare

FIELDS = [{"name": "id", "type": "INT64"}]
ROWS = [{"id": index} for index in range(10)]


@pytest.fixture
def server():
    with testing.Emulator() as emulator:
        emulator.create_table("p.d.t", FIELDS)
        yield emulator


def run(server, **options):
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as p:
        (
            p
            | beam.Create(ROWS)
            | bq.WriteToBigQueryStorage("p.d.t", connection=server.connection, **options)
        )


@pytest.fixture
def commit_step(server):
    """The step by itself, to be handed what no runner should."""
    front = Front(
        destination=Destination("p.d.t", None, None, False),
        connection=dataclasses.replace(server.connection, billing_project="p"),
        create=None,
        schema=None,
        batch_rows_max=10,
        batch_bytes_max=1000,
        dead_letters=False,
    )
    step = write_bounded._CommitFn(front, bq.ExactlyOnce(), "US", "Write")
    step.identity = RunIdentity("run", "nonce")
    step.setup()
    yield step
    step.teardown()


STAGED = StagedStream("p.d.t", "projects/p/datasets/d/tables/t/streams/s", 10)


@pytest.mark.parametrize(
    "part", [[STAGED], [], [STAGED, write_bounded._SENTINEL, write_bounded._SENTINEL]]
)
def test_a_part_of_what_was_staged_is_not_taken_for_the_whole(server, commit_step, part):
    with pytest.raises(bq.BqflinkError, match="in parts"):
        list(commit_step.process((b"", part)))

    assert server.counters.get("jobs.insert", 0) == 0
    assert server.counters.get("BatchCommitWriteStreams", 0) == 0


def test_credentials_that_may_make_no_job_are_told_of_both_ways_out(server):
    server.faults.add(Fault(method="jobs.insert", code="PERMISSION_DENIED", times=None))

    with pytest.raises(Exception, match=r"(?s)bigquery\.jobs\.create.*register=None"):
        run(server)
    assert server.visible_rows("p.d.t") == []

    run(server, method=bq.ExactlyOnce(register=None))
    assert server.visible_rows("p.d.t") == ROWS


def test_a_bundle_that_fails_leaves_no_connection_and_no_thread_behind(server):
    # Workers that a Flink of an earlier test has left behind keep theirs.
    others = set(threading.enumerate())
    for _ in range(3):
        server.faults.add(Fault(method="FinalizeWriteStream", code="PERMISSION_DENIED"))
        with pytest.raises(Exception, match="injected fault"):
            run(server)
        server.faults.clear()
        server.faults.add(Fault(method="AppendRows", code="PERMISSION_DENIED"))
        with pytest.raises(Exception, match="injected fault"):
            run(server, method=bq.AtLeastOnce())
        server.faults.clear()

    assert server.connection not in client_module._SHARED
    left = [each for each in threading.enumerate() if each.name == "bqflink-append"]
    assert not set(left) - others


def test_two_workers_that_make_the_table_at_once_make_one(server, monkeypatch):
    """Each has asked, and heard that there is none, before either makes it."""
    barrier = threading.Barrier(2)
    client = server.connection.open()
    table = bq.TableReference.parse("p.d.new")
    asked = type(client.tables).get

    def ask(self, table):
        found = asked(self, table)
        barrier.wait(10)
        return found

    monkeypatch.setattr(type(client.tables), "get", ask)
    create = bq.CreateTable(schema=FIELDS)
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        done = [
            workers.submit(prepare, client.tables, table, create, SYSTEM_CLOCK) for _ in range(2)
        ]
        assert [each.result() for each in done] == [None, None]
    client.close()

    assert server.visible_rows("p.d.new") == []
    assert server.counters["tables.insert"] == 2


_SCRIPT = """
import sys
import apache_beam as beam
import bqflink_beam as bq
from apache_beam.options.pipeline_options import PipelineOptions

SUFFIX = "t"

def named(row):
    return "p.d." + SUFFIX

if __name__ == "__main__":
    rest, storage = sys.argv[1:]
    connection = bq.Connection(
        rest_endpoint=rest, storage_endpoint=storage, plaintext=True, credentials=bq.Anonymous()
    )
    once = bq.ExactlyOnce(register_location="US")
    options = PipelineOptions(["--runner=FnApiRunner", "--project=p",
                               "--direct_running_mode=multi_processing",
                               "--direct_num_workers=2"])
    with beam.Pipeline(options=options) as p:
        rows = p | beam.Create([{"id": 1}, {"id": 2}])
        rows | "Named" >> bq.WriteToBigQueryStorage(named, connection=connection, method=once)
        rows | "Lambda" >> bq.WriteToBigQueryStorage(
            lambda row: "p.d." + SUFFIX, connection=connection, method=once)
"""


def test_functions_of_a_script_reach_workers_in_other_processes(server, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT)

    ran = subprocess.run(
        [sys.executable, script, server.rest_endpoint, server.storage_endpoint],
        timeout=120,
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stderr[-3000:]
    found = sorted(row["id"] for row in server.visible_rows("p.d.t"))
    assert found == [1, 1, 2, 2]
