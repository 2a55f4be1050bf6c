import pytest
from hypothesis import given, settings

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.changes import Change, ChangeKind, diff, merge, widened
from bqflink_beam.schema.json import to_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import strategies


def schema(*fields):
    return TableSchema(fields)


def field(name, kind="INT64", mode="NULLABLE", **facts):
    return Field(name=name, type=kind, mode=mode, **facts)


HAVE = schema(
    field("id", mode="REQUIRED", description="the key"),
    field("Address", "STRUCT", fields=(field("City", "STRING", mode="REQUIRED"),)),
)


def test_a_schema_needs_no_change_to_hold_its_own_rows():
    assert diff(HAVE, HAVE) == []
    assert merge(HAVE, HAVE) == HAVE


def test_new_columns_are_added_and_may_be_null():
    """Within STRUCTs too: spark-bigquery-connector#990 did not look there."""
    want = schema(
        field("ID", mode="REQUIRED"),
        field("kind", "STRING", mode="REQUIRED"),
        field(
            "address",
            "STRUCT",
            fields=(field("city", "STRING", mode="REQUIRED"), field("zip", mode="REPEATED")),
        ),
    )

    assert diff(HAVE, want) == [
        Change(ChangeKind.ADD, "Address.zip", field("zip", mode="REPEATED")),
        Change(ChangeKind.ADD, "kind", field("kind", "STRING")),
    ]
    assert merge(HAVE, want) == schema(
        HAVE.fields[0],
        field(
            "Address",
            "STRUCT",
            fields=(field("City", "STRING", mode="REQUIRED"), field("zip", mode="REPEATED")),
        ),
        field("kind", "STRING"),
    )


def test_required_is_given_up_where_rows_may_lack_the_value():
    want = schema(field("address", "STRUCT", fields=(field("city", "STRING"),)))

    assert diff(HAVE, want) == [
        Change(ChangeKind.RELAX, "id"),
        Change(ChangeKind.RELAX, "Address.City"),
    ]


def test_a_required_column_with_a_default_may_be_lacking():
    have = schema(field("id", mode="REQUIRED", default_value_expression="5"), field("a"))

    assert diff(have, schema(field("a"))) == []


@pytest.mark.parametrize(
    "want",
    [
        field("id", "STRING"),
        field("id", mode="REPEATED"),
        field("address", "STRING"),
        field("address", "STRUCT", mode="REPEATED", fields=(field("city", "STRING"),)),
        field("address", "STRUCT", fields=(field("city", "BYTES"),)),
    ],
)
def test_another_type_is_impossible_and_names_the_column(want):
    with pytest.raises(ConfigError, match="cannot hold"):
        merge(HAVE, schema(want))


def test_what_the_model_does_not_know_of_a_table_is_kept():
    fields = to_json(HAVE)
    fields[1]["fields"][0]["collation"] = "und:ci"
    want = schema(field("address", "STRUCT", fields=(field("city", "STRING"),)))

    out = widened(fields, diff(HAVE, want))

    assert out[1]["fields"][0] == {
        "name": "City", "type": "STRING", "mode": "NULLABLE", "collation": "und:ci",
    }  # fmt: skip
    assert fields[1]["fields"][0]["mode"] == "REQUIRED"


def test_a_merge_keeps_what_a_column_says_of_itself():
    """spark-bigquery-connector#1028, #1043 and #1244: policy tags and nullability were lost."""
    kept = (
        field("id", mode="REQUIRED", policy_tags=("projects/p/taxonomies/1/policyTags/2",)),
        field("n", "NUMERIC", precision=10, scale=2, rounding_mode="ROUND_HALF_EVEN"),
        field("s", "STRING", max_length=5, default_value_expression="'x'", description="text"),
        field("t", "TIMESTAMP", timestamp_precision=12),
        field("r", "RANGE", range_element_type="DATE"),
    )

    want = schema(
        *(
            field(
                each.name,
                each.type,
                mode=each.mode,
                timestamp_precision=each.timestamp_precision,
                range_element_type=each.range_element_type,
            )
            for each in kept
        ),
        field("more"),
    )

    assert merge(schema(*kept), want) == schema(*kept, field("more"))


@settings(max_examples=300, deadline=None)
@given(strategies.schemas(), strategies.schemas())
def test_after_a_merge_nothing_is_left_to_change(have, want):
    try:
        merged = merge(have, want)
    except ConfigError:
        assert any(each.kind is ChangeKind.IMPOSSIBLE for each in diff(have, want))
    else:
        assert diff(merged, want) == []
        assert diff(merged, have) == []
        assert [each.name for each in merged][: len(have)] == [each.name for each in have]
