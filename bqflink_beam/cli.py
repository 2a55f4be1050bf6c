"""The command line: what a user starts beside a pipeline."""

import os
import pathlib
import signal
import textwrap
import types
from typing import Any, NoReturn

import click

from bqflink_beam.errors import BqflinkError

# Each command imports what it runs when it runs, so that --help does not wait for Beam.


class _Commands(click.Group):
    """Shows an error of ours as one message, without a stack trace."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BqflinkError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """BigQuery I/O for Apache Beam: tools for development and tests."""


@main.command()
@click.option("--port", default=9050, show_default=True, help="Port of the REST API.")
@click.option("--storage-port", default=9060, show_default=True, help="Port of the Storage API.")
@click.option("--admin-port", type=int, help="Port of faults, counters and the console.")
@click.option("--tls-port", type=int, help="Port of REST and gRPC over TLS, told apart by ALPN.")
@click.option(
    "--tls-name",
    multiple=True,
    help="Another host that the TLS certificate is for; may be repeated.",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--data-dir",
    type=click.Path(file_okay=False, path_type=pathlib.Path),
    help="Keep all data in this folder; without it, in memory.",
)
@click.option(
    "--files-root",
    type=click.Path(exists=True, file_okay=False, path_type=pathlib.Path),
    help="Let load and extract jobs use file:// URIs under this folder.",
)
@click.option(
    "--gcs-endpoint",
    envvar="STORAGE_EMULATOR_HOST",
    help="The Cloud Storage behind gs:// URIs (default: STORAGE_EMULATOR_HOST).",
)
@click.option(
    "--validation",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="off takes proto rows unchecked: to measure what checking costs.",
)
def emulator(
    port: int,
    storage_port: int,
    admin_port: int | None,
    tls_port: int | None,
    tls_name: tuple[str, ...],
    host: str,
    data_dir: pathlib.Path | None,
    files_root: pathlib.Path | None,
    gcs_endpoint: str | None,
    validation: str,
) -> None:
    """Run a BigQuery on this machine until it is stopped. Port 0 takes a free port."""
    from bqflink_beam.emulator.command import serve
    from bqflink_beam.emulator.settings import Settings

    serve(
        host=host,
        port=port,
        storage_port=storage_port,
        admin_port=admin_port,
        tls_port=tls_port,
        tls_names=tls_name,
        data_dir=data_dir,
        settings=Settings(
            files_root=files_root, gcs_endpoint=gcs_endpoint, validation=validation == "on"
        ),
    )


@main.command("flink-job-server")
@click.option(
    "--jar",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="Only write a jar for --runner=FlinkRunner --flink_job_server_jar=PATH.",
)
@click.option("--job-port", default=8099, show_default=True, help="Port to take jobs on.")
@click.option(
    "--flink-master",
    default="[local]",
    show_default=True,
    help="[local] runs each job on a Flink of its own in the same process; or host:port of a "
    "cluster's REST address.",
)
@click.option("--heap", default="2g", show_default=True, help="The largest Java heap.")
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="File for the log; by default one that goes when the server stops.",
)
def flink_job_server(
    jar: pathlib.Path | None,
    job_port: int,
    flink_master: str,
    heap: str,
    log: pathlib.Path | None,
) -> None:
    """Run Beam's Flink job server until it is stopped. Needs Java; Maven the first time."""
    from bqflink_beam.flink import FlinkJobServer, write_thin_jar

    if jar is not None:
        written = write_thin_jar(jar, announce=_say).resolve()
        click.echo(f"--runner=FlinkRunner --flink_job_server_jar={written}")
        return
    _stop_on_sigterm()
    server = FlinkJobServer(
        flink_master=flink_master,
        job_port=job_port,
        log_path=log,
        heap=heap,
        java=_java(),
        announce=_say,
    )
    with server:
        click.echo(f"--runner=FlinkRunner --job_endpoint={server.job_endpoint}")
        _say(f"log: {server.log_path}; stop with Ctrl-C")
        ended = server.wait()
        raise click.ClickException(
            f"the job server ended by itself with code {ended}; its log ends with:\n"
            + server.log_text()[-2000:]
        )


@main.command("flink-worker-pool")
@click.option("--port", default=50000, show_default=True, help="Port to be asked for workers on.")
@click.option(
    "--script",
    type=click.Path(dir_okay=False, path_type=pathlib.Path),
    help="Only write the worker's start script, for --environment_type=PROCESS.",
)
def flink_worker_pool(port: int, script: pathlib.Path | None) -> None:
    """Run Python workers for Flink without Docker, beside a TaskManager, until stopped."""
    if script is not None:
        from bqflink_beam.flink.worker import write_worker_script

        written = write_worker_script(script).resolve()
        click.echo(f"--environment_type=PROCESS --environment_options=process_command={written}")
        return
    from bqflink_beam.flink.worker_pool import serve_worker_pool

    _stop_on_sigterm()
    serve_worker_pool(port, click.echo)


@main.command("flink-options")
@click.option("--explain", is_flag=True, help="Say for each option what goes wrong without it.")
def flink_options(explain: bool) -> None:
    """Print the pipeline options that exactly-once streaming writes need on Flink."""
    from bqflink_beam.write.preflight import REQUIRED_FLINK_OPTIONS

    for option in REQUIRED_FLINK_OPTIONS:
        if explain:
            click.echo(
                textwrap.fill(option.reason, 88, initial_indent="# ", subsequent_indent="# ")
            )
        click.echo(option.flag)


@main.command("types")
def types_page() -> None:
    """Print what each column type takes and gives, as docs/types.md."""
    from bqflink_beam.transforms.types_page import page

    click.echo(page(), nl=False)


def _say(text: str) -> None:
    click.echo(text, err=True)


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", "java") if home else "java"


def _stop_on_sigterm() -> None:
    """Lets a service manager's stop unwind the stack as Ctrl-C does, so that children end too."""

    def stop(number: int, frame: types.FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, stop)
