"""Who may import whom: the floors of the package, read from its imports."""

import ast
import sys

from tests.rules.source import PACKAGE, all_sources, imports_within, package_sources, within

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

# Who speaks gRPC or Google's protocols besides service/ and emulator/, and to whom.
_GRPC_BESIDES = (
    "bqflink_beam.transforms.runner_kind",  # to Beam's job server
    "bqflink_beam.flink.worker",  # to Beam's runner
    # As Google's clients do, to whatever it judges: through ours, their errors would hide.
    "bqflink_beam.testing.conformance",
)
_GOOGLE = (
    "google.cloud",
    "google.api",
    "google.api_core",
    "google.auth",
    "google.oauth2",
    "google.rpc",
    "googleapiclient",
    "grpc",
    "grpc_status",
)

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


def _short(name):
    return name.removeprefix(PACKAGE).removeprefix(".")


def _area(name):
    return _short(name).split(".")[0]


def _floor(source):
    return _FLOOR[_area(source.name)]


def _ours(source):
    """Yields line, name and area of what a module imports of the package."""
    for line, name in source.imports:
        if within(name, [PACKAGE]):
            # `from bqflink_beam import X` names the door, or a module of the package.
            area = _area(name)
            yield line, name, area if area in _FLOOR else ""


def test_every_module_stands_on_a_floor():
    assert [s.name for s in package_sources() if _area(s.name) not in _FLOOR] == []


def test_modules_import_their_own_floor_or_below():
    wrong = [
        f"{source.at(line)}: {name} stands on floor {_FLOOR[area]}, above {_floor(source)}"
        for source in package_sources()
        for line, name, area in _ours(source)
        if _FLOOR[area] > _floor(source)
        and (source.name, name.rpartition(".")[0]) not in _REACHES_UP
    ]

    assert wrong == []


def test_module_that_reaches_up_does_so_only_when_asked():
    sources = {source.name: source for source in package_sources()}
    for name, above in _REACHES_UP:
        at_top = [node for node in sources[name].tree.body if isinstance(node, ast.ImportFrom)]

        assert above not in [node.module for node in at_top]
        assert above in [imported.rpartition(".")[0] for _, imported in sources[name].imports]


def test_engines_do_not_import_one_another():
    wrong = [
        f"{source.at(line)}: {name}"
        for source in package_sources()
        if _area(source.name) in _ENGINES
        for line, name, area in _ours(source)
        if area in _ENGINES and area != _area(source.name)
    ]

    assert wrong == []


def test_emulator_knows_nothing_of_our_codecs_and_clients():
    wrong = [
        f"{source.at(line)}: {name}"
        for source in package_sources()
        if _area(source.name) == "emulator"
        for line, name, area in _ours(source)
        if area != "emulator" and not within(_short(name), _EMULATOR_MAY)
    ]

    assert wrong == []


def test_beam_is_known_from_floor_4_up():
    below = [source for source in package_sources() if _floor(source) < 4]

    assert imports_within(below, ["apache_beam"]) == []


def test_google_is_known_in_service_and_emulator_only():
    others = [
        source
        for source in package_sources()
        if _area(source.name) not in ("service", "emulator")
        and not within(source.name, _GRPC_BESIDES)
    ]

    assert imports_within(others, _GOOGLE) == []


def test_words_need_the_standard_library_only():
    wrong = [
        f"{source.at(line)}: {name}"
        for source in package_sources()
        if _floor(source) == 0
        for line, name in source.imports
        if name.split(".")[0] not in {*sys.stdlib_module_names, PACKAGE}
    ]

    assert wrong == []


def test_no_future_import():
    # With it the type hints of DoFns and of `expand` turn into Any, and Beam checks nothing.
    assert imports_within(all_sources(), ["__future__"]) == []


def test_nothing_newer_than_python_3_10():
    used = imports_within(all_sources(), _NEWER_THAN_3_10)
    for source in all_sources():
        for node in source.nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                if name in _NEWER_THAN_3_10:
                    used.append(f"{source.at(node.lineno)}: {name}")
            elif isinstance(node, ast.Name) and node.id in _NEWER_BUILTINS:
                used.append(f"{source.at(node.lineno)}: {node.id}")

    assert used == []
