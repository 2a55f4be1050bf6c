"""The coder of `pa.RecordBatch` elements: Arrow's own stream format. Importing registers it."""

from typing import Any

import pyarrow as pa
from apache_beam import coders


class ArrowBatchCoder(coders.Coder):
    """Carries a batch with its schema, and of a slice only the slice.

    Not deterministic, so Beam refuses a batch as a key: what lies in a batch under
    its NULLs is arbitrary, and equal batches may differ in it.
    """

    def encode(self, value: pa.RecordBatch) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, value.schema) as writer:
            writer.write_batch(value)
        encoded: bytes = sink.getvalue().to_pybytes()
        return encoded

    def decode(self, encoded: bytes) -> pa.RecordBatch:
        return pa.ipc.open_stream(pa.py_buffer(encoded)).read_next_batch()

    def estimate_size(self, value: pa.RecordBatch) -> int:
        return int(value.nbytes)

    def is_deterministic(self) -> bool:
        return False

    def to_type_hint(self) -> Any:
        return pa.RecordBatch


coders.registry.register_coder(pa.RecordBatch, ArrowBatchCoder)
