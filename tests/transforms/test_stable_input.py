"""The requirement reaches the runner, survives a rebuild, and is refused where it would hang."""

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from bqflink_beam.errors import ConfigError
from bqflink_beam.transforms.stable_input import StableInputParDo, needs_stable_input

_REQUIREMENT = common_urns.requirements.REQUIRES_STABLE_INPUT.urn


class _CommitFn(beam.DoFn):
    def __init__(self, name="commit"):
        self.name = name

    def process(self, element, factor=1):
        yield element * factor


class _StatefulFn(beam.DoFn):
    COUNT = ReadModifyWriteStateSpec("count", VarIntCoder())

    def process(self, element, count=beam.DoFn.StateParam(COUNT)):
        yield element


def _stable_labels(proto):
    found = set()
    for transform in proto.components.transforms.values():
        if transform.spec.urn == common_urns.primitives.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(transform.spec.payload)
            if payload.requires_stable_input:
                found.add(transform.unique_name)
    return found


def _pipeline():
    pipeline = beam.Pipeline(runner="FnApiRunner")
    (
        pipeline
        | beam.Create([1, 2])
        | "Freeze" >> beam.Reshuffle()
        | "Commit" >> StableInputParDo(_CommitFn("mine"), 3)
        | "After" >> beam.ParDo(_CommitFn())
    )
    return pipeline


def test_only_the_commit_asks_for_stable_input():
    proto = _pipeline().to_runner_api()

    assert _stable_labels(proto) == {"Commit"}
    assert _REQUIREMENT in proto.requirements


def test_rebuilt_pipeline_keeps_the_requirement_each_time():
    proto = _pipeline().to_runner_api()

    for _ in range(2):
        rebuilt = beam.Pipeline.from_runner_api(proto, None, None)
        proto = rebuilt.to_runner_api()

        assert _stable_labels(proto) == {"Commit"}
        assert _REQUIREMENT in proto.requirements


def test_rebuilt_commit_keeps_its_function_and_arguments():
    rebuilt = beam.Pipeline.from_runner_api(_pipeline().to_runner_api(), None, None)

    commits = {}
    for part in rebuilt.transforms_stack[0].parts:
        commits[part.full_label] = part.transform
    assert type(commits["Commit"]) is StableInputParDo
    assert commits["Commit"].fn.name == "mine"
    assert commits["Commit"].args == [3]
    assert type(commits["After"]) is beam.ParDo


def test_local_runner_refuses_rather_than_ignores_the_requirement():
    with pytest.raises(ValueError, match="stable_input"):
        _pipeline().run()


def test_state_is_refused_because_it_hangs_on_flink():
    with pytest.raises(ConfigError, match="_StatefulFn cannot have stable input"):
        StableInputParDo(_StatefulFn())


@pytest.mark.parametrize("kind", ["flink", "unknown"])
def test_stable_input_is_asked_for_wherever_it_may_be_needed(kind):
    assert needs_stable_input(kind)


@pytest.mark.parametrize("kind", ["dataflow", "fnapi", "direct", "prism"])
def test_stable_input_is_not_asked_for_where_it_is_refused(kind):
    assert not needs_stable_input(kind)
