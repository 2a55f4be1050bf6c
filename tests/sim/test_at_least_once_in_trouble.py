"""At-least-once writes over real gRPC with drawn faults: what is not told of as failed is there.

Drawn are tables with columns of any type, rows good and bad, writers that share one pool, and
what goes wrong. A bundle that raises is repeated, as a runner does.
"""

import collections
import itertools
import threading
from concurrent import futures

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.codec.proto import RowDecoder, RowEncoder
from bqflink_beam.errors import ServiceError
from bqflink_beam.retry import Backoff
from bqflink_beam.schema import json as schema_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service.append import Appends
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.pool import AppendPool
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.write import StorageWrite
from bqflink_beam.testing import Emulator, Fault, Settings
from bqflink_beam.testing.strategies import rows, schemas
from bqflink_beam.write.batching import BatchBuilder
from bqflink_beam.write.default import DefaultWriter
from bqflink_beam.write.tables import prepare
from tests.sim.row_key import row_key

_AGAIN = ["UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED", "INTERNAL"]
_BUDGET_S = 0.3
_TRIES = 30
_HANGS_S = 60.0
_QUICK = Backoff(wait_initial_s=0.001, wait_max_s=0.02)
_TAG_MAX = 2
_OWN = (Field(name="id", type="INT64", mode="REQUIRED"), Field(name="tag", type="STRING"))


def _appends(**what):
    return st.builds(Fault, method=st.just("AppendRows"), nth=st.integers(1, 15), **what)


def _faults():
    when = st.sampled_from(["before", "after"])
    times = st.sampled_from([1, 1, 2, 4])
    codes = st.sampled_from(_AGAIN)
    return st.one_of(
        _appends(code=codes, when=when, times=times),
        _appends(code=codes, in_band=st.just(True), times=times),
        _appends(code=codes, when=when, retry_after_s=st.just(0.03)),
        _appends(action=st.sampled_from(["cut", "duplicate"]), when=when, times=times),
        _appends(action=st.just("delay"), when=when, times=times, delay_s=st.just(0.03)),
        # Longer than the budget, so that bundles raise.
        _appends(action=st.just("hang"), when=when, times=st.sampled_from([1, 3])),
        _appends(code=codes, when=when, times=st.just(40)),
        st.builds(
            Fault,
            method=st.sampled_from(["GetWriteStream", "tables.get"]),
            code=codes,
            when=when,
            nth=st.integers(1, 3),
        ),
    )


@st.composite
def _tables(draw):
    columns = draw(schemas(depth=1, columns_max=4))
    others = tuple(field for field in columns if field.name.lower() not in ("id", "tag"))
    values = draw(st.lists(rows(TableSchema(others)), min_size=1, max_size=3))
    return TableSchema(_OWN + others), values


_SCENARIOS = st.fixed_dictionaries(
    {
        "tables": st.lists(_tables(), min_size=1, max_size=3),
        "faults": st.lists(_faults(), max_size=4),
        # One number a row: its table, and whether its tag is too long for it.
        "bundles": st.lists(
            st.lists(st.integers(0, 11), min_size=1, max_size=40), min_size=1, max_size=4
        ),
        "writers": st.integers(1, 3),
        "batch_rows_max": st.integers(1, 20),
        "request_bytes_max": st.sampled_from([60, 300, 10_000]),
        "row_errors_max": st.sampled_from([1, 100]),
        "idle_close_s": st.sampled_from([None, None, 0.01]),
        # Before which requests the pool is closed under the writers, and another is opened.
        "closes": st.lists(st.integers(1, 60), max_size=2),
    }
)


class _QuickWrite:
    """What a pool asks of `StorageWrite`, with pauses that suit a test."""

    def __init__(self, channels, recent):
        self._channels = channels
        self._recent = recent
        self.get_stream = StorageWrite(channels, recent, backoff=_QUICK).get_stream

    def open_appends(self, **options):
        return Appends(self._channels, self._recent, backoff=_QUICK, **options)


