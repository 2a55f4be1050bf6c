"""REST v2 as the service has it: load and copy jobs, streaming inserts."""

import json
from typing import Any

import pytest

from bqflink_beam.testing.conformance.kit import rule
from bqflink_beam.testing.conformance.rest import HttpFailure, Rest, reason_of, succeeded

_ID = [{"name": "id", "type": "INTEGER"}]
_PAIR = [*_ID, {"name": "name", "type": "STRING"}]
_LOAD = "docs: REST reference, JobConfigurationLoad"
_COPY = "docs: REST reference, JobConfigurationTableCopy"
_STREAMING = "docs: REST reference, tabledata.insertAll"
_JSON_TEST = "google test: Beam's bigquery_json_it_test, "


class LoadConformance:
    """Load jobs: all of the files, or nothing."""

    @rule("jobs.insert load", "several URIs and a wildcard are one job", _LOAD)
    @rule(
        "jobs.insert load",
        "outputRows counts the rows loaded",
        "docs: REST reference, JobStatistics3",
    )
    @rule("jobs.insert load", "the default disposition appends", _LOAD)
    def test_files_are_loaded_together(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        single = rest.put_file("single.json", b'{"id": 1}\n{"id": 2}\n')
        rest.put_file("many-a.json", b'{"id": 3}\n')
        pattern = rest.put_file("many-b.json", b'{"id": 4}\n').replace("many-b", "many-*")

        job = succeeded(rest.load(table, single, pattern))
        succeeded(rest.load(table, single))

        assert job["statistics"]["load"]["outputRows"] == "4"
        assert rest.rows(table) == [["1"], ["1"], ["2"], ["2"], ["3"], ["4"]]

    @rule("jobs.insert load", "creation, truncation and append are one atomic update", _LOAD)
    @rule("jobs.insert load", "a failed WRITE_TRUNCATE keeps the old rows", _LOAD)
    def test_bad_file_loads_nothing(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        good = rest.put_file("good.json", b'{"id": 1}\n')
        bad = rest.put_file("bad.json", b'{"id": "x"}\n')
        succeeded(rest.load(table, good))

        appended = rest.load(table, good, bad)
        truncated = rest.load(table, good, bad, writeDisposition="WRITE_TRUNCATE")
        created = rest.load("fresh", good, bad, schema={"fields": _ID})

        assert [reason_of(job) for job in (appended, truncated, created)] == ["invalid"] * 3
        assert rest.rows(table) == [["1"]]
        with pytest.raises(HttpFailure):
            rest.table("fresh")

    @rule("jobs.insert load", "WRITE_TRUNCATE replaces the rows", _LOAD)
    @rule("jobs.insert load", "WRITE_EMPTY and a table with rows is duplicate", _LOAD)
    @rule("jobs.insert load", "CREATE_NEVER and no table is notFound", _LOAD)
    def test_dispositions(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        one = rest.put_file("d1.json", b'{"id": 1}\n')
        two = rest.put_file("d2.json", b'{"id": 2}\n')
        succeeded(rest.load(table, one, writeDisposition="WRITE_EMPTY"))

        full = rest.load(table, two, writeDisposition="WRITE_EMPTY")
        never = rest.load("never", two, createDisposition="CREATE_NEVER", schema={"fields": _ID})
        succeeded(rest.load(table, two, writeDisposition="WRITE_TRUNCATE"))

        assert (reason_of(full), reason_of(never)) == ("duplicate", "notFound")
        assert rest.rows(table) == [["2"]]

    @rule(
        "jobs.insert load", "a URI that names no file is notFound", "docs: Error messages, notFound"
    )
    def test_missing_file_is_not_found(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        uri = rest.put_file("there.json", b'{"id": 1}\n').replace("there", "nowhere")

        assert reason_of(rest.load(table, uri)) == "notFound"

    @rule("jobs.insert load", "maxBadRecords rows may be bad and are left out", _LOAD)
    def test_bad_records_up_to_the_maximum(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        uri = rest.put_file("some.json", b'{"id": 1}\n{"id": "x"}\nno json\n')

        succeeded(rest.load(table, uri, maxBadRecords=2))
        refused = rest.load(table, uri, maxBadRecords=1)

        assert reason_of(refused) == "invalid"
        assert rest.rows(table) == [["1"]]

    @rule("jobs.insert load", "an unknown field fails the load", _LOAD)
    @rule("jobs.insert load", "ignoreUnknownValues leaves unknown fields out", _LOAD)
    @rule(
        "jobs.insert load",
        "field names match without case",
        "docs: Specifying a schema, column names",
    )
    def test_unknown_fields(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        uri = rest.put_file("extra.json", b'{"ID": 1, "extra": 2}\n')

        refused = rest.load(table, uri)
        succeeded(rest.load(table, uri, ignoreUnknownValues=True))

        assert reason_of(refused) == "invalid"
        assert rest.rows(table) == [["1"]]

    @rule("jobs.insert load", "a REQUIRED field that is missing fails the load", _LOAD)
    def test_missing_required_field_fails(self, rest: Rest) -> None:
        table = rest.make_table([{"name": "id", "type": "INTEGER", "mode": "REQUIRED"}])
        uri = rest.put_file("none.json", b"{}\n")

        assert reason_of(rest.load(table, uri)) == "invalid"

    @rule("jobs.insert load", "ALLOW_FIELD_ADDITION lets the schema's new columns in", _LOAD)
    @rule("jobs.insert load", "without it a schema with new columns does not match", _LOAD)
    def test_schema_update_options(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        uri = rest.put_file("pair.json", b'{"id": 1, "name": "a"}\n')
        schema = {"fields": _PAIR}

        refused = rest.load(table, uri, schema=schema)
        succeeded(
            rest.load(table, uri, schema=schema, schemaUpdateOptions=["ALLOW_FIELD_ADDITION"])
        )

        assert reason_of(refused) == "invalid"
        assert rest.rows(table) == [["1", "a"]]

    @rule(
        "jobs.insert load",
        "autodetect finds types and nesting of JSON",
        "docs: Using schema auto-detection",
    )
    def test_autodetected_json(self, rest: Rest) -> None:
        table = rest.name("auto")
        uri = rest.put_file("auto.json", b'{"i": 1, "f": 1.5, "r": {"b": true}, "a": ["x"]}\n')

        succeeded(rest.load(table, uri, autodetect=True))

        found = {f["name"]: (f["type"], f["mode"]) for f in rest.table(table)["schema"]["fields"]}
        assert found == {
            "i": ("INTEGER", "NULLABLE"),
            "f": ("FLOAT", "NULLABLE"),
            "r": ("RECORD", "NULLABLE"),
            "a": ("STRING", "REPEATED"),
        }

    @rule(
        "jobs.insert load", "CSV: skipLeadingRows, quoted fields, empty is NULL for numbers", _LOAD
    )
    @rule("jobs.insert load", "CSV: an empty STRING is empty, not NULL", _LOAD)
    def test_csv(self, rest: Rest) -> None:
        table = rest.make_table(_PAIR)
        uri = rest.put_file("rows.csv", b'id,name\n1,"a,""b"\n,\n')

        succeeded(rest.load(table, uri, sourceFormat="CSV", skipLeadingRows=1))

        assert rest.rows(table) == [["1", 'a,"b'], [None, ""]]


class CopyConformance:
    """Copy jobs."""

    @rule("jobs.insert copy", "all sources are copied, at once", _COPY)
    @rule("jobs.insert copy", "the default disposition is WRITE_EMPTY", _COPY)
    @rule("jobs.insert copy", "WRITE_TRUNCATE replaces, WRITE_APPEND adds", _COPY)
    def test_sources_are_copied_together(self, rest: Rest) -> None:
        sources = [rest.make_table(_ID), rest.make_table(_ID)]
        for number, source in enumerate(sources):
            rest.query(f"INSERT INTO {rest.dataset}.{source} (id) VALUES ({number})")
        table = rest.name("copy")

        succeeded(rest.copy(sources, table))
        refused = rest.copy(sources, table)
        succeeded(rest.copy(sources[:1], table, writeDisposition="WRITE_APPEND"))
        added = rest.rows(table)
        succeeded(rest.copy(sources[1:], table, writeDisposition="WRITE_TRUNCATE"))

        assert reason_of(refused) == "duplicate"
        assert added == [["0"], ["0"], ["1"]]
        assert rest.rows(table) == [["1"]]

    @rule("jobs.insert copy", "a missing source fails the whole copy", _COPY)
    @rule("jobs.insert copy", "sources of different schemas fail the copy", _COPY)
    def test_bad_source_copies_nothing(self, rest: Rest) -> None:
        good, other = rest.make_table(_ID), rest.make_table([{"name": "id", "type": "STRING"}])

        missing = rest.copy([good, "nowhere"], "never_made")
        different = rest.copy([good, other], "never_made")

        assert (reason_of(missing), reason_of(different)) == ("notFound", "invalid")
        with pytest.raises(HttpFailure):
            rest.table("never_made")


class InsertAllConformance:
    """``tabledata.insertAll``."""

    @rule(
        "tabledata.insertAll",
        "a string for a JSON column is JSON text",
        _JSON_TEST + "STREAMING_INSERTS",
    )
    @rule(
        "jobs.insert load",
        "NDJSON: a string for a JSON column is a JSON string",
        _JSON_TEST + "FILE_LOADS",
    )
    def test_strings_for_json_columns(self, rest: Rest) -> None:
        fields: list[dict[str, Any]] = [{"name": "j", "type": "JSON"}]
        fields.append({"name": "r", "type": "RECORD", "mode": "REPEATED", "fields": fields[:]})
        text = '{"a":[1,"x"]}'
        row = {"j": text, "r": [{"j": text}, {"j": "1"}]}
        inserted, loaded = rest.make_table(fields), rest.make_table(fields)

        assert "insertErrors" not in rest.insert_rows(inserted, [row])
        succeeded(rest.load(loaded, rest.put_file("json.json", json.dumps(row).encode())))

        quoted = json.dumps(text)
        assert _cells(rest.rows(inserted)) == [text, [[text], ["1"]]]
        assert _cells(rest.rows(loaded)) == [quoted, [[quoted], ['"1"']]]

    @rule("tabledata.insertAll", "a bad row is named, the others are stopped", _STREAMING)
    @rule("tabledata.insertAll", "nothing is inserted then", _STREAMING)
    def test_one_bad_row_stops_all(self, rest: Rest) -> None:
        table = rest.make_table(_ID)

        answer = rest.insert_rows(table, [{"id": 1}, {"id": "x"}])

        reasons = {e["index"]: e["errors"][0]["reason"] for e in answer["insertErrors"]}
        assert reasons == {0: "stopped", 1: "invalid"}
        assert rest.rows(table) == []

    @rule("tabledata.insertAll", "skipInvalidRows inserts the good ones", _STREAMING)
    @rule("tabledata.insertAll", "ignoreUnknownValues leaves unknown fields out", _STREAMING)
    @rule("tabledata.insertAll", "an unknown field is an error of its row", _STREAMING)
    def test_skip_and_ignore(self, rest: Rest) -> None:
        table = rest.make_table(_ID)

        skipped = rest.insert_rows(table, [{"id": 1}, {"more": 2}], skipInvalidRows=True)
        ignored = rest.insert_rows(table, [{"id": 3, "more": 2}], ignoreUnknownValues=True)

        assert [e["index"] for e in skipped["insertErrors"]] == [1]
        assert "insertErrors" not in ignored
        assert rest.rows(table) == [["1"], ["3"]]

    @rule("tabledata.insertAll", "a missing REQUIRED field is an error of its row", _STREAMING)
    def test_missing_required_field(self, rest: Rest) -> None:
        table = rest.make_table([{"name": "id", "type": "INTEGER", "mode": "REQUIRED"}])

        answer = rest.insert_rows(table, [{}])

        assert [e["index"] for e in answer["insertErrors"]] == [0]
        assert rest.rows(table) == []

    @rule(
        "tabledata.insertAll",
        "the same insertId within a minute is inserted once",
        "docs: Streaming, best effort de-duplication",
    )
    def test_insert_id_deduplicates(self, rest: Rest) -> None:
        table = rest.make_table(_ID)
        body = {"rows": [{"insertId": "a", "json": {"id": 1}}]}
        path = f"/datasets/{rest.dataset}/tables/{table}/insertAll"

        for _ in range(2):
            rest("POST", path, body)

        assert rest.rows(table) == [["1"]]


def _cells(rows: list[list[Any]]) -> list[Any]:
    """Returns the one row of a JSON column and a repeated record of one."""
    ((scalar, records),) = rows
    return [scalar, [[cell["v"] for cell in record["v"]["f"]] for record in records]]
