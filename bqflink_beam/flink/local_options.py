"""Pipeline options for a Flink that runs on this machine, against a job server of ours."""

from bqflink_beam.write.preflight import required_flink_flags


def local_flink_options(
    job_endpoint: str,
    *,
    streaming: bool = False,
    interval_ms: int = 1000,
    parallelism: int = 2,
    **others: object,
) -> list[str]:
    """Returns flags for a pipeline whose Python runs as threads of this very process.

    With ``streaming=True`` that is everything an unbounded exactly-once write needs.

    Args:
        job_endpoint: of a `FlinkJobServer`.
        interval_ms: the pause between checkpoints.
        others: further pipeline options, or other values for those above: ``True`` gives a bare
            flag, ``None`` and ``False`` leave the option out.
    """
    flags = [
        "--runner=FlinkRunner",
        f"--job_endpoint={job_endpoint}",
        "--environment_type=LOOPBACK",
        f"--parallelism={parallelism}",
    ]
    if streaming:
        flags += required_flink_flags(checkpointing_interval=interval_ms)
    flags = [flag for flag in flags if flag.removeprefix("--").split("=")[0] not in others]
    for name, value in others.items():
        if value is True:
            flags.append(f"--{name}")
        elif value is not None and value is not False:
            flags.append(f"--{name}={value}")
    return flags
