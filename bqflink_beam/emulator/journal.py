"""`FileJournal`: every transaction of a store in one file, so that a killed server comes back whole.

A record is a transaction: length, checksums of what follows and of the length, then its
operations as JSON, with their chunks as Arrow behind it. It is handed to the operating
system before the transaction takes effect, and so before anyone is told of it: ``kill -9``
loses nothing that was acknowledged. (A machine that loses power may.) A record that was cut
off by the kill was never acknowledged, and is cut away at the next start.
"""

import fcntl
import json
import logging
import os
import pathlib
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.transaction import Operation
from bqflink_beam.emulator.versions import Chunk, LazyChunk
from bqflink_beam.errors import ConfigError

_log = logging.getLogger(__name__)

_MAGIC = b"bqflink-journal-2\n"
_HEADER = struct.Struct("<QII")
_CHECKED = struct.Struct("<QI")
_CLOSED = -1
_JSON_LENGTH = struct.Struct("<I")


class FileJournal:
    """The journal in a folder; holds the folder's lock until it is closed.

    Args:
        folder: made if it does not exist.

    Raises:
        ConfigError: another server uses the folder, or the file is no journal.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "journal"
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise ConfigError(f"data folder {folder} is in use by another server") from None
        self._torn = False
        self._size = os.fstat(self._file).st_size
        if self._size < len(_MAGIC) and _MAGIC.startswith(os.pread(self._file, self._size, 0)):
            os.ftruncate(self._file, 0)
            os.write(self._file, _MAGIC)
            self._size = len(_MAGIC)
        elif os.pread(self._file, len(_MAGIC), 0) != _MAGIC:
            os.close(self._file)
            raise ConfigError(f"{self._path} is no journal of this version")

    def close(self) -> None:
        """Gives the folder free. May be repeated."""
        file, self._file = self._file, _CLOSED
        if file != _CLOSED:
            os.close(file)

    def write(self, operations: Sequence[Operation]) -> None:
        """Adds a transaction.

        Raises:
            Refused: UNAVAILABLE, the disk does not take it; nothing is added.
        """
        payload = _encode(operations)
        head = _CHECKED.pack(len(payload), zlib.crc32(payload))
        record = memoryview(head + zlib.crc32(head).to_bytes(4, "little") + payload)
        written = 0
        try:
            # A part of a record that a failed write left behind, and that could not be cut away.
            if self._torn:
                os.ftruncate(self._file, self._size)
                self._torn = False
            while written < len(record):
                written += os.write(self._file, record[written:])
        except OSError as error:
            self._torn = True
            raise Refused(f"the journal cannot be written: {error}", code="UNAVAILABLE") from error
        self._size += len(record)

    def replay(self) -> Iterator[list[Operation]]:
        """Yields the transactions, oldest first. Call it once, before the first `write`.

        Raises:
            ConfigError: a record in the middle is damaged; nothing is dropped silently, and
                the journal is closed.
        """
        try:
            yield from self._records()
        except ConfigError:
            self.close()
            raise

    def _records(self) -> Iterator[list[Operation]]:
        position = len(_MAGIC)
        while position < self._size:
            record = self._record(position)
            if record is None:
                _log.warning(
                    "%s: cutting off %d bytes of a record that was not written whole",
                    self._path,
                    self._size - position,
                )
                os.ftruncate(self._file, position)
                self._size = position
                return
            position += _HEADER.size + len(record)
            yield _decode(record)

    def _record(self, position: int) -> bytes | None:
        """Returns the payload at `position`; None if the file ends within it."""
        header = os.pread(self._file, _HEADER.size, position)
        if len(header) < _HEADER.size:
            return None
        length, checksum, checksum_of_head = _HEADER.unpack(header)
        if zlib.crc32(header[: _CHECKED.size]) != checksum_of_head:
            if self._only_zeros(position):
                return None
            raise ConfigError(f"{self._path} is damaged at byte {position}")
        end = position + _HEADER.size + length
        if end > self._size:
            return None
        payload = _read(self._file, length, position + _HEADER.size)
        if zlib.crc32(payload) != checksum:
            if end == self._size:
                return None
            raise ConfigError(f"{self._path} is damaged at byte {position}")
        return payload

    def _only_zeros(self, position: int) -> bool:
        # What a file system may leave at the end when the power goes.
        step = 1 << 20
        return not any(
            any(os.pread(self._file, step, at)) for at in range(position, self._size, step)
        )


def _read(file: int, length: int, position: int) -> bytes:
    parts = []
    while length:
        part = os.pread(file, min(length, 1 << 30), position)
        parts.append(part)
        position += len(part)
        length -= len(part)
    return b"".join(parts)


def _encode(operations: Sequence[Operation]) -> bytes:
    described: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for operation in operations:
        sizes = []
        for group in _by_schema(operation.chunks):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, group[0].schema) as writer:
                for chunk in group:
                    writer.write_batch(chunk)
            blobs.append(sink.getvalue().to_pybytes())
            sizes.append(len(blobs[-1]))
        described.append(
            {
                "kind": operation.kind,
                "key": operation.key,
                "at_s": operation.at_s,
                "document": operation.document,
                "chunks": sizes,
            }
        )
    text = json.dumps(described, separators=(",", ":")).encode()
    return b"".join([_JSON_LENGTH.pack(len(text)), text, *blobs])


def _by_schema(chunks: Sequence[Chunk]) -> list[list[pa.RecordBatch]]:
    groups: list[list[pa.RecordBatch]] = []
    for chunk in chunks:
        if isinstance(chunk, LazyChunk):
            chunk = chunk.load()
        if groups and groups[-1][0].schema.equals(chunk.schema, check_metadata=True):
            groups[-1].append(chunk)
        else:
            groups.append([chunk])
    return groups


def _decode(payload: bytes) -> list[Operation]:
    (length,) = _JSON_LENGTH.unpack_from(payload)
    position = _JSON_LENGTH.size + length
    operations = []
    for described in json.loads(payload[_JSON_LENGTH.size : position]):
        chunks: list[pa.RecordBatch] = []
        for size in described["chunks"]:
            with pa.ipc.open_stream(pa.py_buffer(payload).slice(position, size)) as reader:
                chunks.extend(reader)
            position += size
        operations.append(
            Operation(
                described["kind"],
                tuple(described["key"]),
                described["at_s"],
                described["document"],
                tuple(chunks),
            )
        )
    return operations
