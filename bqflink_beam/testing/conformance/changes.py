"""`ChangeConformance`: upserts and deletes by primary key."""

from typing import Any

import pytest

from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance.kit import BigQuery, Writer, error_of, row_errors, rule

_CDC = "docs: change data capture, "
_FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "part", "type": "STRING", "mode": "REQUIRED"},
    {"name": "value", "type": "STRING", "mode": "REQUIRED"},
]
_WRITER = Writer(
    id="int64",
    part="string",
    value="string",
    _CHANGE_TYPE="string",
    _CHANGE_SEQUENCE_NUMBER="string",
)


def _table(bigquery: BigQuery, *key: str) -> TableReference:
    constraints = {"tableConstraints": {"primaryKey": {"columns": list(key)}}} if key else {}
    return bigquery.make_table(_FIELDS, **constraints)


def _change(
    kind: str | None,
    id: int,
    value: str | None = None,
    sequence: str | None = None,
    part: str = "p",
) -> bytes:
    values: dict[str, Any] = {"id": id, "part": part}
    for name, given in (
        ("value", value),
        ("_CHANGE_TYPE", kind),
        ("_CHANGE_SEQUENCE_NUMBER", sequence),
    ):
        if given is not None:
            values[name] = given
    return _WRITER.row(**values)


