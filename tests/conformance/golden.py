"""Golden bytes: rows as Google's libraries put them on the wire, and what they mean.

The bytes were made once, by google-cloud-bigquery-storage 2.43 and protobuf 6.33, and are
constants since: the tests make today's libraries make them again, and everything that reads
rows read them. Published values say where they stand.
"""

import dataclasses
import datetime
import decimal
from typing import Any

from bqflink_beam.codec.values import Interval, Range
from bqflink_beam.schema.model import Field, TableSchema

UTC = datetime.timezone.utc
_D = decimal.Decimal
civil = datetime.datetime.fromisoformat


def _field(name: str, type: str, mode: str = "NULLABLE", **more: Any) -> Field:
    return Field(name=name, type=type, mode=mode, **more)


# --- packed civil time ----------------------------------------------------------------------

# java-bigquerystorage, CivilTimeEncoderTest, and ZetaSQL's test of the same name.
PACKED_TIMES = {
    0x0: datetime.time(0),
    0x4200BB8: datetime.time(0, 1, 2, 3_000),
    0xC00000000: datetime.time(12),
    0xD38F03E80: datetime.time(13, 14, 15, 16_000),
    0x17EFBF3E58: datetime.time(23, 59, 59, 999_000),
    # Beam, TableRowToStorageApiProtoTest.
    3497124416: datetime.time(0, 52, 7, 123_456),
}
PACKED_DATETIMES = {
    0x442000000000: civil("0001-01-01T00:00:00"),
    0x486004200BB8: civil("0001-02-03T00:01:02.003"),
    0x442C00000000: civil("0001-01-01T12:00:00"),
    0x442D38F03E80: civil("0001-01-01T13:14:15.016"),
    0x9C3F3F7EFBF3E58: civil("9999-12-31T23:59:59.999"),
    142111881387172416: civil("2019-08-16T00:52:07.123456"),
}

# --- decimals as bytes ----------------------------------------------------------------------

# java-bigquerystorage, BigDecimalByteStringEncoder and ITBigQueryBigDecimalByteStringEncoderTest:
# the value times 10^9 (10^38), two's complement, little end first, no longer than needed.
NUMERIC_BYTES = {
    "00": _D("0"),
    "008c8647": _D("1.2"),
    "007479b8": _D("-1.2"),
    "ffffffff3f228a097ac4865aa84c3b4b": _D("99999999999999999999999999999.999999999"),
    "01000000c0dd75f6853b79a557b3c4b4": _D("-99999999999999999999999999999.999999999"),
}
BIGNUMERIC_BYTES = {
    "00": _D("0"),
    "01": _D("1e-38"),
    "ff": _D("-1e-38"),
    "0000000040228a097ac4865aa84c3b4b": _D("1"),
    "ff" * 31 + "7f": _D("578960446186580977117854925043439539266.34992332820282019728792003956564819967"),
    "00" * 31 + "80": _D("-578960446186580977117854925043439539266.34992332820282019728792003956564819968"),
}  # fmt: skip

# --- requests of a writer with a proto message ----------------------------------------------


def _row(schema: TableSchema, **given: Any) -> dict[str, Any]:
    return {field.name: [] if field.repeated else None for field in schema} | given


@dataclasses.dataclass(frozen=True)
class Append:
    """What Google's `AppendRowsStream` sends of the rows of one message.

    Attributes:
        messages: the fields of the writer's message, and of those nested in it.
        rows: what is set in the message, by row.
        schema: the table's.
        values: what the rows mean.
        first: the request that opens the connection, without its trace id.
        later: the next one, with the same rows.
    """

    messages: dict[str, str]
    rows: tuple[dict[str, Any], ...]
    schema: TableSchema
    values: tuple[dict[str, Any], ...]
    first: str
    later: str


