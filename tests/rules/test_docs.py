"""What the documents say is true: code runs, commands and options exist, links lead somewhere."""

import ast
import dataclasses
import importlib
import pathlib
import re
import shlex
import subprocess
import sys
import types

import pytest

from bqflink_beam.cli import main
from bqflink_beam.write.preflight import REQUIRED_FLINK_OPTIONS
from tests.rules.source import ROOT

_FENCE = re.compile(r"^```(\w*) ?(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
_COMMAND = re.compile(r"python -m bqflink_beam ([^\n`#)'|\\]+)")
_TARGET = re.compile(r"^([a-z-]+):", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Block:
    """One fenced block of a document."""

    document: pathlib.Path
    line: int
    language: str
    mark: str
    text: str

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        """Whether it is complete: it brings its own BigQuery, or its fence says ``python run``."""
        return self.mark == "run" or "testing.Emulator(" in self.text


def _documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks():
    for document in _documents():
        text = document.read_text()
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Block(document, line, *match.groups())


def _imported(module, name):
    """What ``from module import name`` gives, which may be a module that nobody has loaded."""
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


_DOCUMENTS = pytest.mark.parametrize(
    "document", _documents(), ids=lambda document: str(document.relative_to(ROOT))
)
_PYTHON = [block for block in _blocks() if block.language == "python"]
_CONSOLE = [block for block in _blocks() if block.language == "console"]


@pytest.mark.parametrize("block", _PYTHON, ids=str)
def test_python_compiles_and_uses_names_that_exist(block):
    tree = ast.parse(block.text, feature_version=(3, 10))
    compile(tree, str(block), "exec")
    modules = {"bq": "bqflink_beam"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
                modules[alias.asname or alias.name] = alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                found = _imported(node.module, alias.name)
                if isinstance(found, types.ModuleType):
                    modules[alias.asname or alias.name] = found.__name__
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None:
                assert hasattr(importlib.import_module(module), node.attr), ast.unparse(node)


@pytest.mark.parametrize("block", [block for block in _PYTHON if block.runs], ids=str)
def test_python_that_is_complete_runs(block, tmp_path):
    script = tmp_path / "block.py"
    script.write_text(block.text)

    answer = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )

    assert answer.returncode == 0, answer.stderr[-3000:]


def test_some_document_shows_a_whole_program():
    assert [block for block in _PYTHON if block.runs]


@_DOCUMENTS
def test_commands_of_ours_exist_with_their_options(document):
    for said in _COMMAND.findall(document.read_text()):
        name, *words = shlex.split(said)
        if name.startswith("-"):
            continue
        assert name in main.commands, said
        known = {option for param in main.commands[name].params for option in param.opts}
        options = [word.split("=")[0] for word in words if word.startswith("--")]
        assert set(options) <= known | {"--help"}, said


@pytest.mark.parametrize("block", _CONSOLE, ids=str)
def test_make_targets_and_scripts_exist(block):
    targets = set(_TARGET.findall((ROOT / "Makefile").read_text()))
    for line in block.text.replace("\\\n", " ").splitlines():
        if not line.startswith("$ "):
            continue
        words = shlex.split(line[2:], comments=True)
        if words[0] == "make":
            assert {word for word in words[1:] if "=" not in word} <= targets, line
        if words[0] == "python" and words[1].startswith("pipelines/"):
            assert (ROOT / words[1]).is_file(), line


@_DOCUMENTS
def test_links_lead_to_files(document):
    for target in _LINK.findall(document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), target


def test_flink_page_shows_every_required_option_as_it_is_printed():
    page = (ROOT / "docs" / "flink.md").read_text()

    for option in REQUIRED_FLINK_OPTIONS:
        assert f"`{option.flag}`" in page
