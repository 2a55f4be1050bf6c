"""Each setting that can lose or double rows is refused, by the name of its flag."""

import pytest

from bqflink_beam.errors import ConfigError
from bqflink_beam.service.base import DEFAULT_STREAM_BUDGET_S
from bqflink_beam.write.options import ExactlyOnce
from bqflink_beam.write.preflight import (
    REQUIRED_FLINK_OPTIONS,
    Step,
    StepKind,
    check,
    require,
    required_flink_flags,
)

_COMMITS = (StepKind.EXACTLY_ONCE, StepKind.FILE_LOADS)
_OTHERS = (StepKind.READ, StepKind.AT_LEAST_ONCE, StepKind.UPSERTS)
_NAMES = [option.name for option in REQUIRED_FLINK_OPTIONS]
_RUNNERS_WITHOUT_FLINK = ("dataflow", "fnapi", "direct", "prism")


def _good(**others):
    """Options as the pipeline has them: unknown ones as text."""
    options = {
        option.name: True if option.value is None else str(option.value)
        for option in REQUIRED_FLINK_OPTIONS
    }
    return {**options, **others}


def _without(name):
    return {key: value for key, value in _good().items() if key != name}


def _step(kind=StepKind.EXACTLY_ONCE, *, bounded=False, **others):
    return Step(label="WriteOrders", kind=kind, bounded=bounded, **others)


def _flags(findings):
    return [finding.flag for finding in findings]


@pytest.mark.parametrize("kind", _COMMITS)
def test_required_options_are_enough(kind):
    assert check(_good(), "flink", [_step(kind)]) == ()


@pytest.mark.parametrize("kind", _COMMITS)
@pytest.mark.parametrize("name", _NAMES)
def test_each_required_option_that_is_missing_is_its_one_finding(name, kind):
    [finding] = check(_without(name), "flink", [_step(kind)])

    assert finding.flag.split("=")[0] == f"--{name}"
    assert finding.message


@pytest.mark.parametrize("value", [None, False, "", "false", "no", 0, "0", "-1", "x"])
@pytest.mark.parametrize("name", _NAMES)
def test_value_that_will_not_do_is_the_same_finding_as_none(name, value):
    [finding] = check(_good(**{name: value}), "flink", [_step()])

    assert finding.flag.split("=")[0] == f"--{name}"


@pytest.mark.parametrize("name", [o.name for o in REQUIRED_FLINK_OPTIONS if o.minimum])
def test_option_without_its_number_is_a_finding(name):
    [finding] = check(_good(**{name: True}), "flink", [_step()])

    assert finding.flag.split("=")[0] == f"--{name}"


def test_minimums_are_those_that_kept_every_row_on_flink():
    minimums = {option.name: option.minimum for option in REQUIRED_FLINK_OPTIONS}

    assert minimums == {
        "streaming": None,
        "checkpointing_interval": 1,
        "finish_bundle_before_checkpointing": None,
        "checkpoint_timeout_millis": 1,
        "num_concurrent_checkpoints": 32,
        "number_of_execution_retries": 1,
        "execution_retry_delay": 1000,
    }


@pytest.mark.parametrize("option", REQUIRED_FLINK_OPTIONS, ids=_NAMES)
def test_smallest_value_passes_and_one_less_does_not(option):
    if option.minimum is None:
        good, bad = ("true", "True", True), ("tru",)
    else:
        good, bad = (option.minimum, str(option.minimum)), (option.minimum - 1,)
    # One checkpoint at a time, and few restarts, so that 32 buffers are enough.
    fitting = {"number_of_execution_retries": 1, "checkpoint_timeout_millis": 10}

    for value in good:
        assert check(_good(**{**fitting, option.name: value}), "flink", [_step()]) == ()
    for value in bad:
        assert len(check(_good(**{**fitting, option.name: value}), "flink", [_step()])) == 1


def test_nothing_set_finds_every_required_option_in_one_go():
    findings = check({}, "flink", [_step()])

    assert _flags(findings) == [option.flag for option in REQUIRED_FLINK_OPTIONS]


@pytest.mark.parametrize(
    ("retries", "interval_ms", "timeout_ms", "buffers"),
    [
        (32, 10_000, 10_000, 33),
        (30, 10_000, 10_001, 62),
        (30, 10_000, 130_000, 403),
        (30, 1_000, 130_000, 4_030),
        (1000, 60_000, 130_000, 3_003),
    ],
)
def test_buffers_are_enough_for_every_restart_and_every_checkpoint_side_by_side(
    retries, interval_ms, timeout_ms, buffers
):
    options = _good(
        number_of_execution_retries=retries,
        checkpointing_interval=interval_ms,
        checkpoint_timeout_millis=timeout_ms,
    )

    few = check({**options, "num_concurrent_checkpoints": buffers - 1}, "flink", [_step()])

    assert _flags(few) == [f"--num_concurrent_checkpoints={buffers}"]
    assert check({**options, "num_concurrent_checkpoints": buffers}, "flink", [_step()]) == ()


