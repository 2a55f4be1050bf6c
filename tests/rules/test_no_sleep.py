"""Time and chance have one door, and files and functions fit a screen."""

import ast

import pytest

from tests.rules.source import all_sources, package_sources

_FILE_LINES_MAX = 600
_FUNCTION_LINES_MAX = 70
_CLOCK = "bqflink_beam.clock"
_CHANCE_BESIDES = {
    _CLOCK: ("time", "random"),
    # Chance that repeats: from a fixed seed, and from one that the clock's chance gave.
    "bqflink_beam.testing.clock": ("random",),
    "bqflink_beam.emulator.read": ("random",),
}
_NOW = {"now", "utcnow", "today"}

_PACKAGE = pytest.mark.parametrize("source", package_sources(), ids=str)
_ALL_BUT_CLOCK = pytest.mark.parametrize(
    "source", [source for source in all_sources() if source.name != _CLOCK], ids=str
)
_ALL = pytest.mark.parametrize("source", all_sources(), ids=str)


def _function_lines(node):
    """Lines of a function, its docstring not counted: words are not what makes it long."""
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= first.end_lineno - first.lineno + 1
    return lines


@_PACKAGE
def test_time_and_chance_come_from_the_clock(source):
    allowed = _CHANCE_BESIDES.get(source.name, ())
    refused = {"time", "random", "numpy.random"} - set(allowed)

    used = [
        f"line {line}: {name}"
        for line, name in source.imports()
        if any(name == module or name.startswith(module + ".") for module in refused)
    ]

    assert used == []


@_PACKAGE
def test_nothing_asks_the_machine_for_the_date(source):
    used = [
        f"line {node.lineno}: {node.func.attr}()"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _NOW
        and ast.unparse(node.func.value).split(".")[-1] in ("datetime", "date", "Timestamp")
    ]

    assert used == []


@_ALL_BUT_CLOCK
def test_nothing_sleeps(source):
    used = [f"line {line}" for line, name in source.imports() if name == "time.sleep"]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("time.sleep", "asyncio.sleep"):
            used.append(f"line {node.lineno}")

    assert used == []


@_ALL
def test_file_is_short_enough_to_read(source):
    assert len(source.text.splitlines()) <= _FILE_LINES_MAX


@_ALL
def test_function_fits_a_screen(source):
    long = [
        f"{node.name}, line {node.lineno}: {_function_lines(node)} lines"
        for node in ast.walk(source.tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and _function_lines(node) > _FUNCTION_LINES_MAX
    ]

    assert long == []
