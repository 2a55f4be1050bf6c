"""One HTTP request to the BigQuery REST API, with its answer as JSON or as an error of ours."""

import json
import os
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import google.auth.exceptions
import requests
import requests.adapters

from bqflink_beam.errors import AccessDeniedError, ConfigError, PermanentError, TransientError
from bqflink_beam.service.channel import CALLER_HEADER, USER_AGENT
from bqflink_beam.service.connection import Connection, is_loopback
from bqflink_beam.service.patience import Patience
from bqflink_beam.service.status import Call, from_http, from_transport, is_refused

_CONNECT_S = 10.0
_CONNECTIONS_MAX = 32
_SHOWN_CHARS_MAX = 300


class Rest:
    """A session with the REST API. Thread-safe; nothing is contacted before the first request."""

    def __init__(self, connection: Connection, credentials: Callable[[], Any]) -> None:
        self._connection = connection
        self._credentials = credentials
        self.patience = Patience(connection.rest_url)
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._closed = False

    @property
    def endpoint(self) -> str:
        return self._connection.rest_url

    def request(
        self,
        method: str,
        path: str,
        *,
        call: Call,
        deadline_s: float,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Makes one request below ``/bigquery/v2``; returns the answer, {} for an empty one.

        Raises:
            BqflinkError: what the answer, or its absence, means.
        """
        session = self._opened()
        try:
            answer = session.request(
                method,
                f"{self.endpoint}/bigquery/v2{path}",
                params={"prettyPrint": "false", **(query or {})},
                data=None if body is None else json.dumps(body).encode(),
                headers=self._headers(headers or {}),
                timeout=(_CONNECT_S, deadline_s),
                # Said per request, for a variable of the environment would win over the session.
                verify=self._connection.ca_certificate or True,
                allow_redirects=False,
            )
        except requests.exceptions.RequestException as error:
            meaning = from_transport(error, call)
            if is_refused(error):
                self.patience.unreachable(meaning)
            raise meaning from error
        except google.auth.exceptions.TransportError as error:
            raise TransientError(
                f"{call.what}: no token to be had: {error}", table=call.table, code="UNAVAILABLE"
            ) from error
        except google.auth.exceptions.GoogleAuthError as error:
            raise AccessDeniedError(
                f"{call.what}: credentials refused: {error}",
                table=call.table,
                code="UNAUTHENTICATED",
            ) from error
        self.patience.answered()
        return _parsed(answer, call)

    def close(self) -> None:
        """Closes the idle connections; later requests are refused."""
        with self._lock:
            self._closed = True
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = {"content-type": "application/json", **more}
        if self._connection.rest_plaintext:
            headers[CALLER_HEADER] = str(os.getpid())
        return headers

    def _opened(self) -> requests.Session:
        with self._lock:
            if self._closed:
                raise ConfigError(f"the client of {self.endpoint} is closed")
            if self._session is None:
                self._session = self._made()
            return self._session

    def _made(self) -> requests.Session:
        credentials = None if self._connection.rest_plaintext else self._credentials()
        if credentials is None:
            session = requests.Session()
        else:
            import google.auth.transport.requests

            session = google.auth.transport.requests.AuthorizedSession(credentials)
        session.headers["user-agent"] = USER_AGENT
        # Proxies come from the environment, but not for this machine; a ~/.netrc, which
        # would replace our authorization, is kept out by a session-wide `auth`.
        session.trust_env = not is_loopback(urllib.parse.urlsplit(self.endpoint).hostname or "")
        session.auth = _unchanged
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=_CONNECTIONS_MAX)
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        return session


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def _parsed(answer: requests.Response, call: Call) -> dict[str, Any]:
    value: Any = {}
    if answer.content:
        try:
            value = answer.json()
        except ValueError:
            value = None
    if answer.ok and 200 <= answer.status_code < 300 and isinstance(value, dict):
        return value
    error = value.get("error") if isinstance(value, dict) else None
    if isinstance(error, dict):
        first = (error.get("errors") or [{}])[0]
        message = str(error.get("message") or first.get("message") or "")
        reason = str(first.get("reason") or error.get("status") or "")
        raise from_http(
            answer.status_code, reason, message, call, retry_after=_retry_after_s(answer)
        )
    shown = answer.text[:_SHOWN_CHARS_MAX]
    if answer.status_code >= 429:
        raise from_http(answer.status_code, "", shown, call, retry_after=_retry_after_s(answer))
    raise PermanentError(
        f"{call.what} at {call.endpoint}: HTTP {answer.status_code}, not from BigQuery "
        f"(is rest_endpoint right?): {shown!r}",
        table=call.table,
        code=str(answer.status_code),
    )


def _retry_after_s(answer: requests.Response) -> float | None:
    text = answer.headers.get("retry-after", "")
    return float(text) if text.isdigit() else None
