"""The store: transactions are whole or not at all; names, expiry, schemas, partitions."""

import pyarrow as pa
import pytest

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store
from bqflink_beam.names import TableReference
from bqflink_beam.testing.clock import FakeClock

T, U = TableReference("p", "d", "t"), TableReference("p", "d", "u")
SCHEMA = {"fields": [{"name": "n", "type": "INT64"}]}


@pytest.fixture
def store() -> Store:
    store = Store(FakeClock())
    store.create_dataset("p", "d")
    return store


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(numbers)})


def rows(store: Store, reference: TableReference = T) -> list[int]:
    return [
        row["n"]
        for chunk in store.require_table(reference).snapshot().chunks
        for row in chunk.to_pylist()
    ]


def test_changes_of_several_tables_come_together(store):
    tables = [store.create_table(reference, {"schema": SCHEMA}) for reference in (T, U)]
    tables[1].append([batch(9)])

    store.commit([(tables[0], [batch(1)], "append"), (tables[1], [batch(2)], "replace")])

    assert (rows(store, T), rows(store, U)) == ([1], [2])


def test_a_transaction_with_an_error_changes_nothing(store):
    table = store.create_table(T, {"schema": SCHEMA})

    with pytest.raises(ZeroDivisionError), store.transaction() as change:
        change.append(table, [batch(1)])
        change.put_document("kind", "key", {})
        raise ZeroDivisionError

    assert rows(store) == []
    assert store.document("kind", "key") is None


def test_a_commit_to_a_dropped_table_changes_no_other(store):
    first = store.create_table(T, {"schema": SCHEMA})
    second = store.create_table(U, {"schema": SCHEMA})
    store.delete_table(U)
    store.create_table(U, {"schema": SCHEMA})

    with pytest.raises(Refused, match="Not found: Table p:d.u"):
        store.commit([(first, [batch(1)], "append"), (second, [batch(2)], "append")])

    assert (rows(store, T), rows(store, U)) == ([], [])


def test_a_table_made_in_a_transaction_takes_rows_in_it(store):
    with store.transaction() as change:
        made = change.create_table(T, {"schema": SCHEMA})
        change.append(made, [batch(1, 2)])

    assert rows(store) == [1, 2]


def test_a_table_is_made_once(store):
    store.create_table(T, {"schema": SCHEMA})

    with pytest.raises(Refused, match="Already Exists") as refused:
        store.create_table(T, {"schema": SCHEMA})

    assert (refused.value.code, refused.value.reason) == ("ALREADY_EXISTS", "duplicate")


def test_a_table_needs_its_dataset(store):
    with pytest.raises(Refused, match="Not found: Dataset p:nowhere"):
        store.create_table(TableReference("p", "nowhere", "t"), {"schema": SCHEMA})


def test_an_expired_table_is_gone_and_its_name_free(store):
    expiration = str(int((store.clock.now_s() + 60) * 1000))
    store.create_table(T, {"schema": SCHEMA, "expirationTime": expiration}).append([batch(1)])

    store.clock.advance(61)

    assert store.get_table(T) is None
    assert store.list_tables("p", "d") == []
    store.create_table(T, {"schema": SCHEMA})
    assert rows(store) == []


def test_a_dataset_gives_its_tables_an_expiry(store):
    store.create_dataset("p", "short", {"defaultTableExpirationMs": "3600000"})
    reference = TableReference("p", "short", "t")
    store.create_table(reference, {"schema": SCHEMA})

    store.clock.advance(3601)

    assert store.get_table(reference) is None


def test_a_dataset_with_tables_is_not_dropped_by_accident(store):
    store.create_table(T, {"schema": SCHEMA})

    with pytest.raises(Refused, match="still in use"):
        store.delete_dataset("p", "d")
    store.delete_dataset("p", "d", delete_contents=True)

    assert store.get_dataset("p", "d") is None
    assert store.get_table(T) is None


def test_older_rows_have_null_in_newer_columns(store):
    nested = {"name": "s", "type": "RECORD", "fields": [{"name": "a", "type": "INT64"}]}
    table = store.create_table(T, {"schema": {"fields": [SCHEMA["fields"][0], nested]}})
    table.append([pa.RecordBatch.from_pylist([{"n": 1, "s": {"a": 1}}, {"n": 2, "s": None}])])
    wider = {**nested, "fields": [*nested["fields"], {"name": "b", "type": "STRING"}]}
    fields = [SCHEMA["fields"][0], wider, {"name": "r", "type": "STRING", "mode": "REPEATED"}]

    store.update_table(table, {**table.resource, "schema": {"fields": fields}})

    assert table.snapshot().to_table().to_pylist() == [
        {"n": 1, "s": {"a": 1, "b": None}, "r": []},
        {"n": 2, "s": None, "r": []},
    ]


def test_a_change_of_metadata_changes_the_etag(store):
    table = store.create_table(T, {"schema": SCHEMA})
    before = table.etag

    store.update_table(table, {**table.resource, "description": "new"})

    assert table.etag != before
    assert table.resource["description"] == "new"


def test_rows_of_a_partition_decorator_are_in_that_partition(store):
    table = store.create_table(T, {"schema": SCHEMA, "timePartitioning": {"type": "DAY"}})

    store.commit([(TableReference("p", "d", "t$20200131"), [batch(1)], "append")])
    table.append([batch(2)])

    (first, second) = table.snapshot(pseudo_columns=True).to_table().to_pylist()
    assert first["_PARTITIONTIME"].isoformat() == "2020-01-31T00:00:00+00:00"
    assert second["_PARTITIONTIME"].isoformat() == "2023-11-14T00:00:00+00:00"
    assert table.snapshot().arrow_schema.names == ["n"]


def test_a_bad_partition_decorator_is_refused(store):
    store.create_table(T, {"schema": SCHEMA, "timePartitioning": {"type": "DAY"}})

    with pytest.raises(Refused, match="decorator"):
        store.commit([(TableReference("p", "d", "t$2020-01"), [batch(1)], "append")])


def test_counts_are_in_the_resource(store):
    table = store.create_table(T, {"schema": SCHEMA})

    table.append([batch(1, 2, 3)])

    assert table.resource["numRows"] == "3"
    assert int(table.resource["numBytes"]) >= 24


def test_a_snapshot_before_the_table_is_refused(store):
    table = store.create_table(T, {"schema": SCHEMA})

    with pytest.raises(Refused, match="Invalid snapshot time"):
        table.snapshot(store.clock.now_s() - 1)
