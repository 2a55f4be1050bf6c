"""Jobs over REST: ids fence, states move, faults strike before or after, crashes lose nothing."""

import http.client
import json
import threading

import pytest

from bqflink_beam.emulator.faults import Fault
from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.testing.conformance.rest import HttpFailure, Rest

_FIELDS = [{"name": "id", "type": "INT64"}]
_SELECT = {"query": {"query": "SELECT 1 AS x", "useLegacySql": False}}


def _connect(server):
    server.create_dataset("p", "d")
    return Rest(server.rest_endpoint, "p", "d", lambda name, data: name)


@pytest.fixture
def server(tmp_path):
    with EmulatorServer(settings=Settings(files_root=tmp_path)) as server:
        yield server


@pytest.fixture
def rest(server):
    return _connect(server)


def _load(tmp_path, rows, table="t"):
    path = tmp_path / "rows.json"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "load": {
            "destinationTable": {"projectId": "p", "datasetId": "d", "tableId": table},
            "sourceUris": [f"file://{path}"],
            "sourceFormat": "NEWLINE_DELIMITED_JSON",
            "schema": {"fields": _FIELDS},
        }
    }


def test_lost_answer_of_an_insert_leaves_the_job_running_and_its_id_taken(server, rest, tmp_path):
    server.faults.add(Fault(method="jobs.insert", code="UNAVAILABLE", when="after"))
    configuration = _load(tmp_path, [{"id": 1}])

    with pytest.raises(HttpFailure) as lost:
        rest.insert_job(configuration, "one")
    with pytest.raises(HttpFailure) as again:
        rest.insert_job(configuration, "one")

    server.jobs.wait(server.jobs.key("p", "one", None), 10)
    assert (lost.value.status, lost.value.reasons) == (503, ["backendError"])
    assert again.value.status == 409
    assert server.visible_rows("p.d.t") == [{"id": 1}]


def test_insert_that_fails_before_it_takes_effect_makes_no_job(server, rest):
    server.faults.add(Fault(method="jobs.insert", code="UNAVAILABLE", when="before"))

    with pytest.raises(HttpFailure):
        rest.insert_job(_SELECT, "one")

    assert rest.run_job(_SELECT, "one")["status"]["state"] == "DONE"


def test_insert_that_arrives_twice_runs_once(server, rest, tmp_path):
    server.faults.add(Fault(method="jobs.insert", action="duplicate"))

    with pytest.raises(HttpFailure) as caught:
        rest.insert_job(_load(tmp_path, [{"id": 1}]), "one")

    server.jobs.wait(server.jobs.key("p", "one", None), 10)
    assert caught.value.status == 409
    assert server.visible_rows("p.d.t") == [{"id": 1}]


def test_query_that_arrives_twice_with_its_request_id_runs_once(server, rest):
    rest.make_table(_FIELDS)
    server.faults.add(Fault(method="jobs.query", action="duplicate"))

    rest.query("INSERT d.t0 (id) VALUES (1)", requestId="one")
    rest.query("INSERT d.t0 (id) VALUES (2)", requestId="two")

    assert sorted(row["id"] for row in server.visible_rows("p.d.t0")) == [1, 2]


@pytest.mark.parametrize(
    "configuration",
    [
        {"query": {**_SELECT["query"], "createSession": True}},
        {"load": {"jsonExtension": "GEOJSON"}},
        {"copy": {"destinationExpirationTime": "2030-01-01T00:00:00Z"}},
        {"extract": {"modelExtractOptions": {"trialId": "1"}}},
    ],
)
def test_option_that_would_not_be_obeyed_is_refused(rest, configuration):
    with pytest.raises(HttpFailure) as caught:
        rest.insert_job(configuration)

    assert caught.value.status == 400


def test_query_over_its_billing_limit_fails(rest):
    rest.make_table(_FIELDS)
    rest.query("INSERT d.t0 (id) VALUES (1), (2)")

    job = rest.run_query("SELECT id FROM d.t0", maximumBytesBilled="1")

    assert job["status"]["errorResult"]["reason"] == "bytesBilledLimitExceeded"


def test_cut_connection_has_no_answer(server, rest):
    server.faults.add(Fault(method="jobs.get", action="cut"))

    with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
        rest("GET", "/jobs/one")


def test_fault_of_one_table_leaves_others_alone(server, rest):
    rest.make_table(_FIELDS)
    server.faults.add(Fault(method="tables.get", code="PERMISSION_DENIED", table="p.d.t0"))

    with pytest.raises(HttpFailure) as caught:
        rest.table("t0")
    with pytest.raises(HttpFailure) as missing:
        rest.table("t1")

    assert (caught.value.status, missing.value.status) == (403, 404)


def test_job_under_way_is_not_done_and_its_results_are_awaited(server, rest):
    server.faults.add(Fault(method="jobs.run", action="hang"))
    job = rest.insert_job(_SELECT, "slow")

    answer = rest("GET", "/queries/slow", location="US", timeoutMs=0)

    assert job["status"]["state"] in ("PENDING", "RUNNING")
    assert answer["jobComplete"] is False
    assert "rows" not in answer


