import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bqflink_beam.errors import (
    BqflinkError,
    ConflictError,
    NotFoundError,
    OutcomeUnknownError,
    RunAlreadyCommittedError,
    StreamGoneError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import Job, StreamKind
from bqflink_beam.testing.clock import FakeClock
from bqflink_beam.write import manifest
from bqflink_beam.write.commit import commit_run
from bqflink_beam.write.manifest import Manifest, RunIdentity
from bqflink_beam.write.pending import StagedStream
from bqflink_beam.write.register import JobRegister
from tests.sim.model_bigquery import ModelWrite

LABEL = "Write/Commit"


class ModelJobs:
    """Jobs by id; `crash_after` inserts raise after they are applied, as a worker dies."""

    def __init__(self):
        self.jobs = {}
        self.crash_after = set()
        self.inserts = 0

    def insert(self, job_id, configuration, *, location, labels=None):
        self.inserts += 1
        if (location, job_id) in self.jobs:
            raise ConflictError("exists")
        job = Job(
            id=job_id,
            location=location,
            done=True,
            error=None,
            resource={"configuration": dict(configuration)},
        )
        self.jobs[location, job_id] = job
        if self.inserts in self.crash_after:
            raise WorkerDied()
        return job

    def get(self, job_id, *, location):
        return self.jobs.get((location, job_id))


class WorkerDied(Exception):
    pass


@pytest.fixture
def model():
    return ModelWrite()


@pytest.fixture
def jobs():
    return ModelJobs()


def stage(model, rows_by_table):
    """Writes and finalizes a stream for each list of rows; returns what a gather would."""
    staged = []
    for name, lists in rows_by_table.items():
        table = TableReference.parse(name)
        for rows in lists:
            stream = model.create_stream(table, StreamKind.PENDING).name
            model.append(stream, rows, 0)
            model.finalize(stream)
            staged.append(StagedStream(name, stream, len(rows)))
    return staged


def commit(model, jobs, staged, *, run="run", nonce="n1"):
    register = JobRegister(jobs, "US")
    return commit_run(model, register, RunIdentity(run, nonce), LABEL, staged, FakeClock())


INPUT = {"p.d.a": [[b"1", b"2"], [b"3"]], "p.d.b": [[b"4"]]}
ALL = [b"1", b"2", b"3", b"4"]


def test_all_streams_of_all_tables_are_committed_once(model, jobs):
    report = commit(model, jobs, stage(model, INPUT))

    assert model.visible_rows == ALL
    assert (report.rows, report.streams, report.reused) == ({"p.d.a": 3, "p.d.b": 1}, 3, False)


@pytest.mark.parametrize("insert", [1, 2], ids=["after the register", "after the last commit"])
def test_a_restart_commits_what_was_registered_and_not_its_own_streams(model, jobs, insert):
    jobs.crash_after = {insert}
    with pytest.raises(WorkerDied):
        commit(model, jobs, stage(model, INPUT))

    report = commit(model, jobs, stage(model, INPUT))

    assert model.visible_rows == ALL
    assert not report.reused


def test_a_restart_after_the_first_of_several_commits_does_the_others(model, jobs):
    model.commit_answers = [None, WorkerDied()]
    with pytest.raises(WorkerDied):
        commit(model, jobs, stage(model, INPUT))
    assert len(model.commits) == 2

    commit(model, jobs, stage(model, INPUT))

    assert model.visible_rows == ALL


@pytest.mark.parametrize("lost", [OutcomeUnknownError("no answer"), TransientError("aborted")])
def test_a_lost_commit_answer_repeats_the_same_list(model, jobs, lost):
    model.commit_answers = [lost, lost]

    commit(model, jobs, stage(model, INPUT))

    assert model.visible_rows == ALL
    assert model.commits[0] == model.commits[1] == model.commits[2]


def test_two_runs_write_twice(model, jobs):
    commit(model, jobs, stage(model, INPUT), run="run 1")
    commit(model, jobs, stage(model, INPUT), run="run 2", nonce="n2")

    assert model.visible_rows == sorted(ALL * 2)


@pytest.mark.parametrize("streams_gone", [False, True])
def test_the_same_run_id_again_writes_nothing_and_says_so(model, jobs, streams_gone):
    staged = stage(model, INPUT)
    commit(model, jobs, staged)
    commits = len(model.commits)
    again = stage(model, INPUT)
    for stream in staged if streams_gone else []:
        model.streams[stream.stream].kind = StreamKind.COMMITTED  # its rows stay visible
        model.streams[f"gone {stream.stream}"] = model.streams.pop(stream.stream)

    report = commit(model, jobs, again, nonce="n2")

    assert model.visible_rows == ALL
    assert report.reused
    assert len(model.commits) == commits


def test_the_same_run_id_with_other_rows_is_refused(model, jobs):
    commit(model, jobs, stage(model, INPUT))

    with pytest.raises(RunAlreadyCommittedError, match="'run'.*choose another run_id"):
        commit(model, jobs, stage(model, {"p.d.a": [[b"5"]]}), nonce="n2")

    assert model.visible_rows == ALL


def test_a_run_without_rows_is_registered_too(model, jobs):
    assert commit(model, jobs, []).rows == {}

    with pytest.raises(RunAlreadyCommittedError):
        commit(model, jobs, stage(model, INPUT), nonce="n2")


def test_streams_that_are_gone_before_the_commit_are_not_called_success(model, jobs):
    staged = stage(model, INPUT)
    model.expire(staged[0].stream)

    with pytest.raises(OutcomeUnknownError, match="STREAM_NOT_FOUND"):
        commit(model, jobs, staged)


@pytest.mark.parametrize("code", [StreamGoneError, NotFoundError])
def test_a_table_dropped_before_the_commit_is_not_called_success_and_the_error_says_so(
    model, jobs, code
):
    model.gone_with_table = code
    staged = stage(model, {"p.d.a": [[b"1"], [b"2"]]})
    model.tables_missing.add("p.d.a")
    model.streams.clear()

    with pytest.raises(
        OutcomeUnknownError, match=r"(?s)2 streams with 2 rows.*TABLE_NOT_FOUND"
    ) as told:
        commit(model, jobs, staged)

    assert told.value.table == "p.d.a"
    assert "new run id" in told.value.message


def test_a_stream_that_is_gone_is_not_called_committed_when_all_others_are(model, jobs):
    staged = stage(model, {"p.d.a": [[b"1"], [b"2"]]})
    model.commit(TableReference.parse("p.d.a"), [staged[1].stream])
    model.expire(staged[0].stream)

    with pytest.raises(OutcomeUnknownError):
        commit(model, jobs, staged)


def test_a_list_of_which_a_part_is_committed_is_not_called_committed(model, jobs):
    staged = stage(model, {"p.d.a": [[b"1"], [b"2"]]})
    model.commit(TableReference.parse("p.d.a"), [staged[1].stream])

    with pytest.raises(OutcomeUnknownError, match="STREAM_ALREADY_COMMITTED"):
        commit(model, jobs, staged)


def test_streams_that_are_all_committed_one_by_one_are_done(model, jobs):
    staged = stage(model, {"p.d.a": [[b"1"], [b"2"]]})
    for stream in staged:
        model.commit(TableReference.parse("p.d.a"), [stream.stream])

    assert commit(model, jobs, staged).rows == {"p.d.a": 2}


def test_commits_name_no_more_streams_than_the_service_takes(model, jobs, monkeypatch):
    monkeypatch.setattr(manifest, "STREAMS_PER_COMMIT_MAX", 2)

    commit(model, jobs, stage(model, {"p.d.a": [[b"%d" % index] for index in range(5)]}))

    assert [len(streams) for streams in model.commits] == [2, 2, 1]
    assert len(model.visible_rows) == 5


def test_a_document_too_large_for_one_job_is_put_in_parts_and_read_back(jobs):
    register = JobRegister(jobs, "US")
    staged = [
        StagedStream(
            "p.d.t",
            f"projects/p/datasets/d/tables/t/streams/{index * 2654435761 % 2**64:x}{index}",
            1,
        )
        for index in range(120_000)
    ]
    document = manifest.plan(RunIdentity("run", "n"), LABEL, staged).to_bytes()

    assert register.put("id", document) == document
    assert JobRegister(jobs, "US").get("id") == document
    assert len(jobs.jobs) > 2
    assert all(len(json.dumps(job.resource).encode()) < 1_000_000 for job in jobs.jobs.values())


def test_a_foreign_job_under_the_id_is_an_error(jobs):
    jobs.insert("id", {"query": {"query": "SELECT 2"}}, location="US")

    with pytest.raises(BqflinkError, match="not written by this package"):
        JobRegister(jobs, "US").put("id", b"document")


def test_sinks_of_one_run_have_different_ids():
    identity = RunIdentity("run", "n")

    assert identity.sink_id("Write A") != identity.sink_id("Write B")
    assert identity.sink_id("Write A") == RunIdentity("run", "other").sink_id("Write A")


@settings(max_examples=200, deadline=None)
@given(
    inserts=st.sets(st.integers(1, 6), max_size=4),
    answers=st.lists(
        st.sampled_from(
            [None, WorkerDied(), OutcomeUnknownError("lost"), TransientError("aborted")]
        ),
        max_size=8,
    ),
)
def test_any_crashes_and_lost_answers_write_the_rows_once(inserts, answers):
    model, jobs = ModelWrite(), ModelJobs()
    jobs.crash_after, model.commit_answers = set(inserts), list(answers)

    for _ in range(len(inserts) + len(answers) + 1):
        try:
            commit(model, jobs, stage(model, INPUT))
            break
        except WorkerDied:
            continue

    assert model.visible_rows == ALL


def test_a_damaged_manifest_is_refused():
    document = manifest.plan(
        RunIdentity("r", "n"), LABEL, [StagedStream("p.d.t", "s", 3)]
    ).to_bytes()

    with pytest.raises(BqflinkError, match="do not add up"):
        Manifest.from_bytes(document.replace(b'"p.d.t":3', b'"p.d.t":4'))
