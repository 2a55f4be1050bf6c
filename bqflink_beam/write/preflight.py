"""What a pipeline must be told before its rows are safe: pure checks over a dict of options.

On Flink, settings that look like tuning decide whether rows are lost or doubled, and most of the
defaults are the wrong ones. Nothing at run time shows it, so the pipeline is refused while it is
built, with the flag that is missing.

Three groups of rules:

* `REQUIRED_FLINK_OPTIONS`: what steps that commit after a checkpoint (unbounded exactly-once
  writes and unbounded file loads) need on Flink;
* settings that break them when present;
* rules for everybody: no checkpoints without ``--finish_bundle_before_checkpointing`` (reads
  too), no commit-at-the-end step in a pipeline that streams, no more writers than BigQuery
  serves.
"""

import dataclasses
import enum
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from bqflink_beam.errors import ConfigError

# BigQuery's limit for open connections of one project, as its Flink connectors apply it.
_WRITERS_MAX_MULTI_REGION = 512
_WRITERS_MAX_REGION = 128
_MULTI_REGIONS = frozenset({"us", "eu"})

_BUFFERS_MIN = 32
_BUFFERS_LIMIT = 32_766  # the runner takes no more
_RESTARTS = 30
_INTERVAL_MS = 10_000
_TIMEOUT_MS = 250_000  # above what default-stream appends may take, too
_RETRY_DELAY_MIN_MS = 1000
_CHECKPOINT_TIMEOUT_DEFAULT_MS = 600_000  # Flink's own, when the option is absent

RunnerKind = Literal["flink", "dataflow", "fnapi", "prism", "direct", "unknown"]

_INTERVAL = "checkpointing_interval"
_FINISH_BUNDLE = "finish_bundle_before_checkpointing"
_BUFFERS = "num_concurrent_checkpoints"
_RETRIES = "number_of_execution_retries"
_TIMEOUT = "checkpoint_timeout_millis"


