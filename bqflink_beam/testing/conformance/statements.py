"""REST v2 as the service has it: what DML does to rows."""

from typing import Any

import pytest

from bqflink_beam.testing.conformance.kit import rule
from bqflink_beam.testing.conformance.rest import HttpFailure, Rest

_ID: list[Any] = [{"name": "id", "type": "INTEGER"}]
_PAIR = [*_ID, {"name": "name", "type": "STRING"}]


class StatementConformance:
    """UPDATE and MERGE."""

    @rule(
        "jobs.query",
        "a clause of MERGE names the side that has a row, without saying which",
        "docs: DML syntax, MERGE",
    )
    def test_merge_clauses_name_their_side(self, rest: Rest) -> None:
        table = rest.make_table(_PAIR)
        name = f"{rest.dataset}.{table}"
        rest.query(f"INSERT INTO {name} (id, name) VALUES (1, 'a'), (3, 'c')")

        rest.query(
            f"MERGE {name} AS t USING (SELECT 1 AS id, 'b' AS name UNION ALL SELECT 2, 'x') AS z "
            "ON t.id = z.id "
            "WHEN MATCHED THEN UPDATE SET name = z.name "
            "WHEN NOT MATCHED AND name = 'x' THEN INSERT (id, name) VALUES (id, UPPER(name)) "
            "WHEN NOT MATCHED BY SOURCE AND name = 'c' THEN DELETE"
        )

        assert rest.rows(table) == [["1", "b"], ["2", "X"]]

    @rule(
        "jobs.query",
        "UPDATE of a field of a NULL STRUCT fails",
        "google test: GoogleSQL compliance, dml_update_struct, assign_struct_field_in_null_struct",
    )
    def test_field_of_a_null_struct_is_not_set(self, rest: Rest) -> None:
        record = {"name": "s", "type": "RECORD", "fields": _PAIR}
        table = rest.make_table([*_ID, record])
        name = f"{rest.dataset}.{table}"
        rest.query(f"INSERT INTO {name} (id, s) VALUES (1, (1, 'a')), (2, NULL)")

        with pytest.raises(HttpFailure):
            rest.query(f"UPDATE {name} SET s.id = 7 WHERE TRUE")
        rest.query(f"UPDATE {name} SET s.id = 8 WHERE s IS NOT NULL")

        cells = {row[0]: row[1] and [cell["v"] for cell in row[1]["f"]] for row in rest.rows(table)}
        assert cells == {"1": ["8", "a"], "2": None}

    @rule("jobs.query", "a MERGE that matches a target row twice fails", "docs: DML syntax, MERGE")
    def test_merge_refuses_two_matches(self, rest: Rest) -> None:
        table = rest.make_table(_PAIR)
        name = f"{rest.dataset}.{table}"
        rest.query(f"INSERT INTO {name} (id) VALUES (1)")

        with pytest.raises(HttpFailure):
            rest.query(
                f"MERGE {name} AS t USING UNNEST([1, 1]) AS u ON t.id = u "
                "WHEN MATCHED THEN UPDATE SET name = 'x'"
            )

        assert rest.rows(table) == [["1", None]]
