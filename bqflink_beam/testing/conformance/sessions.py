"""CreateReadSession: streams, snapshots, selection, and the Arrow schema of each type."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance.kit import (
    READ,
    BigQuery,
    Failure,
    Writer,
    arrow_schema,
    message,
    rule,
)

_PROTO = "proto: stream.proto, "
_STORAGE = "proto: storage.proto, "
_507 = "measured: bigquery-emulator issue 507, on the service 2026-08-09"
FIELDS = [{"name": "id", "type": "INT64"}, {"name": "name", "type": "STRING"}]
WRITER = Writer(id="int64", name="string")


def table_of(
    bigquery: BigQuery, count: int, fields: list[dict[str, Any]] = FIELDS
) -> TableReference:
    """Makes a table with rows 0, 1, 2, ..."""
    table = bigquery.make_table(fields)
    if count:
        rows = [WRITER.row(id=number, name=f"n{number}") for number in range(count)]
        bigquery.append(table.default_stream, WRITER, rows)
    return table


def ids_of(rows: list[dict[str, Any]]) -> list[int]:
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

        assert sorted(ids_of(bigquery.session_rows(session))) == list(range(100))

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
        table = bigquery.make_table(FIELDS)
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

        bigquery.append(table.default_stream, WRITER, [WRITER.row(id=99)])

        assert sorted(ids_of(bigquery.session_rows(session))) == list(range(10))
        assert 99 in ids_of(bigquery.rows(table))

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
        bigquery.append(table.default_stream, WRITER, [WRITER.row(id=99)])

        for _ in range(2):
            assert sorted(ids_of(bigquery.rows(table))) == [0, 1, 2, 99]
            assert sorted(ids_of(bigquery.rows(table, snapshot_s=before))) == [0, 1, 2]

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
        "CreateReadSession",
        "snapshot_time reaches back 7 days",
        "docs: time travel window",
    )
    def test_snapshot_time_beyond_time_travel(self, bigquery: BigQuery) -> None:
        if bigquery.advance is None:
            pytest.skip("the service's clock cannot be moved")
        table = table_of(bigquery, 3)
        bigquery.advance(1)
        then = bigquery.now_s()
        bigquery.advance(7 * 86_400 - 1)
        assert len(bigquery.rows(table, snapshot_s=then)) == 3

        bigquery.advance(2)

        with pytest.raises(Failure) as failed:
            bigquery.create_session(table, snapshot_s=then)
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
        "SplitReadStream",
        "an expired session is FAILED_PRECONDITION",
        _PROTO + "ReadSession.expire_time",
    )
    def test_split_in_an_expired_session(self, bigquery: BigQuery) -> None:
        if bigquery.advance is None:
            pytest.skip("the service's clock cannot be moved")
        session = bigquery.create_session(table_of(bigquery, 30), streams_max=1)
        bigquery.advance(6 * 3600 + 1)

        with pytest.raises(Failure) as failed:
            bigquery.split(session.streams[0].name, 0.5)

        assert failed.value.code == "FAILED_PRECONDITION"

    @rule("CreateReadSession", "an expired table is NOT_FOUND", "docs: managing tables, expiration")
    def test_expired_table(self, bigquery: BigQuery) -> None:
        if bigquery.advance is None:
            pytest.skip("the service's clock cannot be moved")
        table = table_of(bigquery, 3)
        soon_ms = (bigquery.now_s() + 60) * 1000
        bigquery.patch_table(table, {"expirationTime": str(int(soon_ms))})
        assert len(bigquery.rows(table)) == 3

        bigquery.advance(61)

        with pytest.raises(Failure) as failed:
            bigquery.create_session(table)
        assert failed.value.code == "NOT_FOUND"

    @rule(
        "CreateReadSession",
        "output-only fields of the request are not taken over",
        _PROTO + "ReadSession.streams",
    )
    def test_output_fields_of_the_request(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 3)
        request = message("CreateReadSessionRequest", parent=f"projects/{table.project}")
        request.read_session.MergeFrom(
            message("ReadSession", table=table.path, data_format=2, name="mine", trace_id="mine")
        )
        request.read_session.streams.add(name="projects/p/locations/us/sessions/s/streams/mine")
        request.read_session.estimated_row_count = 99
        request.read_session.estimated_total_physical_file_size = 99

        session = bigquery.transport.unary(
            READ, "CreateReadSession", request, type(request.read_session)
        )

        assert sorted(ids_of(bigquery.session_rows(session))) == [0, 1, 2]
        assert session.estimated_row_count == 3
        assert session.estimated_total_physical_file_size == 0
        assert session.trace_id == "mine"

    @rule("CreateReadSession", "trace_id has 256 bytes at most", _PROTO + "ReadSession.trace_id")
    def test_long_trace_id(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 3)
        request = message("CreateReadSessionRequest", parent=f"projects/{table.project}")
        request.read_session.MergeFrom(
            message("ReadSession", table=table.path, data_format=2, trace_id="ä" * 129)
        )

        with pytest.raises(Failure) as failed:
            bigquery.transport.unary(READ, "CreateReadSession", request, type(request.read_session))

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "CreateReadSession",
        "stream counts are not negative",
        _STORAGE + "CreateReadSessionRequest.max_stream_count",
    )
    @pytest.mark.parametrize("counts", [{"streams_max": -1}, {"streams_min": -1}], ids=str)
    def test_negative_stream_count(self, bigquery: BigQuery, counts: dict[str, int]) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(table_of(bigquery, 3), **counts)  # type: ignore[arg-type]

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule(
        "CreateReadSession",
        "the bytes are those of the selected columns",
        "docs: pricing, storage read",
    )
    def test_estimated_bytes_of_selected_columns(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 1000)

        whole = bigquery.create_session(table)
        some = bigquery.create_session(table, selected_fields=["name"])

        assert 0 < some.estimated_total_bytes_scanned < whole.estimated_total_bytes_scanned

    @rule(
        "CreateReadSession",
        "sampling keeps some blocks",
        _PROTO + "TableReadOptions.sample_percentage",
    )
    def test_sample_of_everything(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 50)

        assert sorted(ids_of(bigquery.rows(table, sample_percentage=100.0))) == list(range(50))

    @rule("CreateReadSession", "a percentage is in (0, 100]", "docs: table sampling")
    @pytest.mark.parametrize("percentage", [-1.0, 101.0])
    def test_sample_out_of_range(self, bigquery: BigQuery, percentage: float) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(table_of(bigquery, 5), sample_percentage=percentage)

        assert failed.value.code == "INVALID_ARGUMENT"


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
