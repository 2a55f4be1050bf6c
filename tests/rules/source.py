"""The repository's source as the rules look at it: files, their trees, what they import."""

import ast
import dataclasses
import functools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = "bqflink_beam"


@dataclasses.dataclass(frozen=True)
class Source:
    """One file. `name` is dotted for modules of the package, else the path from the root."""

    path: pathlib.Path
    name: str

    @functools.cached_property
    def text(self) -> str:
        return self.path.read_text()

    @functools.cached_property
    def tree(self) -> ast.Module:
        # In the words of Python 3.10: newer syntax is a SyntaxError here.
        return ast.parse(self.text, filename=str(self.path), feature_version=(3, 10))

    @functools.cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        return tuple(ast.walk(self.tree))

    @functools.cached_property
    def imports(self) -> tuple[tuple[int, str], ...]:
        """Line and dotted name of everything imported, inside functions too."""
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [(node.lineno, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{self.at(node.lineno)}: relative import"
                found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        return tuple(found)

    def at(self, line: int) -> str:
        """Where that is, as an editor opens it."""
        return f"{self.path.relative_to(ROOT).as_posix()}:{line}"


@functools.cache
def package_sources() -> tuple[Source, ...]:
    """All modules of the package."""
    found = []
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found.append(Source(path, name))
    return tuple(found)


@functools.cache
def all_sources() -> tuple[Source, ...]:
    """All Python of the repository: package, tests, pipelines and setup.py."""
    found = list(package_sources())
    for folder in ("tests", "pipelines"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            found.append(Source(path, path.relative_to(ROOT).as_posix()))
    found.append(Source(ROOT / "setup.py", "setup.py"))
    return tuple(found)


def imports_within(sources, parents) -> list[str]:
    """Lists where any of `sources` imports one of the modules, or something inside it."""
    return [
        f"{source.at(line)}: {name}"
        for source in sources
        for line, name in source.imports
        if within(name, parents)
    ]


def within(name: str, parents) -> bool:
    """Whether a dotted name is one of `parents`, or inside it."""
    return any(name == parent or name.startswith(parent + ".") for parent in parents)
