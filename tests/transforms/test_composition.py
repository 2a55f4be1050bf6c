"""Reads and writes among other transforms, put together as users do."""

import collections
import dataclasses

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

import bqflink_beam as bq
from bqflink_beam.testing import Emulator, Settings

TABLE, VIEW = "p.d.t", "p.d.v"
INNER = [{"name": "c", "type": "STRING"}, {"name": "d", "type": "STRING"}]
FIELDS = [
    {"name": "id", "type": "INT64"},
    {
        "name": "s",
        "type": "STRUCT",
        "mode": "REPEATED",
        "fields": [{"name": "b", "type": "STRUCT", "fields": INNER}],
    },
]
ROWS = [{"id": index, "s": [{"b": {"c": "x", "d": str(index)}}] * 2} for index in range(20)]


@pytest.fixture
def server():
    with Emulator(settings=Settings(streams_min=3, response_rows_max=4)) as emulator:
        emulator.create_table(TABLE, FIELDS)
        yield emulator


def pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--project=p", *flags]))


def write(server, **options):
    return bq.WriteToBigQueryStorage(TABLE, connection=server.connection, **options)


def read(server, table=TABLE, **options):
    connection = dataclasses.replace(server.connection, billing_project="p")
    return bq.ReadFromBigQueryStorage(table, connection=connection, **options)


@pytest.fixture
def filled(server):
    with pipeline() as p:
        p | beam.Create(ROWS) | write(server)
    return server


def times_by_id(server):
    return collections.Counter(row["id"] for row in server.visible_rows(TABLE))


class _Load(beam.PTransform):
    """A user's own transform around a write."""

    def __init__(self, server):
        super().__init__()
        self._connection = server.connection

    def expand(self, rows):
        return (
            rows
            | beam.Map(dict)
            | bq.WriteToBigQueryStorage(TABLE, connection=self._connection, on_failed_row="output")
        )


def test_a_write_inside_another_transform_gives_its_failed_rows(server):
    bad = {"id": "x"}

    with pipeline() as p:
        result = p | beam.Create([*ROWS, bad]) | _Load(server)
        assert_that(result.failed_rows | beam.Map(lambda each: each.row), equal_to([bad]))

    assert times_by_id(server) == dict.fromkeys(range(20), 1)


def test_failed_rows_of_several_writes_are_flattened_and_written(server):
    dead = [
        {"name": name, "type": kind}
        for name, kind in [("table", "STRING"), ("row", "JSON"), ("error", "STRING")]
        + [("column", "STRING"), ("timestamp_us", "INT64")]
    ]
    server.create_table("p.d.dead", dead)

    with pipeline() as p:
        first = (
            p
            | "First" >> beam.Create([{"id": "x"}])
            | "W1" >> write(server, on_failed_row="output")
        )
        second = (
            p
            | "Second" >> beam.Create([{"id": "y"}])
            | "W2" >> write(server, on_failed_row="output", method=bq.AtLeastOnce())
        )
        (
            (first.failed_rows, second.failed_rows)
            | beam.Flatten()
            | bq.WriteToBigQueryStorage("p.d.dead", connection=server.connection)
        )

    assert sorted(row["row"] for row in server.visible_rows("p.d.dead")) == [
        '{"id":"x"}',
        '{"id":"y"}',
    ]


def test_a_table_is_read_and_written_in_one_pipeline_from_one_snapshot(filled):
    with pipeline() as p:
        p | read(filled) | write(filled)

    assert times_by_id(filled) == dict.fromkeys(range(20), 2)


def test_two_writes_of_one_input_each_write(server):
    with pipeline() as p:
        rows = p | beam.Create(ROWS)
        rows | "Once" >> write(server)
        rows | "Again" >> write(server, method=bq.AtLeastOnce())

    assert times_by_id(server) == dict.fromkeys(range(20), 2)


def test_a_read_is_a_side_input_and_an_empty_one_too(filled):
    filled.create_table("p.d.empty", FIELDS)

    with pipeline() as p:
        full = beam.pvalue.AsList(p | read(filled))
        empty = beam.pvalue.AsIter(p | read(filled, "p.d.empty"))
        sizes = p | beam.Create([0]) | beam.Map(lambda _, a, b: (len(a), len(list(b))), full, empty)
        assert_that(sizes, equal_to([(20, 0)]))


def test_columns_inside_structs_are_cut_out_of_tables_and_views(filled):
    client = filled.connection.open()
    view = {"view": {"query": "SELECT x.s, x.id FROM `p.d.t` x", "useLegacySql": False}}
    client.tables.create(bq.TableReference.parse(VIEW), view)
    client.close()
    cut = {"columns": ["s.b.d", "ID"], "row_filter": "id < 3"}

    with pipeline() as p:
        expected = [{"id": index, "s": [{"b": {"d": str(index)}}] * 2} for index in range(3)]
        assert_that(p | read(filled, **cut), equal_to(expected), label="Table")
        assert_that(p | read(filled, VIEW, **cut), equal_to(expected), label="View")


def test_a_pipeline_that_was_not_waited_for_has_written_when_it_is(server):
    p = pipeline()
    p | beam.Create(ROWS) | write(server)

    assert p.run().wait_until_finish() == "DONE"
    assert times_by_id(server) == dict.fromkeys(range(20), 1)


@pytest.mark.parametrize("elements", [["a"], [1], [("key", {"id": 1})], [[{"id": 1}]]])
def test_elements_that_are_no_rows_are_refused_while_the_pipeline_is_built(server, elements):
    rows = pipeline() | beam.Create(elements)

    with pytest.raises(bq.ConfigError, match="rows are dicts"):
        rows | write(server)


def test_batches_that_were_read_are_refused_as_rows_while_the_pipeline_is_built(filled):
    batches = pipeline() | read(filled, output="arrow")

    assert batches.element_type is pa.RecordBatch
    with pytest.raises(bq.ConfigError, match="RecordBatch"):
        batches | write(filled)


@pytest.mark.long
def test_workers_that_are_processes_write_and_read(server):
    flags = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")

    with pipeline(*flags) as p:
        result = (
            p
            | beam.Create([*ROWS, {"id": "x"}])
            | beam.Reshuffle()
            | write(server, on_failed_row="output")
        )
        assert_that(result.failed_rows | beam.Map(lambda each: each.row), equal_to([{"id": "x"}]))
    with pipeline(*flags) as p:
        assert_that(p | read(server), equal_to(ROWS))
