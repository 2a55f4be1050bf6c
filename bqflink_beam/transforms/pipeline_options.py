"""Pipeline options that say which BigQuery to talk to, so that a pipeline file need not."""

import dataclasses

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import (
    Anonymous,
    ApplicationDefault,
    Credentials,
    ServiceAccountFile,
    ServiceAccountJson,
)


class BigQueryOptions(PipelineOptions):
    """Where BigQuery is and who asks. Explicit ``connection=`` arguments win over these."""

    @classmethod
    def _add_argparse_args(cls, parser):
        parser.add_argument(
            "--bq_endpoint", help="URL of the REST API; http:// means plaintext, for loopback only."
        )
        parser.add_argument("--bq_storage_endpoint", help="host:port of the Storage API.")
        parser.add_argument("--bq_billing_project", help="Project that pays for sessions and jobs.")
        parser.add_argument(
            "--bq_quota_project", help="Project whose quota requests count against."
        )
        parser.add_argument(
            "--bq_credentials",
            help="application-default, anonymous, file:PATH or env:VARIABLE (a variable that holds "
            "a service account's JSON on every worker). Default: anonymous for an http:// "
            "endpoint, else application-default.",
        )
        parser.add_argument(
            "--bq_embedded",
            action="store_true",
            default=False,
            help="Run against one embedded BigQuery, started when the pipeline is built. It is "
            "empty, but for the datasets of the tables that are written to.",
        )


def connection_from(options: PipelineOptions) -> Connection:
    """Returns the connection that the pipeline's options describe.

    Raises:
        ConfigError: an option that cannot be understood.
    """
    bq = options.view_as(BigQueryOptions)
    if bq.bq_embedded:
        from bqflink_beam.testing.embedded import shared_connection

        return shared_connection(options)
    plaintext = bool(bq.bq_endpoint) and bq.bq_endpoint.startswith("http://")
    if bool(bq.bq_endpoint) != bool(bq.bq_storage_endpoint):
        raise ConfigError("--bq_endpoint and --bq_storage_endpoint must be given together")
    return Connection(
        rest_endpoint=bq.bq_endpoint,
        storage_endpoint=bq.bq_storage_endpoint,
        plaintext=plaintext,
        credentials=_credentials(bq.bq_credentials, plaintext),
        billing_project=bq.bq_billing_project,
        quota_project=bq.bq_quota_project,
    )


def make_embedded_dataset(options: PipelineOptions, table: TableReference) -> None:
    """With ``--bq_embedded``, sees to it that a table can be made where the pipeline names it."""
    if options.view_as(BigQueryOptions).bq_embedded:
        from bqflink_beam.testing.embedded import make_dataset

        make_dataset(table.project, table.dataset)


def billed_to(
    connection: Connection, project: str | None, table: TableReference | None
) -> Connection:
    """Returns a connection whose sessions and jobs somebody pays for.

    The connection may say who; else it is the pipeline's project, else the table's.
    """
    payer = project or (table.project if table else None)
    if connection.billing_project or not payer:
        return connection
    return dataclasses.replace(connection, billing_project=payer)


def default_project(options: PipelineOptions) -> str | None:
    """Returns the project that ``dataset.table`` names belong to."""
    project = options.view_as(GoogleCloudOptions).project
    return project or options.view_as(BigQueryOptions).bq_billing_project


def _credentials(text: str | None, plaintext: bool) -> Credentials:
    if text is None:
        return Anonymous() if plaintext else ApplicationDefault()
    kind, _, value = text.partition(":")
    if kind == "application-default":
        return ApplicationDefault()
    if kind == "anonymous":
        return Anonymous()
    if kind == "file" and value:
        return ServiceAccountFile(value)
    if kind == "env" and value:
        return ServiceAccountJson.from_environment(value)
    raise ConfigError(
        "--bq_credentials must be application-default, anonymous, file:PATH or env:VARIABLE, "
        f"got {kind!r}"
    )
