"""BigQuery I/O for Apache Beam in Python: Storage Read and Write, exactly once on Flink.

    import bqflink_beam as bq

    rows = p | bq.ReadFromBigQueryStorage("project.dataset.table")
    rows | bq.WriteToBigQueryStorage("project.dataset.other")

What is named here is public; everything else may change. Names are imported when they
are first used, so that the command line and the embedded BigQuery start without Beam.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bqflink_beam.codec.values import Interval as Interval
    from bqflink_beam.codec.values import Range as Range
    from bqflink_beam.errors import BqflinkError as BqflinkError
    from bqflink_beam.errors import ConfigError as ConfigError
    from bqflink_beam.errors import RowError as RowError
    from bqflink_beam.filters import Predicate as Predicate
    from bqflink_beam.filters import col as col
    from bqflink_beam.filters import partitions as partitions
    from bqflink_beam.names import TableReference as TableReference
    from bqflink_beam.schema.model import Field as Field
    from bqflink_beam.schema.model import TableSchema as TableSchema
    from bqflink_beam.service.connection import Connection as Connection
    from bqflink_beam.service.credentials import AccessToken as AccessToken
    from bqflink_beam.service.credentials import Anonymous as Anonymous
    from bqflink_beam.service.credentials import ApplicationDefault as ApplicationDefault
    from bqflink_beam.service.credentials import Impersonate as Impersonate
    from bqflink_beam.service.credentials import ServiceAccountFile as ServiceAccountFile
    from bqflink_beam.service.credentials import ServiceAccountJson as ServiceAccountJson
    from bqflink_beam.transforms.failed import FailedRow as FailedRow
    from bqflink_beam.transforms.read import ReadFromBigQueryStorage as ReadFromBigQueryStorage
    from bqflink_beam.transforms.write import WriteToBigQueryStorage as WriteToBigQueryStorage
    from bqflink_beam.write.commit import CommitReport as CommitReport
    from bqflink_beam.write.flush import LostStream as LostStream
    from bqflink_beam.write.options import AtLeastOnce as AtLeastOnce
    from bqflink_beam.write.options import CreateTable as CreateTable
    from bqflink_beam.write.options import ExactlyOnce as ExactlyOnce

_HOMES = {
    "AccessToken": "service.credentials",
    "Anonymous": "service.credentials",
    "ApplicationDefault": "service.credentials",
    "AtLeastOnce": "write.options",
    "BqflinkError": "errors",
    "CommitReport": "write.commit",
    "ConfigError": "errors",
    "Connection": "service.connection",
    "CreateTable": "write.options",
    "ExactlyOnce": "write.options",
    "FailedRow": "transforms.failed",
    "Field": "schema.model",
    "Impersonate": "service.credentials",
    "Interval": "codec.values",
    "LostStream": "write.flush",
    "Predicate": "filters",
    "Range": "codec.values",
    "ReadFromBigQueryStorage": "transforms.read",
    "RowError": "errors",
    "ServiceAccountFile": "service.credentials",
    "ServiceAccountJson": "service.credentials",
    "TableReference": "names",
    "TableSchema": "schema.model",
    "WriteToBigQueryStorage": "transforms.write",
    "col": "filters",
    "partitions": "filters",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'bqflink_beam' has no attribute {name!r}")
    return getattr(importlib.import_module(f"bqflink_beam.{home}"), name)


def __dir__() -> list[str]:
    return __all__
