"""One AppendRows call, reopened as needed: order, flow control, resending, and an end to waiting.

Two threads serve an open call: gRPC's, which pulls requests from `_requests`, and ours,
which reads the answers and reopens. Nothing polls. Whoever waits for an answer or for
room is also the one who notices that nothing moves any more: a wait never lasts longer
than the budget.
"""

import dataclasses
import logging
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
from google.cloud.bigquery_storage_v1 import types
from google.protobuf import descriptor_pb2
from google.protobuf.message import DecodeError

from bqflink_beam.clock import SYSTEM_CLOCK, Clock
from bqflink_beam.errors import (
    AccessDeniedError,
    BqflinkError,
    ConfigError,
    NotFoundError,
    OutcomeUnknownError,
    PermanentError,
    RowsRejectedError,
    StreamGoneError,
    TransientError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.retry import Backoff
from bqflink_beam.schema.model import TableSchema
from bqflink_beam.service import status, table_schema
from bqflink_beam.service.append_window import Ticket, Window
from bqflink_beam.service.channel import USER_AGENT, Channels, Method
from bqflink_beam.service.recent import Recent

_LOG = logging.getLogger(__name__)

_AppendRowsRequest = types.AppendRowsRequest.pb()
_APPEND_ROWS = Method(
    "/google.cloud.bigquery.storage.v1.BigQueryWrite/AppendRows",
    _AppendRowsRequest,
    types.AppendRowsResponse.pb(),
)
_BACKOFF = Backoff(wait_initial_s=0.05, wait_max_s=10.0)
_CLOSE_S = 2.0
_AGAIN = (TransientError, OutcomeUnknownError)
# What waits for the same stream would fail in the same way.
_WHOLE_STREAM = (AccessDeniedError, NotFoundError, StreamGoneError)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What may be under way on one connection; the service documents none, clients keep these."""

    requests_max: int = 1_000
    bytes_max: int = 100 * 1024 * 1024


class UpdatedSchemas:
    """The schemas that answers have told of, the newest of each stream."""

    def __init__(self) -> None:
        self._messages: dict[str, Any] = {}

    def told(self, stream: str, message: Any) -> None:
        self._messages[stream] = message

    def newest(self, stream: str) -> TableSchema | None:
        """Reads it late: a column of an unknown type is the asker's trouble, not the answers'."""
        message = self._messages.get(stream)
        return None if message is None else table_schema.from_message(message)


class Appends:
    """One AppendRows call for requests of any stream; only default streams may share it.

    Args:
        routing: header by which the call finds its region, ``name=value``.
        budget_s: longest time without progress before everything under way fails.
        schemas: shared by connections that carry the same streams.
    """

    def __init__(
        self,
        channels: Channels,
        recent: Recent,
        *,
        routing: str,
        budget_s: float,
        schemas: "UpdatedSchemas | None" = None,
        limits: Limits = Limits(),
        backoff: Backoff = _BACKOFF,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._channels = channels
        self._recent = recent
        self._routing = routing
        self._budget_s = budget_s
        self._backoff = backoff
        self._clock = clock
        self._window = Window(
            budget_s=budget_s, requests_max=limits.requests_max, bytes_max=limits.bytes_max
        )
        lock = threading.Lock()
        self._lock = lock
        # Senders wait for answers and room; the two serving threads wait for work.
        self._settled = threading.Condition(lock)
        self._work = threading.Condition(lock)
        self._thread: threading.Thread | None = None
        self._call: Any = None
        self._call_id = 0
        self._breaks = 0
        self._closed = False
        self._trouble = ""
        self._passage_known = (0, 0)
        self._schemas = schemas or UpdatedSchemas()
        self._tables: dict[str, str] = {}
        self._descriptors: dict[bytes, Any] = {}

    @property
    def bytes_under_way(self) -> int:
        return self._window.bytes

    @property
    def closed(self) -> bool:
        """Whether it takes no more requests: its owner or a failure of its own has ended it."""
        return self._closed

    @property
    def requests_under_way(self) -> int:
        return self._window.count

    def append(
        self, stream: str, descriptor: bytes, rows: Sequence[bytes], offset: int | None
    ) -> Ticket:
        """Queues one request; waits while the limits leave no room.

        Raises:
            ConfigError: `descriptor` is no serialized ``DescriptorProto``, or `stream` no
                write stream.
        """
        if stream not in self._tables:
            self._tables[stream] = str(TableReference.from_path(stream))
        if descriptor not in self._descriptors:
            self._descriptors[descriptor] = _parsed(descriptor, stream)
        ticket = Ticket(stream, descriptor, rows, offset, self._wait)
        with self._lock:
            while not self._window.has_room(ticket.size) and not self._closed:
                self._pause_for(self._settled, self._window.stalled_s)
            if self._closed:
                raise PermanentError("this append connection is closed", stream=stream)
            self._window.add(ticket, self._clock.monotonic_s())
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="bqflink-append", daemon=True
                )
                self._thread.start()
            self._work.notify_all()
        return ticket

    def updated_schema(self, stream: str) -> TableSchema | None:
        """Returns the newest schema the service has told of for a stream's table."""
        return self._schemas.newest(stream)

    def close(self) -> None:
        """Ends the call. What has no answer yet raises `OutcomeUnknownError`. May be repeated."""
        with self._lock:
            self._closed = True
            self._fail_all("the connection was closed before the answer", lost=True)
            call, thread = self._call, self._thread
        if thread is None:
            return
        # The call ends from our side, and a service that is well ends it at once.
        thread.join(_CLOSE_S)
        if thread.is_alive() and call is not None:
            call.cancel()
            thread.join(_CLOSE_S)

    # --- waiting, on the sender's thread ---

    def _wait(self, ticket: Ticket, timeout_s: float | None) -> None:
        with self._lock:
            until_s = None if timeout_s is None else self._clock.monotonic_s() + timeout_s
            while not ticket.done:
                if until_s is not None and self._clock.monotonic_s() >= until_s:
                    raise OutcomeUnknownError(
                        f"no answer to an append within {timeout_s} s", stream=ticket.stream
                    )
                stalled_s = self._window.stalled_s
                self._pause_for(
                    self._settled, stalled_s if until_s is None else min(stalled_s, until_s)
                )

    def _pause_for(self, condition: threading.Condition, until_s: float) -> None:
        """Waits to be woken, at most until then; ends everything when nothing has moved."""
        now_s = self._clock.monotonic_s()
        if self._window.count and now_s >= self._window.stalled_s:
            last = f"; the last trouble was: {self._trouble}" if self._trouble else ""
            self._fail_all(f"no progress for {self._budget_s:g} s{last}", lost=False)
            return
        condition.wait(max(0.0, until_s - now_s))

    # --- requests, on gRPC's thread ---

    def _requests(self, call_id: int) -> Iterator[Any]:
        """Yields the requests of one call; ends when the call is over or we are closed.

        A request carries the writer schema when stream or schema have changed, and until
        one of this passage is acknowledged: what a refused request said is not remembered.
        """
        previous: tuple[str, bytes] | None = None
        passage = (call_id, 0)
        while (ticket := self._taken(call_id)) is not None:
            request = _AppendRowsRequest(write_stream=ticket.stream)
            if ticket.offset is not None:
                request.offset.value = ticket.offset
            if previous is None:
                request.trace_id = USER_AGENT
            if previous != (ticket.stream, ticket.descriptor):
                previous = (ticket.stream, ticket.descriptor)
                passage = (call_id, passage[1] + 1)
            ticket.passage = passage
            if self._passage_known != passage:
                schema = request.proto_rows.writer_schema
                schema.proto_descriptor.CopyFrom(self._descriptors[ticket.descriptor])
            request.proto_rows.rows.serialized_rows.extend(ticket.rows)
            yield request

    def _taken(self, call_id: int) -> Ticket | None:
        with self._lock:
            while self._call_id == call_id and not self._closed:
                wait_s = self._window.sendable_in_s(self._clock.monotonic_s())
                if wait_s == 0.0:
                    return self._window.take()
                self._work.wait(wait_s)
            return None

    # --- answers, on our thread ---

    def _serve(self) -> None:
        clean = False
        try:
            while self._has_work():
                self._one_call()
            clean = True
        finally:
            if not clean:
                # A bug of ours must not leave anybody waiting; threading reports the cause.
                with self._lock:
                    self._closed = True
                    self._fail_all("the append connection failed; see the log", lost=False)

    def _has_work(self) -> bool:
        with self._lock:
            while not self._closed:
                wait_s = self._window.sendable_in_s(self._clock.monotonic_s())
                if wait_s == 0.0:
                    return True
                self._work.wait(wait_s)
            return False

    def _one_call(self) -> None:
        with self._lock:
            self._call_id += 1
            call_id = self._call_id
        error: BqflinkError | grpc.RpcError | None = None
        call: Any = None
        try:
            call = self._channels.both_streams(
                _APPEND_ROWS, self._requests(call_id), routing=self._routing
            )
            with self._lock:
                self._call = call
                if self._call_id != call_id:
                    call.cancel()
            for response in call:
                with self._lock:
                    # Of a call that was given up nobody waits for answers any more, and
                    # they must not be taken for those of later requests.
                    if self._call_id == call_id:
                        self._answered(response)
        except (BqflinkError, grpc.RpcError) as caught:
            error = caught
            if call is not None:
                call.cancel()
        with self._lock:
            self._call = None
            self._call_id += 1
            self._over(error)
            self._work.notify_all()
            self._settled.notify_all()

    def _answered(self, response: Any) -> None:
        now_s = self._clock.monotonic_s()
        self._breaks = 0
        ticket = self._window.first_flying
        if ticket is None:
            raise PermanentError("the service answered more requests than were sent")
        if response.HasField("updated_schema"):
            self._schemas.told(ticket.stream, response.updated_schema)
        kind = response.WhichOneof("response")
        if kind == "append_result":
            result = response.append_result
            offset = result.offset.value if result.HasField("offset") else None
            self._window.appended(offset, now_s)
            self._trouble = ""
            if self._passage_known != ticket.passage:
                self._passage_known = ticket.passage
                self._recent.seen(ticket.stream)
        elif kind == "error" or response.row_errors:
            self._refused(ticket, response, now_s)
        else:
            return
        self._settled.notify_all()
        self._work.notify_all()

    def _refused(self, ticket: Ticket, response: Any, now_s: float) -> None:
        call = self._about(ticket.stream)
        error: BqflinkError
        if response.row_errors:
            error = RowsRejectedError(
                f"{call.what}: {len(response.row_errors)} rows refused: {response.error.message}",
                table=call.table,
                stream=ticket.stream,
                code="INVALID_ARGUMENT",
                rows=[(int(row.index), row.message) for row in response.row_errors],
            )
        else:
            error = status.from_status(response.error, call)
        again = isinstance(error, TransientError) or self._not_yet(error, ticket)
        if self._window.refused(error, now_s, again=again) and again:
            self._back_off(error, now_s)
            if self._window.first_flying is None:
                self._give_up_if_late(error)

    def _over(self, error: BqflinkError | grpc.RpcError | None) -> None:
        """The call has ended: decides what happens to what it leaves unanswered."""
        now_s = self._clock.monotonic_s()
        sent = not (isinstance(error, grpc.RpcError) and status.never_sent(error))
        flew = self._window.broke(sent=sent)
        first = self._window.first_waiting
        if first is None:
            return  # Idle calls are closed by the service; the next request opens another.
        meaning = _meaning(error, self._about(first.stream))
        if isinstance(meaning, ConfigError):
            self._window.fail_all(lambda ticket, maybe_applied: meaning, now_s)
            return
        if not isinstance(meaning, _AGAIN) and not self._not_yet(meaning, first):
            if flew <= 1:
                whole_stream = isinstance(meaning, _WHOLE_STREAM)
                self._window.fail_first(meaning, now_s, whole_stream=whole_stream)
                return
            # One of these ended the call, and nothing tells which.
            self._window.send_singly(flew)
        self._back_off(meaning, now_s)
        self._give_up_if_late(meaning)

    def _back_off(self, error: BqflinkError, now_s: float) -> None:
        self._breaks += 1
        self._trouble = error.message
        wait_s = self._backoff.wait_s(self._breaks, self._clock)
        if isinstance(error, TransientError) and error.retry_after_s is not None:
            wait_s = max(wait_s, error.retry_after_s)
        self._window.pause(now_s + wait_s)
        _LOG.debug("appends pause for %.2f s: %s", wait_s, error)

    def _give_up_if_late(self, error: BqflinkError) -> None:
        """Fails now what could only be sent again when the budget is used up."""
        if self._window.count and self._window.resume_s >= self._window.stalled_s:
            self._fail_all(error.message, lost=False)

    def _fail_all(self, why: str, *, lost: bool) -> None:
        """Settles everything under way. `lost`: whoever gave it up will not hear more."""

        def make(ticket: Ticket, maybe_applied: bool) -> BqflinkError:
            call = self._about(ticket.stream)
            text = f"{call.what} at {call.endpoint}: {why}"
            if maybe_applied or lost:
                return OutcomeUnknownError(text, table=call.table, stream=ticket.stream)
            return TransientError(text, table=call.table, stream=ticket.stream)

        if self._window.first_flying is not None:
            self._call_id += 1
            if self._call is not None:
                self._call.cancel()
        self._window.fail_all(make, self._clock.monotonic_s())
        self._settled.notify_all()
        self._work.notify_all()

    def _about(self, stream: str) -> status.Call:
        return status.Call(
            what=f"append to {stream}",
            endpoint=self._channels.endpoint,
            changes=True,
            table=self._tables[stream],
            stream=stream,
        )

    def _not_yet(self, error: BqflinkError, ticket: Ticket) -> bool:
        return isinstance(error, NotFoundError | StreamGoneError) and self._recent.is_young(
            ticket.stream
        )


class StreamAppends:
    """`service.base.AppendConnection`: an `Appends` for one stream and one descriptor."""

    def __init__(self, appends: Appends, stream: str, descriptor: bytes) -> None:
        self._appends = appends
        self._stream = stream
        self._descriptor = descriptor

    def send(self, rows: Sequence[bytes], offset: int | None) -> Ticket:
        return self._appends.append(self._stream, self._descriptor, rows, offset)

    @property
    def updated_schema(self) -> TableSchema | None:
        return self._appends.updated_schema(self._stream)

    def close(self) -> None:
        self._appends.close()


def _parsed(descriptor: bytes, stream: str) -> Any:
    try:
        return descriptor_pb2.DescriptorProto.FromString(descriptor)
    except DecodeError as error:
        raise ConfigError(
            "descriptor must be a serialized DescriptorProto", stream=stream
        ) from error


def _meaning(error: BqflinkError | grpc.RpcError | None, call: status.Call) -> BqflinkError:
    if error is None:
        return OutcomeUnknownError(
            f"{call.what} at {call.endpoint}: the service ended the call",
            table=call.table,
            stream=call.stream,
        )
    return error if isinstance(error, BqflinkError) else status.from_rpc(error, call)
