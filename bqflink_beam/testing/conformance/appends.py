"""`AppendConformance`: AppendRows connections: offsets, errors in band, schemas, missing values."""

import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    Writer,
    append_request,
    error_of,
    message,
    offset_of,
    row_errors,
    rule,
)
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids, visible

_PROTO = "proto: storage.proto, "
_IT = "google test: java-bigquerystorage ITBigQueryStorageWriteClientTest, "


class DefaultStreamConformance:
    """AppendRows on the default stream."""

    @rule("AppendRows", "default stream: rows are visible with the answer", _PROTO + "AppendRows")
    @rule("AppendRows", "default stream: no offset in the answer", _PROTO + "AppendResult.offset")
    def test_rows_are_visible_at_once(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        answer = bigquery.append(table.default_stream, WRITER, ids(1, 2))

        assert offset_of(answer) is None
        assert visible(bigquery, table) == [1, 2]

    @rule(
        "AppendRows",
        "default stream: an offset is not allowed",
        _PROTO + "AppendRowsRequest.offset",
    )
    def test_offset_is_refused(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        answer = bigquery.append(table.default_stream, WRITER, ids(1), offset=0)

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert visible(bigquery, table) == []

    @rule("AppendRows", "default stream: the short name", _IT + "testLargeRequest")
    def test_short_name(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        bigquery.append(f"{table.path}/_default", WRITER, ids(1))

        assert visible(bigquery, table) == [1]

    @rule(
        "AppendRows",
        "write_stream may be left out after the first request",
        _PROTO + "AppendRowsRequest.write_stream",
    )
    @rule(
        "AppendRows", "the writer schema holds until it changes", _PROTO + "ProtoData.writer_schema"
    )
    def test_stream_and_schema_stick(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with bigquery.connection() as append:
            append(append_request(table.default_stream, ids(1), writer=WRITER))
            append(append_request(rows=ids(2)))
            append(append_request(rows=ids(3)))

        assert visible(bigquery, table) == [1, 2, 3]

    @rule(
        "AppendRows",
        "the first request names the stream",
        _PROTO + "AppendRowsRequest.write_stream",
    )
    def test_first_request_without_a_stream(self, bigquery: BigQuery) -> None:
        with bigquery.connection() as append, pytest.raises(Failure) as failed:
            append(append_request(rows=ids(1), writer=WRITER))

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "AppendRows", "the first request has the writer schema", _PROTO + "ProtoData.writer_schema"
    )
    def test_first_request_without_a_schema(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with bigquery.connection() as append:
            answer = append(append_request(table.default_stream, ids(1)))

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert visible(bigquery, table) == []

    @rule("AppendRows", "one connection may write to several tables", _PROTO + "AppendRowsRequest")
    @rule(
        "AppendRows",
        "the answer names the stream of its request",
        _PROTO + "AppendRowsResponse.write_stream",
    )
    def test_multiplexing(self, bigquery: BigQuery) -> None:
        first, second = bigquery.make_table(FIELDS), bigquery.make_table(FIELDS)

        with bigquery.connection() as append:
            answers = [
                append(append_request(table.default_stream, ids(number), writer=WRITER))
                for number, table in ((1, first), (2, second), (3, first))
            ]

        assert [each.write_stream for each in answers] == [
            first.default_stream,
            second.default_stream,
            first.default_stream,
        ]
        assert visible(bigquery, first) == [1, 3]
        assert visible(bigquery, second) == [2]

    @rule(
        "AppendRows",
        "after a switch every request names its stream",
        _PROTO + "AppendRowsRequest.write_stream",
    )
    def test_stream_must_be_named_after_a_switch(self, bigquery: BigQuery) -> None:
        first, second = bigquery.make_table(FIELDS), bigquery.make_table(FIELDS)

        with bigquery.connection() as append:
            append(append_request(first.default_stream, ids(1), writer=WRITER))
            append(append_request(second.default_stream, ids(2), writer=WRITER))
            with pytest.raises(Failure) as failed:
                append(append_request(rows=ids(3)))

        assert failed.value.code == "INVALID_ARGUMENT"
        assert visible(bigquery, second) == [2]

    @rule(
        "AppendRows",
        "a new destination needs its writer schema",
        _PROTO + "ProtoData.writer_schema",
    )
    def test_new_destination_needs_a_schema(self, bigquery: BigQuery) -> None:
        first, second = bigquery.make_table(FIELDS), bigquery.make_table(FIELDS)

        with bigquery.connection() as append:
            append(append_request(first.default_stream, ids(1), writer=WRITER))
            answer = append(append_request(second.default_stream, ids(2)))

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert visible(bigquery, second) == []

    @rule(
        "AppendRows",
        "a missing table ends the connection with NOT_FOUND",
        "docs: BigQuery error messages",
    )
    def test_missing_table(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        bigquery.drop_table(table)

        with bigquery.connection() as append, pytest.raises(Failure) as failed:
            append(append_request(table.default_stream, ids(1), writer=WRITER))

        assert failed.value.code == "NOT_FOUND"

    @rule("AppendRows", "rows must be given", _PROTO + "ProtoData.rows")
    def test_request_without_rows(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        answer = bigquery.append(table.default_stream, WRITER, [])

        assert error_of(answer).code == "INVALID_ARGUMENT"

    @rule(
        "AppendRows", "a request of 20 MB or more is INVALID_ARGUMENT", _PROTO + "AppendRowsRequest"
    )
    def test_request_too_large(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "data", "type": "BYTES"}])
        writer = Writer(data="bytes")

        answer = bigquery.append(table.default_stream, writer, [writer.row(data=bytes(20 << 20))])

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert bigquery.rows(table) == []

    @rule("AppendRows", "a request of 15 MiB is accepted", _IT + "testLargeRequest")
    def test_large_request(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "data", "type": "BYTES"}])
        writer = Writer(data="bytes")

        answer = bigquery.append(table.default_stream, writer, [writer.row(data=bytes(15 << 20))])

        assert answer.WhichOneof("response") == "append_result"


class OffsetConformance:
    """AppendRows on streams that an application made."""

    @rule("AppendRows", "COMMITTED rows are visible with the answer", _PROTO + "AppendRows")
    @rule(
        "AppendRows",
        "the answer's offset is where the request began",
        _PROTO + "AppendResult.offset",
    )
    def test_offset_of_the_answer(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "COMMITTED")

        with bigquery.connection() as append:
            offsets = [
                offset_of(append(append_request(name, ids(1, 2), writer=WRITER, offset=0))),
                offset_of(append(append_request(rows=ids(3), offset=2))),
            ]

        assert offsets == [0, 2]
        assert visible(bigquery, table) == [1, 2, 3]

    @rule("AppendRows", "without an offset rows go to the end", _PROTO + "AppendRowsRequest.offset")
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING", "BUFFERED"])
    def test_append_at_the_end(self, bigquery: BigQuery, kind: str) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), kind)
        bigquery.append(name, WRITER, ids(1, 2))

        assert offset_of(bigquery.append(name, WRITER, ids(3))) == 2

    @rule("AppendRows", "a written offset is ALREADY_EXISTS", _PROTO + "AppendRowsResponse.error")
    @rule("AppendRows", "a written offset: the text", _IT + "testStreamError")
    @rule(
        "AppendRows",
        "a written offset carries OFFSET_ALREADY_EXISTS",
        _IT + "testOffsetAlreadyExistsError",
    )
    @rule(
        "AppendRows",
        "the connection stays usable after a written offset",
        _PROTO + "AppendRowsResponse.error",
    )
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING", "BUFFERED"])
    def test_second_append_at_an_offset_is_refused(self, bigquery: BigQuery, kind: str) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), kind)

        with bigquery.connection() as append:
            append(append_request(name, ids(1), writer=WRITER, offset=0))
            error = error_of(append(append_request(rows=ids(9), offset=0)))
            after = append(append_request(rows=ids(2), offset=1))

        assert error.code == "ALREADY_EXISTS"
        assert error.text.startswith("The offset is within stream, expected offset 1, received 0")
        assert error.storage_errors == [("OFFSET_ALREADY_EXISTS", name)]
        assert offset_of(after) == 1
        assert bigquery.finalize(name) == 2

    @rule(
        "AppendRows",
        "an offset beyond the end is OUT_OF_RANGE",
        _PROTO + "AppendRowsResponse.error",
    )
    @rule("AppendRows", "an offset beyond the end: the text", _IT + "testStreamError")
    @rule(
        "AppendRows",
        "an offset beyond the end carries OFFSET_OUT_OF_RANGE",
        _IT + "testOffsetOutOfRangeError",
    )
    @rule("AppendRows", "the connection stays usable after a gap", _IT + "testStreamError")
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING", "BUFFERED"])
    def test_append_beyond_the_end_is_refused(self, bigquery: BigQuery, kind: str) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), kind)

        with bigquery.connection() as append:
            append(append_request(name, ids(1), writer=WRITER, offset=0))
            error = error_of(append(append_request(rows=ids(9), offset=100)))
            after = append(append_request(rows=ids(2)))

        assert error.code == "OUT_OF_RANGE"
        assert error.text.startswith("The offset is beyond stream, expected offset 1, received 100")
        assert error.storage_errors == [("OFFSET_OUT_OF_RANGE", name)]
        assert offset_of(after) == 1
        assert bigquery.finalize(name) == 2

    @rule(
        "AppendRows", "the offset belongs to the stream, not the connection", _PROTO + "AppendRows"
    )
    def test_another_connection_goes_on_at_the_offset(self, bigquery: BigQuery) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), "PENDING")
        bigquery.append(name, WRITER, ids(1, 2), offset=0)

        answers = [
            bigquery.append(name, WRITER, ids(3), offset=0),
            bigquery.append(name, WRITER, ids(3), offset=2),
        ]

        assert error_of(answers[0]).code == "ALREADY_EXISTS"
        assert offset_of(answers[1]) == 2

    @rule("AppendRows", "an unknown stream is NOT_FOUND", _PROTO + "StorageError.STREAM_NOT_FOUND")
    @rule(
        "AppendRows",
        "an unknown stream carries STREAM_NOT_FOUND",
        _PROTO + "StorageError.STREAM_NOT_FOUND, in the details",
    )
    def test_unknown_stream(self, bigquery: BigQuery) -> None:
        name = f"{bigquery.make_table(FIELDS).path}/streams/nobody"

        with bigquery.connection() as append, pytest.raises(Failure) as failed:
            append(append_request(name, ids(1), writer=WRITER))

        assert failed.value.code == "NOT_FOUND"
        assert failed.value.storage_errors == [("STREAM_NOT_FOUND", name)]

    @rule(
        "AppendRows",
        "a malformed stream name is INVALID_ARGUMENT",
        "measured: bqemulator's recorded answers of the service, stream names",
    )
    def test_malformed_stream_name(self, bigquery: BigQuery) -> None:
        with bigquery.connection() as append, pytest.raises(Failure) as failed:
            append(append_request("streams/x", ids(1), writer=WRITER))

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "AppendRows", "only default streams can be switched between", _PROTO + "AppendRowsRequest"
    )
    def test_switch_between_made_streams_is_refused(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        first, second = (bigquery.create_stream(table, "PENDING") for _ in range(2))

        with bigquery.connection() as append:
            append(append_request(first, ids(1), writer=WRITER))
            with pytest.raises(Failure) as failed:
                append(append_request(second, ids(2), writer=WRITER))

        assert failed.value.code == "INVALID_ARGUMENT"
        assert bigquery.finalize(second) == 0


class BadRowConformance:
    """AppendRows with rows that the table refuses."""

    @rule(
        "AppendRows",
        "bad rows are listed with their index",
        _PROTO + "AppendRowsResponse.row_errors",
    )
    @rule(
        "AppendRows",
        "nothing of a request with a bad row is appended",
        _PROTO + "AppendRowsResponse.row_errors",
    )
    @rule("AppendRows", "the rest can be sent again on the connection", _IT + "testRowErrors")
    @rule("AppendRows", "STRING(n): the text", _IT + "testRowErrors")
    @rule(
        "AppendRows",
        "a request with bad rows is INVALID_ARGUMENT",
        "measured: python-bigquery-storage issue 717",
    )
    @rule("AppendRows", "row errors are FIELDS_ERROR", _PROTO + "RowError.FIELDS_ERROR")
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING", "BUFFERED"])
    def test_bad_rows(self, bigquery: BigQuery, kind: str) -> None:
        name = bigquery.create_stream(bigquery.make_table(FIELDS), kind)
        rows = [
            WRITER.row(name="aaabbbcccddd"),
            WRITER.row(name="bbb"),
            WRITER.row(name="cccdddeeefffggg"),
        ]

        with bigquery.connection() as append:
            bad = append(append_request(name, rows, writer=WRITER, offset=0))
            good = append(append_request(rows=[rows[1]], offset=0))

        assert error_of(bad).code == "INVALID_ARGUMENT"
        assert error_of(bad).text.startswith("Errors found while processing rows.")
        assert row_errors(bad) == {
            row: f"Field name: STRING(10) has maximum length 10 but got a value with length {n} "
            "on field name."
            for row, n in ((0, 12), (2, 15))
        }
        assert {each.code for each in bad.row_errors} == {1}
        assert offset_of(good) == 0
        assert bigquery.finalize(name) == 1

    @rule(
        "AppendRows",
        "default stream: bad rows keep the others out",
        _PROTO + "AppendRowsResponse.row_errors",
    )
    def test_bad_row_on_the_default_stream(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        answer = bigquery.append(
            table.default_stream, WRITER, [WRITER.row(id=1), WRITER.row(name="x" * 11)]
        )

        assert list(row_errors(answer)) == [1]
        assert visible(bigquery, table) == []

    @rule(
        "AppendRows",
        "a row without a REQUIRED value is a row error",
        "docs: write-api, data type conversions",
    )
    def test_missing_required_value(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "id", "type": "INT64", "mode": "REQUIRED"}])
        writer = Writer(id="int64")

        answer = bigquery.append(table.default_stream, writer, [writer.row(id=0), writer.row()])

        assert list(row_errors(answer)) == [1]
        assert bigquery.rows(table) == []

    @rule("AppendRows", "a REQUIRED column that the writer has not is a row error", "assumed")
    def test_required_column_missing_from_the_writer(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "id", "type": "INT64", "mode": "REQUIRED"}, {"name": "x", "type": "INT64"}]
        )
        writer = Writer(x="int64")

        answer = bigquery.append(table.default_stream, writer, [writer.row(x=1)])

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert bigquery.rows(table) == []

    @rule("AppendRows", "bytes that are no message are a row error", "assumed")
    def test_undecodable_row(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with bigquery.connection() as append:
            bad = append(
                append_request(table.default_stream, [*ids(1), b"\x0a\xff"], writer=WRITER)
            )
            append(append_request(rows=ids(2)))

        assert list(row_errors(bad)) == [1]
        assert visible(bigquery, table) == [2]

    @rule("AppendRows", "text that is not UTF-8 is a row error", "assumed")
    def test_text_that_is_not_utf8(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        raw = Writer(id="int64", name="bytes").row(id=1, name=b"\xff\xfe")

        answer = bigquery.append(table.default_stream, WRITER, [*ids(1), raw])

        assert list(row_errors(answer)) == [1]
        assert visible(bigquery, table) == []


class WriterSchemaConformance:
    """AppendRows: writer schemas against the table's."""

    @rule("AppendRows", "extra fields are INVALID_ARGUMENT", _IT + "testStreamSchemaMisMatchError")
    @rule("AppendRows", "extra fields: the text", _IT + "testStreamSchemaMisMatchError")
    @rule(
        "AppendRows",
        "extra fields carry SCHEMA_MISMATCH_EXTRA_FIELDS",
        _PROTO + "StorageError.SCHEMA_MISMATCH_EXTRA_FIELDS",
    )
    def test_extra_fields(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        writer = Writer(id="int64", extra="string")

        error = error_of(bigquery.append(table.default_stream, writer, [writer.row(id=1)]))

        assert error.code == "INVALID_ARGUMENT"
        assert error.text.startswith("Input schema has more fields than BigQuery schema")
        assert [code for code, _ in error.storage_errors] == ["SCHEMA_MISMATCH_EXTRA_FIELDS"]
        assert visible(bigquery, table) == []

    @rule(
        "AppendRows",
        "the text names the extra fields",
        "measured: m-lab etl, extra fields: 'tag_foo2'",
    )
    def test_extra_fields_are_named(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        writer = Writer(id="int64", tag_foo2="string")

        error = error_of(bigquery.append(table.default_stream, writer, [writer.row(id=1)]))

        assert "extra fields: 'tag_foo2'" in error.text

    @rule(
        "AppendRows",
        "extra fields inside of a STRUCT",
        _PROTO + "StorageError.SCHEMA_MISMATCH_EXTRA_FIELDS",
    )
    def test_extra_nested_fields(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "s", "type": "STRUCT", "fields": [{"name": "a", "type": "INT64"}]}]
        )
        writer = Writer(s=Writer("S", a="int64", b="int64"))

        error = error_of(bigquery.append(table.default_stream, writer, [writer.row()]))

        assert [code for code, _ in error.storage_errors] == ["SCHEMA_MISMATCH_EXTRA_FIELDS"]

    @rule("AppendRows", "a type that does not go with the column", "measured: Beam issue 21247")
    def test_mismatched_type(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        writer = Writer(id="string")

        error = error_of(bigquery.append(table.default_stream, writer, [writer.row(id="1")]))

        assert error.code == "INVALID_ARGUMENT"
        assert error.text.startswith("The proto field mismatched with BigQuery field at ")
        assert "the proto field type string, BigQuery field type INTEGER" in error.text

    @rule("AppendRows", "a repeated field for a column that is not", "assumed")
    def test_repeated_field_for_a_single_column(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        writer = Writer(id="repeated int64")

        error = error_of(bigquery.append(table.default_stream, writer, [writer.row(id=[1])]))

        assert error.code == "INVALID_ARGUMENT"

    @rule(
        "AppendRows", "column names match in any case", "docs: column names are not case-sensitive"
    )
    def test_names_in_another_case(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        writer = Writer(ID="int64", Name="string")

        bigquery.append(table.default_stream, writer, [writer.row(ID=1, Name="x")])

        assert bigquery.rows(table) == [{"id": 1, "name": "x"}]

    @rule(
        "AppendRows",
        "the column_name annotation names the column",
        "proto: annotations.proto, column_name",
    )
    def test_annotated_name(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "größe-1", "type": "INT64"}])
        writer = Writer(col_1="int64")
        # Field 454943157 of the options, as Google's generated code writes it.
        text = "größe-1".encode()
        key = (454943157 << 3) | 2
        raw = b""
        while key > 127:
            raw, key = raw + bytes([key & 127 | 128]), key >> 7
        raw += bytes([key, len(text)]) + text
        writer.descriptor.field[0].options.MergeFromString(raw)

        bigquery.append(table.default_stream, writer, [writer.row(col_1=7)])

        assert bigquery.rows(table) == [{"größe-1": 7}]

    @rule(
        "AppendRows", "columns that the writer leaves out are NULL", "docs: write-api, unset fields"
    )
    def test_columns_left_out(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([*FIELDS, {"name": "r", "type": "INT64", "mode": "REPEATED"}])
        writer = Writer(id="int64")

        bigquery.append(table.default_stream, writer, [writer.row(id=1), writer.row()])

        assert sorted(bigquery.rows(table), key=str) == [
            {"id": 1, "name": None, "r": []},
            {"id": None, "name": None, "r": []},
        ]

    @rule(
        "AppendRows",
        "a value equal to the type's default is a value",
        "proto: storage.proto, ProtoData.rows (proto2)",
    )
    def test_zero_is_not_missing(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        bigquery.append(table.default_stream, WRITER, [WRITER.row(id=0, name=""), WRITER.row()])

        assert sorted(bigquery.rows(table), key=str) == [
            {"id": 0, "name": ""},
            {"id": None, "name": None},
        ]

    @rule("AppendRows", "a descriptor that is broken is INVALID_ARGUMENT", "assumed")
    def test_broken_descriptor(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        writer = Writer(id="int64")
        writer.descriptor.field[0].type = 11
        writer.descriptor.field[0].type_name = ".nowhere.Message"

        answer = bigquery.append(table.default_stream, writer, [b"\x08\x01"])

        assert error_of(answer).code == "INVALID_ARGUMENT"

    @rule(
        "AppendRows",
        "a new column is told in updated_schema",
        _PROTO + "AppendRowsResponse.updated_schema",
    )
    @rule(
        "AppendRows",
        "the old writer schema goes on working after a new column",
        "docs: write-api, schema updates",
    )
    @rule(
        "AppendRows",
        "updated_schema is empty without a change",
        _PROTO + "AppendRowsResponse.updated_schema",
    )
    def test_updated_schema(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        more = [*FIELDS, {"name": "added", "type": "STRING"}]

        with bigquery.connection() as append:
            before = append(append_request(table.default_stream, ids(1), writer=WRITER))
            bigquery.patch_table(table, {"schema": {"fields": more}})
            after = append(append_request(rows=ids(2)))
            later = append(append_request(rows=ids(3)))

        assert not before.HasField("updated_schema")
        assert [each.name for each in after.updated_schema.fields] == ["id", "name", "added"]
        assert not later.HasField("updated_schema")
        assert visible(bigquery, table) == [1, 2, 3]

    @rule(
        "AppendRows", "a new connection can write a new column", "docs: write-api, schema updates"
    )
    def test_new_column_on_a_new_connection(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        bigquery.append(table.default_stream, WRITER, ids(1))
        bigquery.patch_table(
            table, {"schema": {"fields": [*FIELDS, {"name": "added", "type": "STRING"}]}}
        )
        writer = Writer(id="int64", added="string")

        bigquery.append(table.default_stream, writer, [writer.row(id=2, added="new")])

        assert sorted(
            (row["id"], row["added"]) for row in bigquery.rows(table) if row["added"]
        ) == [(2, "new")]
        assert visible(bigquery, table) == [1, 2]


class MissingValueConformance:
    """AppendRows: missing_value_interpretations and column defaults."""

    FIELDS = (
        {"name": "id", "type": "INT64"},
        {"name": "text", "type": "STRING", "defaultValueExpression": "'fallback'"},
        {"name": "plain", "type": "STRING"},
    )
    WRITER = Writer(id="int64", text="string", plain="string")

    def _texts(self, bigquery: BigQuery, table: object) -> dict[int, object]:
        return {row["id"]: row["text"] for row in bigquery.rows(table)}  # type: ignore[arg-type]

    @rule(
        "AppendRows",
        "a missing value is NULL unless asked otherwise",
        _PROTO + "missing_value_interpretations",
    )
    def test_missing_is_null(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(list(self.FIELDS))

        bigquery.append(table.default_stream, self.WRITER, [self.WRITER.row(id=1)])

        assert self._texts(bigquery, table) == {1: None}

    @rule(
        "AppendRows",
        "DEFAULT_VALUE gives the column's default",
        _PROTO + "MissingValueInterpretation.DEFAULT_VALUE",
    )
    @rule(
        "AppendRows",
        "DEFAULT_VALUE gives NULL to a column without default",
        _PROTO + "MissingValueInterpretation.DEFAULT_VALUE",
    )
    @rule(
        "AppendRows", "a default does not replace a value", _PROTO + "missing_value_interpretations"
    )
    def test_default_value(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(list(self.FIELDS))
        rows = [
            self.WRITER.row(id=1),
            self.WRITER.row(id=2, text=""),
            self.WRITER.row(id=3, text="own"),
        ]

        with bigquery.connection() as append:
            append(
                append_request(
                    table.default_stream,
                    rows,
                    writer=self.WRITER,
                    default_missing_value_interpretation=2,
                )
            )

        assert self._texts(bigquery, table) == {1: "fallback", 2: "", 3: "own"}
        assert {row["plain"] for row in bigquery.rows(table)} == {None}

    @rule(
        "AppendRows",
        "default_missing_value_interpretation holds until it changes",
        _PROTO + "default_missing_value_interpretation",
    )
    def test_default_interpretation_sticks(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(list(self.FIELDS))

        with bigquery.connection() as append:
            append(
                append_request(
                    table.default_stream,
                    [self.WRITER.row(id=1)],
                    writer=self.WRITER,
                    default_missing_value_interpretation=2,
                )
            )
            append(append_request(rows=[self.WRITER.row(id=2)]))
            append(
                append_request(rows=[self.WRITER.row(id=3)], default_missing_value_interpretation=1)
            )

        assert self._texts(bigquery, table) == {1: "fallback", 2: "fallback", 3: None}

    @rule(
        "AppendRows",
        "missing_value_interpretations override the default",
        _PROTO + "default_missing_value_interpretation",
    )
    @rule(
        "AppendRows",
        "missing_value_interpretations hold for one request",
        _PROTO + "missing_value_interpretations",
    )
    def test_map_overrides_for_one_request(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(list(self.FIELDS))

        with bigquery.connection() as append:
            append(
                append_request(
                    table.default_stream,
                    [self.WRITER.row(id=1)],
                    writer=self.WRITER,
                    default_missing_value_interpretation=2,
                    missing_value_interpretations={"text": 1},
                )
            )
            append(append_request(rows=[self.WRITER.row(id=2)]))

        assert self._texts(bigquery, table) == {1: None, 2: "fallback"}

    @rule(
        "AppendRows",
        "an UNSPECIFIED interpretation is rejected",
        _PROTO + "MISSING_VALUE_INTERPRETATION_UNSPECIFIED",
    )
    def test_unspecified_interpretation(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(list(self.FIELDS))

        with bigquery.connection() as append:
            answer = append(
                append_request(
                    table.default_stream,
                    [self.WRITER.row(id=1)],
                    writer=self.WRITER,
                    missing_value_interpretations={"text": 0},
                )
            )

        assert error_of(answer).code == "INVALID_ARGUMENT"

    @rule(
        "AppendRows",
        "a column that the writer has not gets its default",
        "docs: default-values, Storage Write API",
    )
    def test_default_of_a_column_the_writer_has_not(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(list(self.FIELDS))
        writer = Writer(id="int64")
        request = append_request(
            table.default_stream,
            [writer.row(id=1)],
            writer=writer,
            default_missing_value_interpretation=2,
        )

        with bigquery.connection() as append:
            append(request)

        assert self._texts(bigquery, table) == {1: "fallback"}

    @rule(
        "AppendRows",
        "a default of CURRENT_TIMESTAMP is a time",
        "docs: default-values, supported functions",
    )
    def test_current_timestamp_default(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [
                {"name": "id", "type": "INT64"},
                {
                    "name": "at",
                    "type": "TIMESTAMP",
                    "defaultValueExpression": "CURRENT_TIMESTAMP()",
                },
            ]
        )
        writer = Writer(id="int64")
        request = append_request(
            table.default_stream,
            [writer.row(id=1)],
            writer=writer,
            default_missing_value_interpretation=2,
        )

        with bigquery.connection() as append:
            append(request)

        (row,) = bigquery.rows(table)
        assert row["at"].year > 2000


__all__ = [
    "BadRowConformance",
    "DefaultStreamConformance",
    "MissingValueConformance",
    "OffsetConformance",
    "WriterSchemaConformance",
    "message",
]
