"""`AtLeastOnce`: encoded batches to the default streams of their tables."""

from collections.abc import Iterator

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.transforms import metrics
from bqflink_beam.transforms.failed import FailedRow, dead_letters
from bqflink_beam.transforms.write_encode import FAILED, Front
from bqflink_beam.write.default import DefaultWriter
from bqflink_beam.write.options import AtLeastOnce
from bqflink_beam.write.sift import RejectedRow
from bqflink_beam.write.tables import prepare

_DONE = "done"


class WriteAtLeastOnce(beam.PTransform):
    """Batches in; results in the PCollection of dead letters. A bundle that returns is written."""

    def __init__(self, front: Front, method: AtLeastOnce) -> None:
        super().__init__()
        self._front = front
        self._method = method

    def expand(self, batches):
        append = beam.ParDo(_AppendToDefaultFn(self._front, self._method))
        failed = (batches | "Append" >> append.with_outputs(FAILED, main=_DONE))[FAILED]
        failed.element_type = FailedRow
        return failed


class _AppendToDefaultFn(beam.DoFn):
    def __init__(self, front: Front, method: AtLeastOnce) -> None:
        self._front = front
        self._method = method

    def setup(self) -> None:
        self._client = self._front.connection.open()
        self._appended = metrics.counter(metrics.ROWS_APPENDED)
        self._failed = metrics.counter(metrics.ROWS_FAILED)
        self._writer = DefaultWriter(
            self._client.pool.send,
            prepare_table=lambda table: prepare(
                self._client.tables, table, self._front.create, SYSTEM_CLOCK
            ),
            request_bytes_max=self._method.batch_bytes_max,
            forgives_tables=self._front.forgives_tables,
        )

    def start_bundle(self) -> None:
        self._rows = 0
        self._writer.start_bundle()

    def process(self, batch):
        self._rows += len(batch.rows)
        for failed in self._dead_letters(self._writer.append(batch)):
            yield beam.pvalue.TaggedOutput(FAILED, failed)

    def finish_bundle(self):
        for failed in self._dead_letters(self._writer.finish()):
            yield beam.pvalue.TaggedOutput(FAILED, GlobalWindows.windowed_value(failed))
        self._appended.inc(self._rows)

    def _dead_letters(self, rejected: list[RejectedRow]) -> Iterator[FailedRow]:
        for failed in dead_letters(rejected, allowed=self._front.dead_letters):
            self._rows -= 1
            self._failed.inc()
            yield failed

    def teardown(self) -> None:
        self._client.close()
