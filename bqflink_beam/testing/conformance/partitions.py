"""REST v2 and partition decorators: ``table$20130101`` is one partition, to read and to write."""

from typing import Any

import pytest

from bqflink_beam.testing.conformance.kit import rule
from bqflink_beam.testing.conformance.rest import HttpFailure, Rest, reason_of, succeeded

_BY_DAY: list[Any] = [{"name": "id", "type": "INTEGER"}, {"name": "day", "type": "DATE"}]
_BY_COLUMN = {"type": "DAY", "field": "day"}
_FIRST, _SECOND = ["1", "2013-01-01"], ["2", "2013-01-02"]
_WRITE = "docs: Managing partitioned table data, Write data to a specific partition"
_MANAGE = "docs: Managing partitioned tables"


def _file(rest: Rest, *rows: list[str]) -> str:
    lines = "".join(f'{{"id": {number}, "day": "{day}"}}\n' for number, day in rows)
    return rest.put_file(rest.name("day") + ".json", lines.encode())


def _two_days(rest: Rest, **partitioning: Any) -> str:
    """Makes a table with a row in each of the first two partitions of 2013."""
    table = rest.make_table(_BY_DAY, timePartitioning={"type": "DAY", **partitioning})
    for row in (_FIRST, _SECOND):
        succeeded(rest.load(f"{table}${row[1].replace('-', '')}", _file(rest, row)))
    return table


