"""`ReadFromBigQueryStorage` on the FnApiRunner and the embedded BigQuery: each row once, as it is."""

import collections
import datetime
import decimal
import json
import socket

import apache_beam as beam
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.testing.util import assert_that, equal_to, is_empty
from apache_beam.transforms.display import DisplayData
from apache_beam.typehints import typehints

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.emulator.faults import Fault
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.errors import BqflinkError, ConfigError, SessionExpiredError
from bqflink_beam.names import TableReference

TABLE = "p.d.t"
UTC = datetime.timezone.utc
FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "name", "type": "STRING"},
    {"name": "ok", "type": "BOOL"},
    {"name": "ratio", "type": "FLOAT64"},
    {"name": "raw", "type": "BYTES"},
    {"name": "amount", "type": "NUMERIC"},
    {"name": "day", "type": "DATE"},
    {"name": "clock", "type": "TIME"},
    {"name": "local", "type": "DATETIME"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "doc", "type": "JSON"},
    {"name": "tags", "type": "STRING", "mode": "REPEATED"},
    {
        "name": "address",
        "type": "STRUCT",
        "fields": [
            {"name": "city", "type": "STRING"},
            {"name": "zip", "type": "INT64"},
            {"name": "past", "type": "INT64", "mode": "REPEATED"},
        ],
    },
]


def row(index):
    if index % 5 == 0:
        nothing = {field["name"]: None for field in FIELDS}
        return {**nothing, "id": index, "tags": []}
    return {
        "id": index,
        "name": f"näme {index}",
        "ok": index % 2 == 0,
        "ratio": index / 8,
        "raw": bytes([index % 256, 0]),
        "amount": decimal.Decimal(index) / 1000,
        "day": datetime.date(1, 1, 1) + datetime.timedelta(days=index),
        "clock": datetime.time(23, 59, 59, index),
        "local": datetime.datetime(9999, 12, 31, 23, 59, 59, index),  # noqa: DTZ001 - DATETIME
        "at": datetime.datetime(1960, 1, 1, tzinfo=UTC) + datetime.timedelta(microseconds=index),
        "doc": json.dumps({"n": index}, separators=(",", ":")),
        "tags": ["a", "b"][: index % 3],
        "address": {"city": "x", "zip": None, "past": [index, 1]} if index % 3 else None,
    }


ROWS = [row(index) for index in range(1000)]
SETTINGS = Settings(streams_min=4, response_rows_max=50)


@pytest.fixture
def server():
    with testing.Emulator(settings=SETTINGS) as emulator:
        emulator.create_table(TABLE, FIELDS, rows=ROWS)
        yield emulator


def pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--project=p", *flags]))


def canonical(value):
    if isinstance(value, dict):
        return tuple((key, canonical(value[key])) for key in sorted(value))
    if isinstance(value, list):
        return ("list", *map(canonical, value))
    return (type(value).__name__, value)


def same_rows(expected):
    """A check of the exact multiset: values, types, NULLs."""
    wanted = collections.Counter(map(canonical, expected))

    def check(found):
        got = collections.Counter(map(canonical, found))
        assert got == wanted, f"missing {list(wanted - got)[:3]}, extra {list(got - wanted)[:3]}"

    return check


def read(server, *, source=TABLE, flags=(), **options):
    """Runs a read; returns the pipeline's counters of ours, after the rows were checked."""
    check = options.pop("check")
    p = pipeline(*flags)
    table = None if "query" in options else source
    rows = p | "Read" >> bq.ReadFromBigQueryStorage(table, connection=server.connection, **options)
    assert_that(rows, check)
    result = p.run()
    result.wait_until_finish()
    return {
        metric.key.metric.name: metric.committed
        for metric in result.metrics().query()["counters"]
        if metric.key.metric.namespace == "bqflink_beam"
    }


def test_every_row_and_type_arrives_as_it_is(server):
    counters = read(server, check=same_rows(ROWS))

    assert counters["rows_read"] == len(ROWS)
    assert server.counters["CreateReadSession"] == 2  # the check, and the read
    assert server.counters["ReadRows"] == 4


def test_columns_come_alone_in_any_spelling_and_nested(server):
    expected = [
        {"id": each["id"], "address": each["address"] and {"city": each["address"]["city"]}}
        for each in ROWS
    ]

    read(server, columns=["Address.CITY", "ID"], check=same_rows(expected))


def test_only_rows_that_the_filter_keeps_arrive(server):
    expected = [each for each in ROWS if each["id"] > 700 and each["name"] is not None]

    read(server, row_filter="id > 700 AND name IS NOT NULL", check=same_rows(expected))


