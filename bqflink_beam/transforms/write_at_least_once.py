"""`AtLeastOnce`: encoded batches to the default streams of their tables."""

import apache_beam as beam
from apache_beam.transforms.window import GlobalWindows

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.transforms import metrics
from bqflink_beam.transforms.failed import failed_row, row_error
from bqflink_beam.transforms.write_encode import FAILED, Front
from bqflink_beam.write.default import DefaultWriter
from bqflink_beam.write.options import AtLeastOnce
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
        return (batches | "Append" >> append.with_outputs(FAILED, main=_DONE))[FAILED]


class _AppendToDefaultFn(beam.DoFn):
    def __init__(self, front: Front, method: AtLeastOnce) -> None:
        self._front = front
        self._method = method

    def setup(self) -> None:
        self._client = self._front.connection.open()
        self._appended = metrics.counter(metrics.ROWS_APPENDED)
        self._failed = metrics.counter(metrics.ROWS_FAILED)

    def start_bundle(self) -> None:
        self._rows = 0
        self._writer = DefaultWriter(
            self._client.pool.send,
            prepare_table=lambda table: prepare(
                self._client.tables, table, self._front.create, SYSTEM_CLOCK
            ),
            request_bytes_max=self._method.batch_bytes_max,
            forgives_tables=self._front.forgives_tables,
        )

    def process(self, batch):
        self._writer.append(batch)
        self._rows += len(batch.rows)

    def finish_bundle(self):
        rejected = self._writer.finish()
        self._appended.inc(self._rows - len(rejected))
        for row in rejected:
            failed = failed_row(row)
            if not self._front.dead_letters:
                raise row_error(failed)
            self._failed.inc()
            yield beam.pvalue.TaggedOutput(FAILED, GlobalWindows.windowed_value(failed))

    def teardown(self) -> None:
        self._client.close()
