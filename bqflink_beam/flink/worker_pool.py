"""Workers of the EXTERNAL environment: a server that starts one when Flink asks for it."""

import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import Callable

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import ConfigError
from bqflink_beam.flink.server_process import ServerProcess, require_free

_STARTED = r"--environment_config=localhost:(\d+)"


class FlinkWorkerPool:
    """A worker pool as a process of its own; each worker is a process that it forks.

    Start one beside each TaskManager. When the ``with`` ends, and also when this process dies,
    the pool and its workers are gone. Workers import modules as this process would if it were
    started anew in the same folder. Like all of Beam's runner, the pool listens on all addresses
    of the machine and asks nobody who they are.

    Args:
        port: the port to listen on; 0 takes a free one.
        log_path: where the output of the pool and of its workers goes (appended).
        ready_timeout_s: how long the pool may take until it listens.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        log_path: str | os.PathLike | None = None,
        ready_timeout_s: float = 60.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._port = port
        self._ready_timeout_s = ready_timeout_s
        self._server = ServerProcess("Flink worker pool", log_path=log_path, clock=clock)
        self._address: str | None = None

    def __enter__(self) -> "FlinkWorkerPool":
        command = [
            sys.executable,
            "-m",
            "bqflink_beam",
            "flink-worker-pool",
            f"--port={self._port}",
        ]
        self._server.start(lambda folder: command)
        try:
            [started, *_] = self._server.wait_for_log(
                _STARTED, count=1, timeout_s=self._ready_timeout_s
            )
        except TimeoutError as error:
            self._server.stop()
            raise ConfigError(f"the Flink worker pool did not start: {error}") from error
        except BaseException:  # also a Ctrl-C while it starts must leave no process behind
            self._server.stop()
            raise
        self._address = f"localhost:{started[1]}"
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._address = None
        self._server.stop()

    @property
    def address(self) -> str:
        """``localhost:port``, for ``--environment_type=EXTERNAL --environment_config``."""
        if self._address is None:
            raise ConfigError("the Flink worker pool is not running; use it in a 'with' statement")
        return self._address

    @property
    def process_id(self) -> int:
        """The pool's process id, which is the id of the process group of its workers too."""
        return self._server.pid

    def log_text(self) -> str:
        """Returns what the pool and its workers have written since this start."""
        return self._server.log_text()


def serve_worker_pool(port: int, say: Callable[[str], None]) -> None:
    """Runs a pool in this process until a signal ends it; `say` gets the flags that use it.

    Raises:
        ConfigError: the port is taken.
    """
    # Beam's pool would share a port that another pool listens on, and each get some workers.
    require_free(port)
    # Imported here, so that naming the pool, or a taken port, does not wait for Beam.
    from apache_beam.runners.worker.worker_pool_main import BeamFnExternalWorkerPoolServicer

    from bqflink_beam.flink.worker import write_worker_script

    with tempfile.TemporaryDirectory(prefix="bqflink-pool-") as folder:
        script = write_worker_script(pathlib.Path(folder) / "worker")
        address, server = BeamFnExternalWorkerPoolServicer.start(
            use_process=True, port=port, container_executable=str(script)
        )
        try:
            say(f"--environment_type=EXTERNAL --environment_config={address}")
            signal.pause()
        finally:
            server.stop(0)
