"""Rows as proto: what each type takes, what it refuses, what comes back."""

import dataclasses
import datetime
import decimal
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Rule,
    Writer,
    error_of,
    row_errors,
    rule,
)

_UTC = datetime.timezone.utc
_TYPES = "docs: write-api, supported data types"
_IT = "google test: java-bigquerystorage ITBigQueryStorageWriteClientTest, "
_D = decimal.Decimal
_BIG = _D(2**255 - 1).scaleb(-38, decimal.Context(prec=100))


@dataclasses.dataclass(frozen=True)
class Takes:
    """A column takes a value of a proto type; `out` comes back from the Arrow format."""

    column: str
    proto: Any
    value: Any
    out: Any
    source: str = _TYPES
    resource: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.column}-{self.proto if isinstance(self.proto, str) else 'message'}-{self.value!r}"[
            :60
        ]


def _civil(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001, a DATETIME has no zone


def _wrapper(name: str) -> str:
    return f"google.protobuf.{name}"


def _packed_time(hour: int, minute: int, second: int, micros: int) -> int:
    return (hour << 12 | minute << 6 | second) << 20 | micros


def _packed(year: int, month: int, day: int, *clock: int) -> int:
    return (year << 26 | month << 22 | day << 17) << 20 | _packed_time(*clock)


_RANGE = {"rangeElementType": {"type": "DATE"}}

TAKES = [
    Takes("BOOL", "bool", True, True),
    Takes("BOOL", "bool", False, False),
    Takes("BOOL", "int32", 1, True),
    Takes("BOOL", "int64", 0, False),
    Takes("BOOL", "uint32", 1, True),
    Takes("BOOL", "uint64", 1, True),
    Takes("BOOL", _wrapper("BoolValue"), {"value": False}, False),
    Takes("BYTES", "bytes", b"\x00\xff", b"\x00\xff"),
    Takes("BYTES", "string", "é", "é".encode()),
    Takes("BYTES", _wrapper("BytesValue"), {"value": b"x"}, b"x"),
    Takes("DATE", "int32", 18_628, datetime.date(2021, 1, 1)),
    Takes("DATE", "int32", -719_162, datetime.date(1, 1, 1)),
    Takes("DATE", "int64", 2_932_896, datetime.date(9999, 12, 31)),
    Takes("DATE", "string", "2021-01-01", datetime.date(2021, 1, 1)),
    Takes("DATETIME", "string", "2021-01-01 12:34:56.789012", _civil(2021, 1, 1, 12, 34, 56, 789012)),
    Takes("DATETIME", "string", "2021-01-01T00:00:00", _civil(2021, 1, 1)),
    Takes("DATETIME", "int64", _packed(2021, 12, 31, 23, 59, 58, 999_999), _civil(2021, 12, 31, 23, 59, 58, 999_999), _IT + "testComplicateSchemaWithPendingStream"),
    Takes("DATETIME", "int64", _packed(2021, 7, 15, 1, 2, 3, 4), _civil(2021, 7, 15, 1, 2, 3, 4)),
    Takes("DATETIME", "int64", _packed(1, 1, 1, 0, 0, 0, 0), _civil(1, 1, 1)),
    Takes("TIME", "string", "12:34:56.000001", datetime.time(12, 34, 56, 1)),
    Takes("TIME", "int64", _packed_time(12, 34, 56, 0), datetime.time(12, 34, 56), _IT + "testComplicateSchemaWithPendingStream"),
    Takes("FLOAT64", "double", 1.5, 1.5),
    Takes("FLOAT64", "double", float("inf"), float("inf")),
    Takes("FLOAT64", "float", 0.5, 0.5),
    Takes("FLOAT64", _wrapper("DoubleValue"), {"value": 0.25}, 0.25),
    Takes("FLOAT64", _wrapper("FloatValue"), {"value": 0.25}, 0.25),
    Takes("GEOGRAPHY", "string", "POINT(1 2)", "POINT(1 2)"),
    Takes("GEOGRAPHY", "string", "polygon (( 0 0,1 0, 1 1,0 0 ))", "POLYGON((0 0, 1 0, 1 1, 0 0))"),
    Takes("GEOGRAPHY", "string", '{"type": "Point", "coordinates": [1, 2]}', "POINT(1 2)"),
    Takes("INT64", "int64", -(2**63), -(2**63)),
    Takes("INT64", "int32", -1, -1),
    Takes("INT64", "uint32", 2**32 - 1, 2**32 - 1),
    Takes("INT64", "sint64", -2, -2),
    Takes("INT64", "sfixed64", -3, -3),
    Takes("INT64", _wrapper("Int64Value"), {"value": 0}, 0),
    Takes("INT64", _wrapper("Int32Value"), {"value": 5}, 5),
    Takes("INT64", _wrapper("UInt32Value"), {"value": 6}, 6),
    Takes("JSON", "string", '{"a":1}', '{"a":1}'),
    Takes("NUMERIC", "string", "123.456", _D("123.456")),
    Takes("NUMERIC", "string", "-99999999999999999999999999999.999999999", _D("-99999999999999999999999999999.999999999")),
    Takes("NUMERIC", "bytes", (1_500_000_000).to_bytes(5, "little", signed=True), _D("1.5"), _IT + "testComplicateSchemaWithPendingStream"),
    Takes("NUMERIC", "bytes", (-1_500_000_000).to_bytes(5, "little", signed=True), _D("-1.5")),
    Takes("NUMERIC", "bytes", (-1).to_bytes(16, "little", signed=True), _D("-0.000000001")),
    Takes("NUMERIC", "int64", 7, _D(7)),
    Takes("NUMERIC", "int32", -7, _D(-7)),
    Takes("NUMERIC", "uint32", 7, _D(7)),
    Takes("NUMERIC", "uint64", 2**64 - 1, _D(2**64 - 1)),
    Takes("NUMERIC", _wrapper("BytesValue"), {"value": (10**9).to_bytes(4, "little")}, _D(1)),
    Takes("NUMERIC", "string", " 1.5e3 ", _D(1500), "docs: conversion rules, STRING to NUMERIC"),
    Takes("NUMERIC", "double", 0.1, _D("0.1")),
    Takes("NUMERIC", "float", 0.5, _D("0.5")),
    Takes("BIGNUMERIC", "string", "1.00000000000000000000000000000000000001", _D("1.00000000000000000000000000000000000001")),
    Takes("BIGNUMERIC", "string", str(_BIG), _BIG),
    Takes("BIGNUMERIC", "bytes", (10**38).to_bytes(17, "little", signed=True), _D(1), _IT + "testComplicateSchemaWithPendingStream"),
    Takes("BIGNUMERIC", "int64", 7, _D(7)),
    Takes("BIGNUMERIC", "uint64", 7, _D(7)),
    Takes("STRING", "string", "é€😀", "é€😀"),
    Takes("STRING", _wrapper("StringValue"), {"value": ""}, ""),
    Takes("TIMESTAMP", "int64", 1_600_000_000_000_001, datetime.datetime(2020, 9, 13, 12, 26, 40, 1, _UTC)),
    Takes("TIMESTAMP", "int64", -62_135_596_800_000_000, datetime.datetime(1, 1, 1, tzinfo=_UTC)),
    Takes("TIMESTAMP", "int32", 5, datetime.datetime(1970, 1, 1, microsecond=5, tzinfo=_UTC)),
    Takes("TIMESTAMP", "uint32", 6, datetime.datetime(1970, 1, 1, microsecond=6, tzinfo=_UTC)),
    Takes("TIMESTAMP", _wrapper("Timestamp"), {"seconds": 1, "nanos": 2000}, datetime.datetime(1970, 1, 1, 0, 0, 1, 2, _UTC)),
    Takes("INTERVAL", "string", "1-2 -3 4:5:6.789", pa.MonthDayNano([14, -3, 14_706_789_000_000])),
    Takes("INTERVAL", "string", "-0-1 0 -0:0:1", pa.MonthDayNano([-1, 0, -1_000_000_000])),
    Takes("INTERVAL", _wrapper("Duration"), {"seconds": 2, "nanos": 3000}, pa.MonthDayNano([0, 0, 2_000_003_000])),
    Takes("RANGE", Writer("R", start="int32", end="int32"), {"start": 0, "end": 1}, {"start": datetime.date(1970, 1, 1), "end": datetime.date(1970, 1, 2)}, resource=_RANGE),
    Takes("RANGE", Writer("R", start="int32", end="int32"), {"end": 1}, {"start": None, "end": datetime.date(1970, 1, 2)}, "docs: write-api, an unset bound is unbounded", _RANGE),
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Refuses:
    """A column refuses a value of a proto type as a row error; `text` is what it says, if known."""

    column: str
    proto: str
    value: Any
    source: str
    text: str | None = None
    resource: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def id(self) -> str:
        return f"{self.column}-{self.proto}-{self.value!r}"[:60]


_RANGES = "docs: data-types, range of the type"
REFUSES = [
    Refuses("DATE", "int32", -719_163, _RANGES),
    Refuses("DATE", "int32", 2_932_897, _RANGES),
    Refuses("DATE", "int64", 2**40, _RANGES),
    Refuses("DATE", "string", "2021-02-29", _RANGES),
    Refuses("DATE", "string", "２０２１-01-01", "docs: data-types, canonical format"),
    Refuses("DATETIME", "string", "yesterday", "docs: data-types, canonical format"),
    Refuses("DATETIME", "int64", _packed(2021, 13, 1, 0, 0, 0, 0), "docs: data-types, canonical format"),
    Refuses("TIME", "string", "24:00:00", _RANGES),
    Refuses("TIME", "int64", _packed_time(25, 0, 0, 0), _RANGES),
    Refuses("TIMESTAMP", "int64", -(2**63), _IT + "testRowErrors", f"Timestamp field value is out of range: {-(2**63)} on field x."),
    Refuses("TIMESTAMP", "int64", 253_402_300_800_000_000, _RANGES),
    Refuses("TIMESTAMP", _wrapper("Timestamp"), {"seconds": 2**62}, _RANGES),
    Refuses("TIMESTAMP", "int64", 2**63 - 1, _RANGES, None, {"timestampPrecision": "12"}),
    Refuses("TIMESTAMP", _wrapper("Timestamp"), {"seconds": 2**62}, _RANGES, None, {"timestampPrecision": "12"}),
    Refuses("TIMESTAMP", "string", "0001-01-01 00:00:00+23", _RANGES, None, {"timestampPrecision": "12"}),
    Refuses("NUMERIC", "string", "1e29", _RANGES),
    Refuses("NUMERIC", "string", "0.0000000001", _RANGES),
    Refuses("NUMERIC", "string", "one", "docs: data-types, canonical format"),
    Refuses("NUMERIC", "string", "1_000", "docs: data-types, canonical format"),
    Refuses("NUMERIC", "string", "1e400000000", _RANGES),
    Refuses("NUMERIC", "string", "1e-400000000", _RANGES),
    Refuses("BIGNUMERIC", "string", "1e400000000", _RANGES),
    Refuses("NUMERIC", "bytes", bytes(17), _RANGES),
    Refuses("NUMERIC", "double", float("nan"), _RANGES),
    Refuses("BIGNUMERIC", "string", "579000000000000000000000000000000000000", _RANGES),
    Refuses("JSON", "string", "{", "docs: JSON data, a value must be valid JSON"),
    Refuses("JSON", "string", "NaN", "docs: JSON data, a value must be valid JSON"),
    Refuses("GEOGRAPHY", "string", "POINT(1)", "docs: geography functions, WKT"),
    Refuses("GEOGRAPHY", "string", "POINT(1 91)", "docs: geography functions, latitude"),
    Refuses("GEOGRAPHY", "string", "POINT(nan nan)", "docs: geography functions, latitude"),
    Refuses("GEOGRAPHY", "string", "GEOMETRYCOLLECTION(" * 5000, "docs: geography functions, WKT"),
    Refuses("GEOGRAPHY", "string", "nowhere", "docs: geography functions, WKT"),
    Refuses("INTERVAL", "string", "10001-0 0 0:0:0", _RANGES),
    Refuses("INTERVAL", _wrapper("Duration"), {"seconds": 2**62}, _RANGES),
    Refuses("STRING", "string", "ééé", "docs: data-types, STRING(L) counts characters", "Field x: STRING(2) has maximum length 2 but got a value with length 3 on field x.", {"maxLength": "2"}),
    Refuses("BYTES", "bytes", b"abc", "docs: data-types, BYTES(L) counts bytes", None, {"maxLength": "2"}),
    Refuses("NUMERIC", "string", "1000", "docs: data-types, NUMERIC(P, S)", None, {"precision": "5", "scale": "2"}),
    Refuses("BIGNUMERIC", "string", "1000", "docs: data-types, BIGNUMERIC(P, S)", None, {"precision": "3"}),
]  # fmt: skip

MISMATCHES = [
    ("INT64", "uint64", _TYPES),
    ("INT64", "string", _TYPES),
    ("INT64", "double", _TYPES),
    ("STRING", "int64", _TYPES),
    ("BOOL", "string", _TYPES),
    ("TIMESTAMP", "double", _TYPES),
    ("BYTES", "int64", _TYPES),
    ("DATE", "double", _TYPES),
    ("JSON", "int64", _TYPES),
]


def _table_rules(test: Any) -> Any:
    """Gives a test of a whole table one rule for each of its lines."""
    lines = {
        "TAKES": [
            Rule(
                "AppendRows",
                f"{each.column} takes {_proto(each.proto)}: {each.value!r}"[:90],
                each.source,
            )
            for each in TAKES
        ],
        "REFUSES": [
            Rule(
                "AppendRows",
                f"{each.column} refuses {each.proto}: {each.value!r}"[:90],
                each.source,
            )
            for each in REFUSES
        ],
        "MISMATCHES": [
            Rule("AppendRows", f"{column} does not go with proto {proto}", source)
            for column, proto, source in MISMATCHES
        ],
    }
    test.rules = lines[test.__doc__]
    return test


def _proto(kind: Any) -> str:
    return kind if isinstance(kind, str) else "a message"


class ProtoValueConformance:
    """Each type over proto."""

    @_table_rules
    @pytest.mark.parametrize("case", TAKES, ids=lambda case: case.id)
    def test_value_is_taken_and_comes_back(self, bigquery: BigQuery, case: Takes) -> None:
        """TAKES"""
        field = {"name": "x", "type": case.column, **case.resource}
        table = bigquery.make_table([field])
        writer = Writer(x=case.proto)

        answer = bigquery.append(table.default_stream, writer, [writer.row(x=case.value)])

        assert answer.WhichOneof("response") == "append_result", answer
        assert bigquery.rows(table) == [{"x": case.out}]

    @_table_rules
    @pytest.mark.parametrize("case", REFUSES, ids=lambda case: case.id)
    def test_value_is_a_row_error(self, bigquery: BigQuery, case: Refuses) -> None:
        """REFUSES"""
        table = bigquery.make_table([{"name": "x", "type": case.column, **case.resource}])
        writer = Writer(x=case.proto)

        answer = bigquery.append(
            table.default_stream, writer, [writer.row(), writer.row(x=case.value)]
        )

        assert list(row_errors(answer)) == [1]
        if case.text is not None:
            assert row_errors(answer) == {1: case.text}
        assert bigquery.rows(table) == []

    @_table_rules
    @pytest.mark.parametrize(("column", "proto", "source"), MISMATCHES)
    def test_type_that_does_not_go(
        self, bigquery: BigQuery, column: str, proto: str, source: str
    ) -> None:
        """MISMATCHES"""
        table = bigquery.make_table([{"name": "x", "type": column}])
        writer = Writer(x=proto)

        answer = bigquery.append(table.default_stream, writer, [writer.row()])

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert not answer.row_errors

    @rule("AppendRows", "a repeated column keeps order", _TYPES)
    @rule("AppendRows", "an unset repeated column is empty, not NULL", _TYPES)
    def test_repeated(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "x", "type": "INT64", "mode": "REPEATED"}])
        writer = Writer(x="repeated int64")

        bigquery.append(table.default_stream, writer, [writer.row(x=[3, 1, 2]), writer.row()])

        assert sorted(row["x"] for row in bigquery.rows(table)) == [[], [3, 1, 2]]

    @rule("AppendRows", "nested messages are STRUCTs", _TYPES)
    @rule("AppendRows", "a set but empty STRUCT is not NULL", _TYPES)
    def test_nested(self, bigquery: BigQuery) -> None:
        inner = [
            {"name": "a", "type": "INT64"},
            {"name": "deep", "type": "STRUCT", "mode": "REPEATED", "fields": [{"name": "b", "type": "STRING"}]},
        ]  # fmt: skip
        table = bigquery.make_table([{"name": "s", "type": "STRUCT", "fields": inner}])
        writer = Writer(s=Writer("S", a="int64", deep=[Writer("D", b="string")]))
        rows = [
            writer.row(s={"a": 1, "deep": [{"b": "x"}, {}]}),
            writer.row(s={}),
            writer.row(),
        ]

        bigquery.append(table.default_stream, writer, rows)

        assert sorted(bigquery.rows(table), key=str) == sorted(
            [
                {"s": {"a": 1, "deep": [{"b": "x"}, {"b": None}]}},
                {"s": {"a": None, "deep": []}},
                {"s": None},
            ],
            key=str,
        )

    @rule("AppendRows", "a nested REQUIRED value that is missing is a row error", "assumed")
    @rule(
        "AppendRows",
        "a row error in a nested value names its row",
        "proto: storage.proto, RowError.index",
    )
    def test_nested_errors_name_the_row(self, bigquery: BigQuery) -> None:
        inner = [{"name": "a", "type": "STRING", "mode": "REQUIRED", "maxLength": "1"}]
        table = bigquery.make_table(
            [{"name": "s", "type": "STRUCT", "mode": "REPEATED", "fields": inner}]
        )
        writer = Writer(s=[Writer("S", a="string")])
        rows = [
            writer.row(s=[{"a": "x"}, {"a": "y"}]),
            writer.row(),
            writer.row(s=[{"a": "x"}, {"a": "toolong"}]),
            writer.row(s=[{"a": "x"}, {}]),
        ]

        answer = bigquery.append(table.default_stream, writer, rows)

        assert list(row_errors(answer)) == [2, 3]

    @rule(
        "AppendRows",
        "a value of a repeated STRUCT that cannot be read names its row",
        "proto: storage.proto, RowError.index",
    )
    def test_nested_conversion_errors_name_the_row(self, bigquery: BigQuery) -> None:
        inner = [{"name": "day", "type": "DATE"}]
        table = bigquery.make_table(
            [{"name": "s", "type": "STRUCT", "mode": "REPEATED", "fields": inner}]
        )
        writer = Writer(s=[Writer("S", day="string")])
        good, bad = {"day": "2021-01-01"}, {"day": "never"}
        rows = [writer.row(s=[good, good, good]), writer.row(), writer.row(s=[good, bad])]

        answer = bigquery.append(table.default_stream, writer, rows)

        assert list(row_errors(answer)) == [2]

    @rule(
        "AppendRows",
        "NUMERIC(P, S) rounds half away from zero",
        "docs: data-types, parameterized decimals round",
    )
    def test_scale_is_rounded(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "x", "type": "NUMERIC", "precision": "5", "scale": "2"}]
        )
        writer = Writer(x="string")
        texts = ["1.005", "-1.005", "1.004", "1.006", "2.5"]

        bigquery.append(table.default_stream, writer, [writer.row(x=text) for text in texts])

        assert sorted(row["x"] for row in bigquery.rows(table)) == sorted(
            map(_D, ["1.01", "-1.01", "1.00", "1.01", "2.5"])
        )

    @rule("AppendRows", "RANGE: start must be before end", "docs: data-types, range")
    def test_empty_range(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "x", "type": "RANGE", **_RANGE}])
        writer = Writer(x=Writer("R", start="int32", end="int32"))

        answer = bigquery.append(
            table.default_stream, writer, [writer.row(x={"start": 5, "end": 5})]
        )

        assert list(row_errors(answer)) == [0]