_TYPES = TableSchema(
    (
        _field("s", "STRING"),
        _field("b", "BYTES"),
        _field("i", "INT64", "REQUIRED"),
        _field("f", "FLOAT64"),
        _field("ok", "BOOL"),
        _field("n", "NUMERIC"),
        _field("w", "BIGNUMERIC"),
        _field("d", "DATE"),
        _field("t", "TIME"),
        _field("l", "DATETIME"),
        _field("at", "TIMESTAMP"),
        _field("j", "JSON"),
        _field("g", "GEOGRAPHY"),
        _field("v", "INTERVAL"),
        _field("r", "RANGE", range_element_type="DATE"),
    )
)
TYPES = Append(
    messages={
        "Row": """
            optional string s
            optional bytes b
            required int64 i
            optional double f
            optional bool ok
            optional string n
            optional string w
            optional int32 d
            optional int64 t
            optional int64 l
            optional int64 at
            optional string j
            optional string g
            optional string v
            optional Days r
        """,
        "Days": """
            optional int32 start
            optional int32 end
        """,
    },
    rows=(
        {
            "s": "é",
            "b": b"\x00\xff",
            "i": -(2**63),
            "f": 0.1,
            "ok": True,
            "n": "-1.200000001",
            "w": f"0.{'0' * 37}1",
            "d": -719162,
            "t": 0xD38F03E80,
            "l": 0x9C3F3F7EFBF3E58,
            "at": -1,
            "j": '{"a":[1,null]}',
            "g": "POINT(1 2)",
            "v": "-1-2 3 -4:5:6.070000",
            "r": {"end": 2932896},
        },
        {"s": "", "b": b"", "i": 0, "f": 0.0, "ok": False, "d": 0, "t": 0, "at": 0},
        {"i": 1},
    ),
    schema=_TYPES,
    values=(
        _row(
            _TYPES,
            s="é",
            b=b"\x00\xff",
            i=-(2**63),
            f=0.1,
            ok=True,
            n=_D("-1.200000001"),
            w=_D("1e-38"),
            d=datetime.date(1, 1, 1),
            t=datetime.time(13, 14, 15, 16_000),
            l=civil("9999-12-31T23:59:59.999"),
            at=civil("1969-12-31T23:59:59.999999+00:00"),
            j='{"a":[1,null]}',
            g="POINT(1 2)",
            v=Interval(-14, 3, -14_706_070_000),
            r=Range(None, datetime.date(9999, 12, 31)),
        ),
        _row(
            _TYPES,
            s="",
            b=b"",
            i=0,
            f=0.0,
            ok=False,
            d=datetime.date(1970, 1, 1),
            t=datetime.time(0),
            at=civil("1970-01-01T00:00:00+00:00"),
        ),
        _row(_TYPES, i=1),
    ),
    first=(
        "0a2f70726f6a656374732f702f64617461736574732f642f7461626c65732f742f73747265616d732f5f"
        "64656661756c7422ba030ade010adb010a03526f7712090a017318012001280912090a01621802200128"
        "0c12090a016918032002280312090a0166180420012801120a0a026f6b18052001280812090a016e1806"
        "2001280912090a017718072001280912090a016418082001280512090a017418092001280312090a016c"
        "180a20012803120a0a026174180b2001280312090a016a180c2001280912090a0167180d200128091209"
        "0a0176180e2001280912140a0172180f2001280b32092e526f772e446179731a220a0444617973120d0a"
        "057374617274180120012805120b0a03656e6418022001280512d6010ab6010a02c3a9120200ff188080"
        "8080808080808001219a9999999999b93f2801320c2d312e3230303030303030313a28302e3030303030"
        "30303030303030303030303030303030303030303030303030303030303030303140c68dd4ffffffffff"
        "ff014880fdc0c7d30150d8fcfcfdfefefce10958ffffffffffffffffff01620e7b2261223a5b312c6e75"
        "6c6c5d7d6a0a504f494e54283120322972142d312d322033202d343a353a362e3037303030307a0510a0"
        "81b3010a170a001200180021000000000000000028004000480058000a021801"
    ),
    later=(
        "22d90112d6010ab6010a02c3a9120200ff1880808080808080808001219a9999999999b93f2801320c2d"
        "312e3230303030303030313a28302e303030303030303030303030303030303030303030303030303030"
        "303030303030303030303140c68dd4ffffffffffff014880fdc0c7d30150d8fcfcfdfefefce10958ffff"
        "ffffffffffffff01620e7b2261223a5b312c6e756c6c5d7d6a0a504f494e54283120322972142d312d32"
        "2033202d343a353a362e3037303030307a0510a081b3010a170a00120018002100000000000000002800"
        "4000480058000a021801"
    ),
)
"""Every type in the form that Google's table of supported types names first, which is ours."""

