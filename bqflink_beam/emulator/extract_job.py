"""Extract jobs: a table's rows out, into files."""

import csv
import dataclasses
import gzip
import io
import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bqflink_beam.emulator import values
from bqflink_beam.emulator.api_errors import invalid, missing
from bqflink_beam.emulator.avro_files import avro_file
from bqflink_beam.emulator.destinations import check_known, table_reference
from bqflink_beam.emulator.files import Files
from bqflink_beam.emulator.jobs import Job, Outcome
from bqflink_beam.emulator.partitions import snapshot_named
from bqflink_beam.emulator.store import Snapshot, Store, Transaction
from bqflink_beam.schema.model import Field

_FORMATS = ("CSV", "NEWLINE_DELIMITED_JSON", "AVRO", "PARQUET")
_KNOWN = frozenset(
    {
        "sourceTable", "destinationUri", "destinationUris", "destinationFormat", "compression",
        "fieldDelimiter", "printHeader", "useAvroLogicalTypes",
    }
)  # fmt: skip
_COMPRESSIONS = {
    "CSV": ("NONE", "GZIP"),
    "NEWLINE_DELIMITED_JSON": ("NONE", "GZIP"),
    "AVRO": ("NONE", "DEFLATE", "SNAPPY"),
    "PARQUET": ("NONE", "SNAPPY", "GZIP", "ZSTD"),
}


def check_extract(configuration: Mapping[str, Any]) -> None:
    """Refuses an extract configuration that cannot be a job."""
    if configuration.get("sourceModel"):
        raise invalid("Extracting models is not supported by the embedded BigQuery")
    check_known(configuration, _KNOWN, "Extract")
    table_reference(configuration.get("sourceTable"), "sourceTable")
    if not _uris(configuration):
        raise missing("destinationUris")
    form = configuration.get("destinationFormat") or "CSV"
    if form not in _FORMATS:
        raise invalid(f"Unsupported destination format {form}")
    compression = configuration.get("compression") or "NONE"
    if compression not in _COMPRESSIONS[form]:
        raise invalid(f"Compression {compression} is not supported for {form}")


def _uris(configuration: Mapping[str, Any]) -> list[str]:
    single = configuration.get("destinationUri")
    return list(configuration.get("destinationUris") or ([single] if single else []))


class ExtractJobs:
    """Computes the outcome of extract jobs. Each URI gets one file: tables here are small."""

    def __init__(self, store: Store, files: Files) -> None:
        self._store = store
        self._files = files

    def run(self, job: Job) -> Outcome:
        """Writes the files.

        Raises:
            Refused: the job fails.
        """
        options = job.configuration
        source = table_reference(options["sourceTable"], "sourceTable")
        table = self._store.require_table(source)
        if table.kind not in ("TABLE", "SNAPSHOT"):
            raise invalid(f"A {table.kind} cannot be exported: {table.reference}")
        snapshot = snapshot_named(table, source.table)
        uris = _uris(options)
        parts = _parted(snapshot, len(uris))
        for uri, chunks in zip(uris, parts, strict=True):
            self._files.write(uri.replace("*", "0" * 12), _file(snapshot, chunks, options))
        return Outcome(
            _nothing,
            {
                "destinationUriFileCounts": ["1"] * len(uris),
                "inputBytes": str(snapshot.nbytes),
            },
        )


def _nothing(change: Transaction) -> None:
    """The files are there already; there is nothing to change in the store."""


def _parted(snapshot: Snapshot, count: int) -> list[list[pa.RecordBatch]]:
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(count)]
    for position, chunk in enumerate(snapshot.chunks):
        parts[position % count].append(chunk)
    return parts


def _file(snapshot: Snapshot, chunks: list[pa.RecordBatch], options: Mapping[str, Any]) -> bytes:
    form = options.get("destinationFormat") or "CSV"
    compression = options.get("compression") or "NONE"
    if form == "AVRO":
        logical = bool(options.get("useAvroLogicalTypes"))
        return avro_file(snapshot.schema, chunks, compression=compression, logical_types=logical)
    if form == "PARQUET":
        sink = io.BytesIO()
        table = pa.Table.from_batches(chunks, snapshot.arrow_schema)
        pq.write_table(table, sink, compression=compression)
        return sink.getvalue()
    text = _csv(snapshot, chunks, options) if form == "CSV" else _json(snapshot, chunks)
    return gzip.compress(text) if compression == "GZIP" else text


def _csv(snapshot: Snapshot, chunks: list[pa.RecordBatch], options: Mapping[str, Any]) -> bytes:
    for field in snapshot.schema:
        if field.repeated or field.type == "STRUCT":
            raise invalid("Operation cannot be performed on a nested schema. Field: " + field.name)
    delimiter = options.get("fieldDelimiter") or ","
    delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, delimiter=delimiter, lineterminator="\n")
    if options.get("printHeader", True):
        writer.writerow([field.name for field in snapshot.schema])
    for row in values.python_rows(chunks):
        writer.writerow([_cell(field, row[field.name]) for field in snapshot.schema])
    return sink.getvalue().encode()


def _cell(field: Field, value: Any) -> str:
    if value is None:
        return ""
    if field.type == "TIMESTAMP" and not isinstance(value, str):
        return _moment(value) + " UTC"
    if field.type == "DATETIME":
        return str(value.isoformat())
    return str(values.rest_value(field, value))


def _moment(value: Any) -> str:
    text = value.strftime("%m-%d %H:%M:%S")
    fraction = f".{value.microsecond:06d}".rstrip("0") if value.microsecond else ""
    return f"{value.year:04d}-{text}{fraction}"


def _json(snapshot: Snapshot, chunks: list[pa.RecordBatch]) -> bytes:
    lines = []
    for row in values.python_rows(chunks):
        item = {
            field.name: _json_value(field, row[field.name])
            for field in snapshot.schema
            if row[field.name] is not None
        }
        lines.append(json.dumps(item, ensure_ascii=False, separators=(",", ":")) + "\n")
    return "".join(lines).encode()


def _json_value(field: Field, value: Any) -> Any:
    if field.repeated:
        return [_json_element(field, item) for item in value]
    return _json_element(field, value)


def _json_element(field: Field, value: Any) -> Any:
    if field.type == "STRUCT":
        return {
            inner.name: _json_value(inner, value[inner.name])
            for inner in field.fields
            if value[inner.name] is not None
        }
    if field.type == "BOOL":
        return value
    if field.type == "FLOAT64":
        return value if abs(value) != float("inf") and value == value else values.float_text(value)
    if field.type == "JSON":
        return json.loads(value)
    if field.type in ("TIMESTAMP", "DATETIME"):
        return _cell(field, value)
    return values.rest_value(_single(field), value)


def _single(field: Field) -> Field:
    return dataclasses.replace(field, mode="NULLABLE")
