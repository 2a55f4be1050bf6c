"""The steps of a read: plan the session, then read its streams."""

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.codec.arrow import BatchDecoder
from bqflink_beam.errors import (
    InvalidRequestError,
    NotFoundError,
    ServiceError,
    SessionExpiredError,
)
from bqflink_beam.read.read_stream import ReadStream, streams_of
from bqflink_beam.read.request import ReadRequest
from bqflink_beam.read.rows import Tally
from bqflink_beam.read.session import open_session
from bqflink_beam.service.base import Client
from bqflink_beam.service.connection import Connection
from bqflink_beam.transforms.read_bundle import BundleReader, SelfCheckpoint
from bqflink_beam.transforms.read_metrics import ReadMetrics
from bqflink_beam.transforms.restriction import StreamRangeProvider
from bqflink_beam.transforms.run_identity import identity_of
from bqflink_beam.write.manifest import RunIdentity

_LOG = logging.getLogger(__name__)
_PROVIDER = StreamRangeProvider()
# Decoded at once; more fall out of the processor's cache, and cost a third more each.
_DICTS_MAX = 1_000
_ARROW_ROWS_MAX = 1 << 62  # as many as came in one message


class PlanReadFn(beam.DoFn):
    """Makes the read session, and emits its streams. Input: one element of any kind.

    `identity` is set when the pipeline is translated, see `run_identity`.

    Args:
        saved: the pipeline is started any number of times with one identity. A view is then
            queried anew whenever this step runs, at the price of one more query if the step
            is repeated; a result found from an earlier start would be old.
    """

    def __init__(self, request: ReadRequest, connection: Connection, *, saved: bool) -> None:
        self.request = request
        self.connection = connection
        self.saved = saved
        self.run_id: str | None = None
        self.identity: RunIdentity | None = None

    def setup(self) -> None:
        self._client: Client = self.connection.open()

    def process(self, element: Any) -> Iterator[ReadStream]:
        run_id = uuid.uuid4().hex if self.saved else identity_of(self).run_id
        session = open_session(self.request, self._client, run_id=run_id)
        _LOG.info(
            "read session %s of %s: %d streams, about %d rows",
            session.name,
            self.request.source,
            len(session.streams),
            session.estimated_rows,
        )
        yield from streams_of(session, self.request.source)

    def teardown(self) -> None:
        self._client.close()


class ReadStreamFn(beam.DoFn):
    """Reads streams: a splittable DoFn over the rows of each.

    Args:
        as_dicts: gives dicts; otherwise whole `pa.RecordBatch`es come out.
        checkpoint: None in batch, where a bundle may take as long as it takes. Set when
            the pipeline is translated.
    """

    def __init__(
        self, connection: Connection, *, as_dicts: bool, checkpoint: SelfCheckpoint | None
    ) -> None:
        self.connection = connection
        self.as_dicts = as_dicts
        self.checkpoint = checkpoint

    def setup(self) -> None:
        self._client: Client = self.connection.open()
        self._metrics = ReadMetrics()
        self._tally = Tally()
        self._reader: BundleReader | None = None
        self._decoder: tuple[bytes, BatchDecoder] | None = None

    def process(
        self,
        element: ReadStream,
        tracker: Any = beam.DoFn.RestrictionParam(_PROVIDER),
    ) -> Iterator[Any]:
        unpack = self._unpack(element)
        reader = self._reader = BundleReader(
            self._client.read,
            element,
            tracker,
            tally=self._tally,
            checkpoint=self.checkpoint,
            batch_rows_max=_DICTS_MAX if self.as_dicts else _ARROW_ROWS_MAX,
            clock=SYSTEM_CLOCK,
        )
        try:
            for part in reader:
                self._metrics.publish(self._tally)
                yield from unpack(part.batch)
        except (SessionExpiredError, InvalidRequestError, NotFoundError) as error:
            # BigQuery may forget a session without a word of its age; its end was known.
            known = isinstance(error, SessionExpiredError)
            if not known and SYSTEM_CLOCK.now_s() < element.expire_s:
                raise
            raise _expired(element, error) from error
        finally:
            self._metrics.publish(self._tally)
        if reader.checkpointed:
            self._metrics.checkpointed()

    def finish_bundle(self) -> None:
        self._close_reader()

    def teardown(self) -> None:
        self._close_reader()
        self._client.close()

    def _close_reader(self) -> None:
        # A bundle that fails downstream abandons the iteration without closing it.
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _unpack(self, element: ReadStream) -> Callable[[pa.RecordBatch], Iterable[Any]]:
        if not self.as_dicts:
            return _whole
        # All streams of a session have one schema, so one decoder serves nearly always.
        key = element.arrow_schema_zlib
        if self._decoder is None or self._decoder[0] != key:
            schema = pa.ipc.read_schema(pa.py_buffer(element.arrow_schema))
            self._decoder = (key, BatchDecoder(schema))
        return self._decoder[1].rows


def _whole(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    return [batch]


def _expired(element: ReadStream, error: ServiceError) -> SessionExpiredError:
    return SessionExpiredError(
        f"the read session of {element.source} has expired before all its rows were read. "
        "BigQuery keeps a session for about six hours and cannot renew it: start the job again "
        "from the beginning, with more workers or streams, fewer columns or a row_filter, or "
        f"split it by a partition. BigQuery said: {error.message}",
        table=element.source,
        stream=element.stream,
        code=error.code,
    )
