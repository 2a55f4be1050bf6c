"""Who may import whom: the floors of the package, read from its imports."""

import ast
import sys

import pytest

from tests.rules.source import PACKAGE, all_sources, package_sources

# The longest name that fits counts, so a module may stand on another floor than its folder.
_FLOOR = {
    "errors": 0,
    "names": 0,
    "clock": 0,
    "schema": 1,
    "codec": 1,
    "filters": 1,
    "service": 2,
    "retry": 2,
    "read": 3,
    "write": 3,
    "load": 3,
    "emulator": 3,
    "transforms": 4,
    "flink": 5,
    "yaml": 5,
    "testing": 5,
    "cli": 5,
    "__main__": 5,
    "": 5,
}
_ENGINES = ("read", "write", "load", "emulator")

# Of floors 0 and 1 the embedded BigQuery may use only this: it decodes and checks rows with
# code of its own, or an error in our codecs would hide in it.
_EMULATOR_MAY = ("errors", "names", "clock", "schema.model")

# Whose code may be imported where.
_GOOGLE_CLIENTS = ("google.cloud", "google.api", "google.api_core", "google.auth", "google.oauth2")
_GRPC_BESIDES = {
    # They talk to Beam's job server and to Beam's runner, which speak gRPC, not to Google.
    "bqflink_beam.transforms.runner_kind",
    "bqflink_beam.flink.worker",
}

_NEWER_THAN_3_10 = {
    "asyncio.Runner",
    "asyncio.TaskGroup",
    "asyncio.timeout",
    "contextlib.chdir",
    "datetime.UTC",
    "enum.EnumType",
    "enum.ReprEnum",
    "enum.StrEnum",
    "enum.nonmember",
    "hashlib.file_digest",
    "itertools.batched",
    "tomllib",
    "typing.LiteralString",
    "typing.Never",
    "typing.NotRequired",
    "typing.Required",
    "typing.Self",
    "typing.Unpack",
    "typing.assert_never",
    "typing.assert_type",
    "typing.dataclass_transform",
    "typing.override",
    "typing.reveal_type",
    "warnings.deprecated",
}
_NEWER_BUILTINS = {"ExceptionGroup", "BaseExceptionGroup", "PythonFinalizationError"}

# An option that starts the embedded BigQuery has to reach up to it; imported when used only.
_REACHES_UP = {("bqflink_beam.transforms.pipeline_options", "bqflink_beam.testing.embedded")}


def _within(name, parents):
    return any(name == parent or name.startswith(parent + ".") for parent in parents)


def _short(name):
    return name.removeprefix(PACKAGE).removeprefix(".")


def _area(name):
    return _short(name).split(".")[0]


def _imported_areas(source):
    for line, name in source.imports():
        # `from bqflink_beam import X` names the door or a module of the package.
        if _within(name, [PACKAGE]):
            area = _area(name)
            yield line, name, area if area in _FLOOR else ""


def _on(which):
    return pytest.mark.parametrize(
        "source", [source for source in package_sources() if which(source)], ids=str
    )


def _floor(source):
    return _FLOOR[_area(source.name)]


_PACKAGE = _on(lambda source: True)
_ALL = pytest.mark.parametrize("source", all_sources(), ids=str)


@_PACKAGE
def test_module_stands_on_a_floor(source):
    assert _area(source.name) in _FLOOR, "put the new module into _FLOOR"


@_PACKAGE
def test_module_imports_its_own_floor_or_below(source):
    floor = _floor(source)

    wrong = [
        f"line {line}: {name} stands on floor {_FLOOR[area]}, above {floor}"
        for line, name, area in _imported_areas(source)
        if _FLOOR[area] > floor and (source.name, name.rpartition(".")[0]) not in _REACHES_UP
    ]

    assert wrong == []


@_on(lambda source: _area(source.name) in _ENGINES)
def test_engines_do_not_import_one_another(source):
    own = _area(source.name)

    wrong = [
        f"line {line}: {name}"
        for line, name, area in _imported_areas(source)
        if area in _ENGINES and area != own
    ]

    assert wrong == []


@_on(lambda source: _area(source.name) == "emulator")
def test_emulator_knows_nothing_of_our_codecs_and_clients(source):
    wrong = [
        f"line {line}: {name}"
        for line, name, area in _imported_areas(source)
        if area != "emulator" and not _within(_short(name), _EMULATOR_MAY)
    ]

    assert wrong == []


@_on(lambda source: _floor(source) < 4)
def test_beam_is_known_from_floor_4_up(source):
    assert [found for found in source.imports() if _within(found[1], ["apache_beam"])] == []


@_on(lambda source: _area(source.name) not in ("service", "emulator"))
def test_google_is_known_in_service_and_emulator_only(source):
    refused = [*_GOOGLE_CLIENTS, "googleapiclient"]
    if source.name not in _GRPC_BESIDES:
        refused += ["grpc", "grpc_status"]

    assert [found for found in source.imports() if _within(found[1], refused)] == []


@_on(lambda source: _floor(source) == 0)
def test_words_need_the_standard_library_only(source):
    wrong = [
        f"line {line}: {name}"
        for line, name in source.imports()
        if name.split(".")[0] not in {*sys.stdlib_module_names, PACKAGE}
    ]

    assert wrong == []


def test_module_that_reaches_up_does_so_only_when_asked():
    sources = {source.name: source for source in package_sources()}
    for name, above in _REACHES_UP:
        at_top = [node for node in sources[name].tree.body if isinstance(node, ast.ImportFrom)]

        assert above not in [node.module for node in at_top]
        assert above in [imported.rpartition(".")[0] for _, imported in sources[name].imports()]


@_ALL
def test_no_future_import(source):
    # With it the type hints of DoFns and of `expand` turn into Any, and Beam checks nothing.
    assert [found for found in source.imports() if _within(found[1], ["__future__"])] == []


@_ALL
def test_nothing_newer_than_python_3_10(source):
    ast.parse(source.text, filename=str(source), feature_version=(3, 10))
    used = [f"line {line}: {name}" for line, name in source.imports() if name in _NEWER_THAN_3_10]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in _NEWER_THAN_3_10:
                used.append(f"line {node.lineno}: {name}")
        elif isinstance(node, ast.Name) and node.id in _NEWER_BUILTINS:
            used.append(f"line {node.lineno}: {node.id}")
        elif type(node).__name__ in ("TryStar", "TypeAlias", "TypeVarTuple"):
            used.append(f"line {node.lineno}: {type(node).__name__}")

    assert used == []
