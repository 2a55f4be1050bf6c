"""gRPC plumbing: generic handlers over raw bytes, refusals to statuses.

Requests are parsed here and not by gRPC, so that bytes that are no message are an
INVALID_ARGUMENT and not an INTERNAL.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import grpc
from google.cloud.bigquery_storage_v1 import types as storage_types
from google.protobuf import any_pb2
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

from bqflink_beam.emulator.faults import Call
from bqflink_beam.emulator.refused import Refused

StorageError = storage_types.StorageError.pb()
PID_HEADER = "x-bqflink-pid"
_TEXT_CHARS_MAX = 500


class RpcCall(Call):
    """One gRPC call; over when gRPC says so."""

    def __init__(self, context: grpc.ServicerContext) -> None:
        pids = [value for key, value in context.invocation_metadata() if key == PID_HEADER]
        super().__init__(int(pids[0]) if pids and str(pids[0]).isdigit() else None)
        self.context = context
        if not context.add_callback(self.finish):
            self.finish()


def parse(message: Any, data: bytes) -> Any:
    """Parses a request.

    Raises:
        Refused: INVALID_ARGUMENT.
    """
    try:
        return message.FromString(data)
    except DecodeError:
        raise Refused("Request contains an invalid argument: it cannot be parsed") from None


def status_of(refused: Refused) -> status_pb2.Status:
    """Returns a refusal as ``google.rpc.Status``, with its StorageError in the details."""
    status = status_pb2.Status(
        code=grpc.StatusCode[refused.code].value[0], message=_shortened(refused.message)
    )
    if refused.storage_error is not None:
        detail = any_pb2.Any()
        detail.Pack(storage_error(refused))
        status.details.append(detail)
    if refused.retry_after_s is not None:
        pause = error_details_pb2.RetryInfo()
        pause.retry_delay.FromMicroseconds(round(refused.retry_after_s * 1e6))
        detail = any_pb2.Any()
        detail.Pack(pause)
        status.details.append(detail)
    return status


def storage_error(refused: Refused) -> Any:
    """Returns a refusal as a ``StorageError`` message."""
    return StorageError(
        code=StorageError.StorageErrorCode.Value(
            refused.storage_error or "STORAGE_ERROR_CODE_UNSPECIFIED"
        ),
        entity=_shortened(refused.entity),
        error_message=_shortened(refused.message),
    )


def _shortened(text: str) -> str:
    # A status travels in the trailers, and a client that meets longer ones than 8 KiB
    # makes another error of them.
    return text if len(text) <= _TEXT_CHARS_MAX else text[: _TEXT_CHARS_MAX - 1] + "…"


@contextlib.contextmanager
def refusals(context: grpc.ServicerContext) -> Iterator[None]:
    """Ends the call with the status of a `Refused` raised in the block."""
    try:
        yield
    except Refused as refused:
        status = status_of(refused)
        if status.details:
            context.set_trailing_metadata(
                (("grpc-status-details-bin", status.SerializeToString()),)
            )
        context.abort(grpc.StatusCode[refused.code], status.message)


def unary(request_type: Any, behavior: Callable[[Any, RpcCall], Any]) -> grpc.RpcMethodHandler:
    """Returns the handler of a method with one request and one response."""

    def handle(data: bytes, context: grpc.ServicerContext) -> bytes:
        with refusals(context):
            response: bytes = behavior(
                parse(request_type, data), RpcCall(context)
            ).SerializeToString()
            return response
        raise AssertionError("unreachable: abort raises")

    return grpc.unary_unary_rpc_method_handler(handle)


def server_stream(
    request_type: Any, behavior: Callable[[Any, RpcCall], Iterator[bytes]]
) -> grpc.RpcMethodHandler:
    """Returns the handler of a method with one request and many responses, serialized."""

    def handle(data: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        with refusals(context):
            yield from behavior(parse(request_type, data), RpcCall(context))

    return grpc.unary_stream_rpc_method_handler(handle)


def bidirectional(
    behavior: Callable[[Iterator[bytes], RpcCall], Iterator[bytes]],
) -> grpc.RpcMethodHandler:
    """Returns the handler of a method with many requests and many responses, serialized."""

    def handle(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        with refusals(context):
            yield from behavior(requests, RpcCall(context))

    return grpc.stream_stream_rpc_method_handler(handle)
