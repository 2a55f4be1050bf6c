"""A model of Storage Read in memory: the rules an engine is tested against, and its faults."""

import dataclasses
import threading
from collections.abc import Iterable, Mapping

import pyarrow as pa

from bqflink_beam.errors import (
    BqflinkError,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    SessionExpiredError,
)
from bqflink_beam.names import TableReference
from bqflink_beam.service.base import ReadResponse, ReadSession, SessionRequest


@dataclasses.dataclass(frozen=True)
class ReadFault:
    """What goes wrong with one ReadRows call, counted from 0 over the model's life.

    After `responses` good ones the call raises `error`; with None it says nothing
    more until it is closed.
    """

    call: int
    responses: int
    error: BqflinkError | None


class ReadModel:
    """Serves tables by read sessions, as `service.base.ReadService` promises.

    A session is a snapshot. Offsets count rows of the stream: one equal to the row
    count gives nothing, one beyond is refused. Filters and splits are beyond the
    model: a filter is refused, a split answers "cannot be split".
    """

    def __init__(
        self,
        tables: Mapping[TableReference, pa.Table] | None = None,
        *,
        response_rows: int = 10,
        streams: int = 1,
        faults: Iterable[ReadFault] = (),
    ) -> None:
        self.tables = dict(tables or {})
        self.calls: list[tuple[str, int]] = []
        self.closed = 0
        self.expired = False
        self._response_rows = response_rows
        self._stream_count = streams
        self._faults = {fault.call: fault for fault in faults}
        self._streams: dict[str, pa.Table] = {}
        self._sessions = 0
        self._lock = threading.Lock()

    def create_session(self, request: SessionRequest) -> ReadSession:
        if request.row_filter:
            raise ConfigError("the model evaluates no row filter")
        if request.table not in self.tables:
            raise NotFoundError("not found", table=str(request.table))
        table = self.tables[request.table]
        if request.columns:
            wanted = {column.lower() for column in request.columns}
            table = table.select([name for name in table.column_names if name.lower() in wanted])
        self._sessions += 1
        name = f"projects/p/locations/us/sessions/{self._sessions}"
        count = min(request.streams_max or self._stream_count, table.num_rows)
        cuts = [table.num_rows * index // count for index in range(count + 1)] if count else []
        names = tuple(f"{name}/streams/{index}" for index in range(count))
        for stream, start, stop in zip(names, cuts, cuts[1:], strict=False):
            self._streams[stream] = table.slice(start, stop - start).combine_chunks()
        return ReadSession(
            name=name,
            table=request.table,
            arrow_schema=table.schema.serialize().to_pybytes(),
            streams=names,
            expire_s=1_700_021_600.0,
            estimated_rows=table.num_rows,
            estimated_bytes=table.nbytes,
        )

    def read_rows(self, stream: str, offset: int) -> "_Call":
        with self._lock:
            fault = self._faults.get(len(self.calls))
            self.calls.append((stream, offset))
        if self.expired:
            raise SessionExpiredError("session expired", stream=stream)
        rows = self._streams[stream]
        if offset > rows.num_rows:
            raise InvalidRequestError(f"offset {offset} has not been allocated yet", stream=stream)
        return _Call(self, rows, offset, self._response_rows, fault)

    def split_stream(
        self, stream: str, fraction: float, *, deadline_s: float
    ) -> tuple[str, str] | None:
        return None


class _Call:
    def __init__(
        self,
        model: ReadModel,
        rows: pa.Table,
        offset: int,
        response_rows: int,
        fault: ReadFault | None,
    ) -> None:
        self._model = model
        self._rows = rows
        self._offset = offset
        self._response_rows = response_rows
        self._fault = fault
        self._sent = 0
        self._closed = threading.Event()

    def __iter__(self) -> "_Call":
        return self

    def __next__(self) -> ReadResponse:
        if self._fault is not None and self._sent == self._fault.responses:
            if self._fault.error is not None:
                raise self._fault.error
            self._closed.wait()
        if self._closed.is_set() or self._offset == self._rows.num_rows:
            raise StopIteration
        part = self._rows.slice(self._offset, self._response_rows).combine_chunks()
        start = self._offset / self._rows.num_rows
        self._offset += part.num_rows
        self._sent += 1
        return ReadResponse(
            rows=part.num_rows,
            arrow_batch=part.to_batches()[0].serialize().to_pybytes(),
            progress_start=start,
            progress_stop=self._offset / self._rows.num_rows,
        )

    def close(self) -> None:
        if not self._closed.is_set():
            self._closed.set()
            self._model.closed += 1
