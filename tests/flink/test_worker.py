"""Workers without Docker: other processes than the one that submits, started as Flink asks."""

import os

import apache_beam as beam
import pytest
from apache_beam.coders import VarIntCoder
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec

from bqflink_beam.errors import ConfigError
from bqflink_beam.flink import FlinkWorkerPool, local_flink_options
from bqflink_beam.flink.worker import write_worker_script


class _NumberFn(beam.DoFn):
    """Numbers the rows of a key, in a file named for the process that does it."""

    SEEN = ReadModifyWriteStateSpec("seen", VarIntCoder())

    def __init__(self, folder):
        self.folder = folder

    def process(self, keyed, seen=beam.DoFn.StateParam(SEEN)):
        count = (seen.read() or 0) + 1
        seen.write(count)
        with open(f"{self.folder}/{os.getpid()}", "a") as numbered:
            numbered.write(f"{keyed[0]} {count}\n")


def _run(flags, folder):
    folder.mkdir()
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = (
            pipeline
            | beam.Create([(number % 2, number) for number in range(20)])
            | "Number" >> beam.ParDo(_NumberFn(str(folder)))
        )
    lines = "".join(part.read_text() for part in folder.iterdir()).splitlines()
    counts = sorted(tuple(int(word) for word in line.split()) for line in lines)
    return counts, {int(part.name) for part in folder.iterdir()}


_EACH_ROW_ONCE = sorted((key, count) for key in (0, 1) for count in range(1, 11))


def test_external_workers_of_a_pool_run_the_pipeline_and_end_with_the_pool(flink, tmp_path):
    with FlinkWorkerPool(log_path=tmp_path / "pool.log") as pool:
        flags = local_flink_options(
            flink.job_endpoint,
            parallelism=1,
            environment_type="EXTERNAL",
            environment_config=pool.address,
            # One worker for all stages: a new one takes seconds to import Beam.
            environment_cache_millis=60_000,
        )
        counts, processes = _run(flags, tmp_path / "numbered")
        group = os.getpgid(pool.process_id)

    assert counts == _EACH_ROW_ONCE
    assert processes
    assert os.getpid() not in processes
    assert group not in processes
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_worker_processes_that_flink_starts_run_the_pipeline(flink, tmp_path):
    script = write_worker_script(tmp_path / "worker.sh")
    flags = local_flink_options(
        flink.job_endpoint,
        parallelism=1,
        environment_type="PROCESS",
        environment_options=f"process_command={script}",
        environment_cache_millis=60_000,
    )

    counts, processes = _run(flags, tmp_path / "numbered")

    assert counts == _EACH_ROW_ONCE
    assert processes
    assert os.getpid() not in processes


def test_pool_on_a_taken_port_is_one_clear_error(flink, tmp_path):
    with (
        FlinkWorkerPool(log_path=tmp_path / "pool.log") as pool,
        pytest.raises(ConfigError, match="Address already in use"),
        FlinkWorkerPool(port=int(pool.address.rpartition(":")[2])),
    ):
        pass
