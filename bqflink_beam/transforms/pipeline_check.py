"""Applies `write.preflight` to a pipeline: when a step is added, and once more as a whole.

A step that is added sees only what came before it; an unbounded input that is added
later makes Flink stream the whole pipeline, and is found when it is translated.
"""

import weakref

import apache_beam as beam

from bqflink_beam.transforms.runner_kind import options_of, runner_kind
from bqflink_beam.transforms.streaming import streams
from bqflink_beam.write.preflight import Step, require

_STEPS: "weakref.WeakKeyDictionary[beam.Pipeline, list[Step]]" = weakref.WeakKeyDictionary()


def check_step(pipeline: beam.Pipeline, step: Step) -> None:
    """Notes a read or write of ours, and checks it against the pipeline so far.

    Raises:
        ConfigError: names each option or combination that could lose or double rows.
    """
    _STEPS.setdefault(pipeline, []).append(step)
    _require(pipeline, [step])


def check_pipeline(pipeline: beam.Pipeline) -> None:
    """Checks all steps of ours against the whole pipeline, when it is translated.

    Raises:
        ConfigError: names each option or combination that could lose or double rows.
    """
    _require(pipeline, _STEPS.get(pipeline, []))


def _require(pipeline: beam.Pipeline, steps: list[Step]) -> None:
    require(options_of(pipeline), runner_kind(pipeline), steps, pipeline_streams=streams(pipeline))
