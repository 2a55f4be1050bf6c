"""What a savepoint of an unbounded write is made of. A change here breaks running jobs' restarts:
make it on purpose, and say so in the changelog."""

import apache_beam as beam
import pytest
from apache_beam.coders import Coder, registry
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.pipeline_context import PipelineContext

import bqflink_beam as bq
from bqflink_beam.transforms import coders, write_unbounded
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.position import FlushMark, Position
from bqflink_beam.write.preflight import REQUIRED_FLINK_OPTIONS
from tests.transforms.sources import Tap, replay

CONNECTION = bq.Connection(
    rest_endpoint="http://127.0.0.1:1",
    storage_endpoint="127.0.0.1:1",
    plaintext=True,
    credentials=bq.Anonymous(),
)
FIELDS = [{"name": "id", "type": "INT64"}]


def proto_of(**options):
    flags = [option.flag for option in REQUIRED_FLINK_OPTIONS]
    p = beam.Pipeline(
        options=PipelineOptions(["--runner=FlinkRunner", "--job_endpoint=127.0.0.1:1", *flags])
    )
    replay(p, dict, Tap("surface", 0)) | "Rows" >> bq.WriteToBigQueryStorage(
        "p.d.t",
        connection=CONNECTION,
        create=bq.CreateTable(schema=FIELDS),
        validate=False,
        **options,
    )
    return p.to_runner_api()


def test_step_names_are_pinned():
    names = {t.unique_name for t in proto_of().components.transforms.values()}

    assert {name for name in names if name.startswith("Rows/ExactlyOnce/")} >= {
        "Rows/ExactlyOnce/Shard",
        "Rows/ExactlyOnce/Append/ParDo(_AppendFn)",
        "Rows/ExactlyOnce/FreezeFlushes/ReshufflePerKey/GroupByKey",
        "Rows/ExactlyOnce/Flush/StableInputParDo(_FlushFn)",
    }


def test_the_key_is_table_and_shard_and_its_coder_is_deterministic():
    proto = proto_of()
    step = next(
        t
        for t in proto.components.transforms.values()
        if t.unique_name == "Rows/ExactlyOnce/Append/ParDo(_AppendFn)"
    )
    pcollection = proto.components.pcollections[next(iter(step.inputs.values()))]
    coder = PipelineContext(proto.components).coders.get_by_id(pcollection.coder_id)

    assert coder.key_coder().is_deterministic()
    assert coder.key_coder().encode(("p.d.t", 3)) == b"\x05p.d.t\x03"
    assert isinstance(coder.value_coder(), coders.RowBatchCoder)


def test_the_state_cell_is_one_position():
    spec = write_unbounded._AppendFn.POSITION

    assert spec.name == "position"
    assert isinstance(spec.coder, coders.PositionCoder)


def test_the_bytes_in_checkpoints_are_pinned():
    assert Position("s", 7, 1.5).to_bytes() == (
        b"\x01" + (7).to_bytes(8, "little") + b"\x00\x00\x00\x00\x00\x00\xf8?" + b"s"
    )
    assert FlushMark("s", 7).to_bytes() == b"\x01" + (7).to_bytes(8, "little") + b"s"
    assert RowBatch("t", b"S", b"D", [b"ab", b"c"], [1, 2]).to_bytes() == (
        b"\x01\x01\x00\x01\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00"
        b"tSD\x02\x00\x00\x00\x01\x00\x00\x00"
        + (1).to_bytes(8, "little")
        + (2).to_bytes(8, "little")
        + b"abc"
    )


def test_nothing_between_our_steps_is_pickled():
    for element in (RowBatch, FlushMark, Position, bq.FailedRow, bq.LostStream, bq.CommitReport):
        coder = registry.get_coder(element)
        assert type(coder).__module__ == coders.__name__, element
        assert isinstance(coder, Coder)


@pytest.mark.parametrize("row", [{"id": "\ud800"}, {"\udfff": [{"x": 1}]}, {"id": {1, 2}}, 17])
def test_whatever_a_failed_row_holds_travels(row):
    """`json.loads` gives half surrogate pairs, which UTF-8 and Beam's coder for plain values lack."""
    coder = registry.get_coder(bq.FailedRow)
    failed = bq.FailedRow("p.d.t", row, "why", None, 7)

    assert coder.decode(coder.encode(failed)) == failed


def test_both_settings_of_on_lost_stream_build_the_same_graph():
    graphs = []
    for choice in ("fail", "report"):
        proto = proto_of(method=bq.ExactlyOnce(on_lost_stream=choice))
        graphs.append(
            sorted(
                (t.unique_name, t.spec.urn, sorted(t.inputs.values()), sorted(t.outputs.values()))
                for t in proto.components.transforms.values()
            )
        )

    assert graphs[0] == graphs[1]
