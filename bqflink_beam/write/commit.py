"""Commits what a bounded run has staged: once, whatever was answered or lost before."""

import dataclasses
import enum
import logging
from collections.abc import Iterable, Mapping, Sequence

from bqflink_beam import retry
from bqflink_beam.clock import Clock
from bqflink_beam.errors import (
    NotFoundError,
    OutcomeUnknownError,
    RunAlreadyCommittedError,
    StreamGoneError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import CommitAnswer, StreamProblem, WriteService
from bqflink_beam.write.manifest import Chunk, Manifest, RunIdentity, plan
from bqflink_beam.write.pending import StagedStream
from bqflink_beam.write.register import Register

_LOG = logging.getLogger(__name__)
_ALREADY_COMMITTED = "STREAM_ALREADY_COMMITTED"


@dataclasses.dataclass(frozen=True)
class CommitReport:
    """What a bounded exactly-once write did.

    `rows` are by table. `reused`: an earlier submission of the same run id had written
    them, and this one wrote nothing.
    """

    run_id: str
    rows: Mapping[str, int]
    streams: int
    reused: bool = False


class Verdict(enum.Enum):
    """What an answer to a commit means."""

    DONE = "the rows are visible"
    ASK = "look at each stream"


def judge(answer: CommitAnswer, streams: Sequence[str]) -> Verdict:
    """Reads the answer to a commit of `streams`. Pure.

    A list that is committed is committed as a whole, so a list whose every stream is
    called "already committed" was committed by an earlier try of ours.
    """
    if answer.commit_s is not None and not answer.problems:
        return Verdict.DONE
    already = {problem.stream for problem in answer.problems if problem.kind == _ALREADY_COMMITTED}
    if already == set(streams) and len(answer.problems) == len(already):
        return Verdict.DONE
    return Verdict.ASK


def commit_run(
    write: WriteService,
    register: Register,
    identity: RunIdentity,
    label: str,
    staged: Iterable[StagedStream],
    clock: Clock,
) -> CommitReport:
    """Commits a run's streams, or those that an earlier attempt of the same run registered.

    Atomic for each table and 10,000 streams; several tables are each written once, but
    not at one moment.

    Raises:
        RunAlreadyCommittedError: this run id has written other rows before.
        OutcomeUnknownError: BigQuery no longer knows streams that may have been committed.
        BqflinkError: try again; nothing is written twice.
    """
    ours = plan(identity, label, staged)
    id = identity.sink_id(label)
    registered = Manifest.from_bytes(register.put(id, ours.to_bytes()))
    done_id = f"{id}-done"
    if register.get(done_id) is None:
        for chunk in registered.chunks:
            commit_chunk(write, chunk, clock)
        register.put(done_id, b"done")
    return _report(ours, registered)


def commit_chunk(write: WriteService, chunk: Chunk, clock: Clock) -> None:
    """Commits one list of streams. Repeats the very same list while there is no answer.

    Raises:
        OutcomeUnknownError: some streams are gone, and whether they were committed is unknown.
    """
    table = TableReference.parse(chunk.table)
    names = [stream.stream for stream in chunk.streams]
    rows = sum(stream.rows for stream in chunk.streams)
    _LOG.info("committing %d streams with %d rows to %s", len(names), rows, table)
    try:
        answer = retry.call(
            lambda: write.commit(table, names),
            idempotent=True,
            what=f"commit of {len(names)} streams to {table}",
            clock=clock,
        )
    except NotFoundError as error:
        # A table that was dropped took the streams with it, committed before or not.
        answer = CommitAnswer(None, (StreamProblem("TABLE_NOT_FOUND", "", error.message),))
    if judge(answer, names) is Verdict.ASK and not all(_committed(write, name) for name in names):
        first = answer.problems[0] if answer.problems else None
        raise OutcomeUnknownError(
            f"the commit of {len(names)} streams with {rows} rows was refused, and not all of them are "
            f"committed: {first.kind + ' ' + first.message if first else 'no reason given'}. Compare the "
            "table with the input before running again under a new run id",
            table=chunk.table,
            stream=first.stream or None if first else None,
        )
    _LOG.info("committed %d rows to %s", rows, table)


def _committed(write: WriteService, name: str) -> bool:
    try:
        return write.get_stream(name).commit_s is not None
    except (StreamGoneError, NotFoundError):
        return False


def _report(ours: Manifest, registered: Manifest) -> CommitReport:
    streams = sum(len(chunk.streams) for chunk in registered.chunks)
    report = CommitReport(registered.run_id, registered.rows_by_table, streams)
    if registered.nonce == ours.nonce:
        # Another attempt of this very submission; its rows stand for ours, whatever our counts.
        return report
    if registered.rows_by_table != ours.rows_by_table:
        raise RunAlreadyCommittedError(
            f"run {ours.run_id!r} has already written {dict(registered.rows_by_table)}, and this submission "
            f"has {dict(ours.rows_by_table)}. Nothing was written now; choose another run_id for other rows"
        )
    _LOG.warning(
        "run %r was committed before, by another submission with the same row counts; nothing was written now",
        ours.run_id,
    )
    return dataclasses.replace(report, reused=True)
