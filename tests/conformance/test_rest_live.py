"""REST's rules on the real BigQuery: ``pytest -m live --bq-project=P --bq-bucket=B tests/conformance``.

Makes a dataset of its own that deletes its tables after an hour, and drops it at the end.
"""

import uuid

import google.auth
import google.auth.transport.requests
import pytest
from google.cloud import bigquery as google_bigquery
from google.cloud import storage

from bqflink_beam.testing.conformance.jobs import JobConformance
from bqflink_beam.testing.conformance.rest import Rest

pytestmark = pytest.mark.live
_ENDPOINT = "https://bigquery.googleapis.com"
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


@pytest.fixture(scope="module")
def live(request):
    project = request.config.getoption("--bq-project")
    bucket = request.config.getoption("--bq-bucket")
    if not (project and bucket):
        pytest.fail("say which project pays and where files go: --bq-project=P --bq-bucket=B")
    credentials, _ = google.auth.default(scopes=_SCOPES)
    client = google_bigquery.Client(project=project, credentials=credentials)
    dataset = google_bigquery.Dataset(f"{project}.conformance_{uuid.uuid4().hex}")
    dataset.default_table_expiration_ms = 3_600_000
    client.create_dataset(dataset)
    files = storage.Client(project=project, credentials=credentials)
    yield credentials, dataset, files.bucket(bucket)
    client.delete_dataset(dataset.reference, delete_contents=True)
    client.close()
    files.close()


@pytest.fixture
def rest(live) -> Rest:
    credentials, dataset, bucket = live
    prefix = f"c{uuid.uuid4().hex[:8]}_"
    credentials.refresh(google.auth.transport.requests.Request())

    def put_file(name: str, data: bytes) -> str:
        blob = bucket.blob(f"{dataset.dataset_id}/{prefix}{name}")
        blob.upload_from_string(data)
        return f"gs://{bucket.name}/{blob.name}"

    headers = {"Authorization": f"Bearer {credentials.token}"}
    return Rest(_ENDPOINT, dataset.project, dataset.dataset_id, put_file, headers, prefix)


class TestLiveJobs(JobConformance):
    pass
