"""The value rows of the predecessors' tests, by number: their values, or a better one and why.

The predecessors write Avro records as proto. Here such a record is read as rows (Avro),
and the rows are written as proto, so that both codecs stand to the test.
"""

import datetime
import decimal
import io
import uuid

import fastavro
import numpy as np
import pytest

from bqflink_beam.codec.avro import read_file
from bqflink_beam.codec.proto import RowDecoder, RowEncoder
from bqflink_beam.errors import RowError
from bqflink_beam.schema import proto
from bqflink_beam.schema.model import Field, TableSchema

UTC = datetime.timezone.utc
civil = datetime.datetime.fromisoformat
LONG_DATE = {"type": "int", "logicalType": "date"}


def logical(kind, name):
    return {"type": kind, "logicalType": name}


def from_avro(type_, value):
    """Reads a record that someone else wrote, with the bare number in it."""
    bare = type_["type"]
    fields = [{"name": "c", "type": bare}]
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema({"type": "record", "name": "R", "fields": fields}), {"c": value}
    )
    file = io.BytesIO()
    schema = {"type": "record", "name": "R", "fields": [{"name": "c", "type": type_}]}
    fastavro.writer(file, schema, [])
    head = file.getvalue()
    block = b"\x02" + fastavro_long(len(out.getvalue())) + out.getvalue() + head[-16:]
    (row,) = read_file(head + block)
    return row["c"]


def fastavro_long(number):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


def schema_of(kind, **facts):
    return TableSchema((Field(name="c", type=kind, **facts),))


def written(kind, value, **facts):
    """The number or text that stands in the proto message."""
    encoder = RowEncoder(schema_of(kind, **facts))
    class_ = proto.message_class(encoder.descriptor)
    return class_.FromString(encoder.encode({"c": value})).c


def stored(kind, value, **facts):
    encoder = RowEncoder(schema_of(kind, **facts))
    return RowDecoder(schema_of(kind, **facts), encoder.descriptor).decode(
        encoder.encode({"c": value})
    )["c"]


def refused(kind, value, **facts):
    with pytest.raises(RowError) as caught:
        written(kind, value, **facts)
    assert caught.value.column.startswith("c")
    return caught.value


def test_row_1_a_date_is_days():
    assert from_avro(LONG_DATE, 19795) == datetime.date(2024, 3, 13)
    assert written("DATE", datetime.date(2024, 3, 13)) == 19795
    assert written("DATE", from_avro(LONG_DATE, 19794)) == 19794


def test_row_2_a_date_far_out():
    with pytest.raises(RowError):
        from_avro(LONG_DATE, 29328967)


def test_row_3_the_first_and_the_last_date():
    assert written("DATE", from_avro(LONG_DATE, -719162)) == -719162
    assert written("DATE", from_avro(LONG_DATE, 2932896)) == 2932896
    for days in (-719163, 2932897):
        with pytest.raises(RowError):
            from_avro(LONG_DATE, days)


def test_row_4_micros_stay_micros():
    assert written("TIMESTAMP", 1710270870000) == 1710270870000
    assert written("TIMESTAMP", from_avro(logical("long", "timestamp-micros"), 1710270870000)) == (
        1710270870000
    )


def test_row_5_and_6_millis_become_micros():
    millis = logical("long", "timestamp-millis")

    assert written("TIMESTAMP", from_avro(millis, 1710270870)) == 1710270870000
    assert written("TIMESTAMP", from_avro(millis, 1710270870123)) == 1710270870123000


def test_row_7_text_keeps_its_micros():
    """The predecessor cut them to milliseconds: 1710291676579000."""
    assert written("TIMESTAMP", "2024-03-13T01:01:16.579501Z") == 1710291676579501


def test_row_8_text_with_a_zone():
    """As row 7: here the text has milliseconds only."""
    assert written("TIMESTAMP", "2024-03-20T12:50:50.269+05:30") == 1710919250269000


@pytest.mark.parametrize("micros", [253402300800000000, -62135596800000001])
def test_row_9_and_10_the_ends_of_time(micros):
    refused("TIMESTAMP", micros)
    with pytest.raises(RowError):
        from_avro(logical("long", "timestamp-micros"), micros)


def test_row_11_and_12_times_of_both_units():
    micros = from_avro(logical("long", "time-micros"), 36708529123)
    millis = from_avro(logical("int", "time-millis"), 36708529)

    assert stored("TIME", micros).isoformat() == "10:11:48.529123"
    assert stored("TIME", millis).isoformat(timespec="milliseconds") == "10:11:48.529"


def test_row_13_a_time_in_text():
    assert stored("TIME", "00:22:59.700440").isoformat() == "00:22:59.700440"


