"""Where one shard of an unbounded write stands: the cell that checkpoints hold."""

import dataclasses
import struct

from bqflink_beam.errors import BqflinkError

_FORMAT_VERSION = 1
_FIXED = struct.Struct("<Bqd")


@dataclasses.dataclass(frozen=True)
class Position:
    """`next_offset` rows are on `stream`; the last of them was appended at `appended_s`."""

    stream: str
    next_offset: int
    appended_s: float

    def to_bytes(self) -> bytes:
        """Returns a versioned form that checkpoints may hold."""
        return (
            _FIXED.pack(_FORMAT_VERSION, self.next_offset, self.appended_s) + self.stream.encode()
        )

    @staticmethod
    def from_bytes(data: bytes) -> "Position":
        """Reads what `to_bytes` wrote.

        Raises:
            BqflinkError: the bytes are of a newer version of this package.
        """
        version, next_offset, appended_s = _FIXED.unpack_from(data)
        if version != _FORMAT_VERSION:
            raise BqflinkError(
                f"write position has format {version}; this version reads {_FORMAT_VERSION}"
            )
        return Position(data[_FIXED.size :].decode(), next_offset, appended_s)


@dataclasses.dataclass(frozen=True, order=True)
class FlushMark:
    """Rows ``[0, stop)`` of `stream` may be made visible, once the checkpoint is complete.

    Made by the appending step in the same bundle that writes its `Position`; read by the
    flushing step.
    """

    stream: str
    stop: int

    def to_bytes(self) -> bytes:
        """Returns a versioned form that checkpoints may hold."""
        return struct.pack("<Bq", _FORMAT_VERSION, self.stop) + self.stream.encode()

    @staticmethod
    def from_bytes(data: bytes) -> "FlushMark":
        """Reads what `to_bytes` wrote.

        Raises:
            BqflinkError: the bytes are of a newer version of this package.
        """
        version, stop = struct.unpack_from("<Bq", data)
        if version != _FORMAT_VERSION:
            raise BqflinkError(
                f"flush mark has format {version}; this version reads {_FORMAT_VERSION}"
            )
        return FlushMark(data[struct.calcsize("<Bq") :].decode(), stop)
