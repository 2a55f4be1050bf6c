"""Query jobs: parameters, destination tables, anonymous results, dry runs."""

import hashlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from bqflink_beam.emulator import ddl, types
from bqflink_beam.emulator.api_errors import missing
from bqflink_beam.emulator.catalog import StoreCatalog
from bqflink_beam.emulator.destinations import (
    Destination,
    check_dispositions,
    check_known,
    table_reference,
)
from bqflink_beam.emulator.jobs import Job, Outcome
from bqflink_beam.emulator.parameters import read_parameters
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sql import Query, dml
from bqflink_beam.emulator.sql.run import compile_node, new_plan
from bqflink_beam.emulator.sql.sources import parse
from bqflink_beam.emulator.statements import dml_outcome
from bqflink_beam.emulator.store import Store, StoredTable, Transaction
from bqflink_beam.names import TableReference

_RESULT_TTL_MS = 24 * 3_600_000
_ANONYMOUS = {"createDisposition": "CREATE_IF_NEEDED", "writeDisposition": "WRITE_TRUNCATE"}
_LEGACY_OFF = "#standardsql"
_KNOWN = frozenset(
    {
        "query", "defaultDataset", "useLegacySql", "parameterMode", "queryParameters",
        "destinationTable", "createDisposition", "writeDisposition", "schemaUpdateOptions",
        "timePartitioning", "rangePartitioning", "clustering", "maximumBytesBilled",
        "destinationEncryptionConfiguration",
        # These ask for nothing that matters here: speed, price, and legacy SQL.
        "priority", "useQueryCache", "maximumBillingTier", "allowLargeResults", "flattenResults",
        "preserveNulls",
    }
)  # fmt: skip


def check_query(configuration: Mapping[str, Any]) -> None:
    """Refuses a query configuration that cannot be a job."""
    text = configuration.get("query")
    if not isinstance(text, str) or not text.strip():
        raise missing("query")
    check_known(configuration, _KNOWN, "Query")
    check_dispositions(configuration)
    first = text.lstrip().partition("\n")[0].strip().lower()
    if configuration.get("useLegacySql", True) and first != _LEGACY_OFF:
        raise Refused(
            "Legacy SQL is not supported by the embedded BigQuery; set useLegacySql to false",
            reason="invalidQuery",
        )
    if configuration.get("destinationTable"):
        table_reference(configuration["destinationTable"], "destinationTable")


def hidden_dataset(location: str) -> str:
    """Returns the dataset of anonymous results at a location; its name keeps it out of lists."""
    return "_anonymous_" + location.lower().replace("-", "_")


