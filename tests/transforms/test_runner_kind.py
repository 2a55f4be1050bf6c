"""A pipeline's runner is found where that can be known, and unknown otherwise."""

import gc
import socket
import weakref

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from apache_beam.runners.runner import create_runner

from bqflink_beam.transforms import runner_kind as module
from bqflink_beam.transforms.runner_kind import options_of, runner_kind


def _pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(list(flags)))


@pytest.mark.parametrize(
    ("runner", "kind"),
    [
        ("FlinkRunner", "flink"),
        ("DataflowRunner", "dataflow"),
        ("TestDataflowRunner", "dataflow"),
        ("FnApiRunner", "fnapi"),
        ("apache_beam.runners.portability.fn_api_runner.FnApiRunner", "fnapi"),
        ("PrismRunner", "prism"),
        ("DirectRunner", "direct"),
        ("BundleBasedDirectRunner", "direct"),
        ("TestDirectRunner", "direct"),
        ("SparkRunner", "unknown"),
        ("PortableRunner", "unknown"),
    ],
)
def test_kind_follows_from_the_runner_that_is_named(runner, kind):
    pipeline = beam.Pipeline(runner="FnApiRunner")
    # Put in place afterwards: a pipeline that is built for Dataflow looks at its bucket.
    pipeline.runner = create_runner(runner)

    assert runner_kind(pipeline) == kind


def test_class_derived_from_a_known_runner_has_its_kind():
    from apache_beam.runners.portability.flink_runner import FlinkRunner

    class _CompanyFlinkRunner(FlinkRunner):
        pass

    assert runner_kind(beam.Pipeline(runner=_CompanyFlinkRunner())) == "flink"


def test_portable_runner_on_beams_embedded_job_server_is_the_local_runner():
    assert runner_kind(_pipeline("--runner=PortableRunner", "--job_endpoint=embed")) == "fnapi"


def test_job_server_that_describes_no_flink_options_is_unknown():
    server = LocalJobServicer()
    port = server.start_grpc_server()
    try:
        pipeline = _pipeline("--runner=PortableRunner", f"--job_endpoint=127.0.0.1:{port}")

        assert runner_kind(pipeline) == "unknown"
    finally:
        server.stop()


def test_job_server_that_never_answers_is_unknown_in_bounded_time(monkeypatch, caplog):
    monkeypatch.setattr(module, "_DESCRIBE_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        pipeline = _pipeline("--runner=PortableRunner", f"--job_endpoint=127.0.0.1:{port}")

        assert runner_kind(pipeline) == "unknown"

    assert "DEADLINE_EXCEEDED" in caplog.text
    assert f"127.0.0.1:{port}" in caplog.text


def test_endpoint_is_asked_once_for_a_pipeline(monkeypatch, caplog):
    monkeypatch.setattr(module, "_DESCRIBE_TIMEOUT_S", 0.1)
    pipeline = _pipeline("--runner=PortableRunner", "--job_endpoint=127.0.0.1:1")

    assert runner_kind(pipeline) == "unknown"
    assert runner_kind(pipeline) == "unknown"

    assert len(caplog.records) == 1


def test_asking_keeps_no_pipeline_alive():
    pipeline = _pipeline("--runner=FnApiRunner")
    runner_kind(pipeline)
    alive = weakref.ref(pipeline)

    del pipeline
    gc.collect()

    assert alive() is None


def test_options_that_only_the_runner_knows_are_seen():
    options = options_of(
        _pipeline(
            "--runner=FnApiRunner",
            "--streaming",
            "--finish_bundle_before_checkpointing",
            "--checkpointing_interval=1000",
            "--num_concurrent_checkpoints",
            "32",
        )
    )

    assert options["streaming"] is True
    assert options["finish_bundle_before_checkpointing"] is True
    assert options["checkpointing_interval"] == "1000"
    assert options["num_concurrent_checkpoints"] == "32"
