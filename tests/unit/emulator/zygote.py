"""Starts emulator processes without importing everything again: one line of JSON for each.

Reads the arguments of `serve` from standard input; each server is a fork of this
process, says its pid and then its endpoints.
"""

import json
import os
import pathlib
import signal
import sys

import bqflink_beam.emulator.sql  # noqa: F401, loaded here so that no server has to
from bqflink_beam.emulator.command import serve
from bqflink_beam.emulator.settings import Settings


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        if os.fork() == 0:
            arguments = json.loads(line)
            print(f"pid={os.getpid()}", flush=True)
            serve(
                admin_port=0,
                data_dir=pathlib.Path(arguments["data_dir"]),
                settings=Settings(files_root=pathlib.Path(arguments["files_root"])),
            )
            os._exit(0)


main()
