"""Whole pipelines as they come: any schema, rows, method, windows, faults; written, then read."""

import collections
import functools
import keyword

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import BeamAssertException, assert_that
from apache_beam.transforms.window import (
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    TimestampedValue,
)
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

import bqflink_beam as bq
from bqflink_beam.codec.arrow import BatchDecoder
from bqflink_beam.schema import json as schema_json
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.testing import Emulator, Fault, Settings
from bqflink_beam.testing.strategies import rows, schemas
from tests.sim.row_key import row_key
from tests.transforms.sources import replay

TABLES = ("p.d.t0", "p.d.t1")
_ID = Field(name="id", type="INT64", mode="REQUIRED")
_WINDOWS = [None, GlobalWindows(), FixedWindows(7), SlidingWindows(20, 5), Sessions(3)]
_METHODS = ["AtLeastOnce", "ExactlyOnce", "sharded", "unbounded"]


def _faults(methods, **what):
    return st.builds(
        Fault,
        method=st.sampled_from(methods),
        code=st.just("UNAVAILABLE"),
        when=st.sampled_from(["before", "after"]),
        nth=st.integers(1, 4),
        **what,
    )


_WRITE_FAULTS = _faults(
    ["AppendRows", "AppendRows", "AppendRows", "CreateWriteStream", "FinalizeWriteStream"]
    + ["BatchCommitWriteStreams", "FlushRows", "GetWriteStream", "jobs.insert", "tables.get"]
)
_READ_FAULTS = st.one_of(
    _faults(["ReadRows", "CreateReadSession", "jobs.get", "tables.get"]),
    st.builds(
        Fault,
        method=st.just("ReadRows"),
        action=st.just("cut"),
        nth=st.integers(1, 2),
        times=st.integers(1, 3),
        after_responses=st.sampled_from([1, 2, 1, 0]),
    ),
)


@st.composite
def scenarios(draw):
    drawn = draw(schemas(depth=2, columns_max=5))
    schema = TableSchema((_ID, *(each for each in drawn if each.name.lower() != "id")))
    others = TableSchema(schema.fields[1:])
    values = draw(st.lists(rows(others), min_size=1, max_size=4))
    count = draw(st.sampled_from([0, 3, *range(15, 31)]))
    return {
        "schema": schema,
        "rows": [{"id": index, **values[index % len(values)]} for index in range(count)],
        "kind": draw(st.sampled_from(["dict", "row", "namedtuple"])),
        "method": draw(st.sampled_from(_METHODS)),
        "batch_rows_max": draw(st.integers(1, 12)),
        "bad": draw(st.integers(0, 5)),
        "tables": draw(st.integers(1, 2)),
        "windows": draw(st.sampled_from(_WINDOWS)),
        "write_faults": draw(st.lists(_WRITE_FAULTS, max_size=2)),
        "read_faults": draw(st.lists(_READ_FAULTS, min_size=1, max_size=3)),
        "response_rows_max": draw(st.integers(1, 5)),
        "streams_min": draw(st.sampled_from([1, 2, 1, 3])),
        "columns": draw(st.none() | st.sets(st.sampled_from([each.name for each in schema]))),
        "below": draw(st.sampled_from([None, None, 25, 10])),
        # The embedded BigQuery has no TIMESTAMP(12) in SQL.
        "by_query": "timestamp_precision=12" not in repr(schema) and draw(st.booleans()),
        "output": draw(st.sampled_from(["dict", "arrow"])),
        "piece": draw(st.sampled_from([None, 7, None, 2, None])),
    }


def pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--project=p", *flags]))


class _Of:
    """Makes what the user's pipeline has of a dict: itself, a `beam.Row`, a NamedTuple."""

    def __init__(self, kind, names):
        plain = all(
            name.isidentifier()
            and name != "self"
            and not name.startswith("_")
            and not keyword.iskeyword(name)
            for name in names
        )
        self._kind = kind if plain else "dict"
        self._names = names

    def __call__(self, row):
        if self._kind == "row":
            return beam.Row(**row)
        if self._kind == "namedtuple":
            return _record(tuple(self._names))(**row)
        return row


@functools.cache
def _record(names):
    """A NamedTuple class that pickles, as a user's does: it is found in this module."""
    name = f"Record{abs(hash(names))}"
    record = collections.namedtuple(name, names)  # noqa: PYI024
    globals()[name] = record
    return record


def _table_of(row):
    row = row if isinstance(row, dict) else row._asdict()
    return TABLES[row["id"] % 2 if isinstance(row["id"], int) else 0]


