"""The class path is resolved once, whoever else resolves it, and never half."""

import multiprocessing
import os
import zipfile

import pytest

from bqflink_beam.errors import ConfigError
from bqflink_beam.flink import resolve_class_path, write_thin_jar
from bqflink_beam.flink.class_path import MAIN_CLASS, require_java

_MAVEN = """#!/bin/sh
echo run >> {log}
for argument in "$@"; do
  case "$argument" in -DoutputDirectory=*) out=${{argument#-DoutputDirectory=}} ;; esac
done
mkdir -p "$out"
: > "$out/flink.jar"
sleep 0.3
: > "$out/beam runner.jar"
"""


def _install(folder, name, script):
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)


@pytest.fixture
def maven(tmp_path, monkeypatch):
    """A Maven of the test's own, first on the PATH; returns the file that lists its runs."""
    (tmp_path / "bin").mkdir()
    runs = tmp_path / "runs"
    runs.touch()
    _install(tmp_path / "bin", "mvn", _MAVEN.format(log=runs))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return runs


def _names(folder):
    return sorted(os.listdir(folder))


def _resolve_in_child(cache, names):
    names.put(_names(resolve_class_path(cache)))


def test_jars_are_resolved_once_and_announced_once(maven, tmp_path):
    said = []

    first = resolve_class_path(tmp_path / "cache", announce=said.append)
    second = resolve_class_path(tmp_path / "cache", announce=said.append)

    assert first == second
    assert _names(first) == ["beam runner.jar", "flink.jar"]
    assert maven.read_text() == "run\n"
    assert len(said) == 1
    assert "Maven" in said[0]


def test_processes_at_once_all_see_the_whole_class_path(maven, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    names = spawn.Queue()
    children = [
        spawn.Process(target=_resolve_in_child, args=(tmp_path / "cache", names)) for _ in range(3)
    ]
    for child in children:
        child.start()

    seen = [names.get(timeout=60) for _ in children]
    for child in children:
        child.join()

    assert seen == [["beam runner.jar", "flink.jar"]] * 3
    assert maven.read_text() == "run\n"


def test_what_a_killed_resolution_left_is_not_taken_for_the_class_path(maven, tmp_path):
    half = tmp_path / "cache" / "resolving-killed" / "lib"
    half.mkdir(parents=True)
    (half / "flink.jar").touch()

    jars = resolve_class_path(tmp_path / "cache")

    assert _names(jars) == ["beam runner.jar", "flink.jar"]
    assert _names(tmp_path / "cache") == sorted(["lock", jars.name])


def test_failing_maven_is_a_config_error_with_its_words(maven, tmp_path):
    _install(tmp_path / "bin", "mvn", "#!/bin/sh\necho '[ERROR] Could not find beam:9.9'\nexit 1\n")

    with pytest.raises(ConfigError, match=r"exit code 1.*Could not find beam:9\.9"):
        resolve_class_path(tmp_path / "cache")

    assert _names(tmp_path / "cache") == ["lock"]


def test_missing_maven_is_a_config_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="'mvn' is not on the PATH"):
        resolve_class_path(tmp_path / "cache")


def test_a_cache_folder_that_cannot_be_made_is_a_config_error_that_names_it(maven, tmp_path):
    (tmp_path / "file").write_text("no folder")

    with pytest.raises(ConfigError, match=r"file/cache, which cannot be written.*cache_dir="):
        resolve_class_path(tmp_path / "file" / "cache")


def test_missing_java_is_a_config_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="needs Java.*install Java 17"):
        require_java()


@pytest.mark.parametrize(
    ("version", "release"), [("1.8.0_402", "8"), ("9.0.4", "9"), ("10.0.2", "10")]
)
def test_old_java_is_refused_with_its_release(tmp_path, version, release):
    _install(tmp_path, "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")

    with pytest.raises(ConfigError, match=f"does not run on Java {release} "):
        require_java(str(tmp_path / "java"))


@pytest.mark.parametrize("version", ["11.0.22", "17.0.15", "21", "24-ea"])
def test_recent_java_is_taken(tmp_path, version):
    _install(tmp_path, "java", f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")

    assert require_java(str(tmp_path / "java")) == str(tmp_path / "java")


def test_thin_jar_points_at_every_jar_in_lines_that_java_reads(maven, tmp_path):
    jar = write_thin_jar(tmp_path / "out" / "thin.jar", cache_dir=tmp_path / "cache")

    manifest = zipfile.ZipFile(jar).read("META-INF/MANIFEST.MF")
    lines = manifest.split(b"\r\n")
    entries = dict(
        line.split(": ", 1) for line in manifest.decode().replace("\r\n ", "").splitlines() if line
    )
    assert max(len(line) for line in lines) <= 70
    assert entries["Main-Class"] == MAIN_CLASS
    assert "java.base/java.lang" in entries["Add-Opens"].split()
    assert [path.rpartition("/")[2] for path in entries["Class-Path"].split(" ")] == [
        "beam%20runner.jar",
        "flink.jar",
    ]
    assert _names(tmp_path / "out") == ["thin.jar"]
