"""A server as a process group of its own, which cannot outlive the process that started it."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Sequence

from bqflink_beam.clock import Clock
from bqflink_beam.errors import ConfigError

_POLL_S = 0.05
_TERM_S = 5.0

# Holds a pipe that the kernel closes when the process that started us dies, even by SIGKILL;
# then the whole group, the server and what it forked, goes as well, and its files ($0).
_LEASH = """
exec 3<&0
(cat <&3; trap "" TERM; kill -TERM 0; sleep 1; rm -rf -- "$0"; kill -KILL 0) >/dev/null 2>&1 &
exec "$@" 3<&- </dev/null
"""


class ServerProcess:
    """Starts, watches and ends one server, with a temporary folder that goes with it.

    Args:
        what: names it in messages.
        log_path: where its stdout and stderr go (appended); by default a file in its folder.
    """

    def __init__(self, what: str, *, log_path: str | os.PathLike | None, clock: Clock) -> None:
        self._what = what
        self._log_path = pathlib.Path(log_path) if log_path is not None else None
        self._clock = clock
        self._log_start = 0
        self._process: subprocess.Popen | None = None
        self._folder: tempfile.TemporaryDirectory | None = None

    @property
    def pid(self) -> int:
        """The server's process id, which is the id of its process group too."""
        return self._running().pid

    @property
    def folder(self) -> pathlib.Path:
        """Its temporary files, ``TMPDIR`` among them."""
        if self._folder is None:
            raise ConfigError(f"the {self._what} is not running; use it in a 'with' statement")
        return pathlib.Path(self._folder.name)

    @property
    def log_path(self) -> pathlib.Path:
        """The file with its output."""
        return self._log_path if self._log_path is not None else self.folder / "log"

    def start(self, command_in: Callable[[pathlib.Path], Sequence[str]]) -> None:
        """Starts what `command_in` gives for the folder of temporary files."""
        if self._process is not None:
            raise ConfigError(f"the {self._what} is running already")
        self._folder = tempfile.TemporaryDirectory(prefix="bqflink-")
        try:
            (self.folder / "tmp").mkdir()
            self.log_path.parent.mkdir(parents=True, exist_ok=True)
            with open(self.log_path, "ab") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _LEASH, str(self.folder), *command_in(self.folder)],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**os.environ, "TMPDIR": str(self.folder / "tmp")},
                )
        except BaseException:  # whatever went wrong, no folder stays behind
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server and all that it forked; does nothing when stopped."""
        process, self._process = self._process, None
        if process is not None:
            _signal_group(process.pid, signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TERM_S)
            _signal_group(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdin is not None
            process.stdin.close()
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()

    def wait(self) -> int:
        """Waits until the server ends by itself; returns its exit code."""
        return self._running().wait()

    def log_text(self) -> str:
        """Returns its output since this start, undecodable bytes replaced."""
        with open(self.log_path, "rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def wait_for_log(self, pattern: str, *, count: int, timeout_s: float) -> list[re.Match]:
        """Waits until the log has `count` matches of `pattern`; returns all there are.

        Raises:
            TimeoutError: not within `timeout_s`, or the server has ended; with the end of the log.
        """
        wanted = re.compile(pattern)
        deadline_s = self._clock.monotonic_s() + timeout_s
        while True:
            # Asked before the log is read: what a server wrote before it ended still counts.
            ended = self._process is None or self._process.poll() is not None
            text = self.log_text()
            found = list(wanted.finditer(text))
            if len(found) >= count:
                return found
            if ended or self._clock.monotonic_s() > deadline_s:
                raise TimeoutError(
                    f"{len(found)} of {count} matches of {pattern!r} in the log of the "
                    f"{self._what} when {'it ended' if ended else f'{timeout_s} s had passed'}; "
                    f"the log ends with:\n{text[-3000:]}"
                )
            self._clock.sleep(_POLL_S)

    def _running(self) -> subprocess.Popen:
        if self._process is None:
            raise ConfigError(f"the {self._what} is not running; use it in a 'with' statement")
        return self._process


def require_free(port: int) -> None:
    """Raises a `ConfigError` that names the port if somebody listens on it already."""
    try:
        with socket.create_server(("", port)):
            pass
    except OSError as error:
        # Python adds the address to the text that the error itself has.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ConfigError(f"cannot listen on port {port}: {reason}") from error


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of it has ended already
        os.killpg(group, number)
