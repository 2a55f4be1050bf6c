"""What a write says of itself: results, labels, display data, its proto, and what it refuses early."""

import base64
import bz2

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.display import DisplayData
from apache_beam.transforms.window import SlidingWindows

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.emulator import values
from bqflink_beam.transforms.failed import FailedRow
from bqflink_beam.write.preflight import REQUIRED_FLINK_OPTIONS
from tests.transforms.sources import Tap, replay

FIELDS = [{"name": "id", "type": "INT64"}]
CREATE = bq.CreateTable(schema=FIELDS)
NOBODY = bq.Connection(
    rest_endpoint="http://127.0.0.1:1",
    storage_endpoint="127.0.0.1:1",
    plaintext=True,
    credentials=bq.Anonymous(),
)
SECRET = "ya29.a-token-nobody-may-see"


def pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--project=p", *flags]))


def write(table="p.d.t", **options):
    options.setdefault("connection", NOBODY)
    options.setdefault("create", CREATE)
    return bq.WriteToBigQueryStorage(table, validate=False, **options)


ONCE = bq.ExactlyOnce(register_location="US")


def bounded(p):
    return p | beam.Create([{"id": 1}])


def unbounded(p):
    return replay(p, dict, Tap("write surface", 0))


def composite_of(p, name):
    proto = p.to_runner_api()
    found = [t for t in proto.components.transforms.values() if t.unique_name == name]
    assert len(found) == 1
    return found[0], proto.components


@pytest.mark.parametrize(
    ("source", "method", "outputs"),
    [
        (bounded, bq.AtLeastOnce(), {"failed"}),
        (bounded, ONCE, {"failed", "committed"}),
        (unbounded, ONCE, {"failed", "lost"}),
    ],
)
def test_the_outputs_of_a_write_are_in_the_proto(source, method, outputs):
    p = pipeline()
    rows = source(p) | beam.WindowInto(SlidingWindows(50, 10))
    result = rows | "Rows" >> write(method=method)

    composite, components = composite_of(p, "Rows")

    assert set(composite.outputs) == outputs
    assert isinstance(result, tuple)
    assert result.failed.element_type is FailedRow
    for pcollection in composite.outputs.values():
        strategy = components.windowing_strategies[
            components.pcollections[pcollection].windowing_strategy_id
        ]
        assert strategy.window_fn.urn == "beam:window_fn:global_windows:v1"


@pytest.mark.parametrize(
    ("source", "method", "has"),
    [
        (bounded, bq.AtLeastOnce(), set()),
        (bounded, ONCE, {"commits"}),
        (unbounded, ONCE, {"lost_streams"}),
    ],
)
def test_an_output_that_a_method_does_not_have_is_refused_when_read(source, method, has):
    result = source(pipeline()) | write(method=method)

    for name in ("commits", "lost_streams", "failed_rows"):
        if name in has:
            assert isinstance(getattr(result, name), beam.PCollection)
        else:
            with pytest.raises(bq.ConfigError):
                getattr(result, name)


def pickles(proto):
    """The DoFns of a pipeline as they were pickled, before Beam packed them."""
    for step in proto.components.transforms.values():
        if step.spec.urn == common_urns.primitives.PAR_DO.urn:
            packed = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload).do_fn.payload
            yield bz2.decompress(base64.b64decode(packed))


@pytest.mark.parametrize("source", [bounded, unbounded])
@pytest.mark.parametrize("method", [bq.AtLeastOnce(), ONCE], ids=["at least once", "once"])
@pytest.mark.parametrize(
    "credentials",
    [
        bq.AccessToken(SECRET),
        bq.ServiceAccountJson(f'{{"private_key": "{SECRET}"}}'),
        bq.Impersonate("robot@p.iam.gserviceaccount.com", bq.AccessToken(SECRET)),
    ],
    ids=["token", "key", "impersonated"],
)
def test_no_secret_is_in_the_pipeline_that_runners_store(source, method, credentials):
    p = pipeline()
    source(p) | write(method=method, connection=bq.Connection(credentials=credentials))
    source_of_reads = bq.ReadFromBigQueryStorage(
        "p.d.t", connection=bq.Connection(credentials=credentials), validate=False
    )
    p | source_of_reads

    proto = p.to_runner_api()

    stored = b"".join(pickles(proto))
    assert b"PlanReadFn" in stored
    assert b"_EncodeFn" in stored
    assert SECRET.encode() not in stored
    assert SECRET.encode() not in proto.SerializeToString()


def steps_with_stable_input(p):
    found = set()
    for step in p.to_runner_api().components.transforms.values():
        if step.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
            if payload.requires_stable_input:
                found.add(step.unique_name)
    return found


def on_flink(source):
    flags = [option.flag for option in REQUIRED_FLINK_OPTIONS]
    p = beam.Pipeline(
        options=PipelineOptions(["--runner=FlinkRunner", "--job_endpoint=127.0.0.1:1", *flags])
    )
    source(p) | "Rows" >> write(method=ONCE)
    return p


def test_on_flink_the_flush_and_nothing_else_waits_for_its_checkpoint():
    assert steps_with_stable_input(on_flink(unbounded)) == {
        "Rows/ExactlyOnce/Flush/StableInputParDo(_FlushFn)"
    }


def test_local_runners_that_refuse_stable_input_are_not_asked_for_it():
    p = pipeline()
    unbounded(p) | "Rows" >> write(method=ONCE)

    assert steps_with_stable_input(p) == set()


