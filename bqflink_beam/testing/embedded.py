"""One embedded BigQuery for all pipelines of a process: what ``--bq_embedded`` starts."""

import atexit
import threading

from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

from bqflink_beam.errors import ConfigError
from bqflink_beam.service.connection import Connection
from bqflink_beam.testing.emulator import Emulator

_LOCK = threading.Lock()
_RUNNING: list[Emulator] = []


def shared_emulator() -> Emulator:
    """Returns the process's embedded BigQuery; it is started by the first call and ends with
    the process, and its tables with it."""
    with _LOCK:
        if not _RUNNING:
            emulator = Emulator()
            emulator.__enter__()
            _RUNNING.append(emulator)
        return _RUNNING[0]


@atexit.register
def stop_shared_emulator() -> None:
    """Ends the process's embedded BigQuery, if there is one; the next pipeline gets a new one."""
    with _LOCK:
        while _RUNNING:
            _RUNNING.pop().__exit__(None, None, None)


def shared_connection(options: PipelineOptions) -> Connection:
    """Returns a connection to the shared emulator.

    Raises:
        ConfigError: the workers run on other machines, and would not find it.
    """
    environment = options.view_as(PortableOptions).environment_type
    if environment not in (None, "LOOPBACK"):
        raise ConfigError(
            f"--bq_embedded serves this machine only, and --environment_type={environment} may start workers "
            "elsewhere; use LOOPBACK, or start 'python -m bqflink_beam emulator' and name its endpoints"
        )
    return shared_emulator().connection


def make_dataset(project: str, dataset: str) -> None:
    """Makes a dataset of the shared emulator: it starts empty, and a pipeline makes tables only."""
    shared_emulator().create_dataset(project, dataset)