class _Run:
    """One example: a server, its tables, and what the writers were told."""

    def __init__(self, server, scenario):
        self.server = server
        self.scenario = scenario
        self.client = server.connection.open()
        self.channels = Channels(server.connection, lambda: None)
        self.write_service = _QuickWrite(self.channels, Recent(SYSTEM_CLOCK))
        self.pool = self._new_pool()
        self.requests = itertools.count(1)
        self.schemas = {}
        self.encoders = {}
        self.columns = {}
        for index, (schema, _) in enumerate(scenario["tables"]):
            table = f"p.d.t{index}"
            resource = schema_json.to_json(schema)
            resource[1]["maxLength"] = str(_TAG_MAX)
            server.create_table(table, resource)
            self.schemas[table] = schema_json.dumps(schema)
            self.encoders[table] = RowEncoder(schema)
            self.columns[table] = schema.fields
        self.good = collections.Counter()
        self.bad = collections.Counter()
        self.failed = collections.Counter()
        self.errors = []

    def _new_pool(self):
        return AppendPool(self.write_service, budget_s=_BUDGET_S)

    def send(self, stream, descriptor, rows):
        if next(self.requests) in self.scenario["closes"]:
            closed, self.pool = self.pool, self._new_pool()
            closed.close()
        return self.pool.send(stream, descriptor, rows)

    def close(self):
        self.pool.close()
        self.channels.close()
        self.client.close()

    def bundles(self, writer):
        """The batches of each bundle; every row has an id of its own."""
        ids = itertools.count(writer * 100_000)
        for kinds in self.scenario["bundles"]:
            builders = {}
            batches = []
            for kind in kinds:
                number = kind % len(self.encoders)
                table = f"p.d.t{number}"
                values = self.scenario["tables"][number][1]
                bad = kind // 3 == 3
                row = {
                    "id": next(ids),
                    "tag": "long" if bad else "ok",
                    **values[kind % len(values)],
                }
                (self.bad if bad else self.good)[table, row_key(self.columns[table], row)] += 1
                encoder = self.encoders[table]
                builder = builders.setdefault(
                    table,
                    BatchBuilder(
                        table,
                        self.schemas[table],
                        encoder.descriptor,
                        rows_max=self.scenario["batch_rows_max"],
                        bytes_max=10_000,
                    ),
                )
                batches.append(builder.add(encoder.encode(row), 0))
            batches += [builder.take() for builder in builders.values()]
            yield [batch for batch in batches if batch is not None]

    def write(self, bundles):
        writer = DefaultWriter(
            self.send,
            prepare_table=lambda table: prepare(self.client.tables, table, None, SYSTEM_CLOCK),
            request_bytes_max=self.scenario["request_bytes_max"],
        )
        for bundle in bundles:
            for rejected in self._until_written(writer, bundle):
                batch = rejected.batch
                decoder = RowDecoder(schema_json.loads(batch.schema), batch.descriptor)
                row = decoder.decode(batch.rows[rejected.index])
                self.failed[batch.table, row_key(self.columns[batch.table], row)] += 1

    def _until_written(self, writer, bundle):
        for _ in range(_TRIES):
            writer.start_bundle()
            try:
                rejected = [row for batch in bundle for row in writer.append(batch)]
                return rejected + writer.finish()
            except ServiceError as error:
                self.errors.append(error)
        raise AssertionError(f"never written, last for {self.errors[-1]}")

    def there(self):
        return collections.Counter(
            (table, row_key(fields, row))
            for table, fields in self.columns.items()
            for row in self.server.visible_rows(table)
        )


def _threads():
    return {thread for thread in threading.enumerate() if thread.name.startswith("bqflink")}


def _no_row_is_lost(scenario):
    # Workers that a Flink of an earlier test has left behind keep theirs, and may end meanwhile.
    others = _threads()
    with Emulator(
        settings=Settings(
            row_errors_max=scenario["row_errors_max"], idle_close_s=scenario["idle_close_s"]
        )
    ) as server:
        run = _Run(server, scenario)
        work = [list(run.bundles(writer)) for writer in range(scenario["writers"])]
        for fault in scenario["faults"]:
            server.faults.add(fault)
        with futures.ThreadPoolExecutor(len(work)) as writers:
            for done in [writers.submit(run.write, bundles) for bundles in work]:
                done.result(timeout=_HANGS_S)
        run.close()
        there = run.there()

    assert run.failed == run.bad
    assert set(there) == set(run.good)
    assert not _threads() - others


@pytest.mark.parametrize(
    "examples",
    [30, pytest.param(1_500, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])],
)
def test_every_row_is_there_or_told_of_as_failed(examples):
    # Without shrinking, for what depends on the moment does not fail each time.
    checks = settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    checks(given(_SCENARIOS)(_no_row_is_lost))()
