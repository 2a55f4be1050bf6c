"""A Flink job server as a process of its own, for development, demos and tests."""

import logging
import os
import pathlib
import re
from collections.abc import Callable

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import ConfigError
from bqflink_beam.flink.class_path import (
    MAIN_CLASS,
    OPEN_PACKAGES,
    require_java,
    resolve_class_path,
)
from bqflink_beam.flink.server_process import ServerProcess, require_free

_LOG = logging.getLogger(__name__)
_STARTED = r"JobService started on \S+:(\d+)"


class FlinkJobServer:
    """Beam's Flink job server; by default it runs each job on a Flink inside its own JVM.

    Start it with ``with`` or `start`; when the ``with`` ends, and also when this process dies,
    the JVM, the workers it forked and its temporary files are gone. Beam's runner listens on all
    addresses of the machine, without authentication, whatever it is told; keep the machine
    behind a firewall.

    Example:
        >>> with FlinkJobServer() as server:  # doctest: +SKIP
        ...     options = ["--runner=FlinkRunner", f"--job_endpoint={server.job_endpoint}"]

    Args:
        flink_master: ``[local]``, or ``host:port`` of a cluster's REST address.
        job_port: the port to listen on; 0 takes a free one.
        log_path: where stdout and stderr of the JVM go (appended); by default a file among its
            temporary files, which goes with them.
        heap: the JVM's largest heap, as ``-Xmx`` takes it.
        flink_conf_dir: a folder with a Flink configuration.
        java: the Java to run.
        cache_dir: where the jars are kept, see `resolve_class_path`.
        ready_timeout_s: how long the JVM may take until it takes jobs.
        announce: is given one line before the jars are downloaded.
    """

    def __init__(
        self,
        *,
        flink_master: str = "[local]",
        job_port: int = 0,
        log_path: str | os.PathLike | None = None,
        heap: str = "2g",
        flink_conf_dir: str | os.PathLike | None = None,
        java: str = "java",
        cache_dir: str | os.PathLike | None = None,
        ready_timeout_s: float = 90.0,
        announce: Callable[[str], None] = _LOG.info,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._flink_master = flink_master
        self._job_port = job_port
        self._heap = heap
        self._flink_conf_dir = flink_conf_dir
        self._java = java
        self._cache_dir = cache_dir
        self._ready_timeout_s = ready_timeout_s
        self._announce = announce
        self._server = ServerProcess("Flink job server", log_path=log_path, clock=clock)
        self._job_endpoint: str | None = None

    def __enter__(self) -> "FlinkJobServer":
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    @property
    def job_endpoint(self) -> str:
        """``127.0.0.1:port``, for ``--job_endpoint``."""
        if self._job_endpoint is None:
            raise ConfigError("the Flink job server is not running; use it in a 'with' statement")
        return self._job_endpoint

    @property
    def log_path(self) -> pathlib.Path:
        """The file with the JVM's output: the job server's log and that of a local Flink."""
        return self._server.log_path

    @property
    def process_id(self) -> int:
        """The JVM's process id, which is the id of its process group too."""
        return self._server.pid

    @property
    def folder(self) -> pathlib.Path:
        """Its temporary files, gone when it stops."""
        return self._server.folder

    def start(self) -> None:
        """Starts the JVM and returns when it takes jobs.

        Raises:
            ConfigError: Java or Maven is missing or too old, the jars cannot be had, the port is
                taken, or the JVM ended or did not answer in `ready_timeout_s`.
        """
        java = require_java(self._java)
        require_free(self._job_port)
        jars = resolve_class_path(self._cache_dir, announce=self._announce)
        self._server.start(lambda folder: self._command(java, jars, folder))
        try:
            self._job_endpoint = self._await_endpoint()
        except BaseException:  # also a Ctrl-C while it starts must leave no JVM behind
            self.stop()
            raise
        _LOG.info("Flink job server %d takes jobs at %s", self.process_id, self._job_endpoint)

    def stop(self) -> None:
        """Ends the JVM and whatever runs in it, jobs included; does nothing when stopped.

        This is the way to end a streaming job on ``[local]``: a cancel through the job server
        reports CANCELLED while Flink keeps the job running.
        """
        self._job_endpoint = None
        self._server.stop()

    def wait(self) -> int:
        """Waits until the JVM ends by itself; returns its exit code."""
        return self._server.wait()

    def log_text(self) -> str:
        """Returns what the JVM has written since this start, undecodable bytes replaced."""
        return self._server.log_text()

    def wait_for_log(self, pattern: str, *, count: int = 1, timeout_s: float) -> list[re.Match]:
        """Waits until the log has at least `count` matches of a regular expression.

        Returns:
            All matches so far, in the order of the log.

        Raises:
            TimeoutError: not within `timeout_s`, or the JVM has ended; with the end of the log.
        """
        return self._server.wait_for_log(pattern, count=count, timeout_s=timeout_s)

    def _command(self, java: str, jars: pathlib.Path, folder: pathlib.Path) -> list[str]:
        command = [java, f"-Xmx{self._heap}", "-XX:-UsePerfData"]
        command += [f"--add-opens={package}=ALL-UNNAMED" for package in OPEN_PACKAGES]
        command += [f"-Djava.io.tmpdir={folder / 'tmp'}"]
        command += ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
        command += ["-cp", f"{jars}/*", MAIN_CLASS]
        command += ["--job-host=127.0.0.1", f"--job-port={self._job_port}"]
        command += ["--artifact-port=0", "--expansion-port=0"]
        command += [f"--artifacts-dir={folder / 'artifacts'}"]
        command += [f"--flink-master={self._flink_master}"]
        if self._flink_conf_dir is not None:
            command += [f"--flink-conf-dir={os.fspath(self._flink_conf_dir)}"]
        return command

    def _await_endpoint(self) -> str:
        try:
            [started, *_] = self.wait_for_log(_STARTED, timeout_s=self._ready_timeout_s)
        except TimeoutError as error:
            raise ConfigError(f"the Flink job server did not start: {error}") from error
        return f"127.0.0.1:{started[1]}"
