"""`Connection`: where BigQuery is and who asks, as a value that travels with the pipeline."""

import dataclasses
import ipaddress
import os
import re
import urllib.parse

from bqflink_beam.errors import ConfigError
from bqflink_beam.service.base import Client
from bqflink_beam.service.credentials import (
    AccessToken,
    ApplicationDefault,
    Credentials,
    Impersonate,
    ServiceAccountFile,
    ServiceAccountJson,
)

_UNIVERSE_DEFAULT = "googleapis.com"
_HOST_PORT = re.compile(r"^(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.\-]+):(?P<port>\d{1,5})$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Connection:
    """How to reach BigQuery. Frozen, hashable, picklable; its repr shows no secret.

    Nothing is contacted until the opened client is used. All clients that one process
    opens on equal connections share channels and sessions.

        connection = Connection(
            billing_project="my-project", credentials=ServiceAccountFile("/keys/loader.json")
        )

    Args:
        rest_endpoint: URL of the REST API, if not Google's. ``http://`` only on loopback.
        storage_endpoint: ``host:port`` of the Storage API, if not Google's.
        plaintext: no TLS to `storage_endpoint`. Then nothing that identifies the caller
            is sent, and the address must be loopback.
        allow_remote_plaintext: plaintext to another machine: for an emulator on a
            private network.
        credentials: who asks.
        billing_project: pays for read sessions and jobs; default: the table's project.
        quota_project: its quota the requests count against; default: the credentials'.
        universe_domain: of Google's endpoints.
        ca_certificate: path of the PEM file that vouches for a server of your own.
    """

    rest_endpoint: str | None = None
    storage_endpoint: str | None = None
    plaintext: bool = False
    allow_remote_plaintext: bool = False
    credentials: Credentials = ApplicationDefault()
    billing_project: str | None = None
    quota_project: str | None = None
    universe_domain: str = _UNIVERSE_DEFAULT
    ca_certificate: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.credentials, Credentials):
            raise ConfigError(
                "credentials must be ApplicationDefault(), ServiceAccountFile(path), "
                "ServiceAccountJson(text), AccessToken(token), Impersonate(target) or "
                f"Anonymous(), got a {type(self.credentials).__name__}"
            )
        if self.rest_endpoint is not None:
            _check_url(self.rest_endpoint)
        if self.storage_endpoint is not None:
            _check_host_port(self.storage_endpoint)
        if self.plaintext and self.storage_endpoint is None:
            raise ConfigError("plaintext needs a storage_endpoint; Google's own speaks TLS only")
        self._check_plaintext()

    @property
    def rest_url(self) -> str:
        """The REST API's address, without a slash at the end."""
        return (self.rest_endpoint or f"https://bigquery.{self.universe_domain}").rstrip("/")

    @property
    def storage_address(self) -> str:
        """The Storage API's ``host:port``."""
        return self.storage_endpoint or f"bigquerystorage.{self.universe_domain}:443"

    @property
    def rest_plaintext(self) -> bool:
        return self.rest_url.startswith("http://")

    def parent_project(self, table_project: str) -> str:
        """Returns the project that pays for work on a table of `table_project`."""
        return self.billing_project or table_project

    def open(self) -> Client:
        """Returns a client; close it when done. No network until it is used.

        Raises:
            ConfigError: a credentials or certificate file is missing or unusable.
        """
        # Google's message classes take two seconds to import: a pipeline that is built
        # to be sent elsewhere need not wait for them.
        from bqflink_beam.service.client import open_client

        self._check_files()
        return open_client(self)

    def _check_plaintext(self) -> None:
        clear = []
        if self.plaintext and self.storage_endpoint is not None:
            clear.append(_check_host_port(self.storage_endpoint))
        if self.rest_endpoint is not None and self.rest_plaintext:
            clear.append(urllib.parse.urlsplit(self.rest_endpoint).hostname or "")
        for host in clear:
            if not is_loopback(host) and not self.allow_remote_plaintext:
                raise ConfigError(
                    f"plaintext is for addresses on this machine, got {host!r}; use TLS, or say "
                    "allow_remote_plaintext=True"
                )
        explicit = (AccessToken, Impersonate, ServiceAccountFile, ServiceAccountJson)
        if clear and isinstance(self.credentials, explicit):
            raise ConfigError(
                f"{type(self.credentials).__name__} would travel unencrypted to {clear[0]!r}; "
                "use TLS, or credentials=Anonymous()"
            )

    def _check_files(self) -> None:
        if self.ca_certificate is not None and not os.path.isfile(self.ca_certificate):
            raise ConfigError(f"ca_certificate {self.ca_certificate} is no file on this machine")


def is_loopback(host: str) -> bool:
    """Tells whether traffic to `host` stays on this machine."""
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_host_port(text: str) -> str:
    match = _HOST_PORT.match(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise ConfigError(f"storage_endpoint must look like 'host:port', got {text!r}")
    return match["host"]


def _check_url(text: str) -> None:
    wrong = ConfigError(
        f"rest_endpoint must be a URL like 'https://host:port', got {_without_user(text)!r}"
    )
    try:
        parts = urllib.parse.urlsplit(text)
        parts.port  # noqa: B018 - reading it checks it
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise wrong
    if parts.username is not None:
        raise ConfigError("rest_endpoint must not carry a user or password; use credentials=")


def _without_user(text: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", text)
