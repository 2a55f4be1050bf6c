"""`AvroConformance`: the Avro schema of each type, and rows in it."""

import datetime
import decimal
import io
import json
from typing import Any

import fastavro
import pytest

from bqflink_beam.testing.conformance.kit import BigQuery, Failure, Writer, arrow_schema, rule

_DOCS = "docs: storage read, Avro schema details"
_UTC = datetime.timezone.utc


def avro_rows(bigquery: BigQuery, session: Any, stream: str, offset: int = 0) -> list[Any]:
    """Reads a stream of an Avro session."""
    schema = fastavro.parse_schema(json.loads(session.avro_schema.schema))
    rows = []
    for response in bigquery.read(stream, offset):
        data = io.BytesIO(response.avro_rows.serialized_binary_rows)
        for _ in range(response.row_count):
            rows.append(fastavro.schemaless_reader(data, schema, None))
        assert not data.read()
    return rows


def field_types(session: Any) -> dict[str, Any]:
    schema = json.loads(session.avro_schema.schema)
    return {field["name"]: field["type"] for field in schema["fields"]}


class AvroConformance:
    """Reading as Avro."""

    @rule(
        "CreateReadSession",
        "Avro schema: the record is __root__",
        "google test: spark-bigquery-connector, Avro schema",
    )
    @rule("CreateReadSession", "Avro schema: the type of each column", _DOCS)
    @rule("CreateReadSession", "Avro schema: nullable columns are unions with null first", _DOCS)
    def test_avro_types(self, bigquery: BigQuery) -> None:
        kinds: dict[str, Any] = {
            "BOOLEAN": "boolean",
            "INTEGER": "long",
            "FLOAT": "double",
            "BYTES": "bytes",
            "STRING": "string",
            "DATE": {"type": "int", "logicalType": "date"},
            "DATETIME": {"type": "string", "logicalType": "datetime"},
            "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
            "TIME": {"type": "long", "logicalType": "time-micros"},
            "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
            "BIGNUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 77, "scale": 38},
            "GEOGRAPHY": {"type": "string", "sqlType": "GEOGRAPHY"},
            "JSON": {"type": "string", "sqlType": "JSON"},
        }
        table = bigquery.make_table([{"name": kind, "type": kind} for kind in kinds])

        session = bigquery.create_session(table, data_format="AVRO")

        assert json.loads(session.avro_schema.schema)["name"] == "__root__"
        assert field_types(session) == {name: ["null", kind] for name, kind in kinds.items()}

    @rule(
        "CreateReadSession",
        "Avro schema: REQUIRED is the bare type",
        "google test: spark-bigquery-connector, Avro schema",
    )
    @rule(
        "CreateReadSession",
        "Avro schema: REPEATED is a bare array",
        "google test: spark-bigquery-connector, Avro schema",
    )
    @rule(
        "CreateReadSession",
        "Avro schema: nested records are numbered",
        "google test: spark-bigquery-connector, Avro schema",
    )
    def test_avro_modes_and_nesting(self, bigquery: BigQuery) -> None:
        inner = [{"name": "a", "type": "INT64", "mode": "REQUIRED"}]
        fields = [
            {"name": "i", "type": "INT64", "mode": "REQUIRED"},
            {"name": "l", "type": "STRING", "mode": "REPEATED"},
            {"name": "s", "type": "STRUCT", "fields": inner},
            {"name": "t", "type": "STRUCT", "mode": "REPEATED", "fields": inner},
        ]

        types = field_types(
            bigquery.create_session(bigquery.make_table(fields), data_format="AVRO")
        )

        record = {"type": "record", "fields": [{"name": "a", "type": "long"}]}
        assert types["i"] == "long"
        assert types["l"] == {"type": "array", "items": "string"}
        assert types["s"] == ["null", {**record, "name": "__s_0"}]
        assert types["t"] == {"type": "array", "items": {**record, "name": "__s_1"}}

    @rule("CreateReadSession", "Avro schema: NUMERIC(P, S) has its own precision and scale", _DOCS)
    def test_avro_parameters(self, bigquery: BigQuery) -> None:
        field = {"name": "n", "type": "NUMERIC", "mode": "REQUIRED", "precision": "5", "scale": "2"}

        session = bigquery.create_session(bigquery.make_table([field]), data_format="AVRO")

        assert field_types(session)["n"] == {
            "type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2,
        }  # fmt: skip

    @rule("CreateReadSession", "Avro schema: RANGE is defined once and named afterwards", _DOCS)
    def test_avro_range(self, bigquery: BigQuery) -> None:
        kind = {"type": "RANGE", "rangeElementType": {"type": "DATE"}, "mode": "REQUIRED"}
        table = bigquery.make_table([{"name": "a", **kind}, {"name": "b", **kind}])

        types = field_types(bigquery.create_session(table, data_format="AVRO"))

        day = {"type": "int", "logicalType": "date"}
        assert types["a"] == {
            "type": "record",
            "namespace": "google.sqlType",
            "name": "RANGE_DATE",
            "sqlType": "RANGE",
            "fields": [{"name": each, "type": ["null", day]} for each in ("start", "end")],
        }
        assert types["b"] == "google.sqlType.RANGE_DATE"

    @rule("ReadRows", "Avro rows hold the values", _DOCS)
    def test_avro_values(self, bigquery: BigQuery) -> None:
        columns = {
            "i": ("INT64", "int64", 5, 5),
            "f": ("FLOAT64", "double", 0.5, 0.5),
            "b": ("BOOL", "bool", True, True),
            "s": ("STRING", "string", "é", "é"),
            "y": ("BYTES", "bytes", b"\x00", b"\x00"),
            "n": ("NUMERIC", "string", "-1.5", decimal.Decimal("-1.5")),
            "bn": ("BIGNUMERIC", "string", "1e-38", decimal.Decimal("1e-38")),
            "d": ("DATE", "int32", 1, datetime.date(1970, 1, 2)),
            "t": ("TIME", "string", "12:34:56.5", datetime.time(12, 34, 56, 500_000)),
            "dt": ("DATETIME", "string", "2021-01-01 12:34:56.5", "2021-01-01T12:34:56.500000"),
            "ts": ("TIMESTAMP", "int64", 1, datetime.datetime(1970, 1, 1, microsecond=1, tzinfo=_UTC)),
            "j": ("JSON", "string", '{"a":1}', '{"a":1}'),
            "iv": ("INTERVAL", "string", "1-2 3 4:5:6", "1-2 3 4:5:6"),
        }  # fmt: skip
        table = bigquery.make_table(
            [{"name": name, "type": kind} for name, (kind, *_) in columns.items()]
        )
        writer = Writer(**{name: proto for name, (_, proto, *_) in columns.items()})
        full = {name: value for name, (_, _, value, _) in columns.items()}
        bigquery.append(table.default_stream, writer, [writer.row(**full), writer.row()])

        session = bigquery.create_session(table, streams_max=1, data_format="AVRO")
        rows = avro_rows(bigquery, session, session.streams[0].name)

        assert {name: out for name, (*_, out) in columns.items()} in rows
        assert dict.fromkeys(columns) in rows
        assert len(rows) == 2

    @rule("ReadRows", "Avro rows hold nested values", _DOCS)
    def test_avro_nested_values(self, bigquery: BigQuery) -> None:
        inner = [
            {"name": "at", "type": "DATETIME"},
            {"name": "l", "type": "INT64", "mode": "REPEATED"},
        ]
        fields = [
            {"name": "s", "type": "STRUCT", "fields": inner},
            {"name": "t", "type": "STRUCT", "mode": "REPEATED", "fields": inner},
            {"name": "r", "type": "RANGE", "rangeElementType": {"type": "DATE"}},
        ]  # fmt: skip
        table = bigquery.make_table(fields)
        message = Writer("S", at="string", l="repeated int64")
        writer = Writer(s=message, t=[message], r=Writer("R", start="int32", end="int32"))
        value = {"at": "2021-01-01 00:00:00", "l": [1, 2]}
        bigquery.append(
            table.default_stream,
            writer,
            [writer.row(s=value, t=[value, {}], r={"start": 0}), writer.row()],
        )

        session = bigquery.create_session(table, streams_max=1, data_format="AVRO")
        rows = avro_rows(bigquery, session, session.streams[0].name)

        out = {"at": "2021-01-01T00:00:00", "l": [1, 2]}
        assert {
            "s": out,
            "t": [out, {"at": None, "l": []}],
            "r": {"start": datetime.date(1970, 1, 1), "end": None},
        } in rows
        assert {"s": None, "t": [], "r": None} in rows

    @rule("ReadRows", "Avro: offsets count rows", "proto: storage.proto, ReadRowsRequest.offset")
    def test_avro_offsets(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "i", "type": "INT64"}])
        writer = Writer(i="int64")
        bigquery.append(table.default_stream, writer, [writer.row(i=i) for i in range(30)])
        session = bigquery.create_session(table, streams_max=1, data_format="AVRO")
        name = session.streams[0].name

        assert avro_rows(bigquery, session, name, 17) == avro_rows(bigquery, session, name)[17:]

    @rule(
        "CreateReadSession",
        "Avro: a name that Avro cannot have is refused",
        "proto: avro.proto, enable_display_name_attribute",
    )
    @rule(
        "CreateReadSession",
        "Avro: placeholders with displayName on request",
        "proto: avro.proto, enable_display_name_attribute",
    )
    def test_flexible_names(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "größe", "type": "INT64"}, {"name": "b", "type": "INT64"}]
        )

        with pytest.raises(Failure) as failed:
            bigquery.create_session(table, data_format="AVRO")
        session = bigquery.create_session(
            table,
            data_format="AVRO",
            avro_serialization_options={"enable_display_name_attribute": True},
        )

        assert failed.value.code == "INVALID_ARGUMENT"
        fields = json.loads(session.avro_schema.schema)["fields"]
        assert [field["displayName"] for field in fields] == ["größe", "b"]
        assert fields[0]["name"].isascii()


class ParameterConformance:
    """Types with parameters, as Arrow."""

    @rule(
        "CreateReadSession",
        "Arrow schema: NUMERIC(P, S) is a decimal of that precision and scale",
        "docs: storage read, Arrow schema details",
    )
    def test_arrow_parameters(self, bigquery: BigQuery) -> None:
        fields = [
            {"name": "n", "type": "NUMERIC", "precision": "5", "scale": "2"},
            {"name": "b", "type": "BIGNUMERIC", "mode": "REPEATED", "precision": "40"},
        ]
        table = bigquery.make_table(fields)
        writer = Writer(n="string", b="repeated string")
        bigquery.append(table.default_stream, writer, [writer.row(n="1.25", b=["7"])])

        session = bigquery.create_session(table)
        rows = bigquery.session_rows(session)

        schema = arrow_schema(session)
        assert (schema.field("n").type.precision, schema.field("n").type.scale) == (5, 2)
        element = schema.field("b").type.value_type
        assert (element.precision, element.scale) == (40, 0)
        assert rows == [{"n": decimal.Decimal("1.25"), "b": [decimal.Decimal(7)]}]