_TEXTS = TableSchema(
    (
        _field("row_num", "INT64"),
        _field("date_col", "DATE"),
        _field("datetime_col", "DATETIME"),
        _field("geography_col", "GEOGRAPHY"),
        _field("numeric_col", "NUMERIC"),
        _field("bignumeric_col", "BIGNUMERIC"),
        _field("time_col", "TIME"),
        _field("timestamp_col", "TIMESTAMP"),
    )
)
TEXTS = Append(
    messages={
        "SampleData": """
            required int64 row_num
            optional string date_col
            optional string datetime_col
            optional string geography_col
            optional string numeric_col
            optional string bignumeric_col
            optional string time_col
            optional int64 timestamp_col
        """
    },
    rows=(
        {
            "row_num": 7,
            "date_col": "2021-08-12",
            "datetime_col": "2021-08-12 09:46:23.987456",
            "geography_col": "POINT(-122.347222 47.651111)",
            "numeric_col": "1234567.89101112",
            "bignumeric_col": "-12345678910111213.14151617181920",
            "time_col": "11:07:48.123456",
            "timestamp_col": 1628784682987654,
        },
        {"row_num": 8, "numeric_col": "1.23456789101112e+6", "date_col": "0001-01-01"},
    ),
    schema=_TEXTS,
    values=(
        _row(
            _TEXTS,
            row_num=7,
            date_col=datetime.date(2021, 8, 12),
            datetime_col=civil("2021-08-12T09:46:23.987456"),
            geography_col="POINT(-122.347222 47.651111)",
            numeric_col=_D("1234567.89101112"),
            bignumeric_col=_D("-12345678910111213.14151617181920"),
            time_col=datetime.time(11, 7, 48, 123_456),
            timestamp_col=civil("2021-08-12T16:11:22.987654+00:00"),
        ),
        _row(
            _TEXTS,
            row_num=8,
            numeric_col=_D("1234567.89101112"),
            date_col=datetime.date(1, 1, 1),
        ),
    ),
    first=(
        "0a2f70726f6a656374732f702f64617461736574732f642f7461626c65732f742f73747265616d732f5f"
        "64656661756c7422fa020ab5010ab2010a0a53616d706c6544617461120f0a07726f775f6e756d180120"
        "02280312100a08646174655f636f6c18022001280912140a0c6461746574696d655f636f6c1803200128"
        "0912150a0d67656f6772617068795f636f6c18042001280912130a0b6e756d657269635f636f6c180520"
        "01280912160a0e6269676e756d657269635f636f6c18062001280912100a0874696d655f636f6c180720"
        "01280912150a0d74696d657374616d705f636f6c18082001280312bf010a97010807120a323032312d30"
        "382d31321a1a323032312d30382d31322030393a34363a32332e393837343536221c504f494e54282d31"
        "32322e3334373232322034372e363531313131292a10313233343536372e383931303131313232212d31"
        "323334353637383931303131313231332e31343135313631373138313932303a0f31313a30373a34382e"
        "3132333435364086e1c7e3efabf2020a230808120a303030312d30312d30312a13312e32333435363738"
        "39313031313132652b36"
    ),
    later=(
        "22c20112bf010a97010807120a323032312d30382d31321a1a323032312d30382d31322030393a34363a"
        "32332e393837343536221c504f494e54282d3132322e3334373232322034372e363531313131292a1031"
        "3233343536372e383931303131313232212d31323334353637383931303131313231332e313431353136"
        "31373138313932303a0f31313a30373a34382e3132333435364086e1c7e3efabf2020a230808120a3030"
        "30312d30312d30312a13312e3233343536373839313031313132652b36"
    ),
)
"""The values of Google's sample append_rows_proto2, which sends most of them as text."""

