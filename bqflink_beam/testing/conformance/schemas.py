"""AppendRows: writer schemas against the table's, and values that are missing."""

import pytest

from bqflink_beam.testing.conformance.kit import (
    BigQuery,
    Writer,
    append_request,
    error_of,
    row_errors,
    rule,
)
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids, visible

_PROTO = "proto: storage.proto, "
_IT = "google test: java-bigquerystorage ITBigQueryStorageWriteClientTest, "


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

    @rule("AppendRows", "two fields for one column are INVALID_ARGUMENT", "assumed")
    def test_two_fields_for_one_column(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(FIELDS)
        writer = Writer(id="int64", ID="int64")

        answer = bigquery.append(table.default_stream, writer, [writer.row(id=1, ID=2)])

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert visible(bigquery, table) == []

    @rule(
        "AppendRows",
        "a map is a repeated STRUCT of key and value",
        "docs: write-api, supported data types",
    )
    def test_map(self, bigquery: BigQuery) -> None:
        inner = [{"name": "key", "type": "STRING"}, {"name": "value", "type": "INT64"}]
        table = bigquery.make_table(
            [{"name": "m", "type": "STRUCT", "mode": "REPEATED", "fields": inner}]
        )
        plain = Writer(m=[Writer("E", key="string", value="int64")])
        row = plain.row(m=[{"key": "a", "value": 1}, {"key": "b", "value": 2}])
        writer = Writer(m=[Writer("E", key="string", value="int64")])
        entry = writer.descriptor.nested_type[0]
        entry.name = "MEntry"
        entry.options.map_entry = True
        writer.descriptor.field[0].type_name = "MEntry"

        bigquery.append(table.default_stream, writer, [row])

        assert bigquery.rows(table) == [{"m": [{"key": "a", "value": 1}, {"key": "b", "value": 2}]}]

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

    @rule("AppendRows", "a row may have thousands of columns", "docs: quotas, columns of a table")
    def test_thousands_of_columns(self, bigquery: BigQuery) -> None:
        count = 4_500
        names = [f"c{number}" for number in range(count)]
        table = bigquery.make_table([{"name": name, "type": "STRING"} for name in names])
        writer = Writer(**dict.fromkeys(names, "string"))
        # By hand, for Python's library builds no message of that many texts.
        first, last = b"\x0a\x01a", bytes([count << 3 & 0x7F | 2 | 0x80, count >> 4 & 0x7F | 0x80])
        last += bytes([count >> 11]) + b"\x01z"

        answer = bigquery.append(table.default_stream, writer, [first + last, b"", last, first])

        assert answer.WhichOneof("response") == "append_result", answer
        fields = [names[0], names[1], names[-1]]
        assert [tuple(row.values()) for row in bigquery.rows(table, selected_fields=fields)] == [
            ("a", None, "z"),
            (None, None, None),
            (None, None, "z"),
            ("a", None, None),
        ]

    @rule("AppendRows", "a column may have any name that BigQuery allows", "docs: column names")
    @pytest.mark.parametrize("name", ["HasField", "Clear", "None", "from_", "SerializeToString"])
    def test_column_called_like_something_else(self, bigquery: BigQuery, name: str) -> None:
        table = bigquery.make_table([{"name": name, "type": "INT64"}])
        writer = Writer(**{name: "int64"})

        # Field number 1 as a varint: Python's own message class is of no use with such names.
        bigquery.append(table.default_stream, writer, [b"\x08\x05", b"\x08\x00", b""])

        assert [row[name] for row in bigquery.rows(table)] == [5, 0, None]


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
        "bad rows are listed with their index",
        _PROTO + "AppendRowsResponse.row_errors",
    )
    @pytest.mark.parametrize(
        ("kind", "default", "proto", "bad"),
        [
            ("DATE", "DATE '2020-01-01'", "int32", 2_932_897),
            ("TIMESTAMP", "CURRENT_TIMESTAMP()", "int64", 2**63 - 1),
            ("STRING", "'x'", "bytes", b"\xff"),
        ],
    )
    def test_bad_rows_beside_missing_values(
        self, bigquery: BigQuery, kind: str, default: str, proto: str, bad: object
    ) -> None:
        table = bigquery.make_table(
            [{"name": "x", "type": kind, "defaultValueExpression": default}]
        )
        # A writer whose bytes another one reads: text that is none cannot be made otherwise.
        writer, wire = Writer(x="string" if proto == "bytes" else proto), Writer(x=proto)
        rows = [writer.row(), wire.row(x=bad), b"\xff\xff"]

        with bigquery.connection() as append:
            answer = append(
                append_request(
                    table.default_stream,
                    rows,
                    writer=writer,
                    default_missing_value_interpretation=2,
                )
            )

        assert list(row_errors(answer)) == [1, 2]
        assert bigquery.rows(table) == []

    @rule(
        "AppendRows",
        "a default does not replace a value",
        _PROTO + "default_missing_value_interpretation",
    )
    def test_default_beside_the_largest_bignumeric(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(
            [{"name": "x", "type": "BIGNUMERIC", "defaultValueExpression": "1.5"}]
        )
        writer = Writer(x="bytes")
        largest = (2**255 - 1).to_bytes(32, "little")

        with bigquery.connection() as append:
            append(
                append_request(
                    table.default_stream,
                    [writer.row(x=largest), writer.row()],
                    writer=writer,
                    default_missing_value_interpretation=2,
                )
            )

        values = [row["x"] for row in bigquery.rows(table)]
        assert [str(value)[:5] for value in values] == ["57896", "1.500"]

    @rule(
        "AppendRows",
        "an interpretation that is none is INVALID_ARGUMENT",
        _PROTO + "MissingValueInterpretation",
    )
    def test_unknown_default_interpretation(self, bigquery: BigQuery) -> None:
        table = bigquery.make_table(list(self.FIELDS))

        with bigquery.connection() as append:
            answer = append(
                append_request(
                    table.default_stream,
                    [self.WRITER.row(id=1)],
                    writer=self.WRITER,
                    default_missing_value_interpretation=7,
                )
            )

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert self._texts(bigquery, table) == {}

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
