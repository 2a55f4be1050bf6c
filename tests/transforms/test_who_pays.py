"""Sessions and jobs are paid for by the connection's project, else the pipeline's, else the table's."""

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import bqflink_beam as bq
from bqflink_beam import testing
from bqflink_beam.transforms.pipeline_options import billed_to

TABLE = bq.TableReference("owner", "d", "t")


@pytest.mark.parametrize(
    ("own", "project", "table", "payer"),
    [
        ("own", "pipeline", TABLE, "own"),
        (None, "pipeline", TABLE, "pipeline"),
        (None, None, TABLE, "owner"),
        (None, "pipeline", None, "pipeline"),
        (None, None, None, None),
    ],
)
def test_the_first_that_is_known_pays(own, project, table, payer):
    assert billed_to(bq.Connection(billing_project=own), project, table).billing_project == payer


def test_a_write_into_another_project_is_registered_in_the_pipelines():
    with testing.Emulator() as server:
        server.create_table("owner.d.t", [{"name": "id", "type": "INT64"}])
        with beam.Pipeline(
            options=PipelineOptions(["--runner=FnApiRunner", "--project=payer"])
        ) as p:
            (
                p
                | beam.Create([{"id": 1}])
                | bq.WriteToBigQueryStorage(
                    "owner.d.t", connection=server.connection, method=bq.ExactlyOnce(run_id="r")
                )
            )

        with pytest.raises(bq.BqflinkError, match="already written"):
            run_again(server, "payer")
        run_again(server, "other")

        assert server.row_count("owner.d.t") == 3


def run_again(server, project):
    """The same run with other rows: refused where it is registered, and there alone."""
    with beam.Pipeline(
        options=PipelineOptions(["--runner=FnApiRunner", f"--project={project}"])
    ) as p:
        (
            p
            | beam.Create([{"id": 2}, {"id": 3}])
            | bq.WriteToBigQueryStorage(
                "owner.d.t", connection=server.connection, method=bq.ExactlyOnce(run_id="r")
            )
        )
