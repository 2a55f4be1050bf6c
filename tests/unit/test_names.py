"""Every way to name a table, and what is no name."""

import types

import pytest

from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference

TABLE = TableReference("p", "d", "t")


@pytest.mark.parametrize(
    "named",
    [
        "p.d.t",
        "p:d.t",
        TABLE,
        {"projectId": "p", "datasetId": "d", "tableId": "t"},
        {"project": "p", "dataset": "d", "table": "t"},
        types.SimpleNamespace(project="p", dataset_id="d", table_id="t"),  # Google's
        types.SimpleNamespace(projectId="p", datasetId="d", tableId="t"),  # Beam's
    ],
)
def test_all_forms_name_the_same_table(named):
    assert TableReference.parse(named, default_project="other") == TABLE


@pytest.mark.parametrize("named", ["d.t", {"datasetId": "d", "tableId": "t"}])
def test_a_project_that_is_not_named_is_the_default(named):
    assert TableReference.parse(named, default_project="p") == TABLE
    with pytest.raises(ConfigError):
        TableReference.parse(named)


@pytest.mark.parametrize("form", ["text", "mapping"])
@pytest.mark.parametrize(
    "parts",
    [
        ("example.com:p", "d", "t"),
        ("p", "d", "t$20260101"),
        ("p", "d", "été 2026-ü"),
        ("p", "d", "\N{DEVANAGARI LETTER KA}\N{DEVANAGARI VOWEL SIGN AA}"),
    ],
)
def test_every_name_that_bigquery_allows_is_read_and_shown_as_it_is(parts, form):
    text = ".".join(parts)
    named = text if form == "text" else dict(zip(_KEYS, parts, strict=True))

    table = TableReference.parse(named)

    assert (table.project, table.dataset, table.table) == parts
    assert str(table) == text
    assert TableReference.from_path(table.default_stream) == table


@pytest.mark.parametrize("form", ["text", "mapping"])
@pytest.mark.parametrize(
    "parts",
    [
        ("p", "d", "t/streams/_default"),
        ("p", "d/../x", "t"),
        ("p/datasets/x", "d", "t"),
        ("p", "d", "a.b"),
        ("p", "d", "t\n"),
        ("p", "d", "t`"),
        ("p", "d", "t\N{SNOWMAN}"),
    ],
)
def test_what_leads_elsewhere_is_no_table_in_any_form(parts, form):
    named = ".".join(parts) if form == "text" else dict(zip(_KEYS, parts, strict=True))

    with pytest.raises(ConfigError, match=r"project\.dataset\.table"):
        TableReference.parse(named)


@pytest.mark.parametrize("named", [None, 17, "", "t", "p.d.", {}, {"tableId": "t"}])
def test_what_is_no_name_is_shown_in_the_error(named):
    with pytest.raises(ConfigError, match="table must"):
        TableReference.parse(named, default_project="p")


_KEYS = ("projectId", "datasetId", "tableId")
