"""Names of BigQuery's things: tables, and the resource paths made from them."""

import dataclasses
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from bqflink_beam.errors import ConfigError

# Letters, digits and dashes; "example.com:project" for domain-scoped projects.
_PROJECT = r"(?:[a-z0-9.\-]+:)?[A-Za-z][A-Za-z0-9\-_]*"
_DATASET = r"[A-Za-z0-9_]{1,1024}"
# Unicode letters, marks, numbers, connectors, dashes and spaces; "$" starts a partition decorator.
# (Python's \w has no marks, which most scripts of India need.) `_is_table_name` does the rest.
_TABLE = r"(?:[\w\- ]|[^\x00-\x7f]){1,1024}(?:\$[A-Za-z0-9_]+)?"
_TABLE_CATEGORIES = frozenset({"Pc", "Pd", "Zs"})
_FULL = re.compile(rf"^(?P<project>{_PROJECT})[.:](?P<dataset>{_DATASET})\.(?P<table>{_TABLE})\Z")
_SHORT = re.compile(rf"^(?P<dataset>{_DATASET})\.(?P<table>{_TABLE})\Z")
_PATH = re.compile(
    rf"^projects/(?P<project>{_PROJECT})/datasets/(?P<dataset>{_DATASET})/tables/(?P<table>{_TABLE})"
)


@dataclasses.dataclass(frozen=True, order=True)
class TableReference:
    """One table. `str()` gives ``project.dataset.table``, the form used in every message."""

    project: str
    dataset: str
    table: str

    def __str__(self) -> str:
        return f"{self.project}.{self.dataset}.{self.table}"

    @property
    def path(self) -> str:
        """``projects/p/datasets/d/tables/t``, the form of the Storage API."""
        return f"projects/{self.project}/datasets/{self.dataset}/tables/{self.table}"

    @property
    def default_stream(self) -> str:
        """The name of the table's default write stream."""
        return f"{self.path}/streams/_default"

    @staticmethod
    def parse(text: object, *, default_project: str | None = None) -> "TableReference":
        """Reads any of the forms a user may give.

        Args:
            text: ``project.dataset.table``, ``project:dataset.table``, ``dataset.table``
                (needs `default_project`), a `TableReference`, a mapping with
                ``projectId``/``datasetId``/``tableId``, or an object with such attributes
                (Beam's and Google's table references).

        Raises:
            ConfigError: the text is no table name, or the project is missing.
        """
        if isinstance(text, TableReference):
            return text
        if not isinstance(text, str):
            return _from_object(text, default_project)
        match = _FULL.match(text) or _SHORT.match(text)
        if match is None or not _is_table_name(match["table"]):
            raise ConfigError(f"table must look like 'project.dataset.table', got {text!r}")
        project = match.groupdict().get("project") or default_project
        if not project:
            raise ConfigError(
                f"table {text!r} names no project; write 'project.dataset.table' or set --project"
            )
        return TableReference(project, match["dataset"], match["table"])

    @staticmethod
    def from_path(path: str) -> "TableReference":
        """Reads the table out of a Storage API path; stream names begin with their table's."""
        match = _PATH.match(path)
        if match is None:
            raise ConfigError(
                f"path must begin with 'projects/p/datasets/d/tables/t', got {path!r}"
            )
        return TableReference(match["project"], match["dataset"], match["table"])


def _is_table_name(text: str) -> bool:
    categories = (unicodedata.category(c) for c in text if not c.isascii())
    return all(it[0] in "LMN" or it in _TABLE_CATEGORIES for it in categories)


def _from_object(value: object, default_project: str | None) -> TableReference:
    def get(*names: str) -> Any:
        for name in names:
            found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
            if found:
                return found
        return None

    project = get("projectId", "project") or default_project
    dataset, table = get("datasetId", "dataset_id", "dataset"), get("tableId", "table_id", "table")
    if not (project and dataset and table):
        raise ConfigError(f"table must be a name or a table reference, got {value!r}")
    # Read as a text, its parts are checked: a slash would lead to another resource.
    return TableReference.parse(f"{project}.{dataset}.{table}")
