"""What BigQuery does, as tests with named sources: subclass a suite, give it a service.

    class TestMyServer(WriteConformance, ReadConformance):
        @pytest.fixture
        def bigquery(self):
            yield kit.BigQuery(...)

The same text runs on the embedded BigQuery and on the real one, so what the embedded
one is believed to do can be checked where it counts.
"""

from bqflink_beam.testing.conformance.appends import (
    BadRowConformance,
    DefaultStreamConformance,
    OffsetConformance,
    PartitionConformance,
)
from bqflink_beam.testing.conformance.arrows import ArrowValueConformance
from bqflink_beam.testing.conformance.avro import AvroConformance, ParameterConformance
from bqflink_beam.testing.conformance.changes import ChangeConformance
from bqflink_beam.testing.conformance.commits import CommitConformance, FlushConformance
from bqflink_beam.testing.conformance.connections import ConnectionConformance
from bqflink_beam.testing.conformance.jobs import JobConformance
from bqflink_beam.testing.conformance.kit import BigQuery, Rule, rule, rules_of
from bqflink_beam.testing.conformance.reads import ReadRowsConformance, SplitConformance
from bqflink_beam.testing.conformance.schemas import (
    MissingValueConformance,
    WriterSchemaConformance,
)
from bqflink_beam.testing.conformance.selection import SelectionConformance
from bqflink_beam.testing.conformance.sessions import ArrowSchemaConformance, SessionConformance
from bqflink_beam.testing.conformance.streams import (
    CreateWriteStreamConformance,
    FinalizeConformance,
)
from bqflink_beam.testing.conformance.values import ProtoValueConformance


class WriteConformance(
    CreateWriteStreamConformance,
    FinalizeConformance,
    FlushConformance,
    CommitConformance,
    DefaultStreamConformance,
    OffsetConformance,
    ConnectionConformance,
    PartitionConformance,
    BadRowConformance,
    WriterSchemaConformance,
    MissingValueConformance,
    ProtoValueConformance,
    ArrowValueConformance,
    ChangeConformance,
):
    """Storage Write: everything that delivery stands on."""


class ReadConformance(
    SessionConformance,
    ReadRowsConformance,
    SplitConformance,
    SelectionConformance,
    ArrowSchemaConformance,
    AvroConformance,
    ParameterConformance,
):
    """Storage Read: everything that resuming and splitting stand on."""


__all__ = [
    "BigQuery",
    "JobConformance",
    "ReadConformance",
    "Rule",
    "WriteConformance",
    "rule",
    "rules_of",
]
