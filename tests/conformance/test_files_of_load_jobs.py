"""Our files in load jobs: each type loads as itself, from Avro and from lines of JSON."""

import dataclasses

import pytest

from bqflink_beam.codec.avro import RecordEncoder, file_block, file_header
from bqflink_beam.codec.json import LineEncoder
from bqflink_beam.names import TableReference
from bqflink_beam.schema import json as schema_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import Emulator, Settings
from tests.conformance.test_types_through_the_service import (
    LISTS,
    ROWS,
    SCALARS,
    read_arrow,
    typed,
    within_arrow,
)

SYNC = b"sixteen bytes it"
# That a load job reads INTERVAL from Avro is nowhere said.
COLUMNS = tuple(field for field in (*SCALARS, *LISTS) if field.type != "INTERVAL")
SCHEMA = TableSchema(
    (
        Field(name="row", type="INT64", mode="REQUIRED"),
        *COLUMNS,
        Field(name="Nested", type="STRUCT", fields=COLUMNS),
    )
)


def avro(rows):
    encoder = RecordEncoder(SCHEMA)
    records = [encoder.encode(row) for row in rows]
    return file_header(encoder.avro_schema, SYNC) + file_block(records, SYNC)


def ndjson(rows):
    encoder = LineEncoder(SCHEMA)
    return b"".join(encoder.encode(row) + b"\n" for row in rows)


def loadable(fields, row):
    """The row with the table's columns, and without what files of both kinds cannot say."""
    return {field.name: loadable_value(field, row[field.name]) for field in fields}


def loadable_value(field, value):
    if isinstance(value, list):
        return [loadable_value(field, item) for item in value]
    if field.type == "STRUCT" and value is not None:
        return loadable(field.fields, value)
    return "{}" if field.type == "JSON" and value == "null" else within_arrow(value)


@pytest.mark.parametrize(
    ("write", "source_format"), [(avro, "AVRO"), (ndjson, "NEWLINE_DELIMITED_JSON")]
)
def test_files_load_as_what_they_hold(tmp_path, write, source_format):
    rows = [loadable(SCHEMA, row) for row in ROWS]
    (tmp_path / "rows").write_bytes(write(rows))
    table = TableReference("p", "d", "loaded")

    with Emulator(settings=Settings(files_root=tmp_path)) as server:
        server.create_table(str(table), schema_json.to_json(SCHEMA))
        client = dataclasses.replace(server.connection, billing_project="p").open()
        load = {
            "destinationTable": {"projectId": "p", "datasetId": "d", "tableId": "loaded"},
            "sourceUris": [(tmp_path / "rows").as_uri()],
            "sourceFormat": source_format,
            "schema": {"fields": schema_json.to_json(SCHEMA)},
            "useAvroLogicalTypes": True,
        }
        client.jobs.insert("load", {"load": load}, location=None)
        job = client.jobs.wait("load", location=None, budget_s=60)
        found = sorted(read_arrow(server, table), key=lambda row: row["row"])
        client.close()

    assert job.error is None
    assert [typed(row) for row in found] == [typed(row) for row in rows]
