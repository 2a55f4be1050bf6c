"""The same rules on the real BigQuery: ``pytest -m live --bq-project=PROJECT tests/conformance``.

Makes a dataset of its own that deletes its tables after an hour, and drops it at the end.
"""

import itertools
import uuid

import google.auth
import google.auth.transport.grpc
import google.auth.transport.requests
import pytest
from google.cloud import bigquery as google_bigquery

from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance import BigQuery, ReadConformance, WriteConformance
from bqflink_beam.testing.conformance.kit import GrpcTransport

pytestmark = pytest.mark.live
_HOST = "bigquerystorage.googleapis.com:443"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


@pytest.fixture(scope="module")
def live(request):
    project = request.config.getoption("--bq-project")
    if not project:
        pytest.fail("say which project pays: --bq-project=PROJECT")
    credentials, _ = google.auth.default(scopes=_SCOPES)
    client = google_bigquery.Client(project=project, credentials=credentials)
    dataset = google_bigquery.Dataset(f"{project}.conformance_{uuid.uuid4().hex}")
    dataset.default_table_expiration_ms = 3_600_000
    client.create_dataset(dataset)
    channel = google.auth.transport.grpc.secure_authorized_channel(
        credentials,
        google.auth.transport.requests.Request(),
        _HOST,
        options=(("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)),
    )
    yield client, dataset.dataset_id, channel
    channel.close()
    client.delete_dataset(dataset.reference, delete_contents=True)
    client.close()


@pytest.fixture
def bigquery(live) -> BigQuery:
    client, dataset, channel = live
    numbers = itertools.count()
    prefix = uuid.uuid4().hex[:8]

    def make_table(fields, **resource) -> TableReference:
        reference = TableReference(client.project, dataset, f"t{prefix}_{next(numbers)}")
        document = {**resource, "tableReference": _reference(reference)}
        if fields is not None:
            document["schema"] = {"fields": fields}
        client.create_table(google_bigquery.Table.from_api_repr(document))
        return reference

    def patch_table(reference, changed) -> None:
        table = google_bigquery.Table.from_api_repr(
            {**changed, "tableReference": _reference(reference)}
        )
        client.update_table(table, [*changed])

    def drop_table(reference) -> None:
        client.delete_table(str(reference))

    return BigQuery(GrpcTransport(channel), make_table, patch_table, drop_table)


def _reference(reference: TableReference) -> dict[str, str]:
    return {
        "projectId": reference.project,
        "datasetId": reference.dataset,
        "tableId": reference.table,
    }


class TestLiveWrite(WriteConformance):
    pass


class TestLiveRead(ReadConformance):
    pass
