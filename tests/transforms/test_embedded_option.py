"""``--bq_embedded``: a pipeline file runs as it is, against a BigQuery of its own process."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

import bqflink_beam as bq
from bqflink_beam.testing.embedded import stop_shared_emulator

ROWS = [{"id": index} for index in range(10)]
CREATE = bq.CreateTable(schema=[{"name": "id", "type": "INT64"}])


@pytest.fixture(autouse=True, scope="module")
def stopped():
    yield
    stop_shared_emulator()


def pipeline(*flags):
    return beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner", "--bq_embedded", *flags]))


def test_what_one_pipeline_writes_the_next_of_the_process_reads():
    with pipeline() as p:
        p | beam.Create(ROWS) | bq.WriteToBigQueryStorage("shop.embedded.orders", create=CREATE)
    with pipeline() as p:
        rows = p | bq.ReadFromBigQueryStorage("shop.embedded.orders")
        assert_that(rows, equal_to(ROWS))


def test_workers_on_other_machines_are_refused():
    p = pipeline("--environment_type=EXTERNAL", "--environment_config=localhost:50000")

    with pytest.raises(bq.ConfigError, match=r"this machine only.*EXTERNAL"):
        p | beam.Create(ROWS) | bq.WriteToBigQueryStorage("shop.embedded.orders", create=CREATE)