class QueryJobs:
    """Computes the outcome of query jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def catalog(
        self, project: str, location: str | None, configuration: Mapping[str, Any]
    ) -> StoreCatalog:
        """Returns where the names in a query are looked for."""
        default = configuration.get("defaultDataset") or {}
        dataset = None
        if default.get("datasetId"):
            dataset = (default.get("projectId") or project, default["datasetId"])
        return StoreCatalog(self._store, project, dataset=dataset, location=location)

    def run(self, job: Job) -> Outcome:
        """Runs the query; its rows go to the destination when the job is finished.

        Raises:
            Refused: the job fails.
        """
        outcome = self._outcome(job)
        outcome.statistics.setdefault("cacheHit", False)
        return outcome

    def _outcome(self, job: Job) -> Outcome:
        catalog = self.catalog(job.project, job.location, job.configuration)
        now_s = self._store.clock.now_s()
        named, positional = read_parameters(job.configuration)
        plan = new_plan(catalog, now_s=now_s, named=named, positional=positional)
        node = parse(job.configuration["query"])
        if isinstance(node, dml.STATEMENTS):
            return dml_outcome(self._store, catalog, plan, node)
        if isinstance(node, ddl.STATEMENTS):
            text = job.configuration["query"]
            return ddl.Ddl(self._store).outcome(catalog, plan, node, text, job.location)
        destination = job.configuration.get("destinationTable")
        query = compile_node(plan, node, rename=destination is None)
        tables = list(catalog.referenced.values())
        scanned = str(sum(table.snapshot().nbytes for table in tables))
        limit = job.configuration.get("maximumBytesBilled")
        if limit is not None and int(scanned) > int(limit):
            raise Refused(
                f"Query exceeded limit for bytes billed: {limit}. {scanned} or higher required.",
                reason="bytesBilledLimitExceeded",
            )
        statistics: dict[str, Any] = {
            "statementType": "SELECT",
            "totalBytesProcessed": scanned,
            "totalBytesBilled": scanned,
            "schema": types.schema_to_rest(query.schema),
            "referencedTables": [reference_resource(table) for table in tables],
        }
        totals = {"totalBytesProcessed": scanned}
        if destination is None:
            reference = self._anonymous(job)
        else:
            reference = table_reference(destination, "destinationTable")
        resource = _reference(reference)
        apply = self._writer(job, query, reference, anonymous=destination is None)
        configuration: dict[str, Any] = {"destinationTable": resource}
        if destination is None:
            configuration.update(_ANONYMOUS)
        return Outcome(apply, statistics, totals, configuration)

    def dry_run(self, job: Job) -> Outcome:
        """Compiles the query without running it."""
        catalog = self.catalog(job.project, job.location, job.configuration)
        named, positional = read_parameters(job.configuration)
        plan = new_plan(
            catalog, now_s=self._store.clock.now_s(), named=named, positional=positional
        )
        node = parse(job.configuration["query"])
        if isinstance(node, (*dml.STATEMENTS, *ddl.STATEMENTS)):
            statistics = {"statementType": node.key.upper(), "totalBytesProcessed": "0"}
            return Outcome(_nothing, {**statistics, "schema": {"fields": []}})
        query = compile_node(plan, node, rename="destinationTable" not in job.configuration)
        scanned = str(sum(t.snapshot().nbytes for t in catalog.referenced.values()))
        statistics = {
            "statementType": "SELECT",
            "totalBytesProcessed": scanned,
            "schema": types.schema_to_rest(query.schema),
            "referencedTables": [reference_resource(t) for t in catalog.referenced.values()],
        }
        return Outcome(_nothing, statistics, {"totalBytesProcessed": scanned})

    def locate(self, project: str, configuration: Mapping[str, Any]) -> str | None:
        """Returns the location of the first dataset that a query names, None if it names none."""
        datasets = []
        if configuration.get("destinationTable"):
            reference = table_reference(configuration["destinationTable"], "destinationTable")
            datasets.append((reference.project, reference.dataset))
        catalog = self.catalog(project, None, configuration)
        try:
            tables = list(parse(configuration["query"]).find_all(exp.Table))
        except Refused:
            tables = []  # the job itself will say what is wrong with the query
        for node in tables:
            path = tuple(
                p.name for p in (node.args.get("catalog"), node.args.get("db"), node.this) if p
            )
            try:
                reference = catalog.reference(path)
            except Refused:
                continue  # such as a common table expression
            datasets.append((reference.project, reference.dataset))
        for key in datasets:
            if (dataset := self._store.get_dataset(*key)) is not None:
                return str(dataset["location"])
        return None

    def _anonymous(self, job: Job) -> TableReference:
        dataset = hidden_dataset(job.location)
        with self._store.lock:
            if self._store.get_dataset(job.project, dataset) is None:
                self._store.create_dataset(job.project, dataset, {"location": job.location})
        name = hashlib.sha256(f"{job.project}:{job.location}.{job.id}".encode()).hexdigest()[:40]
        return TableReference(job.project, dataset, f"anon{name}")

    def _writer(self, job: Job, query: Query, reference: TableReference, *, anonymous: bool) -> Any:
        chunks = query.run().to_batches()
        if anonymous:
            return lambda change: self._write_anonymous(change, query, reference, chunks)
        destination = Destination(
            self._store,
            reference,
            job.configuration,
            default_write="WRITE_EMPTY",
            location=job.location,
        )
        destination.schema_for(query.schema)
        return lambda change: destination.write(change, query.schema, chunks)

    def _write_anonymous(
        self,
        change: Transaction,
        query: Query,
        reference: TableReference,
        chunks: list[pa.RecordBatch],
    ) -> None:
        expires_ms = int(self._store.clock.now_s() * 1000) + _RESULT_TTL_MS
        resource = {
            "schema": types.schema_to_rest(query.schema),
            "expirationTime": str(expires_ms),
        }
        table = change.create_table(reference, resource)
        if chunks:
            change.append(table, chunks)


def _nothing(change: Transaction) -> None:
    """A dry run changes nothing."""


def _reference(reference: TableReference) -> dict[str, str]:
    return {
        "projectId": reference.project,
        "datasetId": reference.dataset,
        "tableId": reference.table,
    }


def reference_resource(table: StoredTable) -> dict[str, str]:
    """Returns a table's reference as REST has it."""
    return _reference(table.reference)
