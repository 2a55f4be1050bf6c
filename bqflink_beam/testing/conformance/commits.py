"""FlushRows and BatchCommitWriteStreams: when rows of a stream become visible."""

import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    message,
    rule,
)
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids, visible

_PROTO = "proto: storage.proto, "
_IT = "google test: java-bigquerystorage ITBigQueryStorageWriteClientTest, "
_C = "measured: bqemulator's recorded answers of the service, "
_BEAM = "client: Beam Java StorageApiFlushAndFinalizeDoFn, "


class FlushConformance:
    """FlushRows."""

    @rule("FlushRows", "the offset is flushed too", _PROTO + "FlushRowsRequest.offset")
    @rule("AppendRows", "BUFFERED rows are invisible before a flush", _PROTO + "AppendRows")
    def test_flush_is_inclusive(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(10, 11, 12))
        assert visible(bigquery, table) == []

        answer = bigquery.flush(name, 1)

        assert answer.offset == 1
        assert visible(bigquery, table) == [10, 11]

    @rule("FlushRows", "offset 0 flushes the first row", _PROTO + "FlushRowsRequest.offset")
    def test_flush_of_the_first_row(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(10, 11))

        bigquery.flush(name, 0)

        assert visible(bigquery, table) == [10]

    @rule("FlushRows", "advances a cursor", _PROTO + "FlushRows")
    def test_flushes_add_up_to_each_row_once(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(0, 1, 2))
        bigquery.flush(name, 0)
        bigquery.append(name, WRITER, ids(3, 4))

        bigquery.flush(name, 3)
        bigquery.flush(name, 4)

        assert visible(bigquery, table) == [0, 1, 2, 3, 4]

    @rule("FlushRows", "a flush again is ALREADY_EXISTS", _BEAM + "flush retries")
    @pytest.mark.parametrize("offset", [0, 1])
    def test_flush_again_is_already_exists(self, bigquery: BigQuery, offset: int) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(1, 2))
        bigquery.flush(name, 1)

        with pytest.raises(Failure) as failed:
            bigquery.flush(name, offset)

        assert failed.value.code == "ALREADY_EXISTS"
        assert visible(bigquery, table) == [1, 2]

    @rule("FlushRows", "beyond the end is OUT_OF_RANGE", _C + "FlushRows")
    def test_flush_beyond_the_end(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(1, 2))

        with pytest.raises(Failure) as failed:
            bigquery.flush(name, 2)

        assert failed.value.code == "OUT_OF_RANGE"
        assert failed.value.text.startswith("Offset 2 is beyond the end of the stream Entity: ")
        assert visible(bigquery, table) == []

    @rule("FlushRows", "of a finalized stream is INVALID_ARGUMENT", _BEAM + "flush retries")
    def test_flush_after_finalize(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(1))
        bigquery.finalize(name)

        with pytest.raises(Failure) as failed:
            bigquery.flush(name, 0)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("FlushRows", "only BUFFERED streams can be flushed", _PROTO + "FlushRows")
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING"])
    def test_flush_of_another_kind(self, bigquery: BigQuery, kind: str) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, kind)
        bigquery.append(name, WRITER, ids(1))

        with pytest.raises(Failure) as failed:
            bigquery.flush(name, 0)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("FlushRows", "is not supported on the default stream", _PROTO + "FlushRows")
    def test_flush_of_the_default_stream(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.flush(bigquery.make_table(FIELDS).default_stream, 0)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("FlushRows", "needs an offset", "assumed")
    def test_flush_without_an_offset(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(1))

        with pytest.raises(Failure) as failed:
            bigquery.write("FlushRows", message("FlushRowsRequest", write_stream=name))

        assert failed.value.code == "INVALID_ARGUMENT"
        assert visible(bigquery, table) == []

    @rule(
        "FlushRows", "of an unknown stream is NOT_FOUND", _PROTO + "StorageError.STREAM_NOT_FOUND"
    )
    def test_flush_of_an_unknown_stream(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with pytest.raises(Failure) as failed:
            bigquery.flush(f"{table.path}/streams/nobody", 0)

        assert failed.value.code == "NOT_FOUND"


class CommitConformance:
    """BatchCommitWriteStreams."""

    def _pending(self, bigquery: BigQuery, table: object, *numbers: int) -> str:
        name = bigquery.create_stream(table, "PENDING")  # type: ignore[arg-type]
        if numbers:
            bigquery.append(name, WRITER, ids(*numbers))
        bigquery.finalize(name)
        return name

    @rule("AppendRows", "PENDING rows are invisible before the commit", _PROTO + "AppendRows")
    @rule("BatchCommitWriteStreams", "makes all rows visible", _PROTO + "BatchCommitWriteStreams")
    @rule(
        "BatchCommitWriteStreams",
        "commit_time says that it was applied",
        _PROTO + "BatchCommitWriteStreamsResponse.commit_time",
    )
    def test_commit_makes_rows_of_all_streams_visible(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        first, second = self._pending(bigquery, table, 1, 2), self._pending(bigquery, table, 3)
        assert visible(bigquery, table) == []

        answer = bigquery.commit(table, first, second)

        assert answer.HasField("commit_time")
        assert not answer.stream_errors
        assert visible(bigquery, table) == [1, 2, 3]

    @rule(
        "BatchCommitWriteStreams",
        "a stream must be finalized before",
        _PROTO + "StorageError.INVALID_STREAM_STATE",
    )
    @rule(
        "BatchCommitWriteStreams",
        "all or none",
        _PROTO + "BatchCommitWriteStreamsResponse.stream_errors",
    )
    @rule(
        "BatchCommitWriteStreams",
        "only streams with an error are listed",
        _PROTO + "BatchCommitWriteStreamsResponse.stream_errors",
    )
    @rule(
        "BatchCommitWriteStreams",
        "no commit_time when it was not applied",
        _PROTO + "BatchCommitWriteStreamsResponse.commit_time",
    )
    def test_one_open_stream_stops_the_whole_commit(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        done = self._pending(bigquery, table, 1)
        still_open = bigquery.create_stream(table, "PENDING")
        bigquery.append(still_open, WRITER, ids(2))

        answer = bigquery.commit(table, done, still_open)

        assert not answer.HasField("commit_time")
        assert [(e.code, e.entity) for e in answer.stream_errors] == [(5, still_open)]
        assert visible(bigquery, table) == []
        bigquery.finalize(still_open)
        assert bigquery.commit(table, done, still_open).HasField("commit_time")
        assert visible(bigquery, table) == [1, 2]

    @rule(
        "BatchCommitWriteStreams",
        "a second commit is STREAM_ALREADY_COMMITTED",
        "client: Beam Java StorageApiFinalizeWritesDoFn",
    )
    @rule(
        "BatchCommitWriteStreams",
        "a stream can be committed once",
        _PROTO + "BatchCommitWriteStreams",
    )
    def test_second_commit_doubles_nothing(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = self._pending(bigquery, table, 1, 2)
        bigquery.commit(table, name)

        answer = bigquery.commit(table, name)

        assert not answer.HasField("commit_time")
        assert [(e.code, e.entity) for e in answer.stream_errors] == [(2, name)]
        assert visible(bigquery, table) == [1, 2]

    @rule(
        "BatchCommitWriteStreams",
        "a committed stream keeps others back",
        _PROTO + "BatchCommitWriteStreamsResponse.stream_errors",
    )
    def test_committed_stream_in_a_later_commit_stops_it(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        first, second = self._pending(bigquery, table, 1), self._pending(bigquery, table, 2)
        bigquery.commit(table, first)

        answer = bigquery.commit(table, first, second)

        assert [each.entity for each in answer.stream_errors] == [first]
        assert visible(bigquery, table) == [1]

    @rule(
        "BatchCommitWriteStreams",
        "only PENDING streams can be committed",
        _PROTO + "StorageError.INVALID_STREAM_TYPE",
    )
    @rule(
        "BatchCommitWriteStreams",
        "names the mode that the stream has",
        "measured: nodejs-bigquery-storage issue 413",
    )
    @pytest.mark.parametrize("kind", ["COMMITTED", "BUFFERED"])
    def test_commit_of_another_kind(self, bigquery: BigQuery, kind: str) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, kind)
        bigquery.append(name, WRITER, ids(1))
        bigquery.finalize(name)

        (error,) = bigquery.commit(table, name).stream_errors

        assert error.code == 4
        assert error.error_message.startswith(
            f"Stream must be created in pending mode, actual: {kind}"
        )

    @rule(
        "BatchCommitWriteStreams",
        "an unknown stream is STREAM_NOT_FOUND",
        _PROTO + "StorageError.STREAM_NOT_FOUND",
    )
    def test_commit_of_an_unknown_stream(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        known = self._pending(bigquery, table, 1)
        unknown = f"{table.path}/streams/nobody"

        answer = bigquery.commit(table, known, unknown)

        assert [(e.code, e.entity) for e in answer.stream_errors] == [(3, unknown)]
        assert visible(bigquery, table) == []

    @rule(
        "BatchCommitWriteStreams",
        "each stream at fault has its own error",
        _PROTO + "BatchCommitWriteStreamsResponse.stream_errors",
    )
    def test_each_stream_has_its_error(self, bigquery: BigQuery) -> None:
        table, other = bigquery.make_table(FIELDS), bigquery.make_table(FIELDS)
        sound, committed = self._pending(bigquery, table, 1), self._pending(bigquery, table, 2)
        bigquery.commit(table, committed)
        still_open = bigquery.create_stream(table, "PENDING")
        buffered = bigquery.create_stream(table, "BUFFERED")
        elsewhere = self._pending(bigquery, other, 3)
        unknown = f"{table.path}/streams/nobody"

        answer = bigquery.commit(table, still_open, sound, committed, buffered, elsewhere, unknown)

        assert not answer.HasField("commit_time")
        assert {each.entity: each.code for each in answer.stream_errors} == {
            still_open: 5,
            committed: 2,
            buffered: 4,
            elsewhere: 3,
            unknown: 3,
        }
        assert visible(bigquery, table) == [2]
        assert bigquery.commit(table, sound).HasField("commit_time")
        assert visible(bigquery, table) == [1, 2]

    @rule(
        "BatchCommitWriteStreams",
        "at most 10,000 streams a call",
        "docs: quotas, BatchCommitWriteStreams",
    )
    def test_commit_of_too_many_streams(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        names = [f"{table.path}/streams/{number}" for number in range(10_001)]

        with pytest.raises(Failure) as failed:
            bigquery.commit(table, *names)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "BatchCommitWriteStreams",
        "all streams belong to the parent",
        _PROTO + "BatchCommitWriteStreamsRequest.parent",
    )
    def test_commit_of_another_tables_stream(self, bigquery: BigQuery) -> None:
        table, other = bigquery.make_table(FIELDS), bigquery.make_table(FIELDS)
        name = self._pending(bigquery, other, 1)

        answer = bigquery.commit(table, name)

        assert not answer.HasField("commit_time")
        assert visible(bigquery, table) == visible(bigquery, other) == []

    @rule(
        "GetWriteStream",
        "a committed PENDING stream tells its commit_time",
        _PROTO + "WriteStream.commit_time",
    )
    def test_committed_stream_tells_when(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = self._pending(bigquery, table, 1)

        answer = bigquery.commit(table, name)

        assert bigquery.get_stream(name).commit_time == answer.commit_time

    @rule("BatchCommitWriteStreams", "a stream without rows can be committed", "assumed")
    def test_empty_stream_commits(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        answer = bigquery.commit(table, self._pending(bigquery, table))

        assert answer.HasField("commit_time")
        assert visible(bigquery, table) == []

    @rule("BatchCommitWriteStreams", "a stream listed twice is refused", "assumed")
    def test_stream_listed_twice_is_written_once_at_most(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = self._pending(bigquery, table, 1)

        with pytest.raises(Failure) as failed:
            bigquery.commit(table, name, name)

        assert failed.value.code == "INVALID_ARGUMENT"
        assert visible(bigquery, table) == []

    @rule(
        "BatchCommitWriteStreams",
        "needs at least one stream",
        _PROTO + "BatchCommitWriteStreamsRequest.write_streams",
    )
    def test_commit_of_nothing(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.commit(bigquery.make_table(FIELDS))

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "BatchCommitWriteStreams", "a missing parent is NOT_FOUND", "docs: BigQuery error messages"
    )
    def test_commit_to_a_missing_table(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = self._pending(bigquery, table, 1)
        bigquery.drop_table(table)

        with pytest.raises(Failure) as failed:
            bigquery.commit(table, name)

        assert failed.value.code == "NOT_FOUND"
