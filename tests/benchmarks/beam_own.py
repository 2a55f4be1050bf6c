"""Beam's own BigQuery transforms, pointed at the emulator.

Beam has no option for endpoints, so they are put where it keeps its defaults.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from unittest import mock

import apache_beam as beam
from apache_beam.internal.gcp import auth
from apache_beam.io.gcp import bigquery as beam_bigquery
from apache_beam.io.gcp.internal.clients import bigquery as beam_rest
from benchmarks import raw_client
from benchmarks.server import PROJECT, Server
from google.auth.credentials import AnonymousCredentials


@contextlib.contextmanager
def pointed_at(server: Server) -> Iterator[None]:
    anonymous = AnonymousCredentials()
    adapter = auth._ApitoolsCredentialsAdapter(anonymous)
    environment = {"BIGQUERY_EMULATOR_HOST": server.rest, "STORAGE_EMULATOR_HOST": server.rest}
    with contextlib.ExitStack() as patches:
        channel = patches.enter_context(raw_client.channel_to(server.storage))
        for patch in (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(beam_rest.BigqueryV2, "BASE_URL", f"{server.rest}/bigquery/v2/"),
            mock.patch("google.auth.default", lambda *_, **__: (anonymous, PROJECT)),
            mock.patch.object(auth._Credentials, "_credentials_init", True),
            mock.patch.object(auth._Credentials, "_credentials", adapter),
            mock.patch.object(
                beam_bigquery.bq_storage,
                "BigQueryReadClient",
                lambda: raw_client.read_client(channel),
            ),
        ):
            patches.enter_context(patch)
        logging.getLogger("apache_beam.io.gcp").setLevel(logging.ERROR)
        yield


def direct_read(table: str) -> beam.PTransform:
    return beam.io.ReadFromBigQuery(method="DIRECT_READ", table=table.replace(".", ":", 1))


def streaming_inserts(table: str) -> beam.PTransform:
    return _write(table, method="STREAMING_INSERTS")


def file_loads(table: str) -> beam.PTransform:
    return _write(table, method="FILE_LOADS", custom_gcs_temp_location="gs://bench/staging")


def _write(table: str, **options: str) -> beam.PTransform:
    return beam.io.WriteToBigQuery(
        table.replace(".", ":", 1),
        create_disposition="CREATE_NEVER",
        write_disposition="WRITE_APPEND",
        **options,
    )