class StepKind(enum.Enum):
    """What a step of ours promises."""

    READ = "read"
    AT_LEAST_ONCE = "AtLeastOnce"
    EXACTLY_ONCE = "ExactlyOnce"
    UPSERTS = "Upserts"
    FILE_LOADS = "FileLoads"

    @property
    def commits(self) -> bool:
        """Whether rows become visible by a commit after they were sent, not as they are sent."""
        return self in (StepKind.EXACTLY_ONCE, StepKind.FILE_LOADS)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
    """One read or write of ours in the pipeline, as far as the checks care.

    Args:
        label: its full label, for messages.
        bounded: whether its input is (for a read: its output).
        shards: how many writers it may open at once, where that is fixed.
        location: of its dataset, where known.
        append_budget_s: how long one bundle of it may wait for BigQuery before it raises.
    """

    label: str
    kind: StepKind
    bounded: bool
    shards: int | None = None
    location: str | None = None
    append_budget_s: float | None = None


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing that is wrong. `flag` is what to add to, or take from, the command line."""

    flag: str
    message: str

    def __str__(self) -> str:
        return f"{self.flag}: {self.message}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequiredOption:
    """A pipeline option that unbounded exactly-once writes need on Flink.

    Args:
        value: what `flink-options` prints; ``None`` for a flag without a value.
        minimum: the smallest value that will do.
        reason: one sentence: what goes wrong without it.
    """

    name: str
    value: int | None = None
    minimum: int | None = None
    reason: str

    @property
    def flag(self) -> str:
        """As written on a command line."""
        return f"--{self.name}" if self.value is None else f"--{self.name}={self.value}"


def side_by_side_max(interval_ms: int, timeout_ms: int) -> int:
    """Returns how many checkpoints can be under way at once.

    Flink begins one each interval, however many are not complete yet (its minimal pause only
    counts from the last one that is), and none lasts longer than the timeout.
    """
    return max(1, math.ceil(timeout_ms / interval_ms))


def buffers_for(*, restarts: int, side_by_side: int) -> int:
    """Returns how many buffers keep every commit back until its checkpoint is complete.

    Each restart before a commit may leave as many buffers full as there were checkpoints side
    by side, and then there are those of the next ones.
    """
    return max(_BUFFERS_MIN, (restarts + 1) * side_by_side)


REQUIRED_FLINK_OPTIONS = (
    RequiredOption(
        name="streaming",
        reason="without it Flink keeps one bundle open for the whole input, and what it sends "
        "while a checkpoint is taken is in no checkpoint",
    ),
    RequiredOption(
        name=_INTERVAL,
        value=_INTERVAL_MS,
        minimum=1,
        reason="rows become visible after a checkpoint, so without checkpoints they never do; a "
        "default in the cluster's configuration does not count, the runner reads this option; "
        "in milliseconds, and about the time until a row is visible",
    ),
    RequiredOption(
        name=_FINISH_BUNDLE,
        reason="without it what a bundle sends while a checkpoint is taken is held back past the "
        "watermark, and the steps after it drop it as late: rows vanish without a word",
    ),
    RequiredOption(
        name=_TIMEOUT,
        value=_TIMEOUT_MS,
        minimum=1,
        reason="Flink's own ten minutes let that many more checkpoints be under way side by side, "
        f"and each needs a buffer (--{_BUFFERS}); in milliseconds, and above twice the time that a "
        "bundle may wait for BigQuery",
    ),
    RequiredOption(
        name=_BUFFERS,
        value=buffers_for(
            restarts=_RESTARTS, side_by_side=side_by_side_max(_INTERVAL_MS, _TIMEOUT_MS)
        ),
        minimum=_BUFFERS_MIN,
        reason="the runner holds commits back in this many buffers plus one; after a restore with "
        "too few, a commit is released before its checkpoint is complete, and the next restart "
        "doubles its rows",
    ),
    RequiredOption(
        name=_RETRIES,
        value=_RESTARTS,
        minimum=1,
        reason="without a restart strategy of its own the job either fails at the first error or "
        "restarts for ever; each restart may use up a buffer for each checkpoint under way, so "
        f"more of them need a larger --{_BUFFERS}",
    ),
    RequiredOption(
        name="execution_retry_delay",
        value=_RETRY_DELAY_MIN_MS,
        minimum=_RETRY_DELAY_MIN_MS,
        reason="quick restarts use up the buffers and the quota for new write streams; "
        "in milliseconds",
    ),
)


def check(
    options: Mapping[str, object],
    runner: RunnerKind,
    steps: Sequence[Step],
    *,
    pipeline_streams: bool = False,
) -> tuple[Finding, ...]:
    """Returns everything that makes `steps` unsafe as configured; nothing is safe to ignore.

    Args:
        options: the pipeline's options by name, unknown ones included; values may be text.
        runner: as `transforms.runner_kind` finds it.
        steps: all reads and writes of ours in the pipeline.
        pipeline_streams: whether any PCollection of the pipeline is unbounded, ours or not.
    """
    streams = (
        pipeline_streams
        or _is_on(options.get("streaming"))
        or any(not step.bounded for step in steps)
    )
    findings = list(_check_writers(steps))
    if runner == "unknown":
        findings += _check_unknown_runner(options, steps)
    if runner in ("flink", "unknown"):
        findings += _check_bounded_commits(steps, streams)
    if runner == "flink":
        findings += _check_flink(options, steps, streams)
    return tuple(findings)


def require(
    options: Mapping[str, object],
    runner: RunnerKind,
    steps: Sequence[Step],
    *,
    pipeline_streams: bool = False,
) -> None:
    """Raises one error with all findings of `check`, if there are any.

    Raises:
        ConfigError: names each flag to add and why.
    """
    findings = check(options, runner, steps, pipeline_streams=pipeline_streams)
    if findings:
        raise ConfigError(
            "this pipeline could lose or double rows as it is configured:\n"
            + "".join(f"  {finding}\n" for finding in findings)
            + "'python -m bqflink_beam flink-options' prints the options for Flink"
        )


def required_flink_flags(**values: int) -> list[str]:
    """Returns `REQUIRED_FLINK_OPTIONS` as command line flags, `values` in place of the defaults.

    Unless they are among the `values`, there are as many buffers as the others ask for.

    Raises:
        ConfigError: a name that is not in the table, or has no value to set.
    """
    known = {option.name for option in REQUIRED_FLINK_OPTIONS if option.value is not None}
    for name in values:
        if name not in known:
            raise ConfigError(f"{name!r} is none of the required options {sorted(known)}")
    chosen = {option.name: option.value for option in REQUIRED_FLINK_OPTIONS} | values
    if _BUFFERS not in values:
        chosen[_BUFFERS] = _buffers_needed(chosen)
    return [
        dataclasses.replace(option, value=chosen[option.name]).flag
        for option in REQUIRED_FLINK_OPTIONS
    ]


def _check_writers(steps: Sequence[Step]) -> Iterator[Finding]:
    for step in steps:
        if step.shards is None:
            continue
        location = step.location
        many = location is None or location.lower() in _MULTI_REGIONS
        limit = _WRITERS_MAX_MULTI_REGION if many else _WRITERS_MAX_REGION
        if step.shards > limit:
            yield Finding(
                f"shards={limit}",
                f"{step.label} opens {step.shards} writers, and BigQuery serves {limit} "
                f"in {location or 'the largest regions'}",
            )


def _check_unknown_runner(
    options: Mapping[str, object], steps: Sequence[Step]
) -> Iterator[Finding]:
    if _at_least(options.get(_INTERVAL), 1) and not _is_on(options.get(_FINISH_BUNDLE)):
        # Only Flink takes this interval, so it may well be Flink.
        yield Finding(f"--{_FINISH_BUNDLE}", _reason(_FINISH_BUNDLE))
    for step in steps:
        if step.kind.commits and not step.bounded:
            yield Finding(
                "--runner",
                f"{step.label} needs a runner that holds its commits back until a checkpoint is "
                "complete, and this one could not be identified; name it (--runner=FlinkRunner "
                "works with --job_endpoint too), or write with AtLeastOnce",
            )


def _check_bounded_commits(steps: Sequence[Step], streams: bool) -> Iterator[Finding]:
    if not streams:
        return
    for step in steps:
        if step.kind.commits and step.bounded:
            yield Finding(
                "--streaming",
                f"{step.label} writes bounded input with {step.kind.value}, which commits once at "
                "the end of its run, in a pipeline that streams: a restore from a checkpoint "
                "would commit under another run's id. Take away --streaming and the unbounded "
                "inputs, give this write a batch pipeline of its own, or use AtLeastOnce",
            )


def _check_flink(
    options: Mapping[str, object], steps: Sequence[Step], streams: bool
) -> Iterator[Finding]:
    commits = any(step.kind.commits and not step.bounded for step in steps)
    checkpoints = _at_least(options.get(_INTERVAL), 1)
    for option in REQUIRED_FLINK_OPTIONS:
        if option.name == _FINISH_BUNDLE:
            needed = commits or checkpoints
        elif option.name == "streaming":
            needed = commits or (checkpoints and streams)
        else:
            needed = commits
        if needed and not _holds(option, options.get(option.name)):
            yield Finding(option.flag, _complaint(option, options.get(option.name)))
    if commits:
        yield from _check_buffers(options)
        yield from _check_harmful(options)
    if streams and (commits or checkpoints):
        yield from _check_timeout(options, steps)


def _check_buffers(options: Mapping[str, object]) -> Iterator[Finding]:
    buffers, needed = _as_int(options.get(_BUFFERS)), _buffers_needed(options)
    if buffers is None or needed is None or buffers < _BUFFERS_MIN:
        return  # found already
    fewer = f"; fewer restarts (--{_RETRIES}), a longer --{_INTERVAL} or a shorter --{_TIMEOUT} need fewer"
    if max(buffers, needed) > _BUFFERS_LIMIT:
        yield Finding(
            f"--{_BUFFERS}={min(needed, _BUFFERS_LIMIT)}",
            f"the runner takes {_BUFFERS_LIMIT} buffers, and {needed} are needed{fewer}",
        )
    elif buffers < needed:
        yield Finding(
            f"--{_BUFFERS}={needed}",
            "each restart that comes before a commit may leave as many buffers full as checkpoints "
            f"were under way, which is the timeout divided by the interval; got {buffers}{fewer}",
        )


def _buffers_needed(options: Mapping[str, object]) -> int | None:
    numbers = [_as_int(options.get(name)) for name in (_RETRIES, _INTERVAL, _TIMEOUT)]
    restarts, interval_ms, timeout_ms = (number or 0 for number in numbers)
    if min(restarts, interval_ms, timeout_ms) < 1:
        return None  # found already
    side_by_side = side_by_side_max(interval_ms, timeout_ms)
    return buffers_for(restarts=restarts, side_by_side=side_by_side)


def _timeout_ms(options: Mapping[str, object]) -> int:
    timeout_ms = _as_int(options.get(_TIMEOUT))
    if timeout_ms is None or timeout_ms <= 0:
        return _CHECKPOINT_TIMEOUT_DEFAULT_MS
    return timeout_ms


def _check_harmful(options: Mapping[str, object]) -> Iterator[Finding]:
    """Settings whose default is right and whose presence breaks exactly once."""
    mode = options.get("checkpointing_mode")
    if mode is not None and str(mode).upper() != "EXACTLY_ONCE":
        yield Finding(
            "--checkpointing_mode=EXACTLY_ONCE",
            f"the runner cannot hold commits back in another mode; got {mode!r}",
        )
    tolerated = options.get("tolerable_checkpoint_failure_number")
    if tolerated is not None and _as_int(tolerated) != 0:
        yield Finding(
            "--tolerable_checkpoint_failure_number=0",
            "a checkpoint that fails and is tolerated leaves its buffer full, and the commits "
            f"that come into it next are released too early; got {tolerated!r}",
        )
    if options.get("fail_on_checkpointing_errors") is not None:
        # Declared with default true, so the bare flag is parsed as "off" by the job server.
        yield Finding(
            "without --fail_on_checkpointing_errors",
            "take it away: it is on by default, and naming it switches it off",
        )
    if _is_on(options.get("enable_stable_input_drain")):
        yield Finding(
            "without --enable_stable_input_drain",
            "take it away: it commits before the last checkpoint is complete, and a crash then "
            "doubles rows",
        )


def _check_timeout(options: Mapping[str, object], steps: Sequence[Step]) -> Iterator[Finding]:
    timeout_ms = _timeout_ms(options)
    for step in steps:
        if step.append_budget_s is not None and timeout_ms <= 2000 * step.append_budget_s:
            wanted_ms = math.floor(2000 * step.append_budget_s) + 1000
            yield Finding(
                f"--{_TIMEOUT}={wanted_ms}",
                f"must be above twice the {step.append_budget_s:g} s that {step.label} may wait "
                f"for BigQuery, or checkpoints fail while it waits; got {timeout_ms}",
            )


def _reason(name: str) -> str:
    return next(option.reason for option in REQUIRED_FLINK_OPTIONS if option.name == name)


def _holds(option: RequiredOption, value: object) -> bool:
    return _is_on(value) if option.minimum is None else _at_least(value, option.minimum)


def _complaint(option: RequiredOption, value: object) -> str:
    if value is None or value is False:
        return option.reason
    wanted = "be a bare flag" if option.minimum is None else f"be at least {option.minimum}"
    return f"must {wanted}, got {value!r}: {option.reason}"


def _is_on(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _at_least(value: object, minimum: int) -> bool:
    number = _as_int(value)
    return number is not None and number >= minimum


def _as_int(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return None
    try:
        return int(value)
    except ValueError:
        return None
