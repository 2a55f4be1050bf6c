"""An emulator in a process of its own, and what that process uses."""

import json
import os
import pathlib
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from typing import Any

import bqflink_beam as bq

# Beam refuses shorter names.
PROJECT = "proj"
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Server:
    """Runs from construction until `stop`; has one dataset, ``proj.d``."""

    def __init__(self, *arguments: str) -> None:
        began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bqflink_beam", "emulator", "--port", "0"]
            + ["--storage-port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        self.seconds_to_start = time.monotonic() - began
        endpoints = dict(re.findall(r"(\w+)=(\S+)", line))
        self.rest, self.storage = endpoints["rest"], endpoints["storage"]
        self.connection = bq.Connection(
            rest_endpoint=self.rest,
            storage_endpoint=self.storage,
            plaintext=True,
            credentials=bq.Anonymous(),
            billing_project=PROJECT,
        )
        self._tables = 0
        self._insert("", {"datasetReference": {"projectId": PROJECT, "datasetId": "d"}})

    def new_table(self, fields: Sequence[dict[str, Any]]) -> bq.TableReference:
        self._tables += 1
        table = bq.TableReference(PROJECT, "d", f"t{self._tables}")
        reference = {"projectId": PROJECT, "datasetId": "d", "tableId": table.table}
        self._insert("/d/tables", {"tableReference": reference, "schema": {"fields": fields}})
        return table

    def rss_bytes(self) -> int:
        text = pathlib.Path(f"/proc/{self._process.pid}/status").read_text()
        match = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert match is not None
        return int(match[1]) * 1024

    def cpu_s(self) -> float:
        fields = (
            pathlib.Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        )
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _insert(self, under: str, resource: dict[str, Any]) -> None:
        request = urllib.request.Request(
            f"{self.rest}/bigquery/v2/projects/{PROJECT}/datasets{under}",
            data=json.dumps(resource).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request).close()