def _values(bigquery: BigQuery, table: TableReference) -> dict[tuple[int, str], str]:
    rows = bigquery.rows(table)
    found = {(row["id"], row["part"]): row["value"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


class ChangeConformance:
    """AppendRows with _CHANGE_TYPE."""

    def _apply(self, bigquery: BigQuery, table: TableReference, *rows: bytes) -> Any:
        return bigquery.append(table.default_stream, _WRITER, rows)

    @rule("AppendRows", "rows must be given", "proto: storage.proto, ProtoData.rows")
    def test_changes_without_rows(self, bigquery: BigQuery) -> None:
        answer = self._apply(bigquery, _table(bigquery, "id"))

        assert error_of(answer).code == "INVALID_ARGUMENT"

    @rule("AppendRows", "UPSERT inserts, then replaces", _CDC + "_CHANGE_TYPE")
    @rule("AppendRows", "DELETE removes the key's row", _CDC + "_CHANGE_TYPE")
    def test_upsert_and_delete(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id")
        self._apply(bigquery, table, _change("UPSERT", 1, "a"), _change("UPSERT", 2, "b"))

        self._apply(bigquery, table, _change("UPSERT", 1, "c"), _change("DELETE", 2))

        assert _values(bigquery, table) == {(1, "p"): "c"}

    @rule(
        "AppendRows", "of several changes of a key in a request the last one wins", _CDC + "order"
    )
    def test_last_change_of_a_request_wins(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id")

        self._apply(
            bigquery,
            table,
            _change("UPSERT", 1, "a"),
            _change("DELETE", 1),
            _change("UPSERT", 1, "b"),
            _change("UPSERT", 2, "x"),
            _change("DELETE", 2),
        )

        assert _values(bigquery, table) == {(1, "p"): "b"}

    @rule("AppendRows", "a key of several columns", _CDC + "primary keys")
    def test_composite_key(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id", "part")
        self._apply(
            bigquery,
            table,
            *(_change("UPSERT", id, f"{id}{part}", part=part) for id in (1, 2) for part in "ab"),
        )

        self._apply(
            bigquery, table, _change("DELETE", 1, part="b"), _change("UPSERT", 2, "new", part="a")
        )

        assert _values(bigquery, table) == {(1, "a"): "1a", (2, "a"): "new", (2, "b"): "2b"}

    @rule(
        "AppendRows",
        "a higher sequence number wins, whatever comes later",
        _CDC + "_CHANGE_SEQUENCE_NUMBER",
    )
    def test_sequence_numbers(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id")
        self._apply(bigquery, table, _change("UPSERT", 1, "new", "B"))

        self._apply(
            bigquery, table, _change("UPSERT", 1, "old", "A"), _change("DELETE", 1, None, "9")
        )

        assert _values(bigquery, table) == {(1, "p"): "new"}

    @rule(
        "AppendRows",
        "sequence sections compare one by one as numbers",
        _CDC + "_CHANGE_SEQUENCE_NUMBER format",
    )
    @pytest.mark.parametrize(
        ("lower", "higher"),
        [
            ("9", "a"),
            ("F", "10"),
            ("FFF/B", "FFF/ABC"),
            ("1/ffffffffffffffff", "2/0"),
            ("0/0/0/1", "0/0/1/0"),
        ],
    )
    def test_sequence_sections(self, bigquery: BigQuery, lower: str, higher: str) -> None:
        table = _table(bigquery, "id")

        self._apply(bigquery, table, _change("UPSERT", 1, "higher", higher))
        self._apply(bigquery, table, _change("UPSERT", 1, "lower", lower))
        self._apply(bigquery, table, _change("UPSERT", 2, "lower", lower))
        self._apply(bigquery, table, _change("UPSERT", 2, "higher", higher))

        assert set(_values(bigquery, table).values()) == {"higher"}

    @rule(
        "AppendRows",
        "of equal sequence numbers the later one wins",
        _CDC + "_CHANGE_SEQUENCE_NUMBER ties",
    )
    def test_equal_sequence_numbers(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id")
        self._apply(bigquery, table, _change("UPSERT", 1, "first", "5"))

        self._apply(bigquery, table, _change("UPSERT", 1, "second", "5"))

        assert _values(bigquery, table) == {(1, "p"): "second"}

    @rule(
        "AppendRows",
        "a deleted key stays deleted for lower sequence numbers",
        _CDC + "deletes are kept for two days",
    )
    def test_deleted_key_stays_deleted(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id")
        self._apply(
            bigquery, table, _change("UPSERT", 1, "a", "1"), _change("DELETE", 1, None, "3")
        )

        self._apply(bigquery, table, _change("UPSERT", 1, "late", "2"))

        assert _values(bigquery, table) == {}

    @rule("AppendRows", "a DELETE needs its key columns only", _CDC + "_CHANGE_TYPE DELETE")
    @rule("AppendRows", "an UPSERT needs every REQUIRED column", _CDC + "_CHANGE_TYPE UPSERT")
    def test_required_columns(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id")

        deleted = self._apply(bigquery, table, _change("DELETE", 1))
        upserted = self._apply(bigquery, table, _change("UPSERT", 1))

        assert deleted.WhichOneof("response") == "append_result"
        assert list(row_errors(upserted)) == [0]

    @rule("AppendRows", "only UPSERT and DELETE are change types", _CDC + "_CHANGE_TYPE")
    @rule("AppendRows", "changes and plain rows do not mix", _CDC + "limitations")
    @pytest.mark.parametrize("kind", [None, "INSERT", "upsert", ""])
    def test_other_change_types(self, bigquery: BigQuery, kind: str | None) -> None:
        table = _table(bigquery, "id")

        answer = self._apply(bigquery, table, _change("UPSERT", 1, "a"), _change(kind, 2, "b"))

        assert list(row_errors(answer)) == [1]
        assert "The given value is not a valid CHANGE_TYPE" in row_errors(answer)[1]
        assert _values(bigquery, table) == {}

    @rule(
        "AppendRows",
        "a sequence number is 1 to 4 hexadecimal sections",
        _CDC + "_CHANGE_SEQUENCE_NUMBER format",
    )
    @pytest.mark.parametrize("text", ["", "G", "1/", "1/2/3/4/5", "12345678901234567", "-1"])
    def test_malformed_sequence_numbers(self, bigquery: BigQuery, text: str) -> None:
        table = _table(bigquery, "id")

        answer = self._apply(bigquery, table, _change("UPSERT", 1, "a", text))

        assert list(row_errors(answer)) == [0]

    @rule("AppendRows", "changes need a primary key", _CDC + "prerequisites")
    def test_table_without_a_key(self, bigquery: BigQuery) -> None:
        answer = self._apply(bigquery, _table(bigquery), _change("UPSERT", 1, "a"))

        assert error_of(answer).code == "INVALID_ARGUMENT"

    @rule("AppendRows", "changes go to the default stream only", _CDC + "limitations")
    @pytest.mark.parametrize("kind", ["COMMITTED", "PENDING", "BUFFERED"])
    def test_made_streams_take_no_changes(self, bigquery: BigQuery, kind: str) -> None:
        table = _table(bigquery, "id")
        name = bigquery.create_stream(table, kind)

        answer = bigquery.append(name, _WRITER, [_change("UPSERT", 1, "a")])

        assert error_of(answer).code == "INVALID_ARGUMENT"
        assert bigquery.finalize(name) == 0

    @rule(
        "AppendRows",
        "a table with a primary key takes plain rows too, and enforces nothing",
        _CDC + "primary keys are not enforced",
    )
    def test_plain_rows_beside_a_key(self, bigquery: BigQuery) -> None:
        table = _table(bigquery, "id")
        writer = Writer(id="int64", part="string", value="string")
        row = writer.row(id=1, part="p", value="x")

        bigquery.append(table.default_stream, writer, [row, row])

        assert len(bigquery.rows(table)) == 2