_WRAPPED = TableSchema(
    (
        _field("i", "INT64"),
        _field("n", "INT64"),
        _field("u", "INT64"),
        _field("f", "FLOAT64"),
        _field("x", "FLOAT64"),
        _field("ok", "BOOL"),
        _field("s", "STRING"),
        _field("b", "BYTES"),
        _field("at", "TIMESTAMP"),
    )
)
WRAPPERS = Append(
    messages={
        "Row": """
            optional .google.protobuf.Int64Value i
            optional .google.protobuf.Int32Value n
            optional .google.protobuf.UInt32Value u
            optional .google.protobuf.DoubleValue f
            optional .google.protobuf.FloatValue x
            optional .google.protobuf.BoolValue ok
            optional .google.protobuf.StringValue s
            optional .google.protobuf.BytesValue b
            optional .google.protobuf.Timestamp at
        """
    },
    rows=(
        {
            "i": {"value": 2**63 - 1},
            "n": {"value": -1},
            "u": {"value": 2**32 - 1},
            "f": {"value": 0.1},
            "x": {"value": 0.5},
            "ok": {"value": True},
            "s": {"value": "é"},
            "b": {"value": b"\xff"},
            "at": {"seconds": -1, "nanos": 999_999_000},
        },
        {name: {} for name in ("i", "n", "u", "f", "x", "ok", "s", "b", "at")},
        {},
    ),
    schema=_WRAPPED,
    values=(
        _row(
            _WRAPPED,
            i=2**63 - 1,
            n=-1,
            u=2**32 - 1,
            f=0.1,
            x=0.5,
            ok=True,
            s="é",
            b=b"\xff",
            at=civil("1969-12-31T23:59:59.999999+00:00"),
        ),
        _row(
            _WRAPPED,
            i=0,
            n=0,
            u=0,
            f=0.0,
            x=0.0,
            ok=False,
            s="",
            b=b"",
            at=civil("1970-01-01T00:00:00+00:00"),
        ),
        _row(_WRAPPED),
    ),
    first=(
        "0a2f70726f6a656374732f702f64617461736574732f642f7461626c65732f742f73747265616d732f5f"
        "64656661756c7422e5030af3020af0020a03526f7712260a016918012001280b321b2e676f6f676c652e"
        "70726f746f6275662e496e74363456616c756512260a016e18022001280b321b2e676f6f676c652e7072"
        "6f746f6275662e496e74333256616c756512270a017518032001280b321c2e676f6f676c652e70726f74"
        "6f6275662e55496e74333256616c756512270a016618042001280b321c2e676f6f676c652e70726f746f"
        "6275662e446f75626c6556616c756512260a017818052001280b321b2e676f6f676c652e70726f746f62"
        "75662e466c6f617456616c756512260a026f6b18062001280b321a2e676f6f676c652e70726f746f6275"
        "662e426f6f6c56616c756512270a017318072001280b321c2e676f6f676c652e70726f746f6275662e53"
        "7472696e6756616c756512260a016218082001280b321b2e676f6f676c652e70726f746f6275662e4279"
        "74657356616c756512260a02617418092001280b321a2e676f6f676c652e70726f746f6275662e54696d"
        "657374616d70126d0a550a0a08ffffffffffffffff7f120b08ffffffffffffffffff011a0608ffffffff"
        "0f2209099a9999999999b93f2a050d0000003f320208013a040a02c3a942030a01ff4a1108ffffffffff"
        "ffffffff0110988cebdc030a120a0012001a0022002a0032003a0042004a000a00"
    ),
    later=(
        "226f126d0a550a0a08ffffffffffffffff7f120b08ffffffffffffffffff011a0608ffffffff0f220909"
        "9a9999999999b93f2a050d0000003f320208013a040a02c3a942030a01ff4a1108ffffffffffffffffff"
        "0110988cebdc030a120a0012001a0022002a0032003a0042004a000a00"
    ),
)
"""Wrapper messages: one that is there and empty is the type's zero, one that is not is NULL."""

