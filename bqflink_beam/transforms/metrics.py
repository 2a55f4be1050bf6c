"""The names of our metrics, all in one namespace.

Counters are published by DoFns from their own thread: Beam loses what another thread counts.
"""

from apache_beam.metrics import Metrics

NAMESPACE = "bqflink_beam"

ROWS_ENCODED = "rows_encoded"
ROWS_FAILED = "rows_failed"
ROWS_APPENDED = "rows_appended"
ROWS_COMMITTED = "rows_committed"
RUNS_REUSED = "runs_reused"
STREAMS_CREATED = "streams_created"
STREAMS_FLUSHED = "streams_flushed"
STREAMS_LOST = "streams_lost"
ROWS_READ = "rows_read"
BYTES_READ = "bytes_read"
READ_RETRIES = "read_retries"
READ_THROTTLED_MS = "read_throttled_ms"
READ_CHECKPOINTS = "read_checkpoints"


def counter(name: str):
    """Returns the counter of that name in our namespace."""
    return Metrics.counter(NAMESPACE, name)