class PartitionConformance:
    """Jobs, lists and deletes of single partitions."""

    @rule("tabledata.list", "a partition decorator lists one partition", _MANAGE)
    @rule("tables.get", "a partition decorator counts one partition", _MANAGE)
    def test_one_partition_is_read(self, rest: Rest) -> None:
        table = _two_days(rest, field="day")

        assert rest.rows(f"{table}$20130102") == [_SECOND]
        assert rest.table(f"{table}$20130102")["numRows"] == "1"

    @rule("tables.delete", "a partition decorator deletes one partition", _MANAGE)
    @pytest.mark.parametrize("field", [{"field": "day"}, {}])
    def test_one_partition_is_deleted(self, rest: Rest, field: Any) -> None:
        table = _two_days(rest, **field)

        rest("DELETE", f"/datasets/{rest.dataset}/tables/{table}$20130101")

        assert rest.rows(table) == [_SECOND]

    @rule("jobs.insert load", "WRITE_TRUNCATE of a partition keeps the others", _WRITE)
    def test_one_partition_is_replaced(self, rest: Rest) -> None:
        table = _two_days(rest, field="day")
        again = ["3", "2013-01-01"]

        succeeded(
            rest.load(f"{table}$20130101", _file(rest, again), writeDisposition="WRITE_TRUNCATE")
        )

        assert rest.rows(table) == [_SECOND, again]

    @rule("jobs.insert load", "rows of another partition fail a load into one", _WRITE)
    @rule("jobs.insert", "rows of another partition fail a query into one", _WRITE)
    def test_rows_of_another_partition_are_refused(self, rest: Rest) -> None:
        table = _two_days(rest, field="day")
        target = {"destinationTable": rest.reference(f"{table}$20130103")}

        loaded = rest.load(f"{table}$20130103", _file(rest, ["3", "2013-01-03"], _FIRST))
        queried = rest.run_query("SELECT 3 AS id, DATE '2013-01-04' AS day", **target)

        assert [reason_of(loaded), reason_of(queried)] == ["invalid", "invalid"]
        assert rest.rows(table) == [_FIRST, _SECOND]

    @rule("jobs.insert load", "WRITE_EMPTY asks whether the partition is empty", _WRITE)
    def test_empty_partition_is_written(self, rest: Rest) -> None:
        table = _two_days(rest, field="day")
        third = _file(rest, ["3", "2013-01-03"])

        succeeded(rest.load(f"{table}$20130103", third, writeDisposition="WRITE_EMPTY"))
        refused = rest.load(f"{table}$20130103", third, writeDisposition="WRITE_EMPTY")

        assert reason_of(refused) == "duplicate"
        assert len(rest.rows(table)) == 3

    @rule(
        "jobs.insert load",
        "a partitioning that is not the table's fails the load",
        "measured: Incompatible table partitioning specification, googleapis/google-cloud-python",
    )
    def test_other_partitioning_is_refused(self, rest: Rest) -> None:
        table = _two_days(rest, field="day")

        succeeded(rest.load(table, _file(rest, _FIRST), timePartitioning=_BY_COLUMN))
        refused = rest.load(table, _file(rest, _FIRST), timePartitioning={"type": "DAY"})

        assert reason_of(refused) == "invalid"
        assert len(rest.rows(table)) == 3

    @rule(
        "jobs.insert load",
        "a new table is partitioned and clustered as the job says",
        "docs: REST reference, JobConfigurationLoad",
    )
    @rule(
        "jobs.insert load",
        "a partitioning by a column that is not there fails the load",
        "measured: bqemulator's recordings of the service, dest_time_partitioning_invalid_field",
    )
    def test_new_table_has_the_layout(self, rest: Rest) -> None:
        table = rest.name("laid")
        schema = {"fields": _BY_DAY}
        missing = {"type": "DAY", "field": "nope"}

        refused = rest.load(table, _file(rest, _FIRST), schema=schema, timePartitioning=missing)
        succeeded(
            rest.load(
                table,
                _file(rest, _FIRST),
                schema=schema,
                timePartitioning=_BY_COLUMN,
                clustering={"fields": ["id"]},
            )
        )

        made = rest.table(table)
        assert reason_of(refused) == "invalid"
        assert made["timePartitioning"]["field"] == "day"
        assert made["clustering"] == {"fields": ["id"]}

    @rule("jobs.insert copy", "rows keep their partitions", f"{_MANAGE}, Copy a partitioned table")
    @rule(
        "jobs.insert copy",
        "decorators copy one partition into another",
        f"{_MANAGE}, Copy a single partition",
    )
    def test_copies_keep_partitions(self, rest: Rest) -> None:
        table, copied = _two_days(rest), rest.name("copied")

        succeeded(rest.copy([table], copied))
        succeeded(rest.copy([f"{table}$20130101"], f"{copied}$20130103"))

        assert rest.query(
            f"SELECT id, CAST(_PARTITIONDATE AS STRING) FROM {rest.dataset}.{copied} ORDER BY 2"
        ) == [_FIRST, _SECOND, ["1", "2013-01-03"]]

    @rule(
        "jobs.insert",
        "schemaUpdateOptions go with WRITE_APPEND, or with WRITE_TRUNCATE of a partition",
        "docs: REST reference, JobConfigurationQuery",
    )
    def test_schema_updates_go_with_appends(self, rest: Rest) -> None:
        table = rest.make_table(_BY_DAY)

        with pytest.raises(HttpFailure) as caught:
            succeeded(
                rest.run_query(
                    "SELECT 1 AS id, TRUE AS new",
                    destinationTable=rest.reference(table),
                    writeDisposition="WRITE_TRUNCATE",
                    schemaUpdateOptions=["ALLOW_FIELD_ADDITION"],
                )
            )

        assert (caught.value.status, caught.value.reasons) == (400, ["invalid"])

    @rule(
        "tabledata.insertAll",
        "a partition of a column cannot be streamed to",
        "docs: Streaming data into partitioned tables",
    )
    def test_column_partition_is_not_streamed_to(self, rest: Rest) -> None:
        table = _two_days(rest, field="day")

        with pytest.raises(HttpFailure) as caught:
            rest.insert_rows(f"{table}$20130103", [{"id": 3, "day": "2013-01-03"}])

        assert caught.value.status == 400
        assert len(rest.rows(table)) == 2

    @rule(
        "tables.delete",
        "a stale etag in If-Match is a 412",
        "docs: REST reference, Avoiding race conditions with ETags",
    )
    def test_delete_with_a_stale_etag_is_refused(self, rest: Rest) -> None:
        table = rest.make_table(_BY_DAY)

        with pytest.raises(HttpFailure) as caught:
            rest("DELETE", f"/datasets/{rest.dataset}/tables/{table}", None, {"If-Match": "stale"})

        assert caught.value.status == 412
        assert rest.table(table)

    @rule(
        "jobs.query",
        "UPDATE, DELETE and MERGE need the partition filter that a table requires",
        "docs: Using DML with partitioned tables, require a partition filter",
    )
    @rule(
        "jobs.query",
        "a filter that rows may pass without it does not count",
        "docs: Query partitioned tables, require a partition filter",
    )
    @pytest.mark.parametrize(
        "text",
        [
            "SELECT id FROM {0} WHERE day = '2013-01-01' OR id = 2",
            "DELETE FROM {0} WHERE id = 1",
            "UPDATE {0} SET id = 7 WHERE TRUE",
            "MERGE {0} AS t USING (SELECT 1 AS id) AS s ON t.id = s.id WHEN MATCHED THEN DELETE",
        ],
    )
    def test_required_filter_is_required_of_dml(self, rest: Rest, text: str) -> None:
        table = rest.make_table(_BY_DAY, timePartitioning=_BY_COLUMN, requirePartitionFilter=True)
        name = f"{rest.dataset}.{table}"
        rest.query(f"INSERT INTO {name} (id, day) VALUES (1, '2013-01-01'), (2, '2013-01-02')")

        with pytest.raises(HttpFailure) as caught:
            rest.query(text.format(name))
        rest.query(f"DELETE FROM {name} WHERE id = 2 AND (day = '2013-01-02' OR day IS NULL)")

        assert (caught.value.status, caught.value.reasons) == (400, ["invalidQuery"])
        assert rest.rows(table) == [_FIRST]
