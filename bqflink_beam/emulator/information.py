"""``INFORMATION_SCHEMA``: datasets, tables, columns and partitions as tables.

Columns that are not listed here do not exist; a query for one is refused.
"""

import collections
import datetime
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator import types, values
from bqflink_beam.emulator.partitions import partition_ids
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql.invalid import unsupported
from bqflink_beam.emulator.sql.scope import TableInput
from bqflink_beam.emulator.store import Store, StoredTable
from bqflink_beam.schema.model import Field, TableSchema

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_KINDS = {
    "TABLE": "BASE TABLE",
    "VIEW": "VIEW",
    "MATERIALIZED_VIEW": "MATERIALIZED VIEW",
    "EXTERNAL": "EXTERNAL",
    "SNAPSHOT": "SNAPSHOT",
}

Row = dict[str, Any]


def information_schema(
    store: Store, project: str, default: tuple[str, str] | None, parts: Sequence[str]
) -> TableInput:
    """Returns one of the views, by the parts of its name.

    Args:
        project: where a dataset without a project is looked for.
        default: the default dataset of the query.

    Raises:
        Refused: there is no such view, or no such dataset.
    """
    position = [part.upper() for part in parts].index("INFORMATION_SCHEMA")
    view = ".".join(parts[position + 1 :]).upper()
    before = list(parts[:position])
    if view not in _VIEWS:
        raise unsupported(f"INFORMATION_SCHEMA.{view}")
    columns, rows = _VIEWS[view]
    if view == "SCHEMATA":
        owner = before[0] if before and not before[0].lower().startswith("region-") else project
        found = [dataset for dataset in store.list_datasets(owner) if not _hidden(dataset)]
        return _input(columns, [row for dataset in found for row in _schemata(dataset)])
    if not before and default is not None:
        before = list(default)
    if len(before) == 1:
        before = [project, *before]
    if len(before) != 2 or store.get_dataset(before[0], before[1]) is None:
        raise Refused(f"Not found: Dataset {':'.join(before)}", code="NOT_FOUND")
    tables = store.list_tables(before[0], before[1])
    return _input(columns, [row for table in tables for row in rows(table)])


def _input(columns: Sequence[tuple[str, str]], rows: list[Row]) -> TableInput:
    schema = TableSchema(tuple(Field(name=name, type=kind) for name, kind in columns))
    batch = values.batch_from_rows(schema, rows)
    return TableInput(schema, lambda: pa.Table.from_batches([batch]))


def _hidden(dataset: dict[str, Any]) -> bool:
    return str(dataset["datasetReference"]["datasetId"]).startswith("_")


def _schemata(dataset: dict[str, Any]) -> Iterator[Row]:
    yield {
        "catalog_name": dataset["datasetReference"]["projectId"],
        "schema_name": dataset["datasetReference"]["datasetId"],
        "location": dataset["location"],
        "creation_time": _moment(dataset["creationTime"]),
        "last_modified_time": _moment(dataset["lastModifiedTime"]),
    }


def _names(table: StoredTable) -> Row:
    reference = table.reference
    return {
        "table_catalog": reference.project,
        "table_schema": reference.dataset,
        "table_name": reference.table,
    }


def _moment(millis: str) -> datetime.datetime:
    return _EPOCH + datetime.timedelta(milliseconds=int(millis))


def _tables(table: StoredTable) -> Iterator[Row]:
    yield {
        **_names(table),
        "table_type": _KINDS[table.kind],
        "is_insertable_into": "YES" if table.kind == "TABLE" else "NO",
        "is_typed": "NO",
        "creation_time": _moment(table.resource["creationTime"]),
    }


def _views(table: StoredTable) -> Iterator[Row]:
    view = table.resource.get("view")
    if view:
        yield {
            **_names(table),
            "view_definition": view["query"],
            "check_option": None,
            "use_standard_sql": "YES",
        }


