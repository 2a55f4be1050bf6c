"""`StoreCatalog`: the tables and views that a query finds, by name."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator import types
from bqflink_beam.emulator.api_errors import invalid
from bqflink_beam.emulator.information import information_schema
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql.invalid import unsupported
from bqflink_beam.emulator.sql.scope import TableInput, ViewInput
from bqflink_beam.emulator.store import Store, StoredTable, not_found
from bqflink_beam.emulator.wildcards import matching_tables, wildcard_input
from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference
from bqflink_beam.schema.model import Field, TableSchema


class StoreCatalog:
    """The tables of a store, seen from one project. Remembers what the query refers to.

    Args:
        project: where a table without a project is looked for.
        dataset: the default dataset as ``(project, dataset)``, where a bare name is looked for.
        location: where the query runs; tables elsewhere are not found.
    """

    def __init__(
        self,
        store: Store,
        project: str,
        *,
        dataset: tuple[str, str] | None = None,
        location: str | None = None,
    ) -> None:
        self._store = store
        self._project = project
        self._dataset = dataset
        self._location = location
        self.referenced: dict[TableReference, StoredTable] = {}

    def reference(self, path: tuple[str, ...]) -> TableReference:
        """Returns the table that a dotted name means here.

        Raises:
            Refused: it is no name of a table.
        """
        text = ".".join(path)
        if len(path) == 1 and "." not in text and ":" not in text:
            if self._dataset is None:
                raise Refused(
                    f'Table "{text}" must be qualified with a dataset (e.g. dataset.table).',
                    reason="invalid",
                )
            return TableReference(*self._dataset, text)
        try:
            return TableReference.parse(text, default_project=self._project)
        except ConfigError as error:
            raise invalid(str(error)) from None

    def table(self, path: tuple[str, ...], at_s: float | None) -> TableInput | ViewInput:
        """See `sql.scope.Catalog`."""
        parts = ".".join(path).split(".")
        if "INFORMATION_SCHEMA" in (part.upper() for part in parts):
            return information_schema(self._store, self._project, self._dataset, parts)
        if path[-1].endswith("*"):
            return self._wildcard(path, at_s)
        reference = self.reference(path)
        if "$" in reference.table:
            raise unsupported("A partition decorator in a query")
        found = self._store.get_table(reference)
        if found is None or self._elsewhere(found):
            raise self._missing(reference)
        self.referenced[found.reference] = found
        if found.kind in ("VIEW", "MATERIALIZED_VIEW"):
            resource: Mapping[str, Any] = found.resource
            view = resource.get("view") or resource["materializedView"]
            return ViewInput(view["query"], str(reference))
        return table_input(found, at_s)

    def _wildcard(self, path: tuple[str, ...], at_s: float | None) -> TableInput:
        if at_s is not None:
            raise unsupported("FOR SYSTEM_TIME AS OF a wildcard table")
        # A name must not be empty, so the star is a letter until the name is read.
        reference = self.reference((*path[:-1], path[-1][:-1] + "x"))
        prefix = dataclasses.replace(reference, table=reference.table[:-1])
        tables = [t for t in matching_tables(self._store, prefix) if not self._elsewhere(t)]
        if not tables:
            raise self._missing(reference)
        self.referenced.update((table.reference, table) for table in tables)
        return wildcard_input(tables, prefix.table)

    def _elsewhere(self, table: StoredTable) -> bool:
        return self._location is not None and table.location.upper() != self._location.upper()

    def _missing(self, reference: TableReference) -> Refused:
        dataset = self._store.get_dataset(reference.project, reference.dataset)
        where = f" was not found in location {self._location}" if self._location else ""
        if dataset is None or (
            self._location and dataset["location"].upper() != self._location.upper()
        ):
            return Refused(
                f"Not found: Dataset {reference.project}:{reference.dataset}{where}",
                code="NOT_FOUND",
            )
        refused = not_found(reference)
        return Refused(refused.message + where, code="NOT_FOUND")


def table_input(table: StoredTable, at_s: float | None = None) -> TableInput:
    """Returns the rows of a table as a query's input, frozen now."""
    snapshot = table.snapshot(at_s, pseudo_columns=True)
    schema = snapshot.schema
    if table.partitioned_by_ingestion:
        schema = TableSchema((*schema.fields, Field(name=types.PARTITION_TIME, type="TIMESTAMP")))

    def read() -> pa.Table:
        return snapshot.to_table()

    return TableInput(schema, read, str(table.reference), table.required_partition_filter)