def test_a_filter_that_keeps_nothing_gives_nothing(server):
    read(server, row_filter="id < 0", check=is_empty())


def test_an_empty_table_gives_nothing(server):
    server.create_table("p.d.empty", FIELDS)

    read(server, source="p.d.empty", check=is_empty())

    assert "ReadRows" not in server.counters


def arrow_rows(batches):
    return [each for batch in batches for each in batch.to_pylist()]


def test_arrow_output_gives_whole_batches_with_the_sessions_schema(server):
    def check(batches):
        assert all(isinstance(batch, pa.RecordBatch) for batch in batches)
        assert {str(batch.schema) for batch in batches} == {"id: int64 not null\nname: string"}
        same_rows([{"id": each["id"], "name": each["name"]} for each in ROWS])(arrow_rows(batches))
        assert max(batch.num_rows for batch in batches) == 50

    read(server, output="arrow", columns=["id", "name"], check=check)


def test_output_types_are_known_to_the_pipeline(server):
    p = pipeline()
    read_of = {
        output: p
        | output >> bq.ReadFromBigQueryStorage(TABLE, output=output, connection=server.connection)
        for output in ("dict", "arrow")
    }

    assert read_of["dict"].element_type == typehints.Dict[str, typehints.Any]
    assert read_of["arrow"].element_type is pa.RecordBatch
    assert all(rows.is_bounded for rows in read_of.values())


def test_a_query_is_read_by_its_result(server):
    expected = [{"id": each["id"], "twice": each["id"] * 2} for each in ROWS if each["id"] >= 990]

    read(
        server,
        query="SELECT id, id * 2 AS twice FROM `p.d.t` WHERE id >= 990",
        check=same_rows(expected),
    )


def test_a_query_is_run_once_per_run_and_again_in_the_next(server):
    p = pipeline()
    rows = p | bq.ReadFromBigQueryStorage(
        query="SELECT COUNT(*) AS n FROM `p.d.t`", connection=server.connection
    )
    assert_that(rows, equal_to([{"n": len(ROWS)}]), label="first")
    p.run().wait_until_finish()
    double(server)

    with pytest.raises(Exception, match="n.: 2000"):
        p.run().wait_until_finish()


def double(server):
    """Appends all rows once more."""
    table = server.store.require_table(TableReference.parse(TABLE))
    table.append(table.snapshot().chunks)


def test_a_view_is_read_like_a_table(server):
    client = server.connection.open()
    view = {"query": "SELECT id, address FROM `p.d.t`", "useLegacySql": False}
    client.tables.create(TableReference.parse("p.d.v"), {"view": view})
    client.close()
    expected = [
        {"address": each["address"] and {"zip": each["address"]["zip"]}}
        for each in ROWS
        if each["id"] > 100
    ]

    read(
        server,
        source="p.d.v",
        columns=["address.zip"],
        row_filter="id > 100 -- not the first ones",
        check=same_rows(expected),
    )


def test_a_snapshot_is_read_as_it_was(server):
    moment = datetime.datetime.now(UTC)
    double(server)

    read(server, snapshot_time=moment, check=same_rows(ROWS))


def test_streams_max_bounds_the_streams(server):
    read(server, streams_max=2, check=same_rows(ROWS))

    assert server.counters["ReadRows"] == 2


def test_in_streaming_a_stream_is_read_in_pieces_and_resumed(server):
    counters = read(server, flags=["--streaming"], checkpoint_every_rows=30, check=same_rows(ROWS))

    assert counters["rows_read"] == len(ROWS)
    assert counters["read_checkpoints"] >= 4 * 8
    assert server.counters["ReadRows.resumed"] >= 4 * 8


def test_an_unbounded_part_makes_the_read_checkpoint_too(server):
    p = pipeline()
    read_rows = p | bq.ReadFromBigQueryStorage(
        TABLE, connection=server.connection, checkpoint_every_rows=30
    )
    assert_that(read_rows, same_rows(ROWS), label="Rows")
    p | test_stream.TestStream().advance_watermark_to_infinity()
    p.to_runner_api()

    fns = [
        node.transform.fn.checkpoint
        for node in nodes_of(p)
        if node.full_label.endswith("/ReadStreams")
    ]
    assert [fn.every_rows for fn in fns] == [30]


def test_in_batch_a_bundle_reads_its_stream_in_one_go(server):
    counters = read(server, checkpoint_every_rows=30, check=same_rows(ROWS))

    assert "read_checkpoints" not in counters
    assert server.counters["ReadRows"] == 4


def nodes_of(p):
    found = []

    class Visitor(beam.pipeline.PipelineVisitor):
        def visit_transform(self, node):
            found.append(node)

    p.visit(Visitor())
    return found


