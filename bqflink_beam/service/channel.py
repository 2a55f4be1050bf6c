"""gRPC channels to the Storage API: made late, shared, and never more calls on one than fit.

An HTTP/2 connection takes about a hundred calls at a time and queues further ones
silently, so a worker with many open AppendRows calls would hang. Long calls are
therefore spread over several channels; each channel has a connection of its own.
"""

import contextlib
import dataclasses
import importlib.metadata
import os
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import google.auth.exceptions
import grpc

from bqflink_beam.errors import ConfigError
from bqflink_beam.service.connection import Connection, is_loopback
from bqflink_beam.service.patience import Patience
from bqflink_beam.service.status import (
    CREDENTIALS_REFUSED,
    CREDENTIALS_UNAVAILABLE,
    Call,
    from_rpc,
    never_sent,
)

USER_AGENT = f"bqflink_beam/{importlib.metadata.version('bqflink-beam')}"
CALLER_HEADER = "x-bqflink-pid"
"""Tells the embedded BigQuery which process to kill when a test asks for that; never sent to Google."""
_LONG_CALLS_PER_CHANNEL_MAX = 50


@dataclasses.dataclass(frozen=True)
class Method:
    """One RPC: its path and its raw protobuf classes."""

    path: str
    request: Any
    response: Any


class Channels:
    """The channels of one connection. Thread-safe; nothing is opened before the first call."""

    def __init__(self, connection: Connection, credentials: Callable[[], Any]) -> None:
        self._connection = connection
        self._credentials = credentials
        self.patience = Patience(connection.storage_address)
        self._lock = threading.Lock()
        self._loads: dict[grpc.Channel, int] = {}
        self._closed = False

    @property
    def endpoint(self) -> str:
        return self._connection.storage_address

    def unary(
        self, method: Method, request: Any, *, call: Call, deadline_s: float, routing: str
    ) -> Any:
        """Makes one call and returns its response.

        Args:
            routing: ``name=value`` for the header that finds the right region.

        Raises:
            BqflinkError: what the status means.
        """
        stub = self._channel().unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        try:
            with self._closing_told():
                response = stub(request, timeout=deadline_s, metadata=self._metadata(routing))
        except grpc.RpcError as error:
            meaning = from_rpc(error, call)
            if never_sent(error):
                self.patience.unreachable(meaning)
            else:
                self.patience.answered()
            raise meaning from error
        self.patience.answered()
        return response

    def server_stream(
        self, method: Method, request: Any, *, deadline_s: float, routing: str
    ) -> Any:
        """Starts a call that answers with a stream; returns gRPC's call object."""
        channel = self._channel(long=True)
        stub = channel.unary_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        with self._closing_told():
            call = stub(request, timeout=deadline_s, metadata=self._metadata(routing))
        return self._counted(channel, call)

    def both_streams(self, method: Method, requests: Iterator[Any], *, routing: str) -> Any:
        """Starts a bidirectional call. It has no deadline: its owner watches for progress."""
        channel = self._channel(long=True)
        stub = channel.stream_stream(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.response.FromString,
        )
        with self._closing_told():
            call = stub(requests, metadata=self._metadata(routing))
        return self._counted(channel, call)

    def close(self) -> None:
        """Ends all calls and closes the channels."""
        with self._lock:
            self._closed = True
            channels = list(self._loads)
            self._loads.clear()
        for channel in channels:
            channel.close()

    @contextlib.contextmanager
    def _closing_told(self) -> Iterator[None]:
        """Says in our words that another thread has closed the channel meanwhile."""
        try:
            yield
        except ValueError as error:
            if not self._closed:
                raise
            raise self._is_closed() from error

    def _is_closed(self) -> ConfigError:
        return ConfigError(f"the client of {self.endpoint} is closed")

    def _channel(self, *, long: bool = False) -> grpc.Channel:
        """Returns the least loaded channel, a new one if all are full."""
        with self._lock:
            if self._closed:
                raise self._is_closed()
            least = min(self._loads, key=self._loads.__getitem__, default=None)
            if least is None or (long and self._loads[least] >= _LONG_CALLS_PER_CHANNEL_MAX):
                least = self._made()
                self._loads[least] = 0
            if long:
                self._loads[least] += 1
            return least

    def _counted(self, channel: grpc.Channel, call: Any) -> Any:
        def ended() -> None:
            with self._lock:
                if channel in self._loads:
                    self._loads[channel] -= 1

        if not call.add_callback(ended):
            ended()
        return call

    def _metadata(self, routing: str) -> tuple[tuple[str, str], ...]:
        name, _, value = routing.partition("=")
        header: tuple[tuple[str, str], ...] = (
            ("x-goog-request-params", f"{name}={urllib.parse.quote(value, safe='')}"),
        )
        if self._connection.plaintext:
            header += ((CALLER_HEADER, str(os.getpid())),)
        return header

    def _made(self) -> grpc.Channel:
        connection = self._connection
        host = connection.storage_address.rpartition(":")[0]
        options = [
            ("grpc.primary_user_agent", USER_AGENT),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_receive_message_length", -1),
            # A dead peer is noticed within 80 seconds, and only while a call is open.
            ("grpc.keepalive_time_ms", 60_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            # By default channels to one address share one connection, and after an outage
            # gRPC may wait two minutes before it tries again.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 5_000),
            ("grpc.max_reconnect_backoff_ms", 5_000),
            ("grpc.enable_http_proxy", 0 if is_loopback(host) else 1),
        ]
        if connection.plaintext:
            return grpc.insecure_channel(connection.storage_address, options=options)
        return grpc.secure_channel(
            connection.storage_address, self._channel_credentials(), options=options
        )

    def _channel_credentials(self) -> Any:
        roots = None
        if self._connection.ca_certificate is not None:
            with open(self._connection.ca_certificate, "rb") as file:
                roots = file.read()
        tls = grpc.ssl_channel_credentials(root_certificates=roots)
        credentials = self._credentials()
        if credentials is None:
            return tls
        return grpc.composite_channel_credentials(
            tls, grpc.metadata_call_credentials(_CallCredentials(credentials))
        )


class _CallCredentials(grpc.AuthMetadataPlugin):  # type: ignore[misc] # grpc has no types
    """Adds the authorization header, and says in our words when there is none.

    gRPC's usual plugin logs a stack trace and hides why the token could not be had.
    """

    def __init__(self, credentials: Any) -> None:
        import google.auth.transport.requests

        self._credentials = credentials
        self._request = google.auth.transport.requests.Request()

    def __call__(self, context: Any, callback: Callable[[Any, Exception | None], None]) -> None:
        headers: dict[str, str] = {}
        try:
            self._credentials.before_request(
                self._request, context.method_name, context.service_url, headers
            )
        except google.auth.exceptions.TransportError as error:
            callback((), ConfigError(f"{CREDENTIALS_UNAVAILABLE}{error}"))
        except google.auth.exceptions.GoogleAuthError as error:
            callback((), ConfigError(f"{CREDENTIALS_REFUSED}{error}"))
        else:
            callback(tuple((name.lower(), value) for name, value in headers.items()), None)
