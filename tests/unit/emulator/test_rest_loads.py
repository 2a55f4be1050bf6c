"""Load and extract jobs: types of each format, partitions, and what a job may read."""

import datetime
import gzip
import io
import os
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bqflink_beam.emulator.files import Files
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.testing.conformance.rest import Rest, reason_of, succeeded

_UTC = datetime.timezone.utc


@pytest.fixture
def server(tmp_path):
    with EmulatorServer(settings=Settings(files_root=tmp_path)) as server:
        server.create_dataset("p", "d")
        yield server


@pytest.fixture
def rest(server, tmp_path):
    def put(name, data):
        (tmp_path / name).write_bytes(data)
        return f"file://{tmp_path}/{name}"

    return Rest(server.rest_endpoint, "p", "d", put)


def _avro(schema, rows):
    sink = io.BytesIO()
    fastavro.writer(sink, fastavro.parse_schema(schema), rows)
    return sink.getvalue()


def _parquet(table):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def _types(rest, table):
    return {f["name"]: (f["type"], f["mode"]) for f in rest.table(table)["schema"]["fields"]}


_AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "i", "type": "long"},
        {"name": "s", "type": ["null", "string"]},
        {"name": "d", "type": {"type": "int", "logicalType": "date"}},
        {"name": "t", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "dt", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "n", "type": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9}},
        {"name": "j", "type": {"type": "string", "sqlType": "JSON"}},
        {"name": "a", "type": {"type": "array", "items": "string"}},
        {
            "name": "r",
            "type": [
                "null",
                {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "double"}]},
            ],
        },
    ],
}  # fmt: skip
_AVRO_ROW = {
    "i": 1,
    "s": None,
    "d": datetime.date(2020, 1, 31),
    "t": datetime.time(1, 2, 3, 4),
    "ts": datetime.datetime(2020, 1, 1, tzinfo=_UTC),
    "dt": datetime.datetime(2020, 1, 1, 10, 0, tzinfo=_UTC).replace(tzinfo=None),
    "n": Decimal("1.500000001"),
    "j": '{"a":1}',
    "a": ["x"],
    "r": {"x": 0.5},
}


def test_avro_logical_types_make_columns(rest, server):
    uri = rest.put_file("x.avro", _avro(_AVRO, [_AVRO_ROW]))

    succeeded(rest.load("t", uri, sourceFormat="AVRO", useAvroLogicalTypes=True))

    assert _types(rest, "t") == {
        "i": ("INTEGER", "REQUIRED"),
        "s": ("STRING", "NULLABLE"),
        "d": ("DATE", "REQUIRED"),
        "t": ("TIME", "REQUIRED"),
        "ts": ("TIMESTAMP", "REQUIRED"),
        "dt": ("DATETIME", "REQUIRED"),
        "n": ("NUMERIC", "REQUIRED"),
        "j": ("JSON", "REQUIRED"),
        "a": ("STRING", "REPEATED"),
        "r": ("RECORD", "NULLABLE"),
    }
    assert server.visible_rows("p.d.t") == [_AVRO_ROW]


def test_avro_without_logical_types_makes_numbers(rest, server):
    schema = {**_AVRO, "fields": _AVRO["fields"][2:3]}
    uri = rest.put_file("x.avro", _avro(schema, [{"d": datetime.date(1970, 1, 2)}]))

    succeeded(rest.load("t", uri, sourceFormat="AVRO"))

    assert server.visible_rows("p.d.t") == [{"d": 1}]


def test_avro_text_is_no_datetime(rest):
    schema = {**_AVRO, "fields": [{"name": "dt", "type": "string"}]}
    uri = rest.put_file("x.avro", _avro(schema, [{"dt": "2020-01-01T00:00:00"}]))
    fields = [{"name": "dt", "type": "DATETIME"}]

    job = rest.load("t", uri, sourceFormat="AVRO", schema={"fields": fields})

    assert reason_of(job) == "invalid"


