"""The embedded BigQuery keeps every rule, without a network and over gRPC."""

import pytest

from bqflink_beam.testing.conformance import (
    BigQuery,
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


def test_few_rules_are_assumed():
    rules = rules_of(WriteConformance, ReadConformance)

    assumed = [rule for rule in rules if rule.source == "assumed"]

    assert len(rules) >= 150
    assert len(assumed) <= len(rules) * 0.15
