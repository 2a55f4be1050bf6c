"""Whether a runner will stream, so that checkpoints have to wait for bundles."""

import apache_beam as beam
from apache_beam.options.pipeline_options import StandardOptions
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor


def streams(pipeline: beam.Pipeline) -> bool:
    """Tells whether the pipeline, as built so far, will run in streaming mode.

    A portable runner streams when it is told to, and also as soon as one part of the
    pipeline is unbounded.
    """
    if pipeline.options.view_as(StandardOptions).streaming:
        return True
    finder = _UnboundedFinder()
    pipeline.visit(finder)
    return finder.found


class _UnboundedFinder(PipelineVisitor):
    def __init__(self) -> None:
        self.found = False

    def visit_transform(self, transform_node: AppliedPTransform) -> None:
        outputs = transform_node.outputs.values()
        self.found = self.found or not all(output.is_bounded for output in outputs)
