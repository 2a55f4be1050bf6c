"""Time and chance have one door, and files and functions fit a screen."""

import ast

from tests.rules.source import all_sources, imports_within, package_sources

_FILE_LINES_MAX = 600
_FUNCTION_LINES_MAX = 70
_CLOCK = "bqflink_beam.clock"
# Chance that repeats: from a fixed seed, and from one that the clock's chance gave.
_SEEDED = ("bqflink_beam.testing.clock", "bqflink_beam.emulator.read")
_NOW = {"now", "utcnow", "today"}
_DATES = {"datetime", "date", "Timestamp"}


def _function_lines(node):
    """Lines of a function, its docstring not counted: words are not what makes it long."""
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        lines -= first.end_lineno - first.lineno + 1
    return lines


def _calls(sources):
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                yield source, node


def test_time_and_chance_come_from_the_clock():
    modules = [source for source in package_sources() if source.name != _CLOCK]
    unseeded = [source for source in modules if source.name not in _SEEDED]

    assert imports_within(modules, ["time"]) == []
    assert imports_within(unseeded, ["random", "numpy.random"]) == []


def test_nothing_asks_the_machine_for_the_date():
    used = [
        f"{source.at(node.lineno)}: {node.func.attr}()"
        for source, node in _calls(package_sources())
        if node.func.attr in _NOW and ast.unparse(node.func.value).split(".")[-1] in _DATES
    ]

    assert used == []


def test_nothing_sleeps():
    others = [source for source in all_sources() if source.name != _CLOCK]
    used = imports_within(others, ["time.sleep", "asyncio.sleep"])
    for source in others:
        for node in source.nodes:
            if not isinstance(node, ast.Attribute) or node.attr != "sleep":
                continue
            if ast.unparse(node) in ("time.sleep", "asyncio.sleep"):
                used.append(source.at(node.lineno))

    assert used == []


def test_files_are_short_enough_to_read():
    long = [
        f"{source.at(1)}: {len(source.text.splitlines())} lines"
        for source in all_sources()
        if len(source.text.splitlines()) > _FILE_LINES_MAX
    ]

    assert long == []


def test_functions_fit_a_screen():
    long = [
        f"{source.at(node.lineno)}: {node.name}, {_function_lines(node)} lines"
        for source in all_sources()
        for node in source.nodes
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        and _function_lines(node) > _FUNCTION_LINES_MAX
    ]

    assert long == []
