"""The embedded BigQuery keeps the rules of REST v2, by name and source."""

import pathlib

import pytest

from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.testing.conformance import rules_of
from bqflink_beam.testing.conformance.jobs import JobConformance
from bqflink_beam.testing.conformance.rest import Rest


class TestServedJobs(JobConformance):
    @pytest.fixture
    def rest(self, tmp_path: pathlib.Path) -> Rest:
        def put_file(name: str, data: bytes) -> str:
            path = tmp_path / name
            path.write_bytes(data)
            return f"file://{path}"

        with EmulatorServer(settings=Settings(files_root=tmp_path)) as server:
            server.create_dataset("test-project", "conformance")
            yield Rest(server.rest_endpoint, "test-project", "conformance", put_file)


def test_every_rule_names_its_source():
    rules = rules_of(JobConformance)
    kinds = {rule.source.partition(":")[0] for rule in rules}

    assert len(rules) >= 60
    assert kinds <= {"docs", "google test", "measured", "client", "assumed"}
    assert sum(rule.source == "assumed" for rule in rules) <= len(rules) * 0.15
