"""The job server as a command: it says where it is, and ends when told, with its children."""

import os
import pathlib
import re
import signal
import subprocess
import sys


def test_command_says_the_flags_and_ends_clean_on_sigterm(flink_jars, tmp_path):
    command = [sys.executable, "-m", "bqflink_beam", "flink-job-server", "--job-port=0"]
    command.append(f"--log={tmp_path / 'log'}")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        said = server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        _, complaints = server.communicate(timeout=30)

    assert re.fullmatch(r"--runner=FlinkRunner --job_endpoint=127\.0\.0\.1:\d+\n", said)
    assert server.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in complaints
    assert "JobService started" in (tmp_path / "log").read_text()


def test_command_that_loses_its_jvm_fails_with_the_log(flink_jars, tmp_path):
    command = [sys.executable, "-m", "bqflink_beam", "flink-job-server", "--job-port=0"]
    command.append(f"--log={tmp_path / 'log'}")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as server:
        server.stdout.readline()
        children = pathlib.Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
        [jvm] = children.split()
        os.kill(int(jvm), signal.SIGKILL)
        _, complaints = server.communicate(timeout=30)

    assert server.returncode == 1
    assert "ended by itself with code -9" in complaints
    assert "JobService started" in complaints


def test_jar_command_writes_a_jar_and_says_how_to_use_it(flink_jars, tmp_path):
    jar = tmp_path / "thin.jar"

    answer = subprocess.run(
        [sys.executable, "-m", "bqflink_beam", "flink-job-server", f"--jar={jar}"],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert answer.stdout == f"--runner=FlinkRunner --flink_job_server_jar={jar.resolve()}\n"
    assert jar.read_bytes().startswith(b"PK")
