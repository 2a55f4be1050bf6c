"""`ReadConformance`: read sessions, their schemas, offsets, splits, filters and snapshots."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    Writer,
    arrow_rows,
    arrow_schema,
    rule,
)

_PROTO = "proto: stream.proto, "
_STORAGE = "proto: storage.proto, "
_507 = "measured: bigquery-emulator issue 507, on the service 2026-08-09"
_FIELDS = [{"name": "id", "type": "INT64"}, {"name": "name", "type": "STRING"}]
_WRITER = Writer(id="int64", name="string")


def table_of(
    bigquery: BigQuery, count: int, fields: list[dict[str, Any]] = _FIELDS
) -> TableReference:
    """Makes a table with rows 0, 1, 2, ..."""
    table = bigquery.make_table(fields)
    if count:
        rows = [_WRITER.row(id=number, name=f"n{number}") for number in range(count)]
        bigquery.append(table.default_stream, _WRITER, rows)
    return table


def _ids(rows: list[dict[str, Any]]) -> list[int]:
    return [row["id"] for row in rows]


class SessionConformance:
    """CreateReadSession."""

    @rule(
        "CreateReadSession", "streams together hold each row once", _STORAGE + "CreateReadSession"
    )
    @pytest.mark.parametrize("streams", [0, 1, 3])
    def test_each_row_is_in_one_stream(self, bigquery: BigQuery, streams: int) -> None:
        table = table_of(bigquery, 100)

        session = bigquery.create_session(table, streams_max=streams)

        assert sorted(_ids(bigquery.session_rows(session))) == list(range(100))

    @rule(
        "CreateReadSession",
        "never more streams than max_stream_count",
        _STORAGE + "CreateReadSessionRequest.max_stream_count",
    )
    @pytest.mark.parametrize("most", [1, 2, 5])
    def test_stream_count_is_bounded(self, bigquery: BigQuery, most: int) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=most)

        assert 1 <= len(session.streams) <= most

    @rule(
        "CreateReadSession",
        "an empty table has no streams",
        "measured: bqemulator's recorded answers of the service, empty table",
    )
    def test_empty_table_has_no_streams(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 0))

        assert not session.streams
        assert arrow_schema(session).names == ["id", "name"]

    @rule("CreateReadSession", "names have project and location", _PROTO + "ReadSession.name")
    @rule("CreateReadSession", "stream names are under the session's", _PROTO + "ReadStream.name")
    def test_names(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 3)

        session = bigquery.create_session(table)

        start = f"projects/{table.project}/locations/"
        assert session.name.startswith(start)
        assert "/sessions/" in session.name
        assert all(each.name.startswith(f"{session.name}/streams/") for each in session.streams)

    @rule(
        "CreateReadSession",
        "tells when it expires, in 6 hours or more",
        "docs: storage read, sessions expire 6 hours after creation",
    )
    def test_expire_time(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 1))

        assert session.expire_time.seconds > 0

    @rule("CreateReadSession", "estimates the rows", _PROTO + "ReadSession.estimated_row_count")
    @rule(
        "CreateReadSession",
        "estimates the bytes",
        _PROTO + "ReadSession.estimated_total_bytes_scanned",
    )
    def test_estimates(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 100))

        assert session.estimated_row_count == 100
        assert session.estimated_total_bytes_scanned > 0

    @rule("CreateReadSession", "a missing table is NOT_FOUND", "docs: BigQuery error messages")
    def test_missing_table(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(_FIELDS)
        bigquery.drop_table(table)

        with pytest.raises(Failure) as failed:
            bigquery.create_session(table)

        assert failed.value.code == "NOT_FOUND"

    @rule("CreateReadSession", "a format must be asked for", _PROTO + "ReadSession.data_format")
    def test_format_unspecified(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(table_of(bigquery, 1), data_format="DATA_FORMAT_UNSPECIFIED")

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "CreateReadSession", "views cannot be read", "measured: pharos connector notes, 2026-08-10"
    )
    def test_views(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(None, view={"query": "SELECT 1 AS x", "useLegacySql": False})

        with pytest.raises(Failure) as failed:
            bigquery.create_session(table)

        assert failed.value.code == "INVALID_ARGUMENT"
        assert "non-table entities cannot be read with the storage API" in failed.value.text

    @rule(
        "CreateReadSession",
        "the preferred minimum cannot be above the maximum",
        _STORAGE + "preferred_min_stream_count",
    )
    def test_minimum_above_maximum(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(table_of(bigquery, 10), streams_max=1, streams_min=5)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("ReadRows", "a session is a snapshot", "docs: storage read, snapshot isolation")
    def test_later_rows_are_not_in_the_session(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 10)
        session = bigquery.create_session(table)

        bigquery.append(table.default_stream, _WRITER, [_WRITER.row(id=99)])

        assert sorted(_ids(bigquery.session_rows(session))) == list(range(10))
        assert 99 in _ids(bigquery.rows(table))

    @rule(
        "CreateReadSession",
        "snapshot_time reads the table of then",
        _PROTO + "TableModifiers.snapshot_time",
    )
    def test_snapshot_time(self, bigquery: BigQuery) -> None:
        if bigquery.advance is None:
            pytest.skip("the service's clock cannot be moved")
        table = table_of(bigquery, 3)
        before = bigquery.create_session(table).expire_time.ToMicroseconds() / 1e6 - 6 * 3600
        bigquery.advance(10)
        bigquery.append(table.default_stream, _WRITER, [_WRITER.row(id=99)])

        assert sorted(_ids(bigquery.rows(table, snapshot_s=before))) == [0, 1, 2]
        assert sorted(_ids(bigquery.rows(table))) == [0, 1, 2, 99]

    @rule(
        "CreateReadSession",
        "snapshot_time before the table is INVALID_ARGUMENT",
        "docs: time travel window",
    )
    def test_snapshot_time_before_the_table(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(table_of(bigquery, 3), snapshot_s=1_000_000.0)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "ReadRows",
        "an expired session is FAILED_PRECONDITION",
        "google test: spark-bigquery-connector, session expired at",
    )
    def test_expired_session(self, bigquery: BigQuery) -> None:
        if bigquery.advance is None:
            pytest.skip("the service's clock cannot be moved")
        session = bigquery.create_session(table_of(bigquery, 3))
        bigquery.advance(6 * 3600 - 1)
        assert len(bigquery.session_rows(session)) == 3

        bigquery.advance(2)

        with pytest.raises(Failure) as failed:
            bigquery.session_rows(session)
        assert failed.value.code == "FAILED_PRECONDITION"
        assert "session expired at" in failed.value.text

    @rule(
        "CreateReadSession",
        "sampling keeps some blocks",
        _PROTO + "TableReadOptions.sample_percentage",
    )
    def test_sample_of_everything(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 50)

        assert sorted(_ids(bigquery.rows(table, sample_percentage=100.0))) == list(range(50))

    @rule("CreateReadSession", "a percentage is in (0, 100]", "docs: table sampling")
    @pytest.mark.parametrize("percentage", [-1.0, 101.0])
    def test_sample_out_of_range(self, bigquery: BigQuery, percentage: float) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(table_of(bigquery, 5), sample_percentage=percentage)

        assert failed.value.code == "INVALID_ARGUMENT"


class ReadRowsConformance:
    """ReadRows: offsets, progress, formats."""

    @rule("ReadRows", "reads from the offset", _507)
    @rule(
        "ReadRows",
        "row_count counts the rows of a response",
        _STORAGE + "ReadRowsResponse.row_count",
    )
    @pytest.mark.parametrize("offset", [0, 1, 7, 29])
    def test_reading_resumes_at_the_offset(self, bigquery: BigQuery, offset: int) -> None:
        session = bigquery.create_session(table_of(bigquery, 30), streams_max=1)
        (stream,) = session.streams
        everything = bigquery.stream_rows(session, stream.name)

        assert bigquery.stream_rows(session, stream.name, offset) == everything[offset:]
        assert sum(each.row_count for each in bigquery.read(stream.name, offset)) == 30 - offset

    @rule("ReadRows", "an offset of all rows gives none", _507)
    def test_offset_at_the_end(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 30), streams_max=1)

        assert bigquery.stream_rows(session, session.streams[0].name, 30) == []

    @rule("ReadRows", "an offset beyond the rows is FAILED_PRECONDITION", _507)
    def test_offset_beyond_the_end(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 30), streams_max=1)

        with pytest.raises(Failure) as failed:
            bigquery.read(session.streams[0].name, 31)

        assert failed.value.code == "FAILED_PRECONDITION"
        assert "has not been allocated yet" in failed.value.text

    @rule("ReadRows", "a negative offset is INVALID_ARGUMENT", "assumed")
    def test_negative_offset(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 3), streams_max=1)

        with pytest.raises(Failure) as failed:
            bigquery.read(session.streams[0].name, -1)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("ReadRows", "the same rows come in the same order", _STORAGE + "ReadRows")
    def test_rereading_gives_the_same_order(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 50), streams_max=2)

        assert bigquery.session_rows(session) == bigquery.session_rows(session)

    @rule("ReadRows", "an unknown stream is NOT_FOUND", "docs: BigQuery error messages")
    def test_unknown_stream(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 3))

        with pytest.raises(Failure) as failed:
            bigquery.read(f"{session.name}/streams/nobody")

        assert failed.value.code == "NOT_FOUND"

    @rule("ReadRows", "a malformed stream name is INVALID_ARGUMENT", "assumed")
    def test_malformed_stream(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.read("streams/x")

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("ReadRows", "progress goes from 0 to 1 without gaps", _STORAGE + "StreamStats.Progress")
    def test_progress(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)

        progress = [each.stats.progress for each in bigquery.read(session.streams[0].name)]

        assert progress[0].at_response_start == 0.0
        assert progress[-1].at_response_end == 1.0
        for before, after in zip(progress, progress[1:], strict=False):
            assert before.at_response_end == after.at_response_start
            assert after.at_response_start < after.at_response_end

    @rule(
        "ReadRows",
        "progress of a resumed read starts at the offset",
        _STORAGE + "Progress.at_response_start",
    )
    def test_progress_after_resuming(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)

        first = bigquery.read(session.streams[0].name, 50)[0]

        assert 0.4 < first.stats.progress.at_response_start < 0.6

    @rule(
        "ReadRows", "the first response has the schema", _STORAGE + "ReadRowsResponse.arrow_schema"
    )
    def test_schema_in_the_first_response(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)

        responses = bigquery.read(session.streams[0].name)

        assert responses[0].arrow_schema == session.arrow_schema
        assert not any(each.HasField("arrow_schema") for each in responses[1:])

    @rule(
        "ReadRows",
        "throttle_percent is between 0 and 100",
        _STORAGE + "ThrottleState.throttle_percent",
    )
    def test_throttle_state(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 10), streams_max=1)

        for each in bigquery.read(session.streams[0].name):
            assert 0 <= each.throttle_state.throttle_percent <= 100

    @rule(
        "ReadRows",
        "Arrow buffers may be compressed",
        "proto: arrow.proto, ArrowSerializationOptions.buffer_compression",
    )
    @pytest.mark.parametrize("codec", [1, 2], ids=["LZ4_FRAME", "ZSTD"])
    def test_compressed_buffers(self, bigquery: BigQuery, codec: int) -> None:
        table = bigquery.make_table(_FIELDS)
        rows = [_WRITER.row(id=1, name="x" * 1000)] * 100
        bigquery.append(table.default_stream, _WRITER, rows)
        plain = bigquery.create_session(table, streams_max=1)

        session = bigquery.create_session(
            table, streams_max=1, arrow_serialization_options={"buffer_compression": codec}
        )

        assert bigquery.session_rows(session) == bigquery.session_rows(plain)
        sizes = [
            sum(len(each.arrow_record_batch.serialized_record_batch) for each in bigquery.read(s.streams[0].name))
            for s in (session, plain)
        ]  # fmt: skip
        assert sizes[0] < sizes[1] / 2

    @rule(
        "ReadRows",
        "whole responses may be compressed",
        _PROTO + "TableReadOptions.response_compression_codec",
    )
    @rule(
        "ReadRows",
        "uncompressed_byte_size tells the size before",
        _STORAGE + "uncompressed_byte_size",
    )
    def test_compressed_responses(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 100)
        session = bigquery.create_session(table, streams_max=1, response_compression_codec=2)

        rows = []
        for each in bigquery.read(session.streams[0].name):
            data = pa.decompress(
                each.arrow_record_batch.serialized_record_batch,
                each.uncompressed_byte_size,
                codec="lz4_raw",
            )
            each.arrow_record_batch.serialized_record_batch = data.to_pybytes()
            rows += arrow_rows(each, arrow_schema(session))

        assert sorted(_ids(rows)) == list(range(100))

    @rule(
        "CreateReadSession", "one kind of compression at most", _PROTO + "ResponseCompressionCodec"
    )
    def test_both_compressions(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(
                table_of(bigquery, 3),
                response_compression_codec=2,
                arrow_serialization_options={"buffer_compression": 1},
            )

        assert failed.value.code == "INVALID_ARGUMENT"


class SplitConformance:
    """SplitReadStream."""

    @rule("SplitReadStream", "primary and remainder are back to back", _STORAGE + "SplitReadStream")
    @rule("SplitReadStream", "the original can still be read", _STORAGE + "SplitReadStream")
    @pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
    def test_split_loses_and_doubles_nothing(self, bigquery: BigQuery, fraction: float) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)
        original = session.streams[0].name
        before = bigquery.stream_rows(session, original)

        primary, remainder = bigquery.split(original, fraction)

        if primary:
            parts = [bigquery.stream_rows(session, name) for name in (primary, remainder)]
            assert parts[0] + parts[1] == before
        assert bigquery.stream_rows(session, original) == before

    @rule(
        "SplitReadStream",
        "a split can be resumed at the offset consumed",
        "client: Beam Java BigQueryStorageStreamSource, splitAtFraction",
    )
    @rule(
        "ReadRows",
        "an offset past a split's primary is FAILED_PRECONDITION",
        "client: Beam Java BigQueryStorageStreamSource, splitAtFraction",
    )
    def test_primary_goes_on_at_the_offset(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)
        original = session.streams[0].name
        before = bigquery.stream_rows(session, original)
        primary, _ = bigquery.split(original, 0.5)
        if not primary:
            pytest.skip("the service did not split so small a stream")
        length = len(bigquery.stream_rows(session, primary))

        assert bigquery.stream_rows(session, primary, 10) == before[10:length]
        assert bigquery.stream_rows(session, primary, length) == []
        with pytest.raises(Failure) as failed:
            bigquery.read(primary, length + 1)
        assert failed.value.code == "FAILED_PRECONDITION"

    @rule("SplitReadStream", "the remainder counts from 0", _STORAGE + "SplitReadStream")
    def test_remainder_counts_from_zero(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)
        before = bigquery.stream_rows(session, session.streams[0].name)
        primary, remainder = bigquery.split(session.streams[0].name, 0.5)
        if not primary:
            pytest.skip("the service did not split so small a stream")
        length = len(bigquery.stream_rows(session, primary))

        assert bigquery.stream_rows(session, remainder, 3) == before[length + 3 :]

    @rule("SplitReadStream", "children can be split again", _STORAGE + "SplitReadStream")
    def test_split_of_a_split(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)
        names = [session.streams[0].name]
        for _ in range(3):
            first, *rest = names
            parts = bigquery.split(first, 0.5)
            if parts[0]:
                names = [*parts, *rest]

        rows = [row for name in names for row in bigquery.stream_rows(session, name)]

        assert sorted(_ids(rows)) == list(range(100))

    @rule(
        "SplitReadStream",
        "an empty answer means that it cannot be split",
        _STORAGE + "SplitReadStreamResponse",
    )
    def test_one_row_cannot_be_split(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 1), streams_max=1)

        assert bigquery.split(session.streams[0].name, 0.5) == ("", "")

    @rule(
        "SplitReadStream", "the fraction is in (0, 1)", _STORAGE + "SplitReadStreamRequest.fraction"
    )
    @pytest.mark.parametrize("fraction", [-0.5, 1.0, 2.0])
    def test_fraction_out_of_range(self, bigquery: BigQuery, fraction: float) -> None:
        session = bigquery.create_session(table_of(bigquery, 100), streams_max=1)

        with pytest.raises(Failure) as failed:
            bigquery.split(session.streams[0].name, fraction)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("SplitReadStream", "an unknown stream is NOT_FOUND", "docs: BigQuery error messages")
    def test_split_of_an_unknown_stream(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 3))

        with pytest.raises(Failure) as failed:
            bigquery.split(f"{session.name}/streams/nobody", 0.5)

        assert failed.value.code == "NOT_FOUND"


class SelectionConformance:
    """selected_fields and row_restriction."""

    NESTED = (
        {"name": "id", "type": "INT64"},
        {
            "name": "home",
            "type": "STRUCT",
            "fields": [
                {"name": "city", "type": "STRING"},
                {"name": "zip", "type": "STRING"},
                {"name": "at", "type": "STRUCT", "fields": [{"name": "x", "type": "INT64"}, {"name": "y", "type": "INT64"}]},
            ],
        },
        {"name": "name", "type": "STRING"},
    )  # fmt: skip
    NESTED_WRITER = Writer(
        id="int64",
        home=Writer("H", city="string", zip="string", at=Writer("A", x="int64", y="int64")),
        name="string",
    )

    def _nested(self, bigquery: BigQuery) -> TableReference:
        table = bigquery.make_table(list(self.NESTED))
        rows = [
            self.NESTED_WRITER.row(id=1, home={"city": "A", "zip": "1", "at": {"x": 1, "y": 2}}, name="n"),
            self.NESTED_WRITER.row(id=2),
        ]  # fmt: skip
        bigquery.append(table.default_stream, self.NESTED_WRITER, rows)
        return table

    @rule(
        "CreateReadSession",
        "only selected fields come",
        _PROTO + "TableReadOptions.selected_fields",
    )
    def test_selected_fields(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 2)

        assert sorted(bigquery.rows(table, selected_fields=["name"]), key=str) == [
            {"name": "n0"},
            {"name": "n1"},
        ]

    @rule(
        "CreateReadSession",
        "fields come in the table's order",
        _PROTO + "TableReadOptions.selected_fields",
    )
    def test_order_is_the_tables(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(
            self._nested(bigquery), selected_fields=["name", "home.zip", "home.city", "id"]
        )

        schema = arrow_schema(session)
        assert schema.names == ["id", "home", "name"]
        assert [field.name for field in schema.field("home").type] == ["city", "zip"]

    @rule(
        "CreateReadSession",
        "nested fields can be selected",
        _PROTO + "TableReadOptions.selected_fields",
    )
    def test_nested_fields(self, bigquery: BigQuery) -> None:
        table = self._nested(bigquery)

        rows = bigquery.rows(table, selected_fields=["home.at.y"])

        assert sorted(rows, key=str) == [{"home": None}, {"home": {"at": {"y": 2}}}]

    @rule(
        "CreateReadSession",
        "a selected STRUCT comes whole",
        _PROTO + "TableReadOptions.selected_fields",
    )
    def test_whole_struct(self, bigquery: BigQuery) -> None:
        table = self._nested(bigquery)

        rows = bigquery.rows(table, selected_fields=["home.city", "home"])

        assert {"home": {"city": "A", "zip": "1", "at": {"x": 1, "y": 2}}} in rows

    @rule(
        "CreateReadSession",
        "an unknown field is INVALID_ARGUMENT",
        "google test: nodejs-bigquery-storage reader, wrong_field",
    )
    @rule(
        "CreateReadSession",
        "the text names the unknown field",
        "google test: nodejs-bigquery-storage reader, wrong_field",
    )
    @pytest.mark.parametrize("path", ["wrong_field", "home.wrong", "id.x"])
    def test_unknown_field(self, bigquery: BigQuery, path: str) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(self._nested(bigquery), selected_fields=[path])

        assert failed.value.code == "INVALID_ARGUMENT"
        if "." not in path:
            assert (
                "The following selected fields do not exist in the table schema: wrong_field"
                in failed.value.text
            )

    @rule(
        "CreateReadSession",
        "a row restriction keeps rows for which it is true",
        _PROTO + "TableReadOptions.row_restriction",
    )
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("id > 5", [6, 7, 8, 9]),
            ("id IN (1, 3) OR name = 'n7'", [1, 3, 7]),
            ("NOT (id < 8)", [8, 9]),
            ("name LIKE 'n%' AND id BETWEEN 2 AND 3", [2, 3]),
            ("id > 100", []),
            ("name IS NULL", []),
        ],
    )
    def test_row_restriction(self, bigquery: BigQuery, text: str, expected: list[int]) -> None:
        table = table_of(bigquery, 10)

        assert sorted(_ids(bigquery.rows(table, row_restriction=text))) == expected

    @rule("CreateReadSession", "NULL is not true", "docs: operators, three-valued logic")
    def test_null_is_not_true(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(_FIELDS)
        bigquery.append(table.default_stream, _WRITER, [_WRITER.row(id=1), _WRITER.row(name="x")])

        assert bigquery.rows(table, row_restriction="id != 5") == [{"id": 1, "name": None}]

    @rule(
        "CreateReadSession",
        "a restriction may use columns that are not selected",
        _PROTO + "TableReadOptions.row_restriction",
    )
    def test_restriction_on_a_column_not_selected(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 10)

        rows = bigquery.rows(table, selected_fields=["name"], row_restriction="id = 4")

        assert rows == [{"name": "n4"}]

    @rule(
        "CreateReadSession",
        "a restriction that is no SQL is INVALID_ARGUMENT",
        _PROTO + "TableReadOptions.row_restriction",
    )
    @rule(
        "CreateReadSession",
        "aggregates are not supported in a restriction",
        _PROTO + "TableReadOptions.row_restriction",
    )
    @pytest.mark.parametrize("text", ["id >", "nothing = 1", "SUM(id) > 3", "id"])
    @pytest.mark.parametrize("count", [0, 3])
    def test_bad_restriction(self, bigquery: BigQuery, text: str, count: int) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(table_of(bigquery, count), row_restriction=text)

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "ReadRows",
        "offsets count the rows that come out of a filter",
        _STORAGE + "ReadRowsRequest.offset",
    )
    def test_offset_of_a_filtered_stream(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 20)
        session = bigquery.create_session(table, streams_max=1, row_restriction="id >= 10")
        name = session.streams[0].name
        everything = bigquery.stream_rows(session, name)

        assert bigquery.stream_rows(session, name, 4) == everything[4:]
        assert len(everything) == 10

    @rule(
        "SplitReadStream",
        "a split of a filtered stream divides its rows",
        _STORAGE + "SplitReadStreamRequest.fraction",
    )
    def test_split_of_a_filtered_stream(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 40)
        session = bigquery.create_session(table, streams_max=1, row_restriction="id >= 10")
        name = session.streams[0].name

        parts = bigquery.split(name, 0.5)

        if parts[0]:
            rows = [row for part in parts for row in bigquery.stream_rows(session, part)]
            assert rows == bigquery.stream_rows(session, name)

    @rule(
        "CreateReadSession",
        "the partition time of ingestion-time tables can be filtered",
        "docs: querying partitioned tables, _PARTITIONTIME",
    )
    def test_partition_time(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(_FIELDS, timePartitioning={"type": "DAY"})
        bigquery.append(table.default_stream, _WRITER, [_WRITER.row(id=1)])
        old = "_PARTITIONTIME < TIMESTAMP '2001-01-01 00:00:00'"

        assert bigquery.rows(table, row_restriction=old) == []
        assert _ids(bigquery.rows(table, row_restriction=f"NOT ({old})")) == [1]


class ArrowSchemaConformance:
    """The Arrow schema of each type."""

    @rule(
        "CreateReadSession",
        "Arrow schema: the type of each column",
        "docs: storage read, Arrow schema details",
    )
    def test_arrow_types(self, bigquery: BigQuery) -> None:
        kinds = {
            "STRING": pa.string(),
            "BYTES": pa.binary(),
            "INTEGER": pa.int64(),
            "FLOAT": pa.float64(),
            "NUMERIC": pa.decimal128(38, 9),
            "BIGNUMERIC": pa.decimal256(76, 38),
            "BOOLEAN": pa.bool_(),
            "TIMESTAMP": pa.timestamp("us", tz="UTC"),
            "DATE": pa.date32(),
            "TIME": pa.time64("us"),
            "DATETIME": pa.timestamp("us"),
            "GEOGRAPHY": pa.string(),
            "JSON": pa.string(),
            "INTERVAL": pa.month_day_nano_interval(),
        }
        table = bigquery.make_table([{"name": kind, "type": kind} for kind in kinds])

        schema = arrow_schema(bigquery.create_session(table))

        assert {field.name: field.type for field in schema} == kinds

    @rule(
        "CreateReadSession",
        "Arrow schema: sqlType of DATETIME and GEOGRAPHY",
        "google test: python-bigquery system tests, arrow metadata",
    )
    def test_arrow_metadata(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": kind, "type": kind} for kind in ("DATETIME", "GEOGRAPHY", "JSON", "STRING")]
        )

        schema = arrow_schema(bigquery.create_session(table))

        assert [
            (schema.field(name).metadata or {}).get(b"ARROW:extension:name")
            for name in ("DATETIME", "GEOGRAPHY", "JSON", "STRING")
        ] == [b"google:sqlType:datetime", b"google:sqlType:geography", b"google:sqlType:json", None]

    @rule(
        "CreateReadSession",
        "Arrow schema: arrays are lists, structs are structs",
        "docs: storage read, Arrow schema details",
    )
    def test_arrow_nesting(self, bigquery: BigQuery) -> None:
        inner = [{"name": "a", "type": "INT64", "mode": "REPEATED"}]
        table = bigquery.make_table(
            [{"name": "s", "type": "STRUCT", "mode": "REPEATED", "fields": inner}]
        )

        schema = arrow_schema(bigquery.create_session(table))

        kind = schema.field("s").type
        assert pa.types.is_list(kind)
        assert pa.types.is_struct(kind.value_type)
        assert kind.value_type.field("a").type.value_type == pa.int64()

    @rule(
        "CreateReadSession",
        "Arrow schema: RANGE is a struct of start and end",
        "docs: storage read, Arrow schema details",
    )
    def test_arrow_range(self, bigquery: BigQuery) -> None:
        field = {"name": "r", "type": "RANGE", "rangeElementType": {"type": "TIMESTAMP"}}
        table = bigquery.make_table([field])

        kind = arrow_schema(bigquery.create_session(table)).field("r").type

        assert {each.name: each.type for each in kind} == dict.fromkeys(
            ("start", "end"), pa.timestamp("us", tz="UTC")
        )

    @rule("CreateReadSession", "Arrow schema: REQUIRED is not nullable", "assumed")
    def test_arrow_nullability(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "a", "type": "INT64", "mode": "REQUIRED"}, {"name": "b", "type": "INT64"}]
        )

        schema = arrow_schema(bigquery.create_session(table))

        assert [schema.field(name).nullable for name in "ab"] == [False, True]

    @rule(
        "CreateReadSession",
        "TIMESTAMP(12) comes as microseconds unless asked otherwise",
        "proto: arrow.proto, picos_timestamp_precision",
    )
    @rule(
        "CreateReadSession",
        "TIMESTAMP(12) comes as text in picoseconds",
        "proto: arrow.proto, TIMESTAMP_PRECISION_PICOS",
    )
    @rule(
        "CreateReadSession",
        "TIMESTAMP(12) comes in nanoseconds, cut off",
        "proto: arrow.proto, TIMESTAMP_PRECISION_NANOS",
    )
    def test_picoseconds(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "t", "type": "TIMESTAMP", "timestampPrecision": "12"}]
        )
        writer = Writer(t="string")
        text = "2021-01-01T12:34:56.123456789012Z"
        bigquery.append(table.default_stream, writer, [writer.row(t=text)])
        micros = datetime.datetime(2021, 1, 1, 12, 34, 56, 123456, datetime.timezone.utc)

        def read(precision: int) -> Any:
            options = {"picos_timestamp_precision": precision}
            (row,) = bigquery.rows(table, arrow_serialization_options=options)
            return row["t"]

        assert read(0) == read(1) == micros
        assert read(3) == text
        session = bigquery.create_session(
            table, arrow_serialization_options={"picos_timestamp_precision": 2}
        )
        assert arrow_schema(session).field("t").type == pa.timestamp("ns", tz="UTC")
