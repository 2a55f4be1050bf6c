"""The token bucket, the memory of what was just made, and the schema message."""

import threading

import pytest
from google.cloud.bigquery_storage_v1 import types
from hypothesis import given
from hypothesis import strategies as st

from bqflink_beam.errors import ConfigError
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service import table_schema
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.token_bucket import TokenBucket
from bqflink_beam.testing.clock import FakeClock


@given(
    pauses_s=st.lists(st.floats(0, 3), min_size=1, max_size=60),
    per_second=st.floats(0.5, 50),
    burst=st.integers(1, 10),
)
def test_never_more_than_burst_and_rate_allow_in_any_stretch_of_time(pauses_s, per_second, burst):
    clock = FakeClock(0.0)
    bucket = TokenBucket(per_second=per_second, burst=burst, clock=clock)
    taken_s = []

    for pause_s in pauses_s:
        clock.advance(pause_s)
        bucket.take()
        taken_s.append(clock.monotonic_s())

    for first, start_s in enumerate(taken_s):
        for last in range(first, len(taken_s)):
            allowed = burst + (taken_s[last] - start_s) * per_second
            assert last - first + 1 <= allowed + 1e-6


def test_burst_waits_for_nothing_and_the_next_one_for_its_share():
    clock = FakeClock(0.0)
    bucket = TokenBucket(per_second=2.0, burst=3, clock=clock)

    for _ in range(5):
        bucket.take()

    assert clock.slept == pytest.approx([0.5, 0.5])


def test_threads_get_moments_of_their_own():
    class Still(FakeClock):
        """Time does not move, whoever sleeps."""

        def sleep(self, seconds):
            self.slept.append(seconds)

    clock = Still()
    bucket = TokenBucket(per_second=10.0, burst=1, clock=clock)
    threads = [threading.Thread(target=bucket.take) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(clock.slept) == pytest.approx([n / 10 for n in range(1, 20)])


def test_what_was_just_made_is_young_for_a_minute():
    clock = FakeClock()
    recent = Recent(clock)
    recent.created("projects/p/datasets/d/tables/t")

    young = [
        recent.is_young("projects/p/datasets/d/tables/t"),
        recent.is_young("projects/p/datasets/d/tables/t/streams/s"),
        recent.is_young("projects/p/datasets/d/tables/other"),
    ]
    clock.advance(61)

    assert young == [True, True, False]
    assert not recent.is_young("projects/p/datasets/d/tables/t")


def test_streams_have_less_time_than_tables_to_appear():
    clock = FakeClock()
    recent = Recent(clock)
    recent.created("projects/p/datasets/d/tables/t/streams/s")
    clock.advance(11)

    assert not recent.is_young("projects/p/datasets/d/tables/t/streams/s")


def test_what_was_seen_is_not_young_any_more():
    recent = Recent(FakeClock())
    table, stream = "projects/p/datasets/d/tables/t", "projects/p/datasets/d/tables/t/streams/s"
    recent.created(table)
    recent.created(stream)

    recent.seen(stream)

    assert not recent.is_young(stream)
    assert not recent.is_young(table)


def test_memory_of_what_was_made_does_not_grow():
    clock = FakeClock()
    recent = Recent(clock)
    for n in range(1000):
        recent.created(f"projects/p/datasets/d/tables/t{n}")
        clock.advance(1)

    assert len(recent._until_s) <= 62


_SCALARS = (
    "STRING", "BYTES", "INT64", "FLOAT64", "BOOL", "NUMERIC", "BIGNUMERIC", "DATE", "TIME",
    "DATETIME", "TIMESTAMP", "JSON", "GEOGRAPHY", "INTERVAL",
)  # fmt: skip


def test_schema_message_keeps_every_type_and_parameter():
    columns = [Field(name=kind.lower(), type=kind, mode="REQUIRED") for kind in _SCALARS]
    columns += [
        Field(name="range", type="RANGE", range_element_type="DATETIME"),
        Field(name="text", type="STRING", max_length=10, description="words"),
        Field(name="exact", type="NUMERIC", precision=12, scale=3, default_value_expression="1.5"),
        Field(name="picos", type="TIMESTAMP", timestamp_precision=12),
        Field(
            name="nested",
            type="STRUCT",
            mode="REPEATED",
            fields=(Field(name="deep", type="STRUCT", fields=(Field(name="x", type="BOOL"),)),),
        ),
    ]
    schema = TableSchema(tuple(columns))

    message = table_schema.to_message(schema)

    assert table_schema.from_message(message) == schema
    by_name = {field.name: field for field in message.fields}
    kinds = types.TableFieldSchema.Type
    assert by_name["float64"].type_ == kinds.DOUBLE.value
    assert by_name["range"].range_element_type.type_ == kinds.DATETIME.value
    assert by_name["nested"].mode == types.TableFieldSchema.Mode.REPEATED.value


def test_column_of_a_type_from_the_future_is_named():
    message = types.TableSchema.pb()()
    message.fields.add(name="a", type_=999)

    with pytest.raises(ConfigError, match="999"):
        table_schema.from_message(message)
