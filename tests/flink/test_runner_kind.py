"""The real job server says what it is, and takes the options that the checks ask for."""

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from bqflink_beam.flink import local_flink_options
from bqflink_beam.transforms.runner_kind import options_of, runner_kind
from bqflink_beam.write.preflight import REQUIRED_FLINK_OPTIONS, Step, StepKind, check


def test_flink_behind_a_portable_endpoint_is_found(flink):
    flags = ["--runner=PortableRunner", f"--job_endpoint={flink.job_endpoint}"]

    assert runner_kind(beam.Pipeline(options=PipelineOptions(flags))) == "flink"


def test_options_for_local_flink_pass_the_checks(flink):
    flags = local_flink_options(flink.job_endpoint, streaming=True)
    pipeline = beam.Pipeline(options=PipelineOptions(flags))
    write = Step(label="Write", kind=StepKind.EXACTLY_ONCE, bounded=False)

    findings = check(options_of(pipeline), runner_kind(pipeline), [write], pipeline_streams=True)

    assert findings == ()


def test_job_server_knows_every_required_option(flink):
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(flink.job_endpoint) as channel:
        described = beam_job_api_pb2_grpc.JobServiceStub(channel).DescribePipelineOptions(
            beam_job_api_pb2.DescribePipelineOptionsRequest(), timeout=30
        )

    names = {option.name for option in described.options}
    assert {option.name for option in REQUIRED_FLINK_OPTIONS} <= names
