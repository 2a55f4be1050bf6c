"""Who we are to BigQuery: one of six frozen values, each knows how to load itself.

Loading gives an object of ``google-auth``, or None for nobody. What is wrong with a
file or a text is said before anything goes over the network.
"""

import base64
import binascii
import dataclasses
import json
from typing import Any, TypeAlias

from bqflink_beam.errors import ConfigError
from bqflink_beam.service.secret import EnvironmentSecret, Secret

# Covers BigQuery, and is what gcloud's application default login has consented to.
_SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)


@dataclasses.dataclass(frozen=True)
class Anonymous:
    """Nobody: for an emulator. Nothing is asked of a metadata server."""


@dataclasses.dataclass(frozen=True)
class ApplicationDefault:
    """What the machine offers: ``GOOGLE_APPLICATION_CREDENTIALS``, gcloud, or the metadata server."""


@dataclasses.dataclass(frozen=True)
class ServiceAccountFile:
    """A key file (of a service account, or gcloud's of a user) that every worker can read."""

    path: str


@dataclasses.dataclass(frozen=True)
class ServiceAccountJson:
    """The text of a key file, plain or base64. It never leaves this process: see `Secret`."""

    text: str | Secret | EnvironmentSecret

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", _hidden(self.text, "text"))

    @staticmethod
    def from_environment(variable: str) -> "ServiceAccountJson":
        """Each worker reads the text from its own environment, when it is first used."""
        return ServiceAccountJson(EnvironmentSecret(variable))


@dataclasses.dataclass(frozen=True)
class AccessToken:
    """A token as ``gcloud auth print-access-token`` prints. Not renewed: good for an hour."""

    token: str | Secret | EnvironmentSecret

    def __post_init__(self) -> None:
        object.__setattr__(self, "token", _hidden(self.token, "token"))

    @staticmethod
    def from_environment(variable: str) -> "AccessToken":
        """Each worker reads the token from its own environment, when it is first used."""
        return AccessToken(EnvironmentSecret(variable))


@dataclasses.dataclass(frozen=True)
class Impersonate:
    """Acts as the service account `target`, being `source` itself."""

    target: str
    source: "Credentials" = ApplicationDefault()

    def __post_init__(self) -> None:
        if "@" not in self.target:
            raise ConfigError(
                f"target must be the e-mail address of a service account, got {self.target!r}"
            )
        if isinstance(self.source, Anonymous):
            raise ConfigError("source must be somebody; Anonymous() cannot act as another account")


Credentials: TypeAlias = (
    Anonymous
    | ApplicationDefault
    | ServiceAccountFile
    | ServiceAccountJson
    | AccessToken
    | Impersonate
)


def may_ask_network(credentials: Credentials) -> bool:
    """Tells whether loading them may have to ask a metadata server."""
    if isinstance(credentials, Impersonate):
        return may_ask_network(credentials.source)
    return isinstance(credentials, ApplicationDefault)


def load(credentials: Credentials, *, quota_project: str | None = None) -> Any:
    """Returns google-auth credentials, or None for `Anonymous`.

    Only `ApplicationDefault` may ask the network (a metadata server), and only if the
    machine has neither a file nor gcloud.

    Raises:
        ConfigError: the file or text is missing or no credentials; names the path, never content.
    """
    match credentials:
        case Anonymous():
            return None
        case ApplicationDefault():
            found = _default()
        case ServiceAccountFile(path):
            found = _from_json(_read(path), f"credentials file {path}")
        case ServiceAccountJson(text):
            found = _from_json(_decoded(_revealed(text)), "credentials JSON")
        case AccessToken(token):
            from google.oauth2.credentials import Credentials as TokenCredentials

            found = TokenCredentials(token=_revealed(token).strip())
        case Impersonate(target, source):
            from google.auth import impersonated_credentials

            found = impersonated_credentials.Credentials(
                source_credentials=load(source), target_principal=target, target_scopes=_SCOPES
            )
    if quota_project and hasattr(found, "with_quota_project"):
        found = found.with_quota_project(quota_project)
    return found


def _hidden(value: object, name: str) -> Secret | EnvironmentSecret:
    if isinstance(value, Secret | EnvironmentSecret):
        return value
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{name} must be a text that is not empty")
    return Secret.of(value)


def _revealed(value: str | Secret | EnvironmentSecret) -> str:
    # __post_init__ has wrapped a plain text; the union keeps the constructor's type honest.
    return value if isinstance(value, str) else value.reveal()


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError as error:
        raise ConfigError(f"credentials file {path} does not exist on this machine") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"credentials file {path} cannot be read: {_reason(error)}") from error


def _reason(error: OSError | UnicodeDecodeError) -> str:
    # The text of a UnicodeDecodeError carries bytes of the file.
    return (error.strerror or "I/O error") if isinstance(error, OSError) else "it is not UTF-8 text"


def _decoded(text: str) -> str:
    if text.lstrip().startswith("{"):
        return text
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        # Without a cause: it would carry parts of the text.
        raise ConfigError("credentials text must be the JSON of a key, plain or base64") from None


def _from_json(text: str, what: str) -> Any:
    import google.auth.exceptions
    from google.oauth2 import credentials, service_account

    try:
        info = json.loads(text)
    except ValueError:
        raise ConfigError(f"{what} must be the JSON of a key, and is not JSON") from None
    kind = info.get("type") if isinstance(info, dict) else None
    try:
        if kind == "service_account":
            return service_account.Credentials.from_service_account_info(info, scopes=_SCOPES)
        if kind == "authorized_user":
            return credentials.Credentials.from_authorized_user_info(info, scopes=_SCOPES)
    except (google.auth.exceptions.GoogleAuthError, ValueError) as error:
        # The class alone and no cause: some of google-auth's texts quote the content.
        raise ConfigError(
            f"{what} is no complete key of type {kind!r} ({type(error).__name__})"
        ) from None
    raise ConfigError(
        f"{what} must have type 'service_account' or 'authorized_user', got {str(kind)[:40]!r}; for "
        "other kinds set GOOGLE_APPLICATION_CREDENTIALS and use ApplicationDefault()"
    )


def _default() -> Any:
    import google.auth
    import google.auth.exceptions

    try:
        found, _ = google.auth.default(scopes=_SCOPES)
    except google.auth.exceptions.DefaultCredentialsError as error:
        raise ConfigError(
            "this machine has no application default credentials; set "
            "GOOGLE_APPLICATION_CREDENTIALS, run 'gcloud auth application-default login', or give "
            f"a Connection credentials of its own ({error})"
        ) from error
    return found
