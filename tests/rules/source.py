"""The package's source as the rules look at it: modules, their trees, what they import."""

import ast
import dataclasses
import functools
import pathlib
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "bqflink_beam"


@dataclasses.dataclass(frozen=True)
class Source:
    """One file. `name` is dotted for modules of the package, else the path from the root."""

    path: pathlib.Path
    name: str

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @functools.cached_property
    def text(self) -> str:
        return self.path.read_text()

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    def imports(self) -> Iterator[tuple[int, str]]:
        """Yields line and dotted name of everything imported, inside functions too."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.name
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self}:{node.lineno}: relative import"
                for alias in node.names:
                    yield node.lineno, f"{node.module}.{alias.name}"


def package_sources() -> list[Source]:
    """All modules of the package."""
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Source(path, name))
    return found


def all_sources() -> list[Source]:
    """All Python of the repository: package, tests, pipelines and setup.py."""
    found = package_sources()
    for folder in ("tests", "pipelines"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.append(Source(path, path.relative_to(ROOT).as_posix()))
    found.append(Source(ROOT / "setup.py", "setup.py"))
    return found
