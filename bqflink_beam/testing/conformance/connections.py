"""AppendRows: what may change in the middle of a connection, and what a refusal leaves behind."""

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Writer,
    append_request,
    error_of,
    offset_of,
    row_errors,
    rule,
)
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids, visible

_PROTO = "proto: storage.proto, "


class ConnectionConformance:
    """AppendRows, one request after another."""

    @rule(
        "AppendRows",
        "the writer schema may change on the way",
        _PROTO + "ProtoData.writer_schema",
    )
    def test_writer_schema_changes(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "COMMITTED")
        # The same bytes mean other columns: number 1 is the name now.
        other = Writer(name="string", id="int64")

        with bigquery.connection() as append:
            append(append_request(name, ids(1), writer=WRITER, offset=0))
            append(append_request("", [other.row(id=2, name="b")], writer=other, offset=1))
            answer = append(append_request("", [other.row(id=3, name="c")], offset=2))

        assert offset_of(answer) == 2
        assert sorted((row["id"], row["name"]) for row in bigquery.rows(table)) == [
            (1, None),
            (2, "b"),
            (3, "c"),
        ]

    @rule(
        "AppendRows",
        "only the first trace_id is looked at",
        _PROTO + "AppendRowsRequest.trace_id",
    )
    def test_trace_ids(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)

        with bigquery.connection() as append:
            append(append_request(table.default_stream, ids(1), writer=WRITER, trace_id="a:1"))
            append(append_request(rows=ids(2), trace_id="something else"))
            append(append_request(rows=ids(3)))

        assert visible(bigquery, table) == [1, 2, 3]

    @rule(
        "AppendRows",
        "each table of a connection tells of its own new schema",
        _PROTO + "AppendRowsResponse.updated_schema",
    )
    def test_updated_schema_of_one_of_two_tables(self, bigquery: BigQuery) -> None:
        first, second = bigquery.make_table(FIELDS), bigquery.make_table(FIELDS)
        more = [*FIELDS, {"name": "added", "type": "STRING"}]

        with bigquery.connection() as append:
            append(append_request(first.default_stream, ids(1), writer=WRITER))
            append(append_request(second.default_stream, ids(2), writer=WRITER))
            bigquery.patch_table(first, {"schema": {"fields": more}})
            other = append(append_request(second.default_stream, ids(3), writer=WRITER))
            own = append(append_request(first.default_stream, ids(4), writer=WRITER))

        assert not other.HasField("updated_schema")
        assert [each.name for each in own.updated_schema.fields] == ["id", "name", "added"]
        assert visible(bigquery, first) == [1, 4]
        assert visible(bigquery, second) == [2, 3]

    @rule(
        "AppendRows",
        "the writer schema of a refused request holds",
        _PROTO + "ProtoData.writer_schema",
    )
    def test_schema_of_a_refused_request(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        name = bigquery.create_stream(table, "COMMITTED")

        with bigquery.connection() as append:
            refused = append(append_request(name, ids(1), writer=WRITER, offset=7))
            answer = append(append_request("", ids(1), offset=0))

        assert error_of(refused).code == "OUT_OF_RANGE"
        assert offset_of(answer) == 0

    @rule(
        "AppendRows",
        "the default interpretation of a refused request holds",
        _PROTO + "default_missing_value_interpretation",
    )
    def test_interpretation_of_a_refused_request(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [
                {"name": "id", "type": "INT64"},
                {"name": "name", "type": "STRING", "defaultValueExpression": "'fallback'"},
            ]
        )
        name = bigquery.create_stream(table, "COMMITTED")

        with bigquery.connection() as append:
            append(
                append_request(
                    name,
                    ids(1),
                    writer=WRITER,
                    offset=7,
                    default_missing_value_interpretation=2,
                )
            )
            append(append_request("", ids(1), offset=0))

        assert [(row["id"], row["name"]) for row in bigquery.rows(table)] == [(1, "fallback")]

    @rule(
        "AppendRows",
        "a refused append takes no offset",
        _PROTO + "AppendRowsResponse.row_errors",
    )
    def test_bad_row_takes_no_offset(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table([{"name": "id", "type": "INT64", "mode": "REQUIRED"}])
        name = bigquery.create_stream(table, "PENDING")
        writer = Writer(id="int64")

        with bigquery.connection() as append:
            answer = append(
                append_request(name, [writer.row(id=1), writer.row()], writer=writer, offset=0)
            )
            again = append(append_request("", [writer.row(id=1)], offset=0))

        assert list(row_errors(answer)) == [1]
        assert offset_of(again) == 0
        assert bigquery.finalize(name) == 1
