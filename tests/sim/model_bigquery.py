"""Storage Write in memory: offsets, flushes and commits, and nothing else. The rules are
those of the service's proto comments; the conformance suite holds the model to them."""

import dataclasses
from collections.abc import Callable, Sequence

from bqflink_beam.errors import (
    AlreadyWrittenError,
    BqflinkError,
    NotFoundError,
    OffsetGapError,
    StreamFinalizedError,
    StreamGoneError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import CommitAnswer, StreamKind, StreamProblem, WriteStream


@dataclasses.dataclass
class ModelStream:
    """One application-made stream."""

    table: TableReference
    kind: StreamKind
    rows: list[bytes] = dataclasses.field(default_factory=list)
    flushed: int = 0
    finalized: bool = False
    committed: bool = False

    @property
    def visible(self) -> list[bytes]:
        if self.kind is StreamKind.COMMITTED:
            return self.rows
        if self.kind is StreamKind.BUFFERED:
            return self.rows[: self.flushed]
        return self.rows if self.committed else []


@dataclasses.dataclass(frozen=True)
class ModelTicket:
    """An answer that is there already."""

    offset: int | None
    error: BqflinkError | None

    def result(self, timeout_s: float | None = None) -> int | None:
        if self.error is not None:
            raise self.error
        return self.offset


class ModelConnection:
    """Answers at once. `faults` of the model may refuse, or lose an answer and resend."""

    updated_schema = None

    def __init__(self, model: "ModelWrite", stream: str) -> None:
        self._model = model
        self._stream = stream
        self.closed = False
        model.connections.append(self)

    def send(self, rows: Sequence[bytes], offset: int | None) -> ModelTicket:
        assert not self.closed
        return self._model.append(self._stream, list(rows), offset)

    def close(self) -> None:
        self.closed = True
        if self in self._model.connections:
            self._model.connections.remove(self)

    @property
    def stream(self) -> str:
        return self._stream


class ModelWrite:
    """A `WriteService`. `refuse` is asked for each append: an error refuses it, unapplied.

    `lost_answers` counts appends still to come whose first answer gets lost: they are
    applied, and sent again by the connection.
    """

    def __init__(self) -> None:
        self.streams: dict[str, ModelStream] = {}
        self.tables_missing: set[str] = set()
        # What is said of a stream whose table is missing: BigQuery has a code for either.
        self.gone_with_table: type[BqflinkError] = StreamGoneError
        self.refuse: Callable[[Sequence[bytes]], BqflinkError | None] = lambda rows: None
        self.lost_answers = 0
        self.commit_answers: list[BqflinkError | None] = []
        self.commits: list[tuple[str, ...]] = []
        self._made = 0
        self.connections: list[ModelConnection] = []
        self.descriptors: list[tuple[str, bytes]] = []

    # WriteService -----------------------------------------------------------------------

    def create_stream(self, table: TableReference, kind: StreamKind) -> WriteStream:
        if str(table) in self.tables_missing:
            raise NotFoundError("no such table", table=str(table))
        self._made += 1
        name = f"{table.path}/streams/s{self._made}"
        self.streams[name] = ModelStream(table, kind)
        return WriteStream(name=name, kind=kind)

    def get_stream(self, name: str) -> WriteStream:
        stream = self._stream(name)
        return WriteStream(name=name, kind=stream.kind, commit_s=1.0 if stream.committed else None)

    def open_append(self, stream: str, descriptor: bytes, *, budget_s: float) -> ModelConnection:
        self.descriptors.append((stream, descriptor))
        return ModelConnection(self, stream)

    def finalize(self, stream: str) -> int:
        found = self._stream(stream)
        found.finalized = True
        return len(found.rows)

    def commit(self, table: TableReference, streams: Sequence[str]) -> CommitAnswer:
        if str(table) in self.tables_missing:
            raise NotFoundError("no such table", table=str(table))
        fault = self.commit_answers.pop(0) if self.commit_answers else None
        self.commits.append(tuple(streams))
        problems = []
        for name in streams:
            stream = self.streams.get(name)
            if stream is None:
                problems.append(StreamProblem("STREAM_NOT_FOUND", name))
            elif stream.committed:
                problems.append(StreamProblem("STREAM_ALREADY_COMMITTED", name))
            elif not stream.finalized:
                problems.append(StreamProblem("INVALID_STREAM_STATE", name))
        if not problems:
            for name in streams:
                self.streams[name].committed = True
        if fault is not None:
            raise fault
        return CommitAnswer(None if problems else 1.0, tuple(problems))

    def flush(self, stream: str, stop: int) -> None:
        found = self._stream(stream)
        assert stop <= len(found.rows), "the flush names rows that are not there"
        found.flushed = max(found.flushed, stop)

    # what a test does and asks ----------------------------------------------------------

    def append(self, name: str, rows: list[bytes], offset: int | None) -> ModelTicket:
        try:
            stream = self._stream(name)
            if stream.finalized:
                raise StreamFinalizedError("finalized", stream=name)
            refusal = self.refuse(rows)
            if refusal is not None:
                raise refusal
            if offset is not None and offset < len(stream.rows):
                raise AlreadyWrittenError("taken", stream=name)
            if offset is not None and offset > len(stream.rows):
                raise OffsetGapError("beyond the end", stream=name)
            stream.rows += rows
            if self.lost_answers:
                self.lost_answers -= 1
                raise AlreadyWrittenError("taken", stream=name, resent=True)
        except BqflinkError as error:
            return ModelTicket(None, error)
        return ModelTicket(offset, None)

    def expire(self, name: str) -> None:
        del self.streams[name]

    @property
    def visible_rows(self) -> list[bytes]:
        return sorted(row for stream in self.streams.values() for row in stream.visible)

    def _stream(self, name: str) -> ModelStream:
        try:
            return self.streams[name]
        except KeyError:
            missing = str(TableReference.from_path(name)) in self.tables_missing
            kind = self.gone_with_table if missing else StreamGoneError
            raise kind("no such stream", stream=name) from None