def test_more_buffers_than_the_runner_takes_are_not_advised():
    options = _good(checkpointing_interval=100, num_concurrent_checkpoints=50_000)

    [finding] = check(options, "flink", [_step()])

    assert finding.flag == "--num_concurrent_checkpoints=32766"
    assert "77500 are needed" in finding.message
    assert "longer --checkpointing_interval" in finding.message


@pytest.mark.parametrize(
    ("name", "value", "flag"),
    [
        ("checkpointing_mode", "AT_LEAST_ONCE", "--checkpointing_mode=EXACTLY_ONCE"),
        ("tolerable_checkpoint_failure_number", "1", "--tolerable_checkpoint_failure_number=0"),
        ("tolerable_checkpoint_failure_number", 3, "--tolerable_checkpoint_failure_number=0"),
        ("tolerable_checkpoint_failure_number", "x", "--tolerable_checkpoint_failure_number=0"),
        ("fail_on_checkpointing_errors", True, "without --fail_on_checkpointing_errors"),
        ("fail_on_checkpointing_errors", False, "without --fail_on_checkpointing_errors"),
        ("fail_on_checkpointing_errors", "false", "without --fail_on_checkpointing_errors"),
        ("enable_stable_input_drain", True, "without --enable_stable_input_drain"),
        ("enable_stable_input_drain", "true", "without --enable_stable_input_drain"),
    ],
)
def test_setting_that_breaks_exactly_once_is_refused(name, value, flag):
    assert _flags(check(_good(**{name: value}), "flink", [_step()])) == [flag]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("checkpointing_mode", "EXACTLY_ONCE"),
        ("checkpointing_mode", None),
        ("tolerable_checkpoint_failure_number", "0"),
        ("tolerable_checkpoint_failure_number", 0),
        ("tolerable_checkpoint_failure_number", None),
        ("fail_on_checkpointing_errors", None),
        ("enable_stable_input_drain", False),
        ("enable_stable_input_drain", None),
    ],
)
def test_setting_at_its_default_is_no_finding(name, value):
    assert check(_good(**{name: value}), "flink", [_step(append_budget_s=60.0)]) == ()


@pytest.mark.parametrize("timeout_ms", [None, "-1"])
@pytest.mark.parametrize(("budget_s", "flags"), [(299.0, []), (300.0, [601_000])])
def test_flinks_own_timeout_must_outlast_the_bundles_of_others_too(timeout_ms, budget_s, flags):
    options = _good(checkpoint_timeout_millis=timeout_ms)

    findings = check(options, "flink", [_step(StepKind.AT_LEAST_ONCE, append_budget_s=budget_s)])

    assert _flags(findings) == [f"--checkpoint_timeout_millis={flag}" for flag in flags]


@pytest.mark.parametrize(
    ("timeout_ms", "budget_s", "flag"),
    [
        ("120000", 60.0, "--checkpoint_timeout_millis=121000"),
        ("120001", 60.0, None),
        ("10000", 60.0, "--checkpoint_timeout_millis=121000"),
        ("10000", None, None),
    ],
)
def test_checkpoint_must_outlast_twice_what_a_bundle_may_wait(timeout_ms, budget_s, flag):
    options = _good(checkpoint_timeout_millis=timeout_ms)

    findings = check(options, "flink", [_step(append_budget_s=budget_s)])

    assert _flags(findings) == ([flag] if flag else [])


def test_flag_that_a_finding_names_cures_it():
    options = _good(
        number_of_execution_retries=100,
        checkpoint_timeout_millis=1,
        tolerable_checkpoint_failure_number=2,
        checkpointing_mode="AT_LEAST_ONCE",
    )
    step = _step(append_budget_s=7.25)

    for finding in check(options, "flink", [step]):
        name, value = finding.flag.removeprefix("--").split("=")
        options[name] = value

    assert check(options, "flink", [step]) == ()


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize("kind", _OTHERS)
def test_checkpoints_without_finish_bundle_are_refused_for_everybody(kind, bounded):
    options = {"checkpointing_interval": "60000", "streaming": True}

    findings = check(options, "flink", [_step(kind, bounded=bounded)])

    assert _flags(findings) == ["--finish_bundle_before_checkpointing"]


@pytest.mark.parametrize("kind", StepKind)
def test_checkpoints_without_finish_bundle_are_refused_in_a_batch_too(kind):
    findings = check({"checkpointing_interval": 60000}, "flink", [_step(kind, bounded=True)])

    assert _flags(findings) == ["--finish_bundle_before_checkpointing"]


@pytest.mark.parametrize("kind", _OTHERS)
def test_unbounded_input_with_checkpoints_must_say_streaming(kind):
    options = _without("streaming")

    assert _flags(check(options, "flink", [_step(kind)])) == ["--streaming"]
    bounded = [_step(kind, bounded=True)]
    assert _flags(check(options, "flink", bounded, pipeline_streams=True)) == ["--streaming"]
    assert check(options, "flink", bounded) == ()


