"""Default-stream connections: few, shared by tables, more only under load."""

import collections
import threading

import pytest
from google.cloud.bigquery_storage_v1 import types

from bqflink_beam.errors import NotFoundError, OutcomeUnknownError, PermanentError
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service import table_schema
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.pool import AppendPool
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.write import StorageWrite
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_storage import (
    CUT_BEFORE,
    DEFAULT,
    DESCRIPTOR,
    LOST_ANSWER,
    OK,
    SILENCE,
    React,
    end,
    refuse,
)


@pytest.fixture
def pool(storage, opened):
    channels = opened(Channels(storage.connection, lambda: None))
    write = StorageWrite(channels, Recent(FakeClock()))
    return opened(AppendPool(write, connections_max=3, budget_s=20.0))


def stream_of(table):
    return f"projects/p/datasets/d/tables/{table}/streams/_default"


def test_tables_share_one_connection(storage, pool):
    tickets = [pool.send(stream_of(f"t{n % 5}"), DESCRIPTOR, [b"%d" % n]) for n in range(50)]

    assert [ticket.result() for ticket in tickets] == [None] * 50
    assert pool.connections == 1
    assert len(storage.calls) == 1
    expected = {stream_of(f"t{t}"): [b"%d" % n for n in range(t, 50, 5)] for t in range(5)}
    assert dict(storage.streams) == expected


def test_shared_call_is_routed_by_the_tables_region_which_is_asked_once(storage, pool):
    storage.unary_script.append(types.WriteStream.pb()(name=DEFAULT, location="eu"))

    for _ in range(3):
        pool.send(DEFAULT, DESCRIPTOR, [b"a"]).result()

    assert storage.calls[0]["x-goog-request-params"] == (
        "write_location=projects%2Fp%2Flocations%2Feu"
    )
    assert [name for name, _, _ in storage.unary_requests] == ["GetWriteStream"]


def test_a_connection_that_has_failed_is_replaced(storage, pool):
    pool.send(DEFAULT, DESCRIPTOR, [b"a"]).result()
    (failed,) = [appends for group in pool._connections.values() for appends in group]
    failed.close()

    pool.send(DEFAULT, DESCRIPTOR, [b"b"]).result()

    assert storage.streams[DEFAULT] == [b"a", b"b"]
    assert pool.connections == 1


def test_regions_do_not_share(storage, pool):
    for location in ("eu", "us"):
        storage.unary_script.append(types.WriteStream.pb()(location=location))
        pool.send(stream_of(location), DESCRIPTOR, [b"a"]).result()

    assert pool.connections == 2


def test_load_opens_more_connections_up_to_the_limit_and_no_row_is_lost(storage, pool):
    big = b"x" * (1024 * 1024)

    tickets = [pool.send(DEFAULT, DESCRIPTOR, [b"%03d" % n + big]) for n in range(120)]

    assert [ticket.result() for ticket in tickets] == [None] * 120
    assert 1 < pool.connections <= 3
    rows = collections.Counter(row[:3] for row in storage.streams[DEFAULT])
    assert rows == {b"%03d" % n: 1 for n in range(120)}


def test_missing_table_is_an_error_at_its_first_row(storage, pool):
    storage.unary_script.append(end("NOT_FOUND"))

    with pytest.raises(NotFoundError) as caught:
        pool.send(DEFAULT, DESCRIPTOR, [b"a"])
    assert caught.value.table == "p.d.t"


def test_schema_told_on_any_connection_is_found(storage, pool):
    schema = TableSchema((Field(name="new", type="STRING"),))
    storage.script.append(React(schema=table_schema.to_message(schema)))

    pool.send(DEFAULT, DESCRIPTOR, [b"a"]).result()

    assert pool.updated_schema(DEFAULT) == schema
    assert pool.updated_schema(stream_of("other")) is None


def test_closed_pool_leaves_nobody_waiting_and_takes_no_more(storage, pool):
    storage.script.append(SILENCE)
    ticket = pool.send(DEFAULT, DESCRIPTOR, [b"a"])

    pool.close()

    with pytest.raises(OutcomeUnknownError):
        ticket.result()
    with pytest.raises(PermanentError, match="closed"):
        pool.send(DEFAULT, DESCRIPTOR, [b"a"])
    assert pool.connections == 0


def test_last_client_to_close_ends_the_pools_threads(storage):
    def threads():
        return {thread for thread in threading.enumerate() if thread.name == "bqflink-append"}

    others = threads()
    client = storage.connection.open()
    client.pool.send(DEFAULT, DESCRIPTOR, [b"a"]).result()

    client.close()

    assert not threads() - others


def test_many_threads_and_breaking_calls_lose_no_row(storage, pool):
    storage.script.extend([OK, OK, LOST_ANSWER, OK, CUT_BEFORE, OK, refuse("INTERNAL")] * 20)
    failed = []

    def send(thread):
        tickets = [
            pool.send(stream_of(f"t{n % 3}"), DESCRIPTOR, [b"%d.%d" % (thread, n)])
            for n in range(50)
        ]
        failed.extend(ticket for ticket in tickets if ticket.result() is not None)

    senders = [threading.Thread(target=send, args=(thread,)) for thread in range(8)]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(60)

    landed = {row for rows in storage.streams.values() for row in rows}
    assert failed == []
    assert landed == {b"%d.%d" % (thread, n) for thread in range(8) for n in range(50)}


def test_clients_of_one_connection_share_the_pool(storage, opened):
    first, second = opened(storage.connection.open()), opened(storage.connection.open())

    assert first.pool is second.pool
