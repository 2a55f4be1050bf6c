"""One Flink job server for the whole session; it runs each job on a Flink of its own."""

import os

import pytest

from bqflink_beam.errors import ConfigError
from bqflink_beam.flink import FlinkJobServer, resolve_class_path
from bqflink_beam.flink.class_path import require_java


def pytest_collection_modifyitems(items):
    for item in items:
        if {"flink", "flink_server", "flink_jars"} & set(item.fixturenames):
            item.add_marker("flink")


@pytest.fixture(scope="session")
def flink_jars():
    """The folder of the job server's jars; skips without Java or Maven, fails on the gate."""
    try:
        require_java()
        return resolve_class_path(announce=print)
    except ConfigError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"the gate must run the Flink tests: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def flink(flink_jars, tmp_path_factory):
    """A job server that the tests share: for jobs that end by themselves."""
    with FlinkJobServer(log_path=tmp_path_factory.mktemp("flink") / "job-server.log") as server:
        yield server


@pytest.fixture
def flink_server(flink_jars, tmp_path):
    """A job server of the test's own: for jobs that only end with it."""
    with FlinkJobServer(log_path=tmp_path / "job-server.log") as server:
        yield server
