"""The job server as a process: it starts, says so, and leaves nothing behind."""

import pathlib
import signal
import subprocess
import sys

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.errors import ConfigError
from bqflink_beam.flink import FlinkJobServer, write_thin_jar

_OWNER = """
import sys
from bqflink_beam.flink import FlinkJobServer

server = FlinkJobServer(log_path=sys.argv[1])
server.start()
print(server.process_id, server.folder, flush=True)
sys.stdin.read()
"""


def _group_is_alive(group):
    """Whether a process of the group runs; ended ones that nobody has reaped do not count."""
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            _, _, after_name = stat.read_text().rpartition(") ")
        except OSError:  # it ended between the listing and the reading
            continue
        state, _, its_group, *_ = after_name.split()
        if int(its_group) == group and state != "Z":
            return True
    return False


def _await_end(group, timeout_s=20.0):
    deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
    while _group_is_alive(group) and SYSTEM_CLOCK.monotonic_s() < deadline_s:
        SYSTEM_CLOCK.sleep(0.05)
    return not _group_is_alive(group)


def test_server_leaves_no_process_and_no_file_behind(flink_jars, tmp_path):
    with FlinkJobServer(log_path=tmp_path / "log") as server:
        group = server.process_id
        scratch = server.folder
        assert _group_is_alive(group)
        assert scratch.is_dir()

    assert not _group_is_alive(group)
    assert not scratch.exists()
    assert "JobService started" in (tmp_path / "log").read_text()
    with pytest.raises(ConfigError, match="not running"):
        _ = server.job_endpoint


def test_server_dies_with_a_process_that_is_killed(flink_jars, tmp_path):
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        group, scratch = owner.stdout.readline().split()
        group, scratch = int(group), pathlib.Path(scratch)
        assert _group_is_alive(group)
        assert scratch.is_dir()

        owner.send_signal(signal.SIGKILL)
        owner.wait()

        assert _await_end(group)
        assert not scratch.exists()


def test_taken_port_is_one_clear_error_and_leaves_no_process(flink, tmp_path):
    port = int(flink.job_endpoint.rpartition(":")[2])
    server = FlinkJobServer(job_port=port, log_path=tmp_path / "log")

    with pytest.raises(
        ConfigError, match=f"^cannot listen on port {port}: Address already in use$"
    ):
        server.start()

    with pytest.raises(ConfigError, match="not running"):
        _ = server.process_id


def test_log_that_never_comes_ends_in_a_timeout_that_shows_the_log(flink):
    with pytest.raises(TimeoutError, match="0 of 1 matches of 'no such line'(.|\n)*INFO"):
        flink.wait_for_log("no such line", timeout_s=0.2)


def test_thin_jar_serves_the_plain_flink_runner(flink_jars, tmp_path):
    jar = write_thin_jar(tmp_path / "thin.jar")
    flags = ["--runner=FlinkRunner", f"--flink_job_server_jar={jar}", "--flink_master=[local]"]
    flags += ["--parallelism=1", f"--artifacts_dir={tmp_path / 'artifacts'}"]

    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        totals = (
            pipeline
            | beam.Create([("a", 1), ("b", 2), ("a", 3)])
            | "Total" >> beam.CombinePerKey(sum)
        )
        assert_that(totals, equal_to([("a", 4), ("b", 2)]))

    assert jar.stat().st_size < 20_000
