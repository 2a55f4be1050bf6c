"""Encoded rows on their way to a table: the batch, its bytes, and how batches are cut."""

import dataclasses
import struct
from collections.abc import Sequence

from bqflink_beam.errors import BqflinkError

# Each row in a request costs its field tag and length besides its own bytes.
ROW_OVERHEAD_BYTES = 6
# Requests stop at 10 MB on older servers and 20 MB today, with the schema in the first.
ROW_BYTES_LIMIT = 9_500_000
_FORMAT_VERSION = 1
_HEADER = struct.Struct("<BHIII")


@dataclasses.dataclass(frozen=True)
class RowBatch:
    """Serialized proto rows for one table, with all that a later process needs to send them.

    Made by the encoding step; read by the appending steps, maybe in another process and
    after a restart, hence the descriptor and the schema beside the rows.

    `timestamps` are event times in microseconds, one a row; a failed row gets its own back.
    """

    table: str
    schema: bytes
    descriptor: bytes
    rows: Sequence[bytes]
    timestamps: Sequence[int]

    def to_bytes(self) -> bytes:
        """Returns a versioned form that checkpoints may hold."""
        table = self.table.encode()
        count = len(self.rows)
        return b"".join(
            (
                _HEADER.pack(
                    _FORMAT_VERSION, len(table), len(self.schema), len(self.descriptor), count
                ),
                table,
                self.schema,
                self.descriptor,
                struct.pack(f"<{count}I", *map(len, self.rows)),
                struct.pack(f"<{count}q", *self.timestamps),
                *self.rows,
            )
        )

    @staticmethod
    def from_bytes(data: bytes) -> "RowBatch":
        """Reads what `to_bytes` wrote.

        Raises:
            BqflinkError: the bytes are of a newer version of this package.
        """
        version, table_size, schema_size, descriptor_size, count = _HEADER.unpack_from(data)
        if version != _FORMAT_VERSION:
            raise BqflinkError(
                f"row batch has format {version}; this version reads {_FORMAT_VERSION}"
            )
        position = _HEADER.size
        parts = []
        for size in (table_size, schema_size, descriptor_size):
            parts.append(data[position : position + size])
            position += size
        sizes = struct.unpack_from(f"<{count}I", data, position)
        timestamps = struct.unpack_from(f"<{count}q", data, position + 4 * count)
        position += 12 * count
        rows = []
        for size in sizes:
            rows.append(data[position : position + size])
            position += size
        return RowBatch(parts[0].decode(), parts[1], parts[2], rows, timestamps)


class BatchBuilder:
    """Collects rows of one table until a batch is full."""

    def __init__(
        self, table: str, schema: bytes, descriptor: bytes, *, rows_max: int, bytes_max: int
    ):
        self._table, self._schema, self._descriptor = table, schema, descriptor
        self._rows_max, self._bytes_max = rows_max, bytes_max
        self._rows: list[bytes] = []
        self._timestamps: list[int] = []
        self.size = 0

    def add(self, row: bytes, timestamp: int) -> RowBatch | None:
        """Adds a row; returns the batch that had no more room for it."""
        row_size = len(row) + ROW_OVERHEAD_BYTES
        no_room = len(self._rows) >= self._rows_max or self.size + row_size > self._bytes_max
        full = self.take() if self._rows and no_room else None
        self._rows.append(row)
        self._timestamps.append(timestamp)
        self.size += row_size
        return full

    def take(self) -> RowBatch | None:
        """Returns what there is, None if nothing, and starts anew."""
        if not self._rows:
            return None
        batch = RowBatch(self._table, self._schema, self._descriptor, self._rows, self._timestamps)
        self._rows, self._timestamps, self.size = [], [], 0
        return batch


def fitting(
    batch: RowBatch, request_bytes_max: int
) -> tuple[list[Sequence[int]], list[tuple[int, str]]]:
    """Cuts a batch into the row indexes of requests that BigQuery takes, in order.

    Also returns the rows that are too large for any request, each with a message.
    """
    parts: list[Sequence[int]] = []
    too_large: list[tuple[int, str]] = []
    part: list[int] = []
    size = 0
    row_bytes_max = max(request_bytes_max, ROW_BYTES_LIMIT)
    for index, row in enumerate(batch.rows):
        row_size = len(row) + ROW_OVERHEAD_BYTES
        if row_size > row_bytes_max:
            told = f"the row has {len(row)} bytes, and a request holds {row_bytes_max}"
            too_large.append((index, told))
            continue
        if part and size + row_size > request_bytes_max:
            parts.append(part)
            part, size = [], 0
        part.append(index)
        size += row_size
    if part:
        parts.append(part)
    return parts, too_large