@pytest.mark.parametrize("flags", [[], ["--streaming"]], ids=["batch", "streaming"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault(method="ReadRows", action="cut", after_responses=2, times=6),
        Fault(method="ReadRows", code="INTERNAL", message="RST_STREAM", after_responses=1, times=9),
        Fault(method="ReadRows", code="RESOURCE_EXHAUSTED", times=3),
        Fault(method="ReadRows", code="UNAVAILABLE", when="after", times=3),
        Fault(method="CreateReadSession", code="UNAVAILABLE", times=2),
        Fault(method="CreateReadSession", code="UNAVAILABLE", when="after", times=2),
    ],
    ids=["cut", "internal", "throttled", "cut at the end", "no session", "session lost"],
)
def test_what_breaks_on_the_way_changes_no_row(server, fault, flags):
    rule = server.faults.add(fault)

    read(server, flags=flags, checkpoint_every_rows=70, check=same_rows(ROWS))

    assert server.faults.hits(rule) == fault.times


def test_an_expired_session_ends_in_one_clear_error(server):
    server.faults.add(Fault(method="ReadRows", action="expire", after_responses=2))

    with pytest.raises(Exception) as raised:
        read(server, check=same_rows(ROWS))

    text = str(raised.value)
    assert "SessionExpiredError" in repr(raised.value)
    assert "read session of p.d.t has expired" in text
    assert "start the job again" in text


@pytest.mark.parametrize("session_ttl_s", [0.001, 3600.0])
def test_a_session_that_is_forgotten_is_called_expired_only_when_it_is_that_old(session_ttl_s):
    with testing.Emulator(settings=Settings(session_ttl_s=session_ttl_s)) as server:
        server.create_table("p.d.t", FIELDS, rows=ROWS)
        server.faults.add(Fault(method="ReadRows", code="NOT_FOUND", message="no such entity"))

        with pytest.raises(BqflinkError) as raised:
            read(server, check=same_rows(ROWS))

    assert "no such entity" in str(raised.value)
    assert isinstance(raised.value, SessionExpiredError) == (session_ttl_s < 1)


def errors_of(build):
    """Returns the error that building a pipeline raises; it must be one of our tree."""
    with pytest.raises(BqflinkError) as raised:
        build()
    return raised.value


def test_missing_table(server):
    error = errors_of(
        lambda: pipeline() | bq.ReadFromBigQueryStorage("p.d.gone", connection=server.connection)
    )

    assert isinstance(error, ConfigError)
    assert "p.d.gone does not exist" in str(error)


def test_missing_column(server):
    error = errors_of(
        lambda: (
            pipeline()
            | bq.ReadFromBigQueryStorage(TABLE, columns=["idd"], connection=server.connection)
        )
    )

    assert isinstance(error, ConfigError)
    assert (error.table, error.column) == (TABLE, "idd")
    assert "there is id, name" in str(error)


@pytest.mark.parametrize("row_filter", ["idd > 1", "id >", "id = 'x'"])
def test_wrong_filter(server, row_filter):
    error = errors_of(
        lambda: (
            pipeline()
            | bq.ReadFromBigQueryStorage(TABLE, row_filter=row_filter, connection=server.connection)
        )
    )

    assert isinstance(error, ConfigError)
    assert f"row_filter {row_filter!r}" in str(error)


@pytest.mark.parametrize("query", ["SELECT (", "SELECT idd FROM `p.d.t`"])
def test_wrong_query(server, query):
    error = errors_of(
        lambda: pipeline() | bq.ReadFromBigQueryStorage(query=query, connection=server.connection)
    )

    assert isinstance(error, ConfigError)


def test_query_that_is_no_select(server):
    error = errors_of(
        lambda: (
            pipeline()
            | bq.ReadFromBigQueryStorage(
                query="DELETE FROM `p.d.t` WHERE TRUE", connection=server.connection
            )
        )
    )

    assert isinstance(error, ConfigError)
    assert server.row_count(TABLE) == len(ROWS)


def free_port():
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        return it.getsockname()[1]


