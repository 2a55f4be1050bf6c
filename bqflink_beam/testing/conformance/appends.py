"""AppendRows connections: offsets, multiplexing, errors in band, rows that are refused."""

import dataclasses

import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    Writer,
    append_request,
    error_of,
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


class PartitionConformance:
    """AppendRows to one partition."""

    _DOCS = "docs: write-api, load data into a specific partition"

    @rule("AppendRows", "a decorator names a day of an ingestion-time table", _DOCS)
    def test_decorated_default_stream(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS, timePartitioning={"type": "DAY"})
        day = bigquery.today(-3)

        bigquery.append(f"{table.path}${day:%Y%m%d}/streams/_default", WRITER, ids(1))

        is_day = f"_PARTITIONTIME = TIMESTAMP '{day:%Y-%m-%d} 00:00:00+00'"
        assert [row["id"] for row in bigquery.rows(table, row_restriction=is_day)] == [1]

    @rule("AppendRows", "a decorator reaches 31 days back and 16 ahead", _DOCS)
    @pytest.mark.parametrize("days", [-33, 18])
    def test_decorator_out_of_reach(self, bigquery: BigQuery, days: int) -> None:
        table = bigquery.make_table(FIELDS, timePartitioning={"type": "DAY"})
        name = f"{table.path}${bigquery.today(days):%Y%m%d}/streams/_default"

        with bigquery.connection() as append, pytest.raises(Failure) as failed:
            append(append_request(name, ids(1), writer=WRITER))

        assert failed.value.code == "INVALID_ARGUMENT"
        assert visible(bigquery, table) == []

    @rule("AppendRows", "a decorator does not go with other tables", _DOCS)
    @pytest.mark.parametrize("resource", [{}, {"timePartitioning": {"type": "HOUR"}}])
    def test_decorator_of_another_table(
        self, bigquery: BigQuery, resource: dict[str, object]
    ) -> None:
        table = bigquery.make_table(FIELDS, **resource)
        name = f"{table.path}${bigquery.today(0):%Y%m%d}/streams/_default"

        with bigquery.connection() as append, pytest.raises(Failure) as failed:
            append(append_request(name, ids(1), writer=WRITER))

        assert failed.value.code == "INVALID_ARGUMENT"
        assert visible(bigquery, table) == []

    @rule("CreateWriteStream", "a decorator goes with the default stream only", _DOCS)
    def test_decorator_of_a_made_stream(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS, timePartitioning={"type": "DAY"})
        decorated = dataclasses.replace(table, table=f"{table.table}${bigquery.today(0):%Y%m%d}")

        with pytest.raises(Failure) as failed:
            bigquery.create_stream(decorated, "PENDING")

        assert failed.value.code == "INVALID_ARGUMENT"


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