_HOME = (
    _field("city", "STRING"),
    _field("since", "DATETIME"),
    _field("tags", "STRING", "REPEATED"),
)
_NESTED = TableSchema(
    (
        _field("ints", "INT64", "REPEATED"),
        _field("days", "DATE", "REPEATED"),
        _field("texts", "STRING", "REPEATED"),
        _field("home", "STRUCT", fields=_HOME),
        _field("stops", "STRUCT", "REPEATED", fields=_HOME),
    )
)
_BERN = {"city": "Bern", "since": 0x442D38F03E80, "tags": ["a", ""]}
_BERN_VALUE = {"city": "Bern", "since": civil("0001-01-01T13:14:15.016"), "tags": ["a", ""]}
_NOWHERE = {"city": None, "since": None, "tags": []}
NESTED = Append(
    messages={
        "Row": """
            repeated int64 ints packed
            repeated int32 days packed
            repeated string texts
            optional Home home
            repeated Home stops
        """,
        "Home": """
            optional string city
            optional int64 since
            repeated string tags
        """,
    },
    rows=(
        {
            "ints": [1, 0, -1],
            "days": [0, 300, 14238],
            "texts": ["", "é"],
            "home": _BERN,
            "stops": [_BERN, {}],
        },
        {"home": {}},
        {},
    ),
    schema=_NESTED,
    values=(
        {
            "ints": [1, 0, -1],
            "days": [
                datetime.date(1970, 1, 1),
                datetime.date(1970, 10, 28),
                datetime.date(2008, 12, 25),
            ],
            "texts": ["", "é"],
            "home": _BERN_VALUE,
            "stops": [_BERN_VALUE, _NOWHERE],
        },
        _row(_NESTED, home=_NOWHERE),
        _row(_NESTED),
    ),
    first=(
        "0a2f70726f6a656374732f702f64617461736574732f642f7461626c65732f742f73747265616d732f5f"
        "64656661756c7422f5010aa1010a9e010a03526f7712100a04696e74731801200328034202100112100a"
        "046461797318022003280542021001120d0a05746578747318032003280912170a04686f6d6518042001"
        "280b32092e526f772e486f6d6512180a0573746f707318052003280b32092e526f772e486f6d651a310a"
        "04486f6d65120c0a0463697479180120012809120d0a0573696e6365180220012803120c0a0474616773"
        "180320032809124f0a470a0c0100ffffffffffffffffff01120500ac029e6f1a001a02c3a922130a0442"
        "65726e1080fdc0c7d385111a01611a002a130a044265726e1080fdc0c7d385111a01611a002a000a0222"
        "000a00"
    ),
    later=(
        "2251124f0a470a0c0100ffffffffffffffffff01120500ac029e6f1a001a02c3a922130a044265726e10"
        "80fdc0c7d385111a01611a002a130a044265726e1080fdc0c7d385111a01611a002a000a0222000a00"
    ),
)
"""Arrays and messages; days are those of ITBigQueryTimeEncoderTest."""

APPENDS = {"types": TYPES, "texts": TEXTS, "wrappers": WRAPPERS, "nested": NESTED}

# --- Arrow ----------------------------------------------------------------------------------

