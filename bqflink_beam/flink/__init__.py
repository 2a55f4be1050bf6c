"""Flink from Python: a job server of ones own, and the options that keep rows safe on it."""

from bqflink_beam.flink.class_path import (
    resolve_class_path as resolve_class_path,
)
from bqflink_beam.flink.class_path import (
    write_thin_jar as write_thin_jar,
)
from bqflink_beam.flink.job_server import (
    FlinkJobServer as FlinkJobServer,
)
from bqflink_beam.flink.local_options import (
    local_flink_options as local_flink_options,
)
