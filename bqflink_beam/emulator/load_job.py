"""Load jobs: files in, rows out, all of them or none."""

import gzip
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator import types, values
from bqflink_beam.emulator.api_errors import invalid, missing
from bqflink_beam.emulator.checks import Faulty, check_batch
from bqflink_beam.emulator.defaults import default_maker
from bqflink_beam.emulator.destinations import (
    Destination,
    check_dispositions,
    check_known,
    table_reference,
)
from bqflink_beam.emulator.files import Files
from bqflink_beam.emulator.jobs import Job, Outcome
from bqflink_beam.emulator.jsonvalues import BadValue
from bqflink_beam.emulator.load_avro import avro_rows, avro_schema
from bqflink_beam.emulator.load_parquet import parquet_batches, parquet_schema, read_parquet
from bqflink_beam.emulator.load_text import csv_rows, detect_csv, detect_json, json_rows
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store, Transaction
from bqflink_beam.schema.model import TableSchema

FORMATS = ("CSV", "NEWLINE_DELIMITED_JSON", "AVRO", "PARQUET")
_KNOWN = frozenset(
    {
        "sourceUris", "sourceFormat", "schema", "destinationTable", "destinationTableProperties",
        "createDisposition", "writeDisposition", "schemaUpdateOptions", "autodetect",
        "maxBadRecords", "ignoreUnknownValues", "nullMarker", "fieldDelimiter", "skipLeadingRows",
        "encoding", "quote", "allowQuotedNewlines", "allowJaggedRows", "useAvroLogicalTypes",
        "decimalTargetTypes", "parquetOptions", "timePartitioning", "rangePartitioning",
        "clustering", "destinationEncryptionConfiguration", "columnNameCharacterMap",
    }
)  # fmt: skip
_URIS_MAX = 10_000
_ERRORS_MAX = 100
_CHUNK_ROWS = 50_000


def check_load(configuration: Mapping[str, Any]) -> None:
    """Refuses a load configuration that cannot be a job."""
    table_reference(configuration.get("destinationTable"), "destinationTable")
    check_known(configuration, _KNOWN, "Load")
    check_dispositions(configuration)
    form = configuration.get("sourceFormat") or "CSV"
    if form not in FORMATS:
        raise invalid(f"Unsupported source format {form}")
    if len(configuration.get("sourceUris") or ()) > _URIS_MAX:
        raise invalid(f"A load job has at most {_URIS_MAX} source URIs")
    updates = configuration.get("schemaUpdateOptions")
    mode = configuration.get("writeDisposition") or "WRITE_APPEND"
    table = configuration["destinationTable"]["tableId"]
    if updates and mode != "WRITE_APPEND" and not (mode == "WRITE_TRUNCATE" and "$" in table):
        raise invalid(
            "Schema update options should only be specified with WRITE_APPEND disposition, or "
            "with WRITE_TRUNCATE disposition on a table partition."
        )


class LoadJobs:
    """Computes the outcome of load jobs."""

    def __init__(self, store: Store, files: Files) -> None:
        self._store = store
        self._files = files

    def run(self, job: Job) -> Outcome:
        """Reads the files; their rows go to the destination when the job is finished.

        Raises:
            Refused: the job fails, and nothing of it is kept.
        """
        options = job.configuration
        reference = table_reference(options["destinationTable"], "destinationTable")
        destination = Destination(
            self._store,
            reference,
            options,
            default_write="WRITE_APPEND",
            location=job.location,
        )
        found = destination.current()
        uris, contents = self._contents(job)
        loading = _Loading(self._store, options, uris, contents)
        schema = loading.schema(found.schema if found is not None else None)
        target = destination.schema_for(schema)
        batches = loading.batches(schema, target)
        rows = sum(batch.num_rows for batch in batches)
        statistics = {
            "inputFiles": str(len(contents)),
            "inputFileBytes": str(sum(map(len, contents))),
            "outputRows": str(rows),
            "outputBytes": str(sum(batch.nbytes for batch in batches)),
            "badRecords": str(len(loading.bad)),
        }

        def apply(change: Transaction) -> None:
            destination.write(change, schema, batches)

        return Outcome(apply, statistics, errors=loading.errors()[:_ERRORS_MAX])

    def _contents(self, job: Job) -> tuple[list[str], list[bytes]]:
        if job.upload is not None:
            return ["(uploaded file)"], [job.upload]
        patterns = job.configuration.get("sourceUris") or ()
        if not patterns:
            raise missing("sourceUris")
        uris = [uri for pattern in patterns for uri in self._files.match(pattern)]
        return uris, [_unpacked(self._files.read(uri), uri) for uri in uris]


def _unpacked(data: bytes, uri: str) -> bytes:
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise invalid(f"Error while reading data, error message: {uri}: {error}") from None


