"""What a user's own tests import: the embedded BigQuery, faults, and a clock they own."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bqflink_beam.emulator.faults import Fault as Fault
    from bqflink_beam.emulator.settings import Settings as Settings
    from bqflink_beam.testing.clock import FakeClock as FakeClock
    from bqflink_beam.testing.emulator import Emulator as Emulator

_HOMES = {
    "Emulator": "testing.emulator",
    "FakeClock": "testing.clock",
    "Fault": "emulator.faults",
    "Settings": "emulator.settings",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'bqflink_beam.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bqflink_beam.{home}"), name)


def __dir__() -> list[str]:
    return __all__