@pytest.mark.parametrize("interval", [None, -1, "-1", 0])
@pytest.mark.parametrize("kind", _OTHERS)
def test_flink_without_checkpoints_asks_nothing_of_reads_and_plain_writes(kind, interval):
    assert check({"checkpointing_interval": interval}, "flink", [_step(kind)]) == ()


@pytest.mark.parametrize("kind", StepKind)
def test_batch_on_flink_needs_no_option(kind):
    assert check({}, "flink", [_step(kind, bounded=True)]) == ()


@pytest.mark.parametrize("runner", ["flink", "unknown"])
@pytest.mark.parametrize("kind", _COMMITS)
@pytest.mark.parametrize("how", ["flag", "text", "graph", "other step"])
def test_commit_at_the_end_is_refused_in_a_pipeline_that_streams(runner, kind, how):
    steps = [_step(kind, bounded=True)]
    options = {}
    if how in ("flag", "text"):
        options = {"streaming": True if how == "flag" else "true"}
    if how == "other step":
        steps.append(_step(StepKind.READ))

    findings = check(options, runner, steps, pipeline_streams=how == "graph")

    assert _flags(findings) == ["--streaming"]
    assert "WriteOrders" in findings[0].message
    assert "batch pipeline of its own" in findings[0].message


@pytest.mark.parametrize("kind", _COMMITS)
def test_unbounded_commit_on_an_unknown_runner_is_refused_whatever_the_options(kind):
    assert _flags(check(_good(), "unknown", [_step(kind)])) == ["--runner"]


@pytest.mark.parametrize("kind", _OTHERS)
def test_unknown_runner_may_do_what_needs_no_commit(kind):
    assert check({}, "unknown", [_step(kind)]) == ()
    assert check({}, "unknown", [_step(StepKind.EXACTLY_ONCE, bounded=True)]) == ()


def test_unknown_runner_with_flinks_interval_must_finish_bundles_too():
    options = {"checkpointing_interval": "1000"}

    findings = check(options, "unknown", [_step(StepKind.READ)])

    assert _flags(findings) == ["--finish_bundle_before_checkpointing"]
    options["finish_bundle_before_checkpointing"] = True
    assert check(options, "unknown", [_step(StepKind.READ)]) == ()


@pytest.mark.parametrize("runner", _RUNNERS_WITHOUT_FLINK)
@pytest.mark.parametrize("kind", StepKind)
@pytest.mark.parametrize("bounded", [True, False])
def test_other_runners_need_none_of_flinks_options(runner, kind, bounded):
    assert check({"streaming": True}, runner, [_step(kind, bounded=bounded)]) == ()


@pytest.mark.parametrize(
    ("location", "shards", "limit"),
    [
        ("US", 512, None),
        ("us", 513, 512),
        ("EU", 512, None),
        ("eu", 513, 512),
        ("europe-west1", 128, None),
        ("europe-west1", 129, 128),
        (None, 512, None),
        (None, 513, 512),
        ("us-central1", None, None),
    ],
)
@pytest.mark.parametrize("runner", [*_RUNNERS_WITHOUT_FLINK, "flink"])
def test_no_more_writers_than_bigquery_serves(runner, location, shards, limit):
    findings = check(_good(), runner, [_step(shards=shards, location=location)])

    assert _flags(findings) == ([] if limit is None else [f"shards={limit}"])


def test_required_options_of_two_writes_are_found_once():
    findings = check(_without("streaming"), "flink", [_step(), _step(StepKind.FILE_LOADS)])

    assert _flags(findings) == ["--streaming"]


def test_one_error_names_every_flag_and_the_command_that_prints_them():
    with pytest.raises(ConfigError) as raised:
        require({}, "flink", [_step()])

    for option in REQUIRED_FLINK_OPTIONS:
        assert option.flag in str(raised.value)
    assert "flink-options" in str(raised.value)


def test_safe_pipeline_raises_nothing():
    require(_good(), "flink", [_step()])


def test_the_options_that_are_printed_do_for_every_method_with_its_own_patience():
    patient = _step(StepKind.AT_LEAST_ONCE, append_budget_s=DEFAULT_STREAM_BUDGET_S)

    require(_good(), "flink", [_step(append_budget_s=ExactlyOnce().append_budget_s), patient])


def test_required_flags_are_what_the_checks_want():
    flags = required_flink_flags(checkpointing_interval=500)
    options = dict(
        flag.removeprefix("--").split("=") if "=" in flag else (flag.removeprefix("--"), True)
        for flag in flags
    )

    assert options["checkpointing_interval"] == "500"
    assert check(options, "flink", [_step()]) == ()


@pytest.mark.parametrize("name", ["checkpoint_interval", "streaming"])
def test_value_for_no_such_option_is_refused(name):
    with pytest.raises(ConfigError, match=name):
        required_flink_flags(**{name: 1})
