"""Rows as Arrow: bare IPC messages, fitted to the columns of the table."""

import datetime
import decimal
from typing import Any

import pyarrow as pa
import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    error_of,
    message,
    offset_of,
    row_errors,
    rule,
)

_UTC = datetime.timezone.utc
_TYPES = "docs: write-api, supported data types"
_D = decimal.Decimal


def _civil(*parts: int) -> datetime.datetime:
    return datetime.datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001, a DATETIME has no zone


class ArrowValueConformance:
    """Rows as Arrow."""

    def _request(self, stream: str, batch: pa.RecordBatch) -> object:
        request = message("AppendRowsRequest", write_stream=stream)
        request.arrow_rows.writer_schema.serialized_schema = batch.schema.serialize().to_pybytes()
        request.arrow_rows.rows.serialized_record_batch = batch.serialize().to_pybytes()
        return request

    @rule("AppendRows", "rows may be Arrow", "proto: storage.proto, AppendRowsRequest.arrow_rows")
    @rule("AppendRows", "Arrow rows: each type", _TYPES)
    def test_arrow_rows(self, bigquery: BigQuery) -> None:
        columns = {
            "i": ("INT64", pa.array([1, None], pa.int64())),
            "small": ("INT64", pa.array([1, None], pa.int8())),
            "f": ("FLOAT64", pa.array([0.5, None], pa.float32())),
            "b": ("BOOL", pa.array([True, None])),
            "s": ("STRING", pa.array(["x", None])),
            "y": ("BYTES", pa.array([b"x", None])),
            "n": ("NUMERIC", pa.array([_D("1.5"), None], pa.decimal128(10, 2))),
            "d": ("DATE", pa.array([datetime.date(2020, 1, 1), None])),
            "dt": ("DATETIME", pa.array([_civil(2020, 1, 1), None], pa.timestamp("us"))),
            "ts": (
                "TIMESTAMP",
                pa.array([datetime.datetime(2020, 1, 1, tzinfo=_UTC), None], pa.timestamp("us", "UTC")),
            ),
        }  # fmt: skip
        table = bigquery.make_table(
            [{"name": name, "type": kind} for name, (kind, _) in columns.items()]
        )
        batch = pa.RecordBatch.from_arrays([array for _, array in columns.values()], list(columns))

        with bigquery.connection() as append:
            answer = append(self._request(table.default_stream, batch))

        assert answer.WhichOneof("response") == "append_result", answer
        assert sorted(bigquery.rows(table), key=str) == sorted(batch.to_pylist(), key=str)

    @rule(
        "AppendRows",
        "Arrow rows have offsets too",
        "proto: storage.proto, AppendRowsRequest.offset",
    )
    def test_arrow_rows_on_a_made_stream(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "i", "type": "INT64"}])
        name = bigquery.create_stream(table, "PENDING")
        batch = pa.RecordBatch.from_pydict({"i": [1, 2, 3]})

        with bigquery.connection() as append:
            offsets = [offset_of(append(self._request(name, batch))) for _ in range(2)]

        assert offsets == [0, 3]
        assert bigquery.finalize(name) == 6

    @rule(
        "AppendRows",
        "Arrow rows: extra columns",
        "proto: storage.proto, StorageError.SCHEMA_MISMATCH_EXTRA_FIELDS",
    )
    def test_arrow_rows_with_extra_columns(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "i", "type": "INT64"}])
        batch = pa.RecordBatch.from_pydict({"i": [1], "extra": [2]})

        with bigquery.connection() as append:
            error = error_of(append(self._request(table.default_stream, batch)))

        assert [code for code, _ in error.storage_errors] == ["SCHEMA_MISMATCH_EXTRA_FIELDS"]
        assert bigquery.rows(table) == []

    @rule(
        "AppendRows",
        "Arrow rows: values that a column refuses",
        "proto: storage.proto, AppendRowsResponse.row_errors",
    )
    def test_arrow_rows_with_a_bad_value(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "s", "type": "STRING", "maxLength": "2"}])
        batch = pa.RecordBatch.from_pydict({"s": ["ok", "long"]})

        with bigquery.connection() as append:
            answer = append(self._request(table.default_stream, batch))

        assert list(row_errors(answer)) == [1]
        assert bigquery.rows(table) == []

    @rule("AppendRows", "Arrow rows: bytes that are no Arrow are INVALID_ARGUMENT", "assumed")
    def test_arrow_rows_that_are_none(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "i", "type": "INT64"}])
        request = message("AppendRowsRequest", write_stream=table.default_stream)
        request.arrow_rows.writer_schema.serialized_schema = b"nonsense"
        request.arrow_rows.rows.serialized_record_batch = b"nonsense"

        with bigquery.connection() as append:
            answer = append(request)

        assert error_of(answer).code == "INVALID_ARGUMENT"

    @rule("AppendRows", "Arrow rows: an INTERVAL may be text", _TYPES)
    def test_arrow_text_for_an_interval(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "x", "type": "INTERVAL"}])
        batch = pa.RecordBatch.from_pydict({"x": ["1-2 -3 4:5:6", None]})

        with bigquery.connection() as append:
            append(self._request(table.default_stream, batch))

        micros = ((4 * 60 + 5) * 60 + 6) * 10**6
        assert [row["x"] for row in bigquery.rows(table)] == [
            pa.MonthDayNano([14, -3, micros * 1000]),
            None,
        ]

    @rule("AppendRows", "Arrow rows: a DATE may be text or days", _TYPES)
    @pytest.mark.parametrize(
        "column", [pa.array(["2021-01-01", None]), pa.array([18_628, None], pa.int32())], ids=str
    )
    def test_arrow_text_for_a_date(self, bigquery: BigQuery, column: pa.Array) -> None:
        table = bigquery.make_table([{"name": "x", "type": "DATE"}])

        with bigquery.connection() as append:
            append(self._request(table.default_stream, pa.RecordBatch.from_pydict({"x": column})))

        assert [row["x"] for row in bigquery.rows(table)] == [datetime.date(2021, 1, 1), None]

    @rule(
        "AppendRows",
        "Arrow rows: values that cannot be converted name their row",
        "proto: storage.proto, RowError.index",
    )
    @pytest.mark.parametrize(
        ("kind", "mode", "column"),
        [
            ("DATE", "NULLABLE", pa.array(["2021-01-01", "never"])),
            ("INTERVAL", "NULLABLE", pa.array(["0-0 1 0:0:0", "P1D"])),
            ("NUMERIC", "NULLABLE", pa.array([_D(1), _D("1e40")], pa.decimal256(50, 0))),
            ("DATE", "REPEATED", pa.array([["2021-01-01"] * 3, [None, "never"]])),
        ],
        ids=str,
    )
    def test_arrow_rows_with_values_that_do_not_convert(
        self, bigquery: BigQuery, kind: str, mode: str, column: pa.Array
    ) -> None:
        table = bigquery.make_table([{"name": "x", "type": kind, "mode": mode}])

        with bigquery.connection() as append:
            answer = append(
                self._request(table.default_stream, pa.RecordBatch.from_pydict({"x": column}))
            )

        assert list(row_errors(answer)) == [1]
        assert bigquery.rows(table) == []

    @rule("AppendRows", "Arrow rows: a NULL list is an empty one", "assumed")
    @pytest.mark.parametrize("nullable", [True, False])
    def test_arrow_null_lists(self, bigquery: BigQuery, nullable: bool) -> None:
        inner = {"name": "l", "type": "INT64", "mode": "REPEATED"}
        table = bigquery.make_table([inner, {"name": "s", "type": "STRUCT", "fields": [inner]}])
        kind = pa.list_(pa.field("item", pa.int64(), nullable=nullable))
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array([[1, 2], None], kind),
                pa.array([{"l": None}, {"l": [3]}], pa.struct([pa.field("l", kind)])),
            ],
            names=["l", "s"],
        )

        with bigquery.connection() as append:
            append(self._request(table.default_stream, batch))

        assert bigquery.rows(table) == [
            {"l": [1, 2], "s": {"l": []}},
            {"l": [], "s": {"l": [3]}},
        ]

    @rule("AppendRows", "Arrow rows: decimals have a scale within their precision", _TYPES)
    @pytest.mark.parametrize("scale", [-300, 100])
    def test_arrow_decimal_of_an_odd_scale(self, bigquery: BigQuery, scale: int) -> None:
        table = bigquery.make_table([{"name": "x", "type": "NUMERIC"}])
        column = pa.array([None], pa.decimal128(9, scale))

        with bigquery.connection() as append:
            answer = append(
                self._request(table.default_stream, pa.RecordBatch.from_pydict({"x": column}))
            )

        assert error_of(answer).code == "INVALID_ARGUMENT"

    @rule("AppendRows", "changes do not come as Arrow", "docs: change data capture, limitations")
    def test_arrow_changes(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "i", "type": "INT64"}],
            tableConstraints={"primaryKey": {"columns": ["i"]}},
        )
        batch = pa.RecordBatch.from_pydict({"i": [1], "_CHANGE_TYPE": ["UPSERT"]})

        with bigquery.connection() as append:
            answer = append(self._request(table.default_stream, batch))

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert bigquery.rows(table) == []

    @rule("AppendRows", "two fields for one column are INVALID_ARGUMENT", "assumed")
    def test_arrow_columns_of_one_name(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "i", "type": "INT64"}])
        batch = pa.RecordBatch.from_pydict({"i": [1], "I": [2]})

        with bigquery.connection() as append:
            answer = append(self._request(table.default_stream, batch))

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert bigquery.rows(table) == []

    @rule(
        "AppendRows",
        "a column that the writer has not gets its default",
        "docs: default-values, Storage Write API",
    )
    def test_arrow_default_of_a_column_the_writer_has_not(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [
                {"name": "i", "type": "INT64"},
                {"name": "x", "type": "DATE", "defaultValueExpression": "DATE '2020-02-29'"},
            ]
        )
        request: Any = self._request(table.default_stream, pa.RecordBatch.from_pydict({"i": [1]}))
        request.default_missing_value_interpretation = 2

        with bigquery.connection() as append:
            append(request)

        assert bigquery.rows(table) == [{"i": 1, "x": datetime.date(2020, 2, 29)}]
