"""Copy jobs: one or many tables into one, at once."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator.api_errors import invalid, missing
from bqflink_beam.emulator.destinations import (
    Destination,
    check_dispositions,
    check_known,
    evolved,
    table_reference,
)
from bqflink_beam.emulator.jobs import Job, Outcome
from bqflink_beam.emulator.partitions import only_partition
from bqflink_beam.emulator.store import Store, StoredTable, Transaction
from bqflink_beam.names import TableReference

_SOURCES_MAX = 1200
_KNOWN = frozenset(
    {
        "sourceTable", "sourceTables", "destinationTable", "createDisposition",
        "writeDisposition", "operationType", "destinationEncryptionConfiguration",
    }
)  # fmt: skip


def source_tables(configuration: Mapping[str, Any]) -> list[TableReference]:
    """Returns the tables that a copy reads.

    Raises:
        Refused: none, or too many.
    """
    given = configuration.get("sourceTables") or []
    if configuration.get("sourceTable"):
        given = [configuration["sourceTable"], *given]
    if not given:
        raise missing("sourceTables")
    if len(given) > _SOURCES_MAX:
        raise invalid(f"A copy job has at most {_SOURCES_MAX} source tables")
    return [table_reference(source, "sourceTable") for source in given]


def check_copy(configuration: Mapping[str, Any]) -> None:
    """Refuses a copy configuration that cannot be a job."""
    source_tables(configuration)
    table_reference(configuration.get("destinationTable"), "destinationTable")
    check_known(configuration, _KNOWN, "Copy")
    check_dispositions(configuration)
    operation = configuration.get("operationType") or "COPY"
    if operation not in ("COPY", "CLONE"):
        raise invalid(f"Copy operation type {operation} is not supported by the embedded BigQuery")


class CopyJobs:
    """Computes the outcome of copy jobs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self, job: Job) -> Outcome:
        """Reads the sources as they are now; they go to the destination when the job is finished.

        Raises:
            Refused: the job fails.
        """
        references = source_tables(job.configuration)
        sources = [self._source(reference, job.location) for reference in references]
        first = sources[0][0]
        for table, _ in sources[1:]:
            evolved(first.schema, table.schema, frozenset(), str(table.reference))
            evolved(table.schema, first.schema, frozenset(), str(table.reference))
        layout = {
            key: first.resource[key]
            for key in (
                "timePartitioning",
                "rangePartitioning",
                "clustering",
                "description",
                "labels",
            )
            if first.resource.get(key)
        }
        destination = Destination(
            self._store,
            table_reference(job.configuration["destinationTable"], "destinationTable"),
            job.configuration,
            default_write="WRITE_EMPTY",
            location=job.location,
            inherited=layout,
        )
        chunks = [chunk for _, rows in sources for chunk in rows]
        destination.schema_for(first.schema)

        def apply(change: Transaction) -> None:
            destination.write(change, first.schema, chunks)

        copied = sum(chunk.num_rows for chunk in chunks)
        statistics = {
            "copiedRows": str(copied),
            "copiedLogicalBytes": str(sum(chunk.nbytes for chunk in chunks)),
        }
        return Outcome(apply, statistics)

    def _source(
        self, reference: TableReference, location: str
    ) -> tuple[StoredTable, list[pa.RecordBatch]]:
        name, _, moment = reference.table.partition("@")
        base = TableReference(reference.project, reference.dataset, name)
        table = self._store.require_table(base)
        if table.location.upper() != location.upper():
            raise invalid(
                f"Cannot read and write in different locations: source: {table.location}, "
                f"destination: {location}"
            )
        if table.kind not in ("TABLE", "SNAPSHOT"):
            raise invalid(f"Using table {base} of type {table.kind} as a source is not supported")
        at_s = None
        if moment:
            if not moment.lstrip("-").isdigit():
                raise invalid(f"Invalid snapshot decorator @{moment}")
            millis = int(moment)
            at_s = self._store.clock.now_s() + millis / 1000 if millis < 0 else millis / 1000
        if "$" in name:
            return table, only_partition(table, name, at_s)
        return table, list(table.snapshot(at_s, pseudo_columns=True).chunks)
