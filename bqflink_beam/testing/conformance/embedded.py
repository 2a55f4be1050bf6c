"""The embedded BigQuery as the suites see it: without a network, or over gRPC."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import grpc

from bqflink_beam.emulator.faults import Call
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.rpc import status_of
from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.names import TableReference
from bqflink_beam.testing.clock import FakeClock
from bqflink_beam.testing.conformance.kit import (
    READ,
    WRITE,
    BigQuery,
    DirectTransport,
    GrpcTransport,
    Transport,
)

SETTINGS = Settings(response_rows_max=10, streams_min=3)
"""Small answers and several streams, so that small tables show what large ones do."""


@contextlib.contextmanager
def direct(settings: Settings = SETTINGS) -> Iterator[BigQuery]:
    """The services of a server that never opens a port."""
    clock = FakeClock()
    server = EmulatorServer(clock=clock, settings=settings)
    transport = DirectTransport({READ: server.read, WRITE: server.write}, Call, Refused, status_of)
    yield _bigquery(server, clock, transport)


@contextlib.contextmanager
def served(settings: Settings = SETTINGS) -> Iterator[BigQuery]:
    """A server and a channel to it."""
    clock = FakeClock()
    with (
        EmulatorServer(clock=clock, settings=settings) as server,
        grpc.insecure_channel(
            server.storage_endpoint,
            options=(("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)),
        ) as channel,
    ):
        yield _bigquery(server, clock, GrpcTransport(channel))


def _bigquery(server: EmulatorServer, clock: FakeClock, transport: Transport) -> BigQuery:
    numbers = itertools.count()
    server.create_dataset("test-project", "conformance")

    def make_table(fields: Any, **resource: Any) -> TableReference:
        reference = TableReference("test-project", "conformance", f"t{next(numbers)}")
        schema = {"schema": {"fields": fields}} if fields is not None else {}
        server.store.create_table(reference, {**resource, **schema})
        return reference

    def patch_table(reference: TableReference, changed: Mapping[str, Any]) -> None:
        table = server.store.require_table(reference)
        server.store.update_table(table, {**table.resource, **changed})

    return BigQuery(
        transport, make_table, patch_table, server.store.delete_table, clock.advance, clock.now_s
    )