def test_bad_credentials_file(tmp_path):
    connection = bq.Connection(credentials=bq.ServiceAccountFile(str(tmp_path / "gone.json")))

    error = errors_of(lambda: pipeline() | bq.ReadFromBigQueryStorage(TABLE, connection=connection))

    assert isinstance(error, ConfigError)
    assert "gone.json" in str(error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of table and query"),
        ({"table": TABLE, "query": "SELECT 1"}, "exactly one of table and query"),
        ({"table": TABLE, "output": "row"}, "output='row' is not there yet"),
        ({"table": TABLE, "output": "avro"}, "output must be 'dict' or 'arrow', got 'avro'"),
        ({"table": TABLE, "columns": "id"}, "columns must be a list of names"),
        ({"table": TABLE, "columns": []}, "columns must be a list of names"),
        ({"table": TABLE, "row_filter": 7}, "row_filter must be SQL text"),
        ({"table": TABLE, "streams_max": -1}, "streams_max must be in"),
        ({"table": TABLE, "checkpoint_every_s": 0}, "checkpoint_every_s must be above 0"),
        ({"table": TABLE, "checkpoint_every_rows": 0}, "checkpoint_every_rows must be at least 1"),
        ({"table": "no table"}, "table must look like"),
        ({"query": "SELECT 1", "snapshot_time": datetime.datetime.now(UTC)}, "FOR SYSTEM_TIME"),
    ],
)
def test_what_makes_no_sense_is_refused_before_there_is_a_pipeline(options, message):
    with pytest.raises(ConfigError, match=message):
        bq.ReadFromBigQueryStorage(**options)


def test_it_begins_a_pipeline_and_nothing_else(server):
    p = pipeline()

    with pytest.raises(ConfigError, match="begins a pipeline"):
        p | beam.Create([1]) | bq.ReadFromBigQueryStorage(TABLE, connection=server.connection)


def test_checkpoints_on_flink_without_the_flag_that_keeps_rows_are_refused(server):
    p = beam.Pipeline(
        options=PipelineOptions(
            ["--runner=FlinkRunner", "--streaming", "--checkpointing_interval=1000", "--project=p"]
        )
    )

    error = errors_of(lambda: p | bq.ReadFromBigQueryStorage(TABLE, connection=server.connection))

    assert isinstance(error, ConfigError)
    assert "--finish_bundle_before_checkpointing" in str(error)


def test_without_validation_building_needs_no_bigquery():
    nowhere = bq.Connection(
        rest_endpoint=f"http://127.0.0.1:{free_port()}",
        storage_endpoint=f"127.0.0.1:{free_port()}",
        plaintext=True,
        credentials=bq.Anonymous(),
    )

    rows = pipeline() | bq.ReadFromBigQueryStorage(TABLE, connection=nowhere, validate=False)

    assert rows.is_bounded


def test_the_label_names_the_table_so_that_two_reads_need_no_labels(server):
    server.create_table("p.d.u", FIELDS)
    p = pipeline()
    for table in (TABLE, "p.d.u"):
        p | bq.ReadFromBigQueryStorage(table, connection=server.connection)

    labels = {node.full_label.partition("/")[0] for node in nodes_of(p)}

    assert {"ReadFromBigQueryStorage(p.d.t)", "ReadFromBigQueryStorage(p.d.u)"} <= labels


def test_step_names_are_pinned_for_they_stand_in_savepoints(server):
    p = pipeline()
    p | "Read" >> bq.ReadFromBigQueryStorage(TABLE, connection=server.connection)

    steps = {
        node.full_label.split("/")[1] for node in nodes_of(p) if node.full_label.startswith("Read/")
    }

    assert steps == {"Start", "PlanRead", "SpreadStreams", "ReadStreams"}


def test_display_data_says_what_is_read_and_no_secret(server):
    transform = bq.ReadFromBigQueryStorage(
        TABLE,
        columns=["id"],
        row_filter="id > 1",
        connection=bq.Connection(credentials=bq.AccessToken("s3cret")),
    )

    items = {item.key: item.value for item in DisplayData.create_from(transform).items}

    assert items["source"] == TABLE
    assert items["columns"] == "id"
    assert items["row_filter"] == "id > 1"
    assert "s3cret" not in str(items)


def test_pipeline_options_say_where_bigquery_is(server):
    p = pipeline(
        f"--bq_endpoint={server.rest_endpoint}",
        f"--bq_storage_endpoint={server.storage_endpoint}",
    )
    rows = p | bq.ReadFromBigQueryStorage("d.t", columns=["id"])
    assert_that(rows, same_rows([{"id": each["id"]} for each in ROWS]))

    p.run().wait_until_finish()


def test_elements_between_the_steps_have_coders_of_ours(server):
    p = pipeline()
    p | "Read" >> bq.ReadFromBigQueryStorage(TABLE, connection=server.connection)

    proto = p.to_runner_api()

    pickled = [
        coder.spec.payload
        for coder in proto.components.coders.values()
        if b"ReadStreamCoder" in coder.spec.payload or b"StreamRangeCoder" in coder.spec.payload
    ]
    assert len(pickled) >= 2
