"""Random calls on write streams, against a model of twenty lines: each row where it belongs."""

import contextlib
import itertools

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from bqflink_beam.testing.conformance import embedded
from bqflink_beam.testing.conformance.kit import Failure, offset_of
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids


class Model:
    """What a stream holds, and what of it is visible."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.rows: list[int] = []
        self.visible = 0
        self.finalized = False
        self.committed = False


class WriteStreams(RuleBasedStateMachine):
    streams = Bundle("streams")

    def __init__(self) -> None:
        super().__init__()
        self._open = contextlib.ExitStack()
        self.bigquery = self._open.enter_context(embedded.direct())
        self.table = self.bigquery.make_table(FIELDS)
        self.models: dict[str, Model] = {}
        self.default: list[int] = []
        self.numbers = itertools.count()

    def teardown(self) -> None:
        self._open.close()

    # Few streams, so that much happens to each.
    @initialize(target=streams)
    def create(self):
        return multiple(*map(self._create, ("COMMITTED", "PENDING", "BUFFERED")))

    @rule(target=streams, kind=st.sampled_from(["PENDING", "BUFFERED"]))
    @precondition(lambda self: len(self.models) < 5)
    def create_another(self, kind):
        return self._create(kind)

    def _create(self, kind):
        name = self.bigquery.create_stream(self.table, kind)
        self.models[name] = Model(kind)
        return name

    @rule(count=st.integers(1, 4))
    def append_to_default(self, count):
        fresh = list(itertools.islice(self.numbers, count))
        self.bigquery.append(self.table.default_stream, WRITER, ids(*fresh))
        self.default += fresh

    @rule(name=streams, count=st.integers(1, 4), shift=st.sampled_from([None, 0, 0, 0, -1, 1, 7]))
    def append(self, name, count, shift):
        model = self.models[name]
        fresh = list(itertools.islice(self.numbers, count))
        offset = None if shift is None else len(model.rows) + shift
        answer = self.bigquery.append(name, WRITER, ids(*fresh), offset=offset)
        sound = not model.finalized and shift in (None, 0)
        assert (answer.WhichOneof("response") == "append_result") == sound
        if sound:
            assert offset_of(answer) == len(model.rows)
            model.rows += fresh
            if model.kind == "COMMITTED":
                model.visible = len(model.rows)

    @rule(name=streams, at_end=st.booleans(), shift=st.integers(-2, 2))
    def flush(self, name, at_end, shift):
        model = self.models[name]
        offset = (len(model.rows) if at_end else model.visible) + shift
        sound = (
            model.kind == "BUFFERED"
            and not model.finalized
            and model.visible <= offset < len(model.rows)
        )
        self._expect(sound, lambda: self.bigquery.flush(name, offset))
        if sound:
            model.visible = offset + 1

    @rule(name=streams)
    def finalize(self, name):
        model = self.models[name]
        assert self.bigquery.finalize(name) == len(model.rows)
        model.finalized = True

    @rule(names=st.lists(streams, min_size=1, max_size=3, unique=True))
    def commit(self, names):
        models = [self.models[name] for name in names]
        bad = [
            name
            for name, model in zip(names, models, strict=True)
            if model.kind != "PENDING" or model.committed or not model.finalized
        ]
        answer = self.bigquery.commit(self.table, *names)
        assert [error.entity for error in answer.stream_errors] == bad
        assert answer.HasField("commit_time") == (not bad)
        if not bad:
            for model in models:
                model.committed, model.visible = True, len(model.rows)

    def _expect(self, sound, call) -> None:
        try:
            call()
        except Failure:
            assert not sound
        else:
            assert sound

    @invariant()
    def visible_rows_are_the_models(self):
        expected = [*self.default]
        for model in self.models.values():
            expected += model.rows[: model.visible]
        found = sorted(row["id"] for row in self.bigquery.rows(self.table))
        assert found == sorted(expected)


TestWriteStreams = WriteStreams.TestCase
TestWriteStreams.settings = hypothesis.settings(
    max_examples=80, stateful_step_count=40, deadline=None, database=None, derandomize=True
)


class ReadSplits(RuleBasedStateMachine):
    """Splits, resumed reads and filters: the parts of a stream are the stream."""

    def __init__(self) -> None:
        super().__init__()
        self._open = contextlib.ExitStack()
        self.bigquery = self._open.enter_context(embedded.direct())
        self.table = self.bigquery.make_table(FIELDS)
        self.parts: list[str] = []

    def teardown(self) -> None:
        self._open.close()

    @rule(
        count=st.integers(1, 60),
        bound=st.none() | st.integers(0, 60),
        chunk=st.integers(1, 20),
    )
    def open_session(self, count, bound, chunk):
        if self.parts:
            return
        for start in range(0, count, chunk):
            numbers = range(start, min(start + chunk, count))
            self.bigquery.append(self.table.default_stream, WRITER, ids(*numbers))
        options = {} if bound is None else {"row_restriction": f"id < {bound}"}
        self.session = self.bigquery.create_session(self.table, streams_max=1, **options)
        self.expected = [n for n in range(count) if bound is None or n < bound]
        self.parts = [stream.name for stream in self.session.streams]

    @rule(which=st.integers(0, 20), fraction=st.floats(0.01, 0.99))
    def split(self, which, fraction):
        if not self.parts:
            return
        at = which % len(self.parts)
        primary, remainder = self.bigquery.split(self.parts[at], fraction)
        if primary:
            self.parts[at : at + 1] = [primary, remainder]

    @rule(which=st.integers(0, 20), offset=st.integers(0, 60))
    def resume(self, which, offset):
        if not self.parts:
            return
        name = self.parts[which % len(self.parts)]
        rows = self._rows(name)
        if offset <= len(rows):
            assert self._rows(name, offset) == rows[offset:]
        else:
            try:
                self._rows(name, offset)
            except Failure as failure:
                assert failure.code == "FAILED_PRECONDITION"
            else:
                raise AssertionError("an offset beyond the rows was served")

    @invariant()
    def parts_are_the_whole(self):
        if self.parts:
            assert [n for name in self.parts for n in self._rows(name)] == self.expected

    def _rows(self, name: str, offset: int = 0) -> list[int]:
        return [row["id"] for row in self.bigquery.stream_rows(self.session, name, offset)]


TestReadSplits = ReadSplits.TestCase
TestReadSplits.settings = hypothesis.settings(
    max_examples=40, stateful_step_count=15, deadline=None, database=None, derandomize=True
)
