"""Coders of the elements between our own steps, and of the state cell: explicit and versioned.

What they write sits in checkpoints and savepoints, so a later version of this package
must read it. Never pickle, but for users' own objects inside of failed rows.
"""

import json
from typing import Any

from apache_beam import coders

from bqflink_beam.errors import BqflinkError
from bqflink_beam.transforms.failed import FailedRow
from bqflink_beam.write.batching import RowBatch
from bqflink_beam.write.commit import CommitReport
from bqflink_beam.write.flush import LostStream
from bqflink_beam.write.pending import StagedStream
from bqflink_beam.write.position import FlushMark, Position

_FORMAT_VERSION = 1
_FORMAT_BY_VALUE = 2


class _OwnBytesCoder(coders.Coder):
    """A coder for a class that knows its bytes."""

    element: Any

    def encode(self, value):
        return value.to_bytes()

    def decode(self, encoded):
        return self.element.from_bytes(encoded)

    def is_deterministic(self):
        return True

    def to_type_hint(self):
        return self.element

    def __eq__(self, other):
        return type(self) is type(other)

    def __hash__(self):
        return hash(type(self))


class RowBatchCoder(_OwnBytesCoder):
    element = RowBatch


class PositionCoder(_OwnBytesCoder):
    element = Position


class FlushMarkCoder(_OwnBytesCoder):
    element = FlushMark


class StagedStreamCoder(_OwnBytesCoder):
    element = StagedStream


class _JsonCoder(_OwnBytesCoder):
    """A coder for a class whose constructor takes plain values, by position."""

    fields: tuple[str, ...]

    def encode(self, value):
        return json.dumps(
            [_FORMAT_VERSION, *(getattr(value, name) for name in self.fields)]
        ).encode()

    def decode(self, encoded):
        version, *values = json.loads(encoded)
        if version != _FORMAT_VERSION:
            raise BqflinkError(
                f"{self.element.__name__} has format {version}, this reads {_FORMAT_VERSION}"
            )
        return self.element(*values)


class LostStreamCoder(_JsonCoder):
    element = LostStream
    fields = ("table", "stream", "last_offset")


class CommitReportCoder(_JsonCoder):
    element = CommitReport
    fields = ("run_id", "rows", "streams", "reused")


class FailedRowCoder(_OwnBytesCoder):
    """Rows are whatever the user gave, so Beam's coder for plain values carries them.

    What is not plain goes by value: the class of a row is often one of the main program, or
    made on the way, and no other process finds it by its name. So does a row with half a
    surrogate pair, as JSON may hold one: that is no UTF-8.
    """

    element = FailedRow

    def __init__(self):
        self._by_value = coders.CloudpickleCoder()
        self._values = coders.FastPrimitivesCoder(self._by_value)

    def encode(self, value):
        try:
            return bytes([_FORMAT_VERSION]) + self._values.encode(tuple(value))
        except UnicodeEncodeError:
            return bytes([_FORMAT_BY_VALUE]) + self._by_value.encode(tuple(value))

    def decode(self, encoded):
        if encoded[0] == _FORMAT_BY_VALUE:
            return FailedRow(*self._by_value.decode(encoded[1:]))
        if encoded[0] != _FORMAT_VERSION:
            raise BqflinkError(
                f"FailedRow has format {encoded[0]}, this version reads {_FORMAT_VERSION}"
            )
        return FailedRow(*self._values.decode(encoded[1:]))

    def is_deterministic(self):
        return False


for _coder in (
    RowBatchCoder,
    PositionCoder,
    FlushMarkCoder,
    StagedStreamCoder,
    LostStreamCoder,
    CommitReportCoder,
    FailedRowCoder,
):
    coders.registry.register_coder(_coder.element, _coder)