class _Rows:
    def __init__(self, rows):
        self._rows = rows

    def __call__(self, partition, index):
        return self._rows[index]


def are(fields, expected):
    """Matches rows as a multiset of values and types."""
    wanted = collections.Counter(row_key(fields, row) for row in expected)

    def matches(actual):
        came = collections.Counter(row_key(fields, row) for row in actual)
        if came != wanted:
            raise BeamAssertException(f"lost {wanted - came}, too many {came - wanted}")

    return matches


def _method(drawn):
    size = {"batch_rows_max": drawn["batch_rows_max"]}
    if drawn["method"] == "AtLeastOnce":
        return bq.AtLeastOnce(**size)
    shards = 3 if drawn["method"] == "sharded" else None
    return bq.ExactlyOnce(**size, shards=shards, register_location="US")


def _write(server, drawn):
    bad = [{**drawn["rows"][0], "id": "x"}] * drawn["bad"] if drawn["rows"] else []
    given_rows = [*drawn["rows"], *bad]
    names = [field.name for field in drawn["schema"]]
    with pipeline() as p:
        if drawn["method"] == "unbounded":
            source = replay(p, _Rows(given_rows), len(given_rows), pause_s=0)
        else:
            source = p | beam.Create(given_rows)
        if drawn["windows"] is not None:
            source = (
                source
                | beam.Map(lambda row: TimestampedValue(row, hash(row["id"]) % 1_000))
                | beam.WindowInto(drawn["windows"])
            )
        result = (
            source
            | beam.Map(_Of(drawn["kind"], names))
            | bq.WriteToBigQueryStorage(
                TABLES[0] if drawn["tables"] == 1 else _table_of,
                connection=server.connection,
                method=_method(drawn),
                on_failed_row="output",
            )
        )
        failed = result.failed_rows | beam.Map(
            lambda each: each.row if isinstance(each.row, dict) else each.row._asdict()
        )
        text_ids = (Field(name="id", type="STRING"), *drawn["schema"].fields[1:])
        assert_that(failed, are(text_ids, bad))


def _read(server, drawn, table, expected):
    fields = drawn["schema"].fields
    options = {"connection": bq.Connection(**{**vars(server.connection), "billing_project": "p"})}
    if drawn["below"] is not None:
        options["row_filter"] = bq.col("id") < drawn["below"]
        expected = [row for row in expected if row["id"] < drawn["below"]]
    if drawn["columns"]:
        options["columns"] = sorted(drawn["columns"])
        fields = [field for field in fields if field.name in drawn["columns"]]
    if drawn["by_query"]:
        options["query"] = f"SELECT * FROM `{table}`"
    else:
        options["table"] = table
    flags = []
    if drawn["piece"] is not None:
        flags.append("--streaming")
        options["checkpoint_every_rows"] = drawn["piece"]
    with pipeline(*flags) as p:
        came = p | bq.ReadFromBigQueryStorage(output=drawn["output"], **options)
        if drawn["output"] == "arrow":
            came = came | beam.FlatMap(lambda batch: BatchDecoder(batch.schema).rows(batch))
        assert_that(came, are(fields, expected))


def _is_the_identity(drawn):
    event(f"{drawn['method']} {drawn['kind']}")
    knobs = Settings(response_rows_max=drawn["response_rows_max"], streams_min=drawn["streams_min"])
    with Emulator(settings=knobs) as server:
        for table in TABLES:
            server.create_table(table, schema_json.to_json(drawn["schema"]))
        for fault in drawn["write_faults"]:
            server.faults.add(fault)
        _write(server, drawn)
        server.faults.clear()
        for number, table in enumerate(TABLES):
            in_table = [
                row
                for row in drawn["rows"]
                if (row["id"] % 2 if drawn["tables"] == 2 else 0) == number
            ]
            stored = collections.Counter(
                row_key(drawn["schema"], row) for row in server.visible_rows(table)
            )
            wanted = collections.Counter(row_key(drawn["schema"], row) for row in in_table)
            if drawn["method"] == "AtLeastOnce":
                assert set(stored) == set(wanted)
                in_table = server.visible_rows(table)
            else:
                assert stored == wanted
            for fault in drawn["read_faults"]:
                server.faults.add(fault)
            _read(server, drawn, table, in_table)
            server.faults.clear()


@pytest.mark.parametrize(
    "examples", [15, pytest.param(500, marks=[pytest.mark.long, pytest.mark.timeout(3_600)])]
)
def test_what_is_written_is_read(examples):
    checks = settings(
        max_examples=examples,
        deadline=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    checks(given(scenarios())(_is_the_identity))()
