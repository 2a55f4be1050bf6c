"""Flink from Python: a job server of ones own, and the options that keep rows safe on it."""

from bqflink_beam.flink.class_path import resolve_class_path, write_thin_jar
from bqflink_beam.flink.job_server import FlinkJobServer
from bqflink_beam.flink.local_options import local_flink_options

__all__ = ["FlinkJobServer", "local_flink_options", "resolve_class_path", "write_thin_jar"]
