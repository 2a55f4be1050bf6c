"""Coders of what a read sends between steps and to the user. Importing registers them."""

from apache_beam import coders

from bqflink_beam.read.read_stream import ReadStream


class ReadStreamCoder(coders.Coder):
    """Versioned and deterministic: Flink keys the reading step by these bytes."""

    def encode(self, value: ReadStream) -> bytes:
        return value.to_bytes()

    def decode(self, encoded: bytes) -> ReadStream:
        return ReadStream.from_bytes(encoded)

    def is_deterministic(self) -> bool:
        return True

    def to_type_hint(self) -> type:
        return ReadStream


coders.registry.register_coder(ReadStream, ReadStreamCoder)