@pytest.mark.parametrize("damage", [b"", b"Obj\x01nonsense", None])
def test_damaged_avro_file_fails_the_job(rest, damage):
    data = _avro(_AVRO, [_AVRO_ROW] * 100)
    uri = rest.put_file("x.avro", data[: len(data) // 2] if damage is None else damage)

    job = rest.load("t", uri, sourceFormat="AVRO", useAvroLogicalTypes=True)

    assert reason_of(job) == "invalid"


def test_parquet_types_make_columns(rest, server):
    row = {
        "i": 1, "f": 0.5, "s": "x", "y": b"\xff", "b": True, "d": datetime.date(2020, 1, 31),
        "dt": _AVRO_ROW["dt"], "ts": _AVRO_ROW["ts"], "n": Decimal("1.50"), "w": Decimal("1.5"),
        "a": [1, 2], "r": {"x": 1},
    }  # fmt: skip
    schema = pa.schema(
        [
            ("i", pa.int32()), ("f", pa.float32()), ("s", pa.string()), ("y", pa.binary()),
            ("b", pa.bool_()), ("d", pa.date32()), ("dt", pa.timestamp("us")),
            ("ts", pa.timestamp("us", tz="UTC")), ("n", pa.decimal128(10, 2)),
            ("w", pa.decimal128(38, 20)), ("a", pa.list_(pa.int64())), ("r", pa.struct([("x", pa.int64())])),
        ]
    )  # fmt: skip
    uri = rest.put_file("x.parquet", _parquet(pa.Table.from_pylist([row], schema)))
    options = {
        "sourceFormat": "PARQUET",
        "parquetOptions": {"enableListInference": True},
        "decimalTargetTypes": ["NUMERIC", "BIGNUMERIC"],
    }

    succeeded(rest.load("t", uri, **options))

    kinds = {name: kind for name, (kind, _) in _types(rest, "t").items()}
    assert kinds == {
        "i": "INTEGER", "f": "FLOAT", "s": "STRING", "y": "BYTES", "b": "BOOLEAN", "d": "DATE",
        "dt": "DATETIME", "ts": "TIMESTAMP", "n": "NUMERIC", "w": "BIGNUMERIC", "a": "INTEGER", "r": "RECORD",
    }  # fmt: skip
    assert server.visible_rows("p.d.t") == [row]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["x"]), "INTEGER"),
        (pa.array([1]), "STRING"),
        (pa.array([1.5]), "INTEGER"),
        (pa.array(["2020-01-01"]), "DATE"),
        (pa.array(['{"a": 1}']), "JSON"),
        (pa.array([Decimal("1e20")], pa.decimal128(38, 9)), "FLOAT"),
    ],
)
def test_parquet_column_of_another_type_is_refused(rest, column, kind):
    uri = rest.put_file("x.parquet", _parquet(pa.table({"c": column})))
    schema = {"fields": [{"name": "c", "type": kind}]}

    assert reason_of(rest.load("t", uri, sourceFormat="PARQUET", schema=schema)) == "invalid"


def test_parquet_value_that_would_change_is_refused(rest):
    column = pa.array([1], pa.timestamp("ns"))
    uri = rest.put_file("x.parquet", _parquet(pa.table({"c": column})))

    assert reason_of(rest.load("t", uri, sourceFormat="PARQUET")) == "invalid"


def test_json_values_of_every_type_load_as_themselves(rest, server):
    fields = [
        {"name": "n", "type": "NUMERIC"},
        {"name": "w", "type": "BIGNUMERIC"},
        {"name": "y", "type": "BYTES"},
        {"name": "ts", "type": "TIMESTAMP"},
        {"name": "j", "type": "JSON"},
        {"name": "g", "type": "RANGE", "rangeElementType": {"type": "DATE"}},
        {"name": "v", "type": "INTERVAL"},
        {"name": "p", "type": "TIMESTAMP", "timestampPrecision": "12"},
    ]
    line = (
        b'{"n": 0.1, "w": 12345678901234567890.12345678901234567890, "y": "/w==", "ts": 1.5, '
        b'"j": {"k": [1, null]}, "g": "[2020-01-01, UNBOUNDED)", "v": "1-2 3 4:5:6", '
        b'"p": "2020-01-01 00:00:00.123456789012Z"}\n'
    )

    succeeded(rest.load("t", rest.put_file("x.json", line), schema={"fields": fields}))

    assert server.visible_rows("p.d.t") == [
        {
            "n": Decimal("0.1"),
            "w": Decimal("12345678901234567890.1234567890123456789"),
            "y": b"\xff",
            "ts": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, _UTC),
            "j": '{"k":[1,null]}',
            "g": {"start": datetime.date(2020, 1, 1), "end": None},
            "v": (14, 3, (4 * 3600 + 5 * 60 + 6) * 10**9),
            "p": "2020-01-01T00:00:00.123456789012Z",
        }
    ]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("INTEGER", "1.5"), ("INTEGER", '"9223372036854775808"'), ("INTEGER", "true"), ("INTEGER", "[1]"),
        ("FLOAT", '"x"'), ("NUMERIC", "1e30"), ("NUMERIC", '"NaN"'), ("BYTES", '"*"'), ("BOOLEAN", "2"),
        ("DATE", '"2020-02-30"'), ("TIME", '"24:00:00"'), ("DATETIME", '"x"'), ("TIMESTAMP", '"x"'),
        ("RECORD", "1"), ("TIMESTAMP", '"2020-01-01 00:00:00.1234567"'),
        ("TIMESTAMP", "1e999000"), ("INTEGER", "1e999999"), ("NUMERIC", "1e-999999999"), ("NUMERIC", '"1_0"'),
        ("FLOAT", '"1_0"'), ("TIMESTAMP", '"٣"'),
    ],
)  # fmt: skip
def test_json_value_of_another_type_is_refused(rest, kind, value):
    field = {"name": "c", "type": kind}
    if kind == "RECORD":
        field["fields"] = [{"name": "x", "type": "STRING"}]
    uri = rest.put_file("x.json", f'{{"c": {value}}}\n'.encode())

    assert reason_of(rest.load("t", uri, schema={"fields": [field]})) == "invalid"


