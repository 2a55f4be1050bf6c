"""Input that a restart repeats exactly: the promise under the commit of an unbounded write.

A commit may name only what a completed checkpoint holds. On Flink that needs Beam's "stable
input": the runner keeps what arrives until the checkpoint it came in is complete, and after a
restart hands over the same elements again. Beam's Python SDK has no way to ask for it, but the
pipeline proto has.
"""

import apache_beam as beam
from apache_beam.portability import common_urns

from bqflink_beam.errors import ConfigError
from bqflink_beam.transforms.rebuilt import rebuild_as
from bqflink_beam.write.preflight import RunnerKind

# Local runners refuse the requirement and never restart; Dataflow does not take it, but its
# shuffle stores what passes, so that input right behind one is stable.
_STABLE_WITHOUT = frozenset({"dataflow", "fnapi", "direct", "prism"})


def needs_stable_input(kind: RunnerKind) -> bool:
    """Whether a commit must ask for stable input there; a runner not known fails closed."""
    return kind not in _STABLE_WITHOUT


class StableInputParDo(beam.ParDo):
    """A ParDo whose input Flink holds back until a completed checkpoint contains it.

    Rules of Flink's implementation, all silent when broken:

    * the DoFn must have no state and no timers: the runner holds the lock that serves state
      while it hands over the input, so the first access hangs for ever;
    * a shuffle (Reshuffle, GroupByKey) must stand right before it: the runner buffers the input
      of the whole fused stage, and what is fused in front runs again, with other results;
    * what it does must be idempotent: the same input comes again after a restart.

    Raises:
        ConfigError: the DoFn has state, timers or a restriction.
    """

    def __init__(self, fn: beam.DoFn, *args: object, **kwargs: object) -> None:
        super().__init__(fn, *args, **kwargs)
        signature = beam.runners.common.DoFnSignature(self.fn)
        if signature.is_stateful_dofn() or signature.is_splittable_dofn():
            raise ConfigError(
                f"{type(self.fn).__name__} cannot have stable input: it has state, timers or a "
                "restriction, and hangs on Flink"
            )

    def to_runner_api_parameter(self, context, **extra_kwargs):
        """Sets the requirement in the payload that Beam makes, and on the pipeline."""
        urn, payload = super().to_runner_api_parameter(context, **extra_kwargs)
        payload.requires_stable_input = True
        context.add_requirement(common_urns.requirements.REQUIRES_STABLE_INPUT.urn)
        return urn, payload


def _was_stable(fn, payload):
    # Beam's own way forgets it, and such a pipeline would commit too early without a word.
    return payload.requires_stable_input


rebuild_as(StableInputParDo, _was_stable)
