"""Which runner a pipeline is going to, and with which options: facts for `write.preflight`."""

import logging
import weakref

import apache_beam as beam
import grpc
from apache_beam.options.pipeline_options import PortableOptions
from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc
from apache_beam.runners.runner import PipelineRunner

from bqflink_beam.write.preflight import RunnerKind

_LOG = logging.getLogger(__name__)
_DESCRIBE_TIMEOUT_S = 5.0

# By name, of the runner's class or one it derives from: importing the Dataflow runner to ask
# isinstance costs seconds.
_KIND_OF_CLASS: dict[str, RunnerKind] = {
    "FlinkRunner": "flink",
    "DataflowRunner": "dataflow",
    "FnApiRunner": "fnapi",
    "PrismRunner": "prism",
    "SwitchingDirectRunner": "direct",
    "BundleBasedDirectRunner": "direct",
}
# Options that only Flink's job server describes.
_FLINK_OPTIONS = frozenset({"flink_master", "finish_bundle_before_checkpointing"})

_KNOWN: "weakref.WeakKeyDictionary[beam.Pipeline, RunnerKind]" = weakref.WeakKeyDictionary()


def runner_kind(pipeline: beam.Pipeline) -> RunnerKind:
    """Returns the kind of runner that `pipeline` was built for.

    ``--runner=PortableRunner`` says nothing about what answers at its job endpoint, so the
    endpoint is asked, at most 5 s and once for each pipeline. ``unknown`` means just that: what
    is unsafe on some runner must be taken for unsafe.
    """
    kind = _KNOWN.get(pipeline)
    if kind is None:
        kind = _KNOWN[pipeline] = _kind(pipeline.runner, pipeline)
    return kind


def options_of(pipeline: beam.Pipeline) -> dict[str, object]:
    """Returns all options of `pipeline` by name, those that only its runner knows included.

    Values of unknown options are text, or ``True`` for a flag without a value.
    """
    found: dict[str, object] = pipeline.options.get_all_options(retain_unknown_options=True)
    return found


def _kind(runner: PipelineRunner, pipeline: beam.Pipeline) -> RunnerKind:
    names = [cls.__name__ for cls in type(runner).__mro__]
    if "InteractiveRunner" in names:
        return _kind(runner._underlying_runner, pipeline)
    for name in names:
        if name in _KIND_OF_CLASS:
            return _KIND_OF_CLASS[name]
    if names[0] == "PortableRunner":
        endpoint = pipeline.options.view_as(PortableOptions).job_endpoint
        if endpoint == "embed":
            return "fnapi"  # Beam's own job server in this process runs on that
        if endpoint:
            return _kind_at(endpoint)
    return "unknown"


def _kind_at(endpoint: str) -> RunnerKind:
    """Asks a job server which options it knows, Flink's among them or not."""
    request = beam_job_api_pb2.DescribePipelineOptionsRequest()
    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        try:
            answer = stub.DescribePipelineOptions(
                request, timeout=_DESCRIBE_TIMEOUT_S, wait_for_ready=True
            )
        except grpc.RpcError as error:
            _LOG.warning(
                "the job server at %s does not say which runner it is (%s); "
                "name the runner, for example --runner=FlinkRunner",
                endpoint,
                error.code().name,
            )
            return "unknown"
    described = {option.name for option in answer.options}
    return "flink" if described >= _FLINK_OPTIONS else "unknown"
