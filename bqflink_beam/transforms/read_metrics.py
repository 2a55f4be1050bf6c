"""Publishes what a reader tallied as Beam counters."""

import dataclasses

from bqflink_beam.read.rows import Tally
from bqflink_beam.transforms import metrics


class ReadMetrics:
    """Counts on from what was published before. Call it on the DoFn's own thread."""

    def __init__(self) -> None:
        self._published = Tally()
        self._rows = metrics.counter(metrics.ROWS_READ)
        self._bytes = metrics.counter(metrics.BYTES_READ)
        self._retries = metrics.counter(metrics.READ_RETRIES)
        self._throttled_ms = metrics.counter(metrics.READ_THROTTLED_MS)
        self._checkpoints = metrics.counter(metrics.READ_CHECKPOINTS)

    def publish(self, tally: Tally) -> None:
        """Publishes what `tally`, always the same one, has grown by."""
        last, self._published = self._published, dataclasses.replace(tally)
        for counter, growth in (
            (self._rows, tally.rows - last.rows),
            (self._bytes, tally.bytes - last.bytes),
            (self._retries, tally.retries - last.retries),
            (
                self._throttled_ms,
                round(tally.throttled_s * 1000) - round(last.throttled_s * 1000),
            ),
        ):
            if growth:
                counter.inc(growth)

    def checkpointed(self) -> None:
        """Counts one self-checkpoint."""
        self._checkpoints.inc()