def _columns(table: StoredTable) -> Iterator[Row]:
    resource = table.resource
    partitioned = (resource.get("timePartitioning") or resource.get("rangePartitioning") or {}).get(
        "field"
    )
    clustered = [name.lower() for name in (resource.get("clustering") or {}).get("fields", ())]
    for position, field in enumerate(table.schema, 1):
        name = field.name.lower()
        yield {
            **_names(table),
            "column_name": field.name,
            "ordinal_position": position,
            "is_nullable": "NO" if field.required else "YES",
            "data_type": type_text(field),
            "is_generated": "NEVER",
            "is_hidden": "NO",
            "is_system_defined": "NO",
            "is_partitioning_column": "YES"
            if partitioned and partitioned.lower() == name
            else "NO",
            "clustering_ordinal_position": clustered.index(name) + 1 if name in clustered else None,
            "column_default": field.default_value_expression or "NULL",
        }


def type_text(field: Field) -> str:
    """Returns a column's type as Standard SQL writes it: ``ARRAY<STRUCT<x INT64>>``."""
    text = field.type
    if field.type == "STRUCT":
        inner = ", ".join(f"{f.name} {type_text(f)}" for f in field.fields)
        text = f"STRUCT<{inner}>"
    elif field.type == "RANGE":
        text = f"RANGE<{field.range_element_type}>"
    elif field.max_length is not None:
        text = f"{field.type}({field.max_length})"
    elif field.precision is not None:
        scale = f", {field.scale}" if field.scale else ""
        text = f"{field.type}({field.precision}{scale})"
    elif types.is_picos(field):
        text = "TIMESTAMP(12)"
    return f"ARRAY<{text}>" if field.repeated else text


def _partitions(table: StoredTable) -> Iterator[Row]:
    if table.kind != "TABLE":
        return
    rows: collections.Counter[str | None] = collections.Counter()
    sizes: collections.Counter[str | None] = collections.Counter()
    partitioned = table.time_partitioning or table.resource.get("rangePartitioning")
    for chunk in table.snapshot(pseudo_columns=True).chunks:
        ids = partition_ids(table, chunk).to_pylist() if partitioned else [None] * chunk.num_rows
        counts = collections.Counter(ids)
        for partition, count in counts.items():
            rows[partition] += count
            sizes[partition] += chunk.nbytes * count // chunk.num_rows
    if not partitioned and not rows:
        rows[None] = 0
    for partition in sorted(rows, key=lambda text: text or ""):
        yield {
            **_names(table),
            "partition_id": partition,
            "total_rows": rows[partition],
            "total_logical_bytes": sizes[partition],
            "last_modified_time": _moment(table.resource["lastModifiedTime"]),
            "storage_tier": "ACTIVE",
        }


_TABLE_COLUMNS = (("table_catalog", "STRING"), ("table_schema", "STRING"), ("table_name", "STRING"))
_VIEWS: dict[str, tuple[tuple[tuple[str, str], ...], Callable[[Any], Iterator[Row]]]] = {
    "SCHEMATA": (
        (
            ("catalog_name", "STRING"),
            ("schema_name", "STRING"),
            ("location", "STRING"),
            ("creation_time", "TIMESTAMP"),
            ("last_modified_time", "TIMESTAMP"),
        ),
        _schemata,
    ),
    "TABLES": (
        (
            *_TABLE_COLUMNS,
            ("table_type", "STRING"),
            ("is_insertable_into", "STRING"),
            ("is_typed", "STRING"),
            ("creation_time", "TIMESTAMP"),
        ),
        _tables,
    ),
    "VIEWS": (
        (
            *_TABLE_COLUMNS,
            ("view_definition", "STRING"),
            ("check_option", "STRING"),
            ("use_standard_sql", "STRING"),
        ),
        _views,
    ),
    "COLUMNS": (
        (
            *_TABLE_COLUMNS,
            ("column_name", "STRING"),
            ("ordinal_position", "INT64"),
            ("is_nullable", "STRING"),
            ("data_type", "STRING"),
            ("is_generated", "STRING"),
            ("is_hidden", "STRING"),
            ("is_system_defined", "STRING"),
            ("is_partitioning_column", "STRING"),
            ("clustering_ordinal_position", "INT64"),
            ("column_default", "STRING"),
        ),
        _columns,
    ),
    "PARTITIONS": (
        (
            *_TABLE_COLUMNS,
            ("partition_id", "STRING"),
            ("total_rows", "INT64"),
            ("total_logical_bytes", "INT64"),
            ("last_modified_time", "TIMESTAMP"),
            ("storage_tier", "STRING"),
        ),
        _partitions,
    ),
}
