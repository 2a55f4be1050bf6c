"""ParDos of ours that Beam would make plain ones of, when it rebuilds a pipeline from its proto.

Interactive pipelines are rebuilt, those of local runners, and those of whoever edits one
through `Pipeline.from_runner_api`.
"""

from collections.abc import Callable

import apache_beam as beam
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

_Choice = Callable[[beam.DoFn, beam_runner_api_pb2.ParDoPayload], bool]
_KINDS: list[tuple[type[beam.ParDo], _Choice]] = []
_rebuild_by_beam = beam.ParDo.from_runner_api_parameter


def rebuild_as(kind: type[beam.ParDo], when: _Choice) -> None:
    """Has a ParDo rebuilt as `kind`, when its DoFn and payload say that it was one."""
    _KINDS.append((kind, when))


def _rebuild(transform, payload, context):
    pardo = _rebuild_by_beam(transform, payload, context)
    for kind, was in _KINDS:
        if was(pardo.fn, payload):
            ours = kind(pardo.fn, *pardo.args, **pardo.kwargs)
            ours.side_inputs = pardo.side_inputs
            return ours
    return pardo


beam.PTransform.register_urn(
    common_urns.primitives.PAR_DO.urn, beam_runner_api_pb2.ParDoPayload, _rebuild
)
