"""A Flink job server as a process of its own, for development, demos and tests."""

import contextlib
import logging
import os
import pathlib
import re
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import ConfigError
from bqflink_beam.flink.class_path import (
    MAIN_CLASS,
    OPEN_PACKAGES,
    require_java,
    resolve_class_path,
)

_LOG = logging.getLogger(__name__)
_STARTED = re.compile(r"JobService started on (\S+):(\d+)")
_POLL_S = 0.05
_TERM_S = 5.0

# Holds a pipe that the kernel closes when the process that started us dies, even by SIGKILL;
# then the whole group, the JVM and the workers it forked, goes as well, and its files ($0).
_LEASH = """
exec 3<&0
(cat <&3; trap "" TERM; kill -TERM 0; sleep 1; rm -rf -- "$0"; kill -KILL 0) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"""


class FlinkJobServer:
    """Beam's Flink job server; by default it runs each job on a Flink inside its own JVM.

    Start it with ``with`` or `start`; when the ``with`` ends, and also when this process dies,
    the JVM, the workers it forked and its temporary files are gone.
    Beam's runner listens on all addresses of the machine, without authentication, whatever it is
    told; keep the machine behind a firewall.

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
        ready_timeout_s: how long the JVM may take until it answers.
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
        self._log_path = pathlib.Path(log_path) if log_path is not None else None
        self._heap = heap
        self._flink_conf_dir = flink_conf_dir
        self._java = java
        self._cache_dir = cache_dir
        self._ready_timeout_s = ready_timeout_s
        self._announce = announce
        self._clock = clock
        self._process: subprocess.Popen | None = None
        self._scratch: tempfile.TemporaryDirectory | None = None
        self._log_start = 0
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
        if self._log_path is not None:
            return self._log_path
        if self._scratch is None:
            raise ConfigError("the log of a stopped job server is kept only if log_path is given")
        return pathlib.Path(self._scratch.name) / "job-server.log"

    @property
    def process_id(self) -> int:
        """The JVM's process id, which is the id of its process group too."""
        if self._process is None:
            raise ConfigError("the Flink job server is not running; use it in a 'with' statement")
        return self._process.pid

    def start(self) -> None:
        """Starts the JVM and returns when it takes jobs.

        Raises:
            ConfigError: Java or Maven is missing or too old, the jars cannot be had, the port is
                taken, or the JVM ended or did not answer in `ready_timeout_s`.
        """
        if self._process is not None:
            raise ConfigError("the Flink job server is running already")
        java = require_java(self._java)
        jars = resolve_class_path(self._cache_dir, announce=self._announce)
        self._scratch = tempfile.TemporaryDirectory(prefix="bqflink-job-server-")
        try:
            self._launch(self._command(java, jars))
            self._job_endpoint = self._await_endpoint()
        except BaseException:  # also a Ctrl-C while it starts must leave no JVM behind
            self.stop()
            raise
        _LOG.info("Flink job server %d takes jobs at %s", self.process_id, self._job_endpoint)

    def stop(self) -> None:
        """Ends the JVM and whatever runs in it, jobs included; does nothing when stopped.

        This is the way to end a streaming job on ``[local]``: a cancel through the job server
        may report CANCELLED while Flink keeps the job running.
        """
        process, self._process, self._job_endpoint = self._process, None, None
        if process is not None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TERM_S)
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        scratch, self._scratch = self._scratch, None
        if scratch is not None:
            scratch.cleanup()

    def wait(self) -> int:
        """Waits until the JVM ends by itself; returns its exit code."""
        if self._process is None:
            raise ConfigError("the Flink job server is not running; use it in a 'with' statement")
        return self._process.wait()

    def log_text(self) -> str:
        """Returns what the JVM has written since this start, undecodable bytes replaced."""
        with open(self.log_path, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def wait_for_log(self, pattern: str, *, count: int = 1, timeout_s: float) -> list[re.Match]:
        """Waits until the log has at least `count` matches of a regular expression.

        Returns:
            All matches so far, in the order of the log.

        Raises:
            TimeoutError: not within `timeout_s`, or the JVM has ended; with the end of the log.
        """
        wanted = re.compile(pattern)
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            # Asked before the log is read: what a JVM wrote before it ended still counts.
            ended = self._process is None or self._process.poll() is not None
            text = self.log_text()
            found = list(wanted.finditer(text))
            if len(found) >= count:
                return found
            if ended or self._clock.monotonic_s() > deadline_s:
                why = "ended" if ended else f"{timeout_s} s passed"
                raise TimeoutError(
                    f"{len(found)} of {count} matches of {pattern!r} in the job server's log when "
                    f"{'the JVM ' if ended else ''}{why}; it ends with:\n{text[-3000:]}"
                )
            self._clock.sleep(_POLL_S)

    def _command(self, java: str, jars: pathlib.Path) -> list[str]:
        assert self._scratch is not None
        scratch = pathlib.Path(self._scratch.name)
        (scratch / "tmp").mkdir()
        command = [java, f"-Xmx{self._heap}", "-XX:-UsePerfData"]
        command += [f"--add-opens={package}=ALL-UNNAMED" for package in OPEN_PACKAGES]
        command += [f"-Djava.io.tmpdir={scratch / 'tmp'}"]
        command += ["-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS"]
        command += ["-cp", f"{jars}/*", MAIN_CLASS]
        command += ["--job-host=127.0.0.1", f"--job-port={self._job_port}"]
        command += ["--artifact-port=0", "--expansion-port=0"]
        command += [f"--artifacts-dir={scratch / 'artifacts'}"]
        command += [f"--flink-master={self._flink_master}"]
        if self._flink_conf_dir is not None:
            command += [f"--flink-conf-dir={os.fspath(self._flink_conf_dir)}"]
        return command

    def _launch(self, command: Sequence[str]) -> None:
        assert self._scratch is not None
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log_path, "ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _LEASH, self._scratch.name, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _await_endpoint(self) -> str:
        try:
            [started, *_] = self.wait_for_log(_STARTED.pattern, timeout_s=self._ready_timeout_s)
        except TimeoutError as error:
            raise ConfigError(f"the Flink job server did not start: {error}") from error
        return f"127.0.0.1:{started[2]}"


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of it has ended already
        os.killpg(group, number)