class _Loading:
    """The files of one job on their way to rows."""

    def __init__(
        self, store: Store, options: Mapping[str, Any], uris: list[str], contents: list[bytes]
    ) -> None:
        self._store = store
        self._options = dict(options)
        self._form = options.get("sourceFormat") or "CSV"
        self._uris = uris
        self._contents = contents
        self._bad_max = int(options.get("maxBadRecords") or 0)
        self.bad: list[tuple[str, BadValue]] = []
        self._parquet: list[pa.Table] = []
        if self._form == "PARQUET":
            self._parquet = [read_parquet(data) for data in contents]

    def schema(self, existing: TableSchema | None) -> TableSchema:
        """Returns the schema of the rows: given, of the table, or of the files."""
        given = self._options.get("schema")
        if given and given.get("fields"):
            return types.schema_from_rest(given)
        if self._form == "AVRO":
            return self._one([avro_schema(data, self._options) for data in self._contents])
        if self._form == "PARQUET":
            return self._one([parquet_schema(table, self._options) for table in self._parquet])
        if self._options.get("autodetect") and (
            existing is None or self._options.get("writeDisposition") == "WRITE_TRUNCATE"
        ):
            return self._detected()
        if existing is not None and len(existing):
            if self._options.get("autodetect") and self._form == "CSV":
                _, header = detect_csv(self._contents, self._options)
                self._options["skipLeadingRows"] = int(header)
            return existing
        raise invalid(
            "No schema specified on job or table. Please specify a schema or set autodetect."
        )

    def _one(self, schemas: Sequence[TableSchema]) -> TableSchema:
        fields = {field.name.lower(): field for schema in schemas for field in schema}
        for schema in schemas:
            for field in schema:
                if fields[field.name.lower()].type != field.type:
                    raise invalid(f"The files disagree on the type of field {field.name}")
        return TableSchema(tuple(fields.values()))

    def _detected(self) -> TableSchema:
        if self._form == "NEWLINE_DELIMITED_JSON":
            found = detect_json(self._contents)
        else:
            found, header = detect_csv(self._contents, self._options)
            self._options["skipLeadingRows"] = int(header)
        if not len(found):
            raise invalid("Schema has no fields: no column was found in the files")
        return found

    def batches(self, schema: TableSchema, target: TableSchema) -> list[pa.RecordBatch]:
        """Returns the checked rows of all files with the columns of `target`.

        Raises:
            Refused: more rows are bad than the job allows.
        """
        found: list[pa.RecordBatch] = []
        if self._form == "PARQUET":
            for uri, table in zip(self._uris, self._parquet, strict=True):
                for batch in parquet_batches(table, target, self._options):
                    found.append(self._checked(target, batch, uri))
        else:
            makers = {
                field.name: default_maker(field, self._store.clock)
                for field in target
                if field.default_value_expression
            }
            for uri, data in zip(self._uris, self._contents, strict=True):
                pending: list[dict[str, Any]] = []
                for row in self._rows(data, schema):
                    if isinstance(row, BadValue):
                        self._reject(uri, row)
                        continue
                    left_out = {n: make() for n, make in makers.items() if n not in row}
                    pending.append({**left_out, **row})
                    if len(pending) >= _CHUNK_ROWS:
                        found.append(self._batch(target, pending, uri))
                        pending = []
                if pending:
                    found.append(self._batch(target, pending, uri))
        return [batch for batch in found if batch.num_rows]

    def _rows(self, data: bytes, schema: TableSchema) -> Any:
        reader = {
            "CSV": csv_rows,
            "NEWLINE_DELIMITED_JSON": json_rows,
            "AVRO": avro_rows,
        }[self._form]
        return reader(data, schema, self._options)

    def _batch(self, target: TableSchema, rows: list[dict[str, Any]], uri: str) -> pa.RecordBatch:
        try:
            batch = values.batch_from_rows(target, rows)
        except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError) as error:
            raise invalid(f"Error while reading data, error message: {error}") from None
        return self._checked(target, batch, uri)

    def _checked(self, target: TableSchema, batch: pa.RecordBatch, uri: str) -> pa.RecordBatch:
        faulty = Faulty()
        checked = check_batch(target, batch, faulty)
        if not faulty.messages:
            return checked
        for message in faulty.messages.values():
            self._reject(uri, BadValue("", message))
        keep = [i for i in range(checked.num_rows) if i not in faulty.messages]
        return checked.take(pa.array(keep, pa.int64()))

    def _reject(self, uri: str, bad: BadValue) -> None:
        self.bad.append((uri, bad))
        if len(self.bad) > self._bad_max:
            form = {"NEWLINE_DELIMITED_JSON": "JSON"}.get(self._form, self._form)
            raise Refused(
                f"Error while reading data, error message: {form} table encountered too many "
                f"errors, giving up. Rows: {len(self.bad)}; errors: {len(self.bad)}. "
                f"{uri}: {bad}",
                reason="invalid",
            )

    def errors(self) -> list[dict[str, Any]]:
        """Returns the bad rows as warnings of the job."""
        return [
            {
                "reason": "invalid",
                "location": uri,
                "message": f"Error while reading data, error message: {bad}",
            }
            for uri, bad in self.bad
        ]
