import contextlib

import pytest

from tests.unit.service.scripted_storage import ScriptedStorage


@pytest.fixture
def storage():
    server = ScriptedStorage()
    yield server
    server.stop()


@pytest.fixture
def opened():
    """Opens things that are closed, whatever happens, when the test is over."""
    with contextlib.ExitStack() as stack:

        def register(thing):
            stack.callback(thing.close)
            return thing

        yield register
