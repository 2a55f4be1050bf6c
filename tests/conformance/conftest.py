import contextlib

import pytest


def pytest_addoption(parser):
    parser.addoption("--bq-project", help="Runs the tests marked live in this project.")
    parser.addoption("--bq-bucket", help="A Cloud Storage bucket for files of live load jobs.")


@pytest.fixture
def opened():
    """Opens things that are closed, whatever happens, when the test is over."""
    with contextlib.ExitStack() as stack:

        def register(thing):
            stack.callback(thing.close)
            return thing

        yield register
