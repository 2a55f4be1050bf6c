"""ReadRows and SplitReadStream: offsets, progress, compression, splits."""

import hashlib

import pyarrow as pa
import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    Writer,
    arrow_rows,
    arrow_schema,
    rule,
)
from bqflink_beam.testing.conformance.sessions import FIELDS, WRITER, ids_of, table_of

_PROTO = "proto: stream.proto, "
_STORAGE = "proto: storage.proto, "
_507 = "measured: bigquery-emulator issue 507, on the service 2026-08-09"


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
        table = bigquery.make_table(FIELDS)
        rows = [WRITER.row(id=1, name="x" * 1000)] * 100
        bigquery.append(table.default_stream, WRITER, rows)
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

        assert sorted(ids_of(rows)) == list(range(100))

    @rule(
        "ReadRows",
        "uncompressed_byte_size is -1 where compression would not help",
        _STORAGE + "uncompressed_byte_size",
    )
    @rule(
        "ReadRows",
        "uncompressed_byte_size is not set unless asked for",
        _STORAGE + "uncompressed_byte_size",
    )
    def test_responses_that_do_not_shrink(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "x", "type": "BYTES"}])
        writer = Writer(x="bytes")
        noise = b"".join(hashlib.sha256(b"%d" % part).digest() for part in range(3_000))
        bigquery.append(table.default_stream, writer, [writer.row(x=noise)])

        plain = bigquery.create_session(table)
        session = bigquery.create_session(table, response_compression_codec=2)

        (answer,) = bigquery.read(session.streams[0].name)
        assert answer.uncompressed_byte_size == -1
        assert arrow_rows(answer, arrow_schema(session)) == [{"x": noise}]
        (answer,) = bigquery.read(plain.streams[0].name)
        assert not answer.HasField("uncompressed_byte_size")

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

        assert sorted(ids_of(rows)) == list(range(100))

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