def test_csv_options(rest, server):
    data = gzip.compress("a;b\n1;|x;y|\n-;é\n2\n".encode("latin-1"))
    fields = [{"name": "a", "type": "INTEGER"}, {"name": "b", "type": "STRING"}]

    job = rest.load(
        "t",
        rest.put_file("x.csv.gz", data),
        sourceFormat="CSV",
        schema={"fields": fields},
        fieldDelimiter=";",
        quote="|",
        nullMarker="-",
        skipLeadingRows="1",
        allowJaggedRows=True,
        encoding="ISO-8859-1",
    )

    succeeded(job)
    assert server.visible_rows("p.d.t") == [
        {"a": 1, "b": "x;y"},
        {"a": None, "b": "é"},
        {"a": 2, "b": None},
    ]


def test_one_partition_is_replaced_and_the_others_stay(rest, server):
    fields = [{"name": "day", "type": "DATE"}, {"name": "id", "type": "INTEGER"}]
    rest("POST", "/datasets/d/tables", {
        "tableReference": rest.reference("t"), "schema": {"fields": fields},
        "timePartitioning": {"type": "DAY", "field": "day"},
    })  # fmt: skip
    old = rest.put_file(
        "old.json", b'{"day": "2020-01-01", "id": 1}\n{"day": "2020-01-02", "id": 2}\n'
    )
    new = rest.put_file("new.json", b'{"day": "2020-01-02", "id": 3}\n')
    succeeded(rest.load("t", old))

    succeeded(rest.load("t$20200102", new, writeDisposition="WRITE_TRUNCATE"))

    assert sorted(row["id"] for row in server.visible_rows("p.d.t")) == [1, 3]


def test_query_needs_the_partition_filter_that_its_table_requires(rest):
    rest("POST", "/datasets/d/tables", {
        "tableReference": rest.reference("t"), "schema": {"fields": [{"name": "day", "type": "DATE"}]},
        "timePartitioning": {"type": "DAY", "field": "day"}, "requirePartitionFilter": True,
    })  # fmt: skip

    assert reason_of(rest.run_query("SELECT COUNT(*) FROM d.t")) == "invalidQuery"
    assert rest.query("SELECT COUNT(*) FROM d.t WHERE day > '2020-01-01'") == [["0"]]


@pytest.mark.parametrize(
    "uri", ["file:///etc/passwd", "file://{root}/../x", "/etc/passwd", "s3://b/x", "x"]
)
def test_file_outside_of_the_root_is_not_read(tmp_path, uri):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "x").write_text("secret")

    with pytest.raises(Refused):
        Files(root).match(uri.format(root=root))


def test_link_out_of_the_root_is_not_read(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret").write_text("x")
    os.symlink(tmp_path / "secret", root / "link")

    for uri in (f"file://{root}/link", f"file://{root}/*"):
        with pytest.raises(Refused):
            for found in Files(root).match(uri):
                Files(root).read(found)


def test_no_file_is_read_without_a_root(tmp_path):
    (tmp_path / "x").write_text("x")

    with pytest.raises(Refused, match="files root"):
        Files().match(f"file://{tmp_path}/x")
