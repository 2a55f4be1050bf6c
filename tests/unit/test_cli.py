"""The command line, run as a user runs it."""

import subprocess
import sys

from bqflink_beam.write.preflight import Step, StepKind, check


def _run(*arguments, env=None):
    command = [sys.executable, "-m", "bqflink_beam", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)


def test_help_names_every_command():
    answer = _run("--help")

    assert answer.returncode == 0
    for command in ("emulator", "flink-job-server", "flink-options", "flink-worker-pool"):
        assert command in answer.stdout


def test_printed_options_pass_the_checks_as_they_are():
    answer = _run("flink-options")

    options = {}
    for line in answer.stdout.splitlines():
        name, _, value = line.removeprefix("--").partition("=")
        options[name] = value or True
    write = Step(label="Write", kind=StepKind.EXACTLY_ONCE, bounded=False)
    assert check(options, "flink", [write]) == ()
    assert all(line.startswith("--") for line in answer.stdout.splitlines())


def test_explained_options_are_the_same_with_a_reason_above_each():
    plain = _run("flink-options").stdout.splitlines()

    lines = _run("flink-options", "--explain").stdout.splitlines()

    assert [line for line in lines if not line.startswith("# ")] == plain
    for number, line in enumerate(lines):
        if line.startswith("--"):
            assert lines[number - 1].startswith("# ")


def test_missing_java_is_one_message_without_a_stack_trace(tmp_path):
    answer = _run("flink-job-server", env={"PATH": str(tmp_path)})

    assert answer.returncode == 1
    assert answer.stderr.startswith("Error: the Flink job server needs Java")
    assert "Traceback" not in answer.stderr


def test_unknown_option_is_refused():
    assert _run("flink-options", "--explian").returncode == 2
