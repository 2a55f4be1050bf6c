"""Flink from Python: a job server of ones own, workers, and options that keep rows safe on it."""

from bqflink_beam.flink.class_path import resolve_class_path, write_thin_jar
from bqflink_beam.flink.job_server import FlinkJobServer
from bqflink_beam.flink.local_options import local_flink_options
from bqflink_beam.flink.worker_pool import FlinkWorkerPool

__all__ = [
    "FlinkJobServer",
    "FlinkWorkerPool",
    "local_flink_options",
    "resolve_class_path",
    "write_thin_jar",
]
