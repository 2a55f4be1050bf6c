"""`make demo`: flight_delays.py on the embedded BigQuery in a process of its own, then verify_demo.py.

python demo.py --demo_runner=local      (FnApiRunner)
python demo.py --demo_runner=flink      (a Flink job server on this machine)
"""

import argparse
import contextlib
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.flink import FlinkJobServer, local_flink_options

_FOLDER = pathlib.Path(__file__).parent
_DATASET = "demo.flights"


@contextlib.contextmanager
def embedded_bigquery() -> Iterator[tuple[str, str]]:
    """Starts ``python -m bqflink_beam emulator``; gives its REST and storage endpoints."""
    command = [sys.executable, "-m", "bqflink_beam", "emulator", "--port=0", "--storage-port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = dict(re.findall(r"(\w+)=(\S+)", process.stdout.readline()))
            yield ready["rest"], ready["storage"]
        finally:
            process.terminate()


@contextlib.contextmanager
def runner_flags(name: str) -> Iterator[list[str]]:
    """Gives the options for a runner, while it is there."""
    if name == "local":
        yield ["--runner=FnApiRunner"]
        return
    with FlinkJobServer(announce=print) as server:
        yield local_flink_options(server.job_endpoint)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--demo_runner", choices=["local", "flink"], default="local")
    parser.add_argument("--output", default="build/flight_delays")
    arguments = parser.parse_args(argv)
    pathlib.Path(arguments.output).parent.mkdir(parents=True, exist_ok=True)
    with embedded_bigquery() as (rest, storage), runner_flags(arguments.demo_runner) as flags:
        bigquery.Client(
            project="demo",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": rest},
        ).create_dataset(_DATASET)
        start_s = SYSTEM_CLOCK.monotonic_s()
        job = [
            sys.executable,
            str(_FOLDER / "flight_delays.py"),
            f"--dataset={_DATASET}",
            "--project=demo",
        ]
        job += [
            f"--output={arguments.output}",
            f"--bq_endpoint={rest}",
            f"--bq_storage_endpoint={storage}",
        ]
        subprocess.run([*job, *flags], check=True)
        print(
            f"the job took {SYSTEM_CLOCK.monotonic_s() - start_s:.0f} s; see {arguments.output}.png"
        )
        check = [sys.executable, str(_FOLDER / "verify_demo.py"), f"--dataset={_DATASET}"]
        return subprocess.run(
            [*check, f"--rest={rest}", f"--storage={storage}"], check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