def test_row_14_and_15_midnight_is_not_the_end_of_a_day():
    assert from_avro(logical("long", "time-micros"), 50546554456).isoformat() == "14:02:26.554456"
    assert from_avro(logical("int", "time-millis"), 45745727).isoformat() == "12:42:25.727000"
    for kind, name, number in (
        ("long", "time-micros", 86400000000),
        ("int", "time-millis", 86400000),
    ):
        with pytest.raises(RowError):
            from_avro(logical(kind, name), number)


def test_row_16_a_datetime_in_text():
    assert stored("DATETIME", "2024-01-01 00:22:59.700440") == civil("2024-01-01T00:22:59.700440")


@pytest.mark.parametrize(
    ("name", "number", "text"),
    [
        ("local-timestamp-micros", 1710290574347000, "2024-03-13T00:42:54.347"),
        ("local-timestamp-micros", 1710943144787424, "2024-03-20T13:59:04.787424"),
        ("local-timestamp-millis", 1710938587462, "2024-03-20T12:43:07.462"),
    ],
)
def test_row_17_to_19_datetimes_of_both_units(name, number, text):
    assert stored("DATETIME", from_avro(logical("long", name), number)) == civil(text)


def test_row_20_a_datetime_far_out():
    with pytest.raises(RowError):
        from_avro(logical("long", "local-timestamp-micros"), 1424413213878251952)


@pytest.mark.parametrize("text", ["2026-08-31T12:30:00", "2026-08-31T12:30", "2026-08-31 12:30:00"])
def test_row_21_a_whole_minute_is_a_datetime_like_others(text):
    """The predecessor left the seconds out of the text, and the service refused it."""
    assert stored("DATETIME", text) == civil("2026-08-31T12:30:00")
    assert stored("DATETIME", civil("2026-08-31T12:30:00")) == civil("2026-08-31T12:30:00")


def test_row_22_json_of_any_kind():
    """The predecessor took objects only; BigQuery's JSON holds any value."""
    assert written("JSON", '{"name": "a", "n": 1}') == '{"name": "a", "n": 1}'
    assert written("JSON", 123456) == "123456"
    refused("JSON", "invalid_json_string")


def test_row_23_a_geography_is_kept():
    assert written("GEOGRAPHY", "POINT(-121 41)") == "POINT(-121 41)"


def test_row_24_uuids():
    text = "8e25e7e5-0dc5-4292-b59b-3665b0ab8280"

    assert written("STRING", uuid.UUID(text)) == text
    # A STRING column takes any text; that it is a UUID's is not its business.
    assert written("STRING", "no uuid") == "no uuid"


def test_row_25_a_32_bit_float_is_widened():
    assert written("FLOAT64", np.float32(12345.6789)) == 12345.6787109375


def test_row_26_small_integers():
    assert written("INT64", np.int32(123)) == written("INT64", np.int16(123)) == 123


def test_row_27_and_28_decimals_beyond_the_type():
    refused("NUMERIC", decimal.Decimal("57896349923328446186583439539266.349923328"))
    refused(
        "BIGNUMERIC",
        decimal.Decimal(
            "5789604461865805559771174925043439539266.349923328202820554419728792395656481996700"
        ),
    )


@pytest.mark.parametrize("kind", ["NUMERIC", "BIGNUMERIC"])
def test_row_29_digits_beyond_the_columns_scale(kind):
    """The predecessor sent them and let the service round: a silent change. Ours does so
    only where the column says how to round."""
    number = decimal.Decimal("1.234567")

    refused(kind, number, precision=9, scale=5)
    assert (
        written(kind, number, precision=9, scale=5, rounding_mode="ROUND_HALF_EVEN") == "1.234567"
    )


def test_row_30_a_row_of_nulls_is_an_empty_message():
    encoder = RowEncoder(TableSchema((Field(name="a", type="INT64"), Field(name="b", type="JSON"))))

    assert encoder.encode({"a": None, "b": None}) == encoder.encode({}) == b""


def test_row_31_null_for_a_required_column_names_it():
    assert "c is REQUIRED" in refused("INT64", None, mode="REQUIRED").message


def test_row_32_a_scalar_for_a_list():
    assert "is not a list" in refused("INT64", 12345, mode="REPEATED").message


def test_row_33_null_in_a_list():
    """The unions and maps of this row are schemas, see test_avro.py."""
    assert refused("INT64", [1, None], mode="REPEATED").column == "c[1]"


def test_row_40_case_of_names():
    encoder = RowEncoder(TableSchema((Field(name="Foo", type="INT64"),)))

    assert [each.name for each in proto.message_class(encoder.descriptor).DESCRIPTOR.fields] == [
        "foo"
    ]
    assert encoder.encode({"foo": 1}) == encoder.encode({"FOO": 1}) == encoder.encode({"Foo": 1})
