"""Reads tables with Google's own clients: the second opinion of verify_demo.py."""

import grpc
import pyarrow as pa
from google.auth.credentials import AnonymousCredentials
from google.cloud import bigquery, bigquery_storage
from google.cloud.bigquery_storage_v1.services.big_query_read.transports import (
    BigQueryReadGrpcTransport,
)


class GoogleReader:
    """Google's two clients, pointed at a local server."""

    def __init__(self, project: str, rest: str, storage: str) -> None:
        self._project = project
        self._tables = bigquery.Client(
            project=project,
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": rest},
        )
        channel = grpc.insecure_channel(storage, options=[("grpc.max_receive_message_length", -1)])
        self._read = bigquery_storage.BigQueryReadClient(
            transport=BigQueryReadGrpcTransport(channel=channel)
        )

    def schema(self, table: str) -> list[tuple[str, str, str]]:
        return [(f.name, f.field_type, f.mode) for f in self._tables.get_table(table).schema]

    def rows(self, table: str) -> pa.Table:
        """Returns the whole table as Arrow."""
        project, dataset, name = table.split(".")
        session = self._read.create_read_session(
            parent=f"projects/{self._project}",
            read_session=bigquery_storage.ReadSession(
                table=f"projects/{project}/datasets/{dataset}/tables/{name}",
                data_format=bigquery_storage.DataFormat.ARROW,
            ),
        )
        schema = pa.ipc.read_schema(pa.py_buffer(session.arrow_schema.serialized_schema))
        batches = [
            pa.ipc.read_record_batch(
                pa.py_buffer(response.arrow_record_batch.serialized_record_batch), schema
            )
            for stream in session.streams
            for response in self._read.read_rows(stream.name)
        ]
        return pa.Table.from_batches(batches, schema)