def test_cancelled_job_never_takes_effect(server, rest, tmp_path):
    server.faults.add(Fault(method="jobs.run", action="hang"))
    rest.insert_job(_load(tmp_path, [{"id": 1}]), "slow")

    answer = rest("POST", "/jobs/slow/cancel", location="US")

    assert answer["job"]["status"]["errorResult"]["reason"] == "stopped"
    server.jobs.stop()  # whatever the job still does is over now
    assert server.store.get_table(_table("t")) is None


def _table(name):
    from bqflink_beam.names import TableReference

    return TableReference("p", "d", name)


def test_job_that_a_crash_left_undone_runs_once_after_the_restart(tmp_path):
    data = tmp_path / "data"
    settings = Settings(files_root=tmp_path)
    first = EmulatorServer(settings=settings, data_dir=data).start()
    first.faults.add(Fault(method="jobs.run", action="hang", nth=2))
    rest = _connect(first)
    rest.run_job(_load(tmp_path, [{"id": 1}]), "done")
    rest.insert_job(_load(tmp_path, [{"id": 1}]), "undone")
    crashed = _copy_of(data, tmp_path / "crashed")
    first.stop()

    with EmulatorServer(settings=settings, data_dir=crashed) as second:
        second.jobs.wait(second.jobs.key("p", "undone", None), 10)

        assert second.visible_rows("p.d.t") == [{"id": 1}, {"id": 1}]
        with pytest.raises(HttpFailure) as caught:
            Rest(second.rest_endpoint, "p", "d", str).insert_job(_SELECT, "done")
        assert caught.value.status == 409


def _copy_of(folder, target):
    """Returns what a kill would leave of a data folder: the files as they are now."""
    target.mkdir()
    for file in folder.iterdir():
        if file.is_file() and file.name != "lock":
            (target / file.name).write_bytes(file.read_bytes())
    return target


def test_job_ids_are_of_a_location(server, rest):
    server.store.create_dataset("p", "eu", {"location": "EU"})
    rest.insert_job(_SELECT, "same", location="EU")
    rest.insert_job(_SELECT, "same", location="asia-east1")

    assert rest("GET", "/jobs/same", location="EU")["jobReference"]["location"] == "EU"
    with pytest.raises(HttpFailure):
        rest.insert_job(_SELECT, "same", location="EU")


def test_query_finds_its_location_and_no_table_elsewhere(server, rest):
    server.store.create_dataset("p", "eu", {"location": "EU"})
    server.create_table("p.eu.t", _FIELDS, rows=[{"id": 1}])

    found = rest.run_query("SELECT id FROM eu.t")
    elsewhere = rest.insert_job(
        {"query": {"query": "SELECT id FROM eu.t", "useLegacySql": False}}, location="US"
    )

    assert found["jobReference"]["location"] == "EU"
    server.jobs.wait(server.jobs.key("p", elsewhere["jobReference"]["jobId"], "US"), 10)
    job = rest("GET", f"/jobs/{elsewhere['jobReference']['jobId']}", location="US")
    assert job["status"]["errorResult"]["reason"] == "notFound"


def test_dml_loses_no_row_that_is_inserted_meanwhile(server, rest):
    rest.make_table(_FIELDS)
    over = threading.Event()
    inserted = []

    def insert():
        while not over.is_set():
            rest.insert_rows("t0", [{"id": len(inserted)}])
            inserted.append(len(inserted))

    writer = threading.Thread(target=insert)
    writer.start()
    for _ in range(15):
        rest.query("UPDATE d.t0 SET id = id WHERE id >= 0")
    over.set()
    writer.join()

    assert sorted(row["id"] for row in server.visible_rows("p.d.t0")) == inserted


def test_queries_writers_and_readers_go_on_together(server, rest):
    rest.make_table(_FIELDS)
    failures, counts = [], []

    def guarded(run):
        try:
            for _ in range(10):
                run()
        except Exception as error:
            failures.append(error)
            raise

    def count():
        (answer,) = rest.query("SELECT COUNT(*), CAST(SUM(NUMERIC '1' * 1) AS STRING) FROM d.t0")
        counts.append(int(answer[0]))

    threads = [
        threading.Thread(target=guarded, args=[run])
        for run in [
            *[lambda: rest.insert_rows("t0", [{"id": 1}] * 10)] * 8,
            *[count] * 4,
            *[lambda: rest.rows("t0")] * 4,
        ]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    assert all(count % 10 == 0 for count in counts)
    assert len(server.visible_rows("p.d.t0")) == 800


def test_stop_ends_every_thread_and_connection():
    with EmulatorServer() as server:
        rest = _connect(server)
        connection = http.client.HTTPConnection(
            "127.0.0.1", int(server.rest_endpoint.rpartition(":")[2])
        )
        connection.request("GET", "/bigquery/v2/projects/p/datasets")
        connection.getresponse().read()
        rest.query("SELECT 1")

    ours = ("bigquery", "process_request_thread")
    names = [thread.name for thread in threading.enumerate()]
    assert [name for name in names if any(word in name for word in ours)] == []
    assert connection.sock is None or connection.sock.recv(1) == b""
    connection.close()
