"""`ReadStream`: one stream of a session, with what a worker needs to read it."""

import dataclasses
import json
import zlib

from bqflink_beam.errors import BqflinkError
from bqflink_beam.service.base import ReadSession

_FORMAT_VERSION = 1


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ReadStream:
    """One stream of a read session, made by the planning step and read by the reading step.

    Carries the session's schema, for a stream whose rows are all filtered out sends
    no message and so no schema; compressed, for a runner keeps the element beside
    each of its checkpoints. It never changes: what is left to read is the business
    of a `StreamRange`. Its bytes stand in checkpoints and savepoints.
    """

    stream: str
    source: str
    expire_s: float
    estimated_rows: int
    arrow_schema_zlib: bytes

    @property
    def arrow_schema(self) -> bytes:
        """A bare Arrow IPC schema message."""
        return zlib.decompress(self.arrow_schema_zlib)

    def to_bytes(self) -> bytes:
        """Returns a versioned form; equal streams give equal bytes."""
        facts = [self.stream, self.source, self.expire_s, self.estimated_rows]
        head = json.dumps(facts, separators=(",", ":")).encode()
        return b"%c%s\n%s" % (_FORMAT_VERSION, head, self.arrow_schema_zlib)

    @staticmethod
    def from_bytes(data: bytes) -> "ReadStream":
        """Reads what `to_bytes` wrote."""
        if data[0] != _FORMAT_VERSION:
            raise BqflinkError(
                f"a read stream has format {data[0]}, this version reads {_FORMAT_VERSION}"
            )
        head, _, schema = data[1:].partition(b"\n")
        stream, source, expire_s, estimated_rows = json.loads(head)
        return ReadStream(
            stream=stream,
            source=source,
            expire_s=expire_s,
            estimated_rows=estimated_rows,
            arrow_schema_zlib=schema,
        )


def streams_of(session: ReadSession, source: str) -> list[ReadStream]:
    """Returns the streams of a session; `source` is what the user asked to read, for messages."""
    schema = zlib.compress(session.arrow_schema)
    return [
        ReadStream(
            stream=stream,
            source=source,
            expire_s=session.expire_s,
            estimated_rows=session.estimated_rows // len(session.streams),
            arrow_schema_zlib=schema,
        )
        for stream in session.streams
    ]
