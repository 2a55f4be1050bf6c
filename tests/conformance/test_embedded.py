"""The embedded BigQuery keeps every rule, without a network and over gRPC."""

import pathlib

import pytest

from bqflink_beam.testing.conformance import (
    BigQuery,
    JobConformance,
    ReadConformance,
    WriteConformance,
    embedded,
    rules_of,
)


class TestDirectWrite(WriteConformance):
    @pytest.fixture
    def bigquery(self) -> BigQuery:
        with embedded.direct() as bigquery:
            yield bigquery


class TestDirectRead(ReadConformance):
    @pytest.fixture
    def bigquery(self) -> BigQuery:
        with embedded.direct() as bigquery:
            yield bigquery


class TestServedWrite(WriteConformance):
    @pytest.fixture
    def bigquery(self) -> BigQuery:
        with embedded.served() as bigquery:
            yield bigquery


class TestServedRead(ReadConformance):
    @pytest.fixture
    def bigquery(self) -> BigQuery:
        with embedded.served() as bigquery:
            yield bigquery


RULES = rules_of(WriteConformance, ReadConformance, JobConformance)
ASSUMED = [rule for rule in RULES if rule.source == "assumed"]


def test_few_rules_are_assumed():
    assert len(RULES) >= 200
    assert len(ASSUMED) <= len(RULES) * 0.15


def test_every_rule_names_its_source():
    kinds = {"docs", "proto", "google test", "measured", "client"}

    assert {rule.source.partition(":")[0] for rule in RULES} <= kinds | {"assumed"}


def test_what_is_assumed_is_in_the_documentation():
    text = pathlib.Path(__file__).parents[2].joinpath("docs/emulator.md").read_text()
    section = text.partition("### Assumed")[2].partition("\n### ")[0]
    told = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]

    assert [(method.strip(), rule.strip()) for method, rule in told[1:]] == [
        (rule.method, rule.text) for rule in ASSUMED
    ]
