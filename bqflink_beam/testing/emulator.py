"""`Emulator`: an embedded BigQuery for the length of a test.

from bqflink_beam import testing

with testing.Emulator() as server:
    server.create_table("p.d.t", [{"name": "id", "type": "INT64"}])
    run_pipeline(connection=server.connection)
    assert server.visible_rows("p.d.t") == [{"id": 1}]
"""

from typing import Any

from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.errors import ConfigError
from bqflink_beam.names import TableReference
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import Anonymous


class Emulator(EmulatorServer):
    """`EmulatorServer`, and the connection to it."""

    def __enter__(self) -> "Emulator":
        self.start()
        return self

    @property
    def connection(self) -> Connection:
        """How the package reaches this server."""
        return Connection(
            rest_endpoint=self.rest_endpoint,
            storage_endpoint=self.storage_endpoint,
            plaintext=True,
            credentials=Anonymous(),
        )

    @property
    def tls_connection(self) -> Connection:
        """How the package reaches this server over TLS, where it was started with a `tls_port`."""
        if self.tls_endpoint is None:
            raise ConfigError("this server has no TLS; start it with Emulator(tls_port=0)")
        return Connection(
            rest_endpoint=f"https://{self.tls_endpoint}",
            storage_endpoint=self.tls_endpoint,
            ca_certificate=self.ca_certificate,
            credentials=Anonymous(),
        )

    def row_count(self, table: str) -> int:
        """Returns how many rows a reader would see now."""
        return self.store.require_table(TableReference.parse(table)).snapshot().row_count

    def table_resource(self, table: str) -> dict[str, Any]:
        """Returns the table's REST resource."""
        return dict(self.store.require_table(TableReference.parse(table)).resource)
