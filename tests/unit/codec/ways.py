"""The codecs as one shape: ``way(schema, row)`` gives the row as it comes back."""

from bqflink_beam.codec.arrow import BatchDecoder, BatchEncoder
from bqflink_beam.codec.avro import RecordDecoder, RecordEncoder
from bqflink_beam.codec.batch_to_proto import BatchToProto
from bqflink_beam.codec.json import LineDecoder, LineEncoder
from bqflink_beam.codec.proto import RowDecoder, RowEncoder


def proto(schema, row, **options):
    encoder = RowEncoder(schema, **options)
    return RowDecoder(schema, encoder.descriptor).decode(encoder.encode(row))


def arrow(schema, row, **options):
    encoder = BatchEncoder(schema, **options)
    return BatchDecoder(encoder.arrow_schema).rows(encoder.encode([row]))[0]


def avro(schema, row, **options):
    encoder = RecordEncoder(schema, **options)
    return RecordDecoder(encoder.avro_schema).decode(encoder.encode(row))


def ndjson(schema, row, **options):
    return LineDecoder(schema).decode(LineEncoder(schema, **options).encode(row))


def batch_to_proto(schema, row, **options):
    encoder = BatchEncoder(schema, **options)
    direct = BatchToProto(encoder.arrow_schema, schema)
    (data,) = direct.encode(encoder.encode([row]))
    return RowDecoder(schema, direct.descriptor).decode(data)


CODECS = [proto, arrow, avro, ndjson]
