"""Applies `write.preflight` to a pipeline: when a step is added, and once more as a whole.

A step that is added sees only what came before it; an unbounded input that is added
later makes Flink stream the whole pipeline, and is found when it is translated.
"""

import weakref

import apache_beam as beam
from apache_beam.pipeline import PipelineVisitor

from bqflink_beam.transforms.runner_kind import options_of, runner_kind
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
    finder = _UnboundedFinder()
    pipeline.visit(finder)
    require(options_of(pipeline), runner_kind(pipeline), steps, pipeline_streams=finder.found)


class _UnboundedFinder(PipelineVisitor):
    def __init__(self) -> None:
        self.found = False

    def visit_value(self, value, producer_node):
        if isinstance(value, beam.PCollection) and not value.is_bounded:
            self.found = True
