"""A run id and a nonce, minted once for each translation of a pipeline to its proto.

A runner restarts a job from the proto, so every restart has the same id. `p.run()` a
second time translates again, so it has another: an id minted in `expand` would make the
second run write nothing.
"""

import uuid
import weakref

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    GoogleCloudOptions,
    PipelineOptions,
    PortableOptions,
)

from bqflink_beam.errors import ConfigError
from bqflink_beam.transforms.pipeline_check import check_pipeline
from bqflink_beam.transforms.rebuilt import rebuild_as
from bqflink_beam.write.manifest import RunIdentity

_MINTED: "weakref.WeakKeyDictionary[object, RunIdentity]" = weakref.WeakKeyDictionary()


def identity_for(context: object, run_id: str | None) -> RunIdentity:
    """Returns the identity of one translation; `run_id` is the user's own name for the run."""
    minted = _MINTED.get(context)
    if minted is None:
        minted = _MINTED[context] = RunIdentity(uuid.uuid4().hex, uuid.uuid4().hex)
    return minted if run_id is None else RunIdentity(run_id, minted.nonce)


def is_saved(options: PipelineOptions) -> str | None:
    """Returns the flag by which a pipeline is saved, to be started any number of times."""
    saved = {
        "--template_location": options.view_as(GoogleCloudOptions).template_location,
        "--output_executable_path": options.view_as(PortableOptions).output_executable_path,
    }
    return next((flag for flag, value in saved.items() if value), None)


def refuse_saved_pipeline(options: PipelineOptions, so: str) -> None:
    """Refuses to mint an id for a pipeline that is saved, to be started any number of times.

    Args:
        so: what would follow, and what to do instead.

    Raises:
        ConfigError: every start would be the same run.
    """
    flag = is_saved(options)
    if flag is not None:
        raise ConfigError(
            f"with {flag} the pipeline is saved and every start of it would be the same run, so {so}"
        )


def identity_of(fn: beam.DoFn) -> RunIdentity:
    """Returns which run a DoFn of a `RunIdentityParDo` belongs to.

    Raises:
        ConfigError: the runner has not translated the pipeline.
    """
    if fn.identity is None:
        raise ConfigError(
            "this runner runs pipelines without translating them, so nothing names the run. It is the "
            "oldest of Beam's local runners, which DirectRunner takes for a pipeline with TestStream, "
            "Pub/Sub or real-time timers: run with --runner=FnApiRunner or --runner=PrismRunner"
        )
    return fn.identity


class RunIdentityParDo(beam.ParDo):
    """A ParDo whose DoFn learns, while it is translated, which run it belongs to.

    The DoFn has a plain attribute `identity`, and `run_id` with the user's name or None.
    The pipeline is whole by then, so it is also checked as a whole. One that Beam has
    rebuilt from its proto was checked before, and is a run of its own each time it runs.
    """

    _pipeline: "weakref.ref[beam.Pipeline] | None" = None

    def expand(self, pcoll):
        self._pipeline = weakref.ref(pcoll.pipeline)
        return super().expand(pcoll)

    def to_runner_api_parameter(self, context, **kwargs):
        if self._pipeline is not None:
            pipeline = self._pipeline()
            assert pipeline is not None, "a pipeline lives while it is translated"
            check_pipeline(pipeline)
        self.fn.identity = identity_for(context, self.fn.run_id)
        return super().to_runner_api_parameter(context, **kwargs)


def _had_identity(fn, payload):
    return hasattr(fn, "identity") and hasattr(fn, "run_id")


rebuild_as(RunIdentityParDo, _had_identity)
