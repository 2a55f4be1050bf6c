"""The jars of Beam's Flink job server, resolved once with Maven and kept in a cache folder."""

import contextlib
import fcntl
import hashlib
import importlib.resources
import logging
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator

from bqflink_beam.errors import ConfigError

MAIN_CLASS = "org.apache.beam.runners.flink.FlinkJobServerDriver"

# Flink serialises, and Beam instruments, classes of these packages by reflection.
OPEN_PACKAGES = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.math",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.text",
    "java.base/java.time",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks",
    "java.base/sun.net.util",
)

_JAVA_RELEASE_MIN = 11
_JAVA_RELEASE_TRIED = 17
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_MAVEN_TIMEOUT_S = 1800.0
_PROGRESS = (
    "Resolving the class path of the Flink job server with Maven: about 160 jars, a minute or "
    "so, this once ..."
)
_MANIFEST_LINE_BYTES = 72
_LOG = logging.getLogger(__name__)


def resolve_class_path(
    cache_dir: str | os.PathLike | None = None,
    *,
    announce: Callable[[str], None] = _LOG.info,
) -> pathlib.Path:
    """Returns the folder with the job server's jars; the first call downloads them.

    The folder's name is a hash of the POM, so a new version of the package resolves its own.
    Safe for any number of processes at once, and after a kill at any point: the folder appears
    by one rename, when it is complete.

    Args:
        cache_dir: where the folders are kept; by default
            ``~/.cache/bqflink_beam/flink-job-server``.
        announce: is given one line before Maven starts, since it may take a minute.

    Raises:
        ConfigError: Maven is missing, or could not resolve the jars.
    """
    pom = importlib.resources.files("bqflink_beam.flink").joinpath("pom.xml").read_bytes()
    root = pathlib.Path(cache_dir) if cache_dir is not None else _default_cache_dir()
    jars = root / hashlib.sha256(pom).hexdigest()[:16]
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError(
            "Maven is needed once to fetch the jars of the Flink job server, and 'mvn' is not on "
            "the PATH; install Maven 3.6 or newer"
        )
    with _locked(root):
        if not jars.is_dir():
            for left_by_a_kill in root.glob("resolving-*"):
                shutil.rmtree(left_by_a_kill)
            announce(_PROGRESS)
            with tempfile.TemporaryDirectory(dir=root, prefix="resolving-") as scratch:
                _run_maven(maven, pom, pathlib.Path(scratch))
                os.rename(pathlib.Path(scratch) / "lib", jars)
    return jars


def require_java(java: str = "java") -> str:
    """Returns the path of a Java that can run the job server.

    Raises:
        ConfigError: there is none, or it is too old.
    """
    path = shutil.which(java)
    wanted = f"install Java {_JAVA_RELEASE_TRIED} (at least {_JAVA_RELEASE_MIN})"
    if path is None:
        raise ConfigError(f"the Flink job server needs Java, and {java!r} was not found; {wanted}")
    answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=60)
    found = _JAVA_VERSION.search(answer.stderr)
    if found is None:
        raise ConfigError(f"cannot tell the version of {path}: {answer.stderr.strip()!r}; {wanted}")
    if int(found[1]) < _JAVA_RELEASE_MIN:
        raise ConfigError(
            f"the Flink job server does not run on Java {found[1]} ({path}); {wanted}"
        )
    return path


def write_thin_jar(
    path: str | os.PathLike,
    *,
    cache_dir: str | os.PathLike | None = None,
    announce: Callable[[str], None] = _LOG.info,
) -> pathlib.Path:
    """Writes a jar of one manifest, for ``--runner=FlinkRunner --flink_job_server_jar=PATH``.

    The manifest points at the jars in the cache by absolute path, so the file is of use on this
    machine only, and as long as the cache stays.

    Raises:
        ConfigError: Maven is missing, or could not resolve the jars.
    """
    jars = sorted(resolve_class_path(cache_dir, announce=announce).glob("*.jar"))
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    manifest = _manifest(
        {
            "Manifest-Version": "1.0",
            "Main-Class": MAIN_CLASS,
            "Add-Opens": " ".join(OPEN_PACKAGES),
            "Class-Path": " ".join(jar.resolve().as_uri() for jar in jars),
        }
    )
    part = target.with_name(target.name + f".{os.getpid()}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as jar:
        jar.writestr("META-INF/MANIFEST.MF", manifest)
    os.replace(part, target)
    return target


def _default_cache_dir() -> pathlib.Path:
    return pathlib.Path.home() / ".cache" / "bqflink_beam" / "flink-job-server"


@contextlib.contextmanager
def _locked(root: pathlib.Path) -> Iterator[None]:
    """Holds the cache folder: Maven's own repository is not safe for two writers at once."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        (root / "lock").touch()
    except OSError as error:
        raise ConfigError(
            f"the jars of the Flink job server are kept in {root}, which cannot be written to "
            f"({error.strerror}); set HOME, or give cache_dir="
        ) from error
    with open(root / "lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run_maven(maven: str, pom: bytes, scratch: pathlib.Path) -> None:
    """Copies the runtime class path of `pom` into ``scratch/lib``."""
    (scratch / "pom.xml").write_bytes(pom)
    command = [maven, "--batch-mode", "--quiet", "--file", str(scratch / "pom.xml")]
    command += ["dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={scratch / 'lib'}"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=_MAVEN_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            f"Maven did not resolve the Flink job server's jars in {_MAVEN_TIMEOUT_S:.0f} s; "
            "check its proxy and mirror settings"
        ) from error
    if run.returncode != 0 or not (scratch / "lib").is_dir():
        lines = [line for line in (run.stdout + run.stderr).splitlines() if "ERROR" in line]
        raise ConfigError(
            f"Maven could not resolve the Flink job server's jars (exit code {run.returncode}); "
            "check the network, or a mirror in Maven's settings.xml. It said: "
            + " | ".join(lines[:5])
        )


def _manifest(entries: dict[str, str]) -> bytes:
    """Renders a JAR manifest: lines of at most 72 bytes, continued by a leading space."""
    out = bytearray()
    for name, value in entries.items():
        line = f"{name}: {value}".encode()
        # The limit counts the line's end; a continuation loses one more byte to its space.
        out += line[: _MANIFEST_LINE_BYTES - 2] + b"\r\n"
        rest = line[_MANIFEST_LINE_BYTES - 2 :]
        step = _MANIFEST_LINE_BYTES - 3
        for start in range(0, len(rest), step):
            out += b" " + rest[start : start + step] + b"\r\n"
    return bytes(out + b"\r\n")
