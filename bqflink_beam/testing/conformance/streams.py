"""`WriteConformance`: write streams: making, offsets, flush, finalize, commit, schemas."""

import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    Writer,
    error_of,
    message,
    rule,
)

FIELDS = [{"name": "id", "type": "INT64"}, {"name": "name", "type": "STRING", "maxLength": "10"}]
WRITER = Writer(id="int64", name="string")

_PROTO = "proto: storage.proto, "
_IT = "google test: java-bigquerystorage ITBigQueryStorageWriteClientTest, "
_C = "measured: bqemulator's recorded answers of the service, "
_BEAM = "client: Beam Java StorageApiFlushAndFinalizeDoFn, "


def ids(*numbers: int) -> list[bytes]:
    return [WRITER.row(id=number) for number in numbers]


def visible(bigquery: BigQuery, table: object) -> list[int]:
    return sorted(row["id"] for row in bigquery.rows(table))  # type: ignore[arg-type]


class CreateWriteStreamConformance:
    """CreateWriteStream and GetWriteStream."""

    @rule("CreateWriteStream", "tells the schema of the table", _PROTO + "WriteStream.table_schema")
    def test_new_stream_tells_the_schema(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        request = message("CreateWriteStreamRequest", parent=table.path)
        request.write_stream.type_ = 2

        made = bigquery.write("CreateWriteStream", request)

        assert [field.name for field in made.table_schema.fields] == ["id", "name"]
        assert made.table_schema.fields[1].max_length == 10

    @rule("CreateWriteStream", "a stream is named under its table", _PROTO + "WriteStream.name")
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING", "BUFFERED"])
    def test_new_stream_is_named_under_its_table(self, bigquery: BigQuery, kind: str) -> None:
        table = bigquery.make_table(FIELDS)

        assert bigquery.create_stream(table, kind).startswith(f"{table.path}/streams/")

    @rule("CreateWriteStream", "two calls make two streams", _PROTO + "CreateWriteStream")
    def test_two_streams_have_two_names(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        first, second = (bigquery.create_stream(table, "PENDING") for _ in range(2))

        assert first != second

    @rule("CreateWriteStream", "a missing table is NOT_FOUND", "docs: BigQuery error messages")
    def test_stream_of_a_missing_table(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        bigquery.drop_table(table)

        with pytest.raises(Failure) as failed:
            bigquery.create_stream(table, "PENDING")

        assert failed.value.code == "NOT_FOUND"

    @rule("CreateWriteStream", "a stream needs a type", _PROTO + "WriteStream.Type")
    def test_stream_without_a_type(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with pytest.raises(Failure) as failed:
            bigquery.write(
                "CreateWriteStream", message("CreateWriteStreamRequest", parent=table.path)
            )

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("CreateWriteStream", "the parent is a table's path", _PROTO + "CreateWriteStreamRequest")
    def test_stream_of_a_malformed_parent(self, bigquery: BigQuery) -> None:
        request = message("CreateWriteStreamRequest", parent="projects/p/tables")
        request.write_stream.type_ = 2

        with pytest.raises(Failure) as failed:
            bigquery.write("CreateWriteStream", request)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("GetWriteStream", "BASIC view has no schema", _PROTO + "WriteStreamView.BASIC")
    def test_basic_view_has_no_schema(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")

        assert not bigquery.get_stream(name).HasField("table_schema")

    @rule("GetWriteStream", "FULL view has the schema", _PROTO + "WriteStreamView.FULL")
    def test_full_view_has_the_schema(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")

        found = bigquery.get_stream(name, full=True)

        assert [field.name for field in found.table_schema.fields] == ["id", "name"]

    @rule("GetWriteStream", "the type is the stream's", _PROTO + "WriteStream.type")
    @pytest.mark.parametrize(
        ("kind", "number"), [("COMMITTED", 1), ("PENDING", 2), ("BUFFERED", 3)]
    )
    def test_type_is_kept(self, bigquery: BigQuery, kind: str, number: int) -> None:
        table = bigquery.make_table(FIELDS)

        assert bigquery.get_stream(bigquery.create_stream(table, kind)).type_ == number

    @rule("GetWriteStream", "create_time does not change", _PROTO + "WriteStream.create_time")
    def test_create_time_is_stable(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "PENDING")

        first = bigquery.get_stream(name).create_time
        bigquery.append(name, WRITER, ids(1))

        assert bigquery.get_stream(name).create_time == first
        assert first.seconds > 0

    @rule(
        "GetWriteStream",
        "a COMMITTED stream's commit_time is its create_time",
        _PROTO + "WriteStream.commit_time",
    )
    def test_committed_stream_is_committed_from_the_start(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        found = bigquery.get_stream(bigquery.create_stream(table, "COMMITTED"))

        assert found.commit_time == found.create_time

    @rule(
        "GetWriteStream",
        "an uncommitted PENDING stream has no commit_time",
        _PROTO + "WriteStream.commit_time",
    )
    def test_pending_stream_has_no_commit_time_before_the_commit(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        found = bigquery.get_stream(bigquery.create_stream(table, "PENDING"))

        assert not found.HasField("commit_time")

    @rule("GetWriteStream", "the default stream is COMMITTED", "docs: write-api, default stream")
    @rule(
        "GetWriteStream",
        "the default stream is as old as its table",
        "proto: stream.proto, WriteStream.create_time",
    )
    def test_default_stream_is_as_old_as_its_table(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        made = bigquery.get_stream(bigquery.create_stream(table, "COMMITTED")).create_time

        found = bigquery.get_stream(table.default_stream)

        assert found.create_time.ToMicroseconds() <= made.ToMicroseconds()
        assert found.create_time == bigquery.get_stream(table.default_stream).create_time

    @rule(
        "GetWriteStream", "tells where the dataset is", "proto: stream.proto, WriteStream.location"
    )
    def test_stream_tells_its_location(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "PENDING")

        found = {bigquery.get_stream(each).location for each in (name, table.default_stream)}

        assert len(found) == 1
        assert found != {""}

    @rule(
        "GetWriteStream",
        "works for the default stream",
        "client: java-bigquerystorage refetches schemas so",
    )
    def test_default_stream_can_be_got(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        found = bigquery.get_stream(table.default_stream, full=True)

        assert found.type_ == 1
        assert len(found.table_schema.fields) == 2

    @rule("GetWriteStream", "a malformed name is INVALID_ARGUMENT", _C + "GetWriteStream")
    def test_malformed_name(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.get_stream("projects/p/streams/s")

        assert failed.value.code == "INVALID_ARGUMENT"
        assert failed.value.text.startswith("Invalid stream name. Entity: projects/p/streams/s")

    @rule(
        "GetWriteStream", "an unknown stream is NOT_FOUND", _PROTO + "StorageError.STREAM_NOT_FOUND"
    )
    def test_unknown_stream(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with pytest.raises(Failure) as failed:
            bigquery.get_stream(f"{table.path}/streams/nobody")

        assert failed.value.code == "NOT_FOUND"

    @rule(
        "WriteStream",
        "an idle BUFFERED stream is gone after its time to live",
        "docs: write-api, stream TTL of 7 days",
    )
    def test_idle_buffered_stream_expires(self, bigquery: BigQuery) -> None:
        if bigquery.advance is None:
            pytest.skip("the service's clock cannot be moved")
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "BUFFERED")
        bigquery.append(name, WRITER, ids(1))

        bigquery.advance(6.9 * 86_400)
        bigquery.append(name, WRITER, ids(2))
        bigquery.advance(6.9 * 86_400)
        assert bigquery.get_stream(name).name == name
        bigquery.advance(0.2 * 86_400)

        with pytest.raises(Failure) as failed:
            bigquery.flush(name, 0)
        assert failed.value.code == "NOT_FOUND"
        assert failed.value.storage_errors == [("STREAM_NOT_FOUND", name)]

    @rule("WriteStream", "a stream does not outlive its table", "assumed")
    def test_stream_of_a_dropped_table_is_gone(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "PENDING")
        bigquery.drop_table(table)

        for call in (bigquery.get_stream, bigquery.finalize):
            with pytest.raises(Failure) as failed:
                call(name)
            assert failed.value.code == "NOT_FOUND"


class FinalizeConformance:
    """FinalizeWriteStream."""

    @rule(
        "FinalizeWriteStream",
        "tells the number of rows",
        _PROTO + "FinalizeWriteStreamResponse.row_count",
    )
    def test_finalize_counts_the_rows(self, bigquery: BigQuery) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), "PENDING")
        bigquery.append(name, WRITER, ids(1, 2, 3))

        assert bigquery.finalize(name) == 3

    @rule(
        "FinalizeWriteStream",
        "counts rows of COMMITTED streams too",
        _PROTO + "FinalizeWriteStreamResponse.row_count",
    )
    def test_finalize_counts_the_rows_of_a_committed_stream(self, bigquery: BigQuery) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), "COMMITTED")
        bigquery.append(name, WRITER, ids(1, 2))

        assert bigquery.finalize(name) == 2

    @rule("FinalizeWriteStream", "may be repeated", _C + "FinalizeWriteStream")
    def test_finalize_twice(self, bigquery: BigQuery) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), "PENDING")
        bigquery.append(name, WRITER, ids(1))

        assert [bigquery.finalize(name), bigquery.finalize(name)] == [1, 1]

    @rule(
        "FinalizeWriteStream",
        "the default stream cannot be finalized",
        _C + "FinalizeWriteStream of _default",
    )
    def test_default_stream_cannot_be_finalized(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with pytest.raises(Failure) as failed:
            bigquery.finalize(table.default_stream)

        assert failed.value.code == "NOT_FOUND"

    @rule(
        "FinalizeWriteStream", "no rows can be appended afterwards", _PROTO + "FinalizeWriteStream"
    )
    @rule("AppendRows", "after finalize is INVALID_ARGUMENT", _IT + "testStreamFinalizedError")
    @rule("AppendRows", "after finalize carries STREAM_FINALIZED", _IT + "testStreamFinalizedError")
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING", "BUFFERED"])
    def test_append_after_finalize_is_refused(self, bigquery: BigQuery, kind: str) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), kind)
        bigquery.append(name, WRITER, ids(1))
        bigquery.finalize(name)

        error = error_of(bigquery.append(name, WRITER, ids(2), offset=1))

        assert error.code == "INVALID_ARGUMENT"
        assert error.storage_errors == [("STREAM_FINALIZED", name)]
        assert error.text.startswith("Stream has been finalized")
        assert bigquery.finalize(name) == 1