COLUMNS = TableSchema(
    (
        *_TYPES.fields,
        _field("ints", "INT64", "REPEATED"),
        _field("home", "STRUCT", fields=_HOME),
        _field("stops", "STRUCT", "REPEATED", fields=_HOME),
    )
)
VALUES = tuple(
    _row(COLUMNS, **types, **more)
    for types, more in zip(
        TYPES.values,
        (
            {"ints": [1, 0, -1], "home": _BERN_VALUE, "stops": [_BERN_VALUE, _NOWHERE]},
            {"home": _NOWHERE},
            {},
        ),
        strict=True,
    )
)
"""Rows of every type, by column of `COLUMNS`."""

# --- Avro -----------------------------------------------------------------------------------

AVRO_SCHEMA = (
    '{"type":"record","name":"__root__","fields":['
    '{"name":"s","type":["null","string"]},'
    '{"name":"b","type":["null","bytes"]},'
    '{"name":"i","type":"long"},'
    '{"name":"f","type":["null","double"]},'
    '{"name":"ok","type":["null","boolean"]},'
    '{"name":"n","type":["null",{"type":"bytes","logicalType":"decimal","precision":38,"scale":9}]},'
    '{"name":"w","type":["null",{"type":"bytes","logicalType":"decimal","precision":77,"scale":38}]},'
    '{"name":"d","type":["null",{"type":"int","logicalType":"date"}]},'
    '{"name":"t","type":["null",{"type":"long","logicalType":"time-micros"}]},'
    '{"name":"l","type":["null",{"type":"string","logicalType":"datetime"}]},'
    '{"name":"at","type":["null",{"type":"long","logicalType":"timestamp-micros"}]},'
    '{"name":"j","type":["null",{"type":"string","sqlType":"JSON"}]},'
    '{"name":"g","type":["null",{"type":"string","sqlType":"GEOGRAPHY"}]},'
    '{"name":"v","type":["null",{"type":"string","sqlType":"INTERVAL"}]},'
    '{"name":"r","type":["null",{"type":"record","namespace":"google.sqlType","name":"RANGE_DATE",'
    '"sqlType":"RANGE","fields":['
    '{"name":"start","type":["null",{"type":"int","logicalType":"date"}]},'
    '{"name":"end","type":["null",{"type":"int","logicalType":"date"}]}]}]},'
    '{"name":"ints","type":{"type":"array","items":"long"}},'
    '{"name":"home","type":["null",{"type":"record","name":"__s_0","fields":['
    '{"name":"city","type":["null","string"]},'
    '{"name":"since","type":["null",{"type":"string","logicalType":"datetime"}]},'
    '{"name":"tags","type":{"type":"array","items":"string"}}]}]},'
    '{"name":"stops","type":{"type":"array","items":{"type":"record","name":"__s_1","fields":['
    '{"name":"city","type":["null","string"]},'
    '{"name":"since","type":["null",{"type":"string","logicalType":"datetime"}]},'
    '{"name":"tags","type":{"type":"array","items":"string"}}]}}}]}'
)
"""The shapes of BigQuery's read sessions, by the tests of the Spark connector and of the Python client."""

AVRO_ROWS = (
    "0204c3a9020400ffffffffffffffffffff01029a9999999999b93f02010208b87973ff02020102f3e457"
    "0280d9ae87e3020234393939392d31322d33315432333a35393a35392e3939393030300201021c7b2261"
    "223a5b312c6e756c6c5d7d0214504f494e54283120322902282d312d322033202d343a353a362e303730"
    "303030020002c082e60206020001000202084265726e0234303030312d30312d30315431333a31343a31"
    "352e30313630303004026100000402084265726e0234303030312d30312d30315431333a31343a31352e"
    "303136303030040261000000000000020002000002000000000000000002000000020002000002000000"
    "0000000200000000000002000000000000000000000000000000"
)
"""`VALUES` in that schema, one record after another, as fastavro writes them."""