@pytest.mark.parametrize(
    ("table", "label"),
    [
        ("p.d.t", "WriteToBigQueryStorage(p.d.t)"),
        (bq.TableReference("p", "d", "t"), "WriteToBigQueryStorage(p.d.t)"),
        ({"projectId": "p", "datasetId": "d", "tableId": "t"}, "WriteToBigQueryStorage(p.d.t)"),
        ({"datasetId": "d", "tableId": "t"}, "WriteToBigQueryStorage(d.t)"),
        (lambda row: "p.d.t", "WriteToBigQueryStorage(<function>)"),
    ],
)
def test_the_label_names_the_table(table, label):
    assert write(table).default_label() == label


def test_display_data_tells_table_and_guarantee_and_no_connection():
    data = DisplayData.create_from(
        write(method=ONCE, on_failed_row="output", connection=bq.Connection(quota_project="q"))
    )

    shown = {item.key: item.value for item in data.items}
    assert shown == {
        "table": "p.d.t",
        "method": "ExactlyOnce",
        "create": True,
        "on_failed_row": "output",
    }


@pytest.mark.parametrize("table", ["p.d.t", lambda row: "p.d.t"], ids=["table", "function"])
def test_a_commit_whose_register_has_no_place_is_refused(table):
    with pytest.raises(bq.ConfigError, match="register_location"):
        bounded(pipeline()) | write(table, method=bq.ExactlyOnce())


def test_a_commit_whose_register_nobody_pays_for_is_refused():
    p = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))

    with pytest.raises(bq.ConfigError, match="--bq_billing_project"):
        bounded(p) | write(lambda row: "p.d.t", method=ONCE)


def test_a_register_is_at_the_datasets_place_if_bigquery_can_be_asked():
    with testing.Emulator() as server:
        server.create_dataset("p", "d", location="EU")
        with pipeline() as p:
            bounded(p) | bq.WriteToBigQueryStorage(
                "p.d.t", connection=server.connection, create=CREATE
            )
        jobs = server.jobs.list("p", {})["jobs"]

    assert [job["jobReference"]["location"] for job in jobs] == ["EU", "EU"]


def test_without_a_register_no_job_is_made_and_the_rows_are_there():
    with testing.Emulator() as server:
        server.create_table("p.d.t", FIELDS)
        with pipeline() as p:
            bounded(p) | bq.WriteToBigQueryStorage(
                "p.d.t", connection=server.connection, method=bq.ExactlyOnce(register=None)
            )

        assert server.visible_rows("p.d.t") == [{"id": 1}]
        assert server.counters.get("jobs.insert", 0) == 0


def test_a_run_id_that_nothing_records_is_refused():
    with pytest.raises(bq.ConfigError, match="run_id needs a register"):
        bq.ExactlyOnce(run_id="nightly", register=None)


def test_a_run_without_rows_is_registered_and_commits_nothing():
    with testing.Emulator() as server:
        server.create_table("p.d.t", FIELDS)
        for rows in ([], []):
            with pipeline() as p:
                (
                    p
                    | beam.Create(rows)
                    | bq.WriteToBigQueryStorage(
                        "p.d.t", connection=server.connection, method=bq.ExactlyOnce(run_id="empty")
                    )
                )
        assert server.counters["jobs.insert"] == 3  # two for the first run, one refused
        assert server.counters.get("BatchCommitWriteStreams", 0) == 0

        with pytest.raises(Exception, match="'empty' has already written"), pipeline() as p:
            bounded(p) | "WriteToBigQueryStorage(p.d.t)" >> bq.WriteToBigQueryStorage(
                "p.d.t", connection=server.connection, method=bq.ExactlyOnce(run_id="empty")
            )
        assert server.visible_rows("p.d.t") == []


SAVED = ["--output_executable_path=job.jar", "--template_location=gs://b/t"]


@pytest.mark.parametrize("flag", SAVED)
def test_a_saved_pipeline_needs_a_run_id_to_write_once(flag):
    with pytest.raises(bq.ConfigError, match=rf"{flag.partition('=')[0]}.*run_id"):
        bounded(pipeline(flag)) | write(method=ONCE)

    bounded(pipeline(flag)) | write(method=bq.AtLeastOnce())
    bounded(pipeline(flag)) | write(method=bq.ExactlyOnce(register_location="US", run_id="nightly"))


@pytest.mark.parametrize("flag", SAVED)
def test_a_saved_pipeline_may_not_read_a_query_whose_result_would_be_old(flag):
    with pytest.raises(bq.ConfigError, match=rf"{flag.partition('=')[0]}.*the first"):
        pipeline(flag) | bq.ReadFromBigQueryStorage(
            query="SELECT 1", connection=NOBODY, validate=False
        )

    pipeline(flag) | bq.ReadFromBigQueryStorage("p.d.t", connection=NOBODY, validate=False)


def test_every_start_of_a_saved_pipeline_reads_a_view_anew():
    with testing.Emulator() as server:
        server.create_table("p.d.t", FIELDS, rows=[{"id": 1}])
        server.create_table("p.d.out", FIELDS)
        client = server.connection.open()
        view = {"query": "SELECT id FROM `p.d.t`", "useLegacySql": False}
        client.tables.create(bq.TableReference.parse("p.d.v"), {"view": view})
        p = pipeline("--output_executable_path=job.jar")
        (
            p
            | bq.ReadFromBigQueryStorage("p.d.v", connection=server.connection)
            | bq.WriteToBigQueryStorage(
                "p.d.out", connection=server.connection, method=bq.AtLeastOnce()
            )
        )
        saved = p.to_runner_api()

        for index in (2, 3):
            beam.Pipeline.from_runner_api(saved, p.runner, PipelineOptions()).run()
            server.store.require_table(bq.TableReference.parse("p.d.t")).append(
                [values.batch_from_rows(CREATE.table_schema, [{"id": index}])]
            )
        client.close()

        assert sorted(row["id"] for row in server.visible_rows("p.d.out")) == [1, 1, 2]
