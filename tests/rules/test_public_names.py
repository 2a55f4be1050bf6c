"""The public names, each listed here: a change is a change of this list and of the changelog."""

import importlib
import subprocess
import sys

import pytest

_PUBLIC = {
    "bqflink_beam": """
        AccessToken Anonymous ApplicationDefault AtLeastOnce BqflinkError CommitReport
        ConfigError Connection CreateTable ExactlyOnce FailedRow Field Impersonate
        Interval LostStream Predicate Range ReadFromBigQueryStorage RowError
        ServiceAccountFile ServiceAccountJson TableReference TableSchema
        WriteToBigQueryStorage col partitions
    """,
    "bqflink_beam.flink": """
        FlinkJobServer FlinkWorkerPool local_flink_options resolve_class_path write_thin_jar
    """,
    "bqflink_beam.testing": """
        Emulator FakeClock Fault Settings
    """,
}


@pytest.mark.parametrize("module", _PUBLIC)
def test_public_names_are_those_listed(module):
    assert sorted(importlib.import_module(module).__all__) == sorted(_PUBLIC[module].split())


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in _PUBLIC for name in _PUBLIC[module].split()]
)
def test_public_name_is_there_and_says_what_it_is(module, name):
    found = getattr(importlib.import_module(module), name)

    assert found.__module__.startswith("bqflink_beam.")
    assert found.__doc__
    assert not found.__doc__.startswith(f"{name}("), "a docstring of its own, not dataclass's"


def test_name_that_is_not_there_is_an_attribute_error():
    import bqflink_beam

    with pytest.raises(AttributeError, match="no attribute 'WriteToBigQuery'"):
        _ = bqflink_beam.WriteToBigQuery


def test_command_line_and_emulator_start_without_beam():
    imports = "import sys, bqflink_beam.cli, bqflink_beam.emulator.server"
    asked = [sys.executable, "-c", f"{imports}; print('apache_beam' in sys.modules)"]

    answer = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True)

    assert answer.stdout == "False\n"
