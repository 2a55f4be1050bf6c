"""CreateReadSession: selected_fields and row_restriction."""

import dataclasses

import pytest

from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Failure,
    Writer,
    arrow_schema,
    rule,
)
from bqflink_beam.testing.conformance.sessions import FIELDS, WRITER, ids_of, table_of

_PROTO = "proto: stream.proto, "
_STORAGE = "proto: storage.proto, "
_507 = "measured: bigquery-emulator issue 507, on the service 2026-08-09"


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

        assert sorted(ids_of(bigquery.rows(table, row_restriction=text))) == expected

    @rule("CreateReadSession", "NULL is not true", "docs: operators, three-valued logic")
    def test_null_is_not_true(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        bigquery.append(table.default_stream, WRITER, [WRITER.row(id=1), WRITER.row(name="x")])

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
        table = bigquery.make_table(FIELDS, timePartitioning={"type": "DAY"})
        bigquery.append(table.default_stream, WRITER, [WRITER.row(id=1)])
        old = "_PARTITIONTIME < TIMESTAMP '2001-01-01 00:00:00'"

        assert bigquery.rows(table, row_restriction=old) == []
        assert ids_of(bigquery.rows(table, row_restriction=f"NOT ({old})")) == [1]

    @rule(
        "CreateReadSession",
        "a table that requires a partition filter is not read without one",
        "docs: partitioned tables, require a partition filter",
    )
    def test_required_partition_filter(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            FIELDS, timePartitioning={"type": "DAY"}, requirePartitionFilter=True
        )
        bigquery.append(table.default_stream, WRITER, [WRITER.row(id=1)])

        for text in ("", "id = 1", "name != '_PARTITIONTIME'"):
            with pytest.raises(Failure) as failed:
                bigquery.create_session(table, row_restriction=text)
            assert failed.value.code == "INVALID_ARGUMENT"
            assert "without a filter over column(s) '_PARTITIONTIME'" in failed.value.text
        recent = "_PARTITIONTIME > TIMESTAMP '2001-01-01 00:00:00'"
        assert ids_of(bigquery.rows(table, row_restriction=recent)) == [1]

    @rule(
        "CreateReadSession",
        "a restriction that keeps nothing leaves no streams",
        "measured: Beam issue 38007",
    )
    def test_restriction_that_keeps_nothing(self, bigquery: BigQuery) -> None:
        session = bigquery.create_session(table_of(bigquery, 30), row_restriction="id < 0")

        assert list(session.streams) == []

    @rule(
        "CreateReadSession",
        "CURRENT_TIMESTAMP is the time of the session",
        "proto: stream.proto, TableReadOptions.row_restriction",
    )
    def test_current_timestamp(self, bigquery: BigQuery) -> None:
        table = table_of(bigquery, 3)
        day = f"TIMESTAMP '{bigquery.today(-1):%Y-%m-%d}'"

        past = bigquery.rows(table, row_restriction=f"CURRENT_TIMESTAMP() > {day}")
        future = bigquery.rows(table, row_restriction=f"CURRENT_TIMESTAMP() < {day}")

        assert len(past) == 3
        assert future == []

    @rule(
        "CreateReadSession",
        "a restriction has 1 MB at most",
        "proto: stream.proto, TableReadOptions.row_restriction",
    )
    def test_long_restriction(self, bigquery: BigQuery) -> None:
        with pytest.raises(Failure) as failed:
            bigquery.create_session(
                table_of(bigquery, 3), row_restriction=f"name != '{'x' * 1_048_576}'"
            )

        assert failed.value.code == "INVALID_ARGUMENT"

    @rule("CreateReadSession", "a partition decorator is not supported", "assumed")
    def test_decorator(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS, timePartitioning={"type": "DAY"})

        with pytest.raises(Failure) as failed:
            bigquery.create_session(dataclasses.replace(table, table=f"{table.table}$20200101"))

        assert failed.value.code == "INVALID_ARGUMENT"
