"""ReadRows messages and defaults: bounded sizes, and values that are made for missing ones."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from bqflink_beam import testing
from bqflink_beam.emulator.defaults import default_maker
from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.sessions import RowCache
from bqflink_beam.emulator.versions import Rows
from bqflink_beam.schema.model import Field
from bqflink_beam.testing.conformance import embedded
from bqflink_beam.testing.conformance.kit import READ, Failure, Writer, append_request


def sizes(settings, rows):
    """Returns the row count and bytes of each message of a table of texts."""
    writer = Writer(s="string")
    with embedded.direct(settings) as bigquery:
        table = bigquery.make_table([{"name": "s", "type": "STRING"}])
        bigquery.append(table.default_stream, writer, [writer.row(s=text) for text in rows])
        session = bigquery.create_session(table, streams_max=1)
        return [
            (each.row_count, len(each.arrow_record_batch.serialized_record_batch))
            for each in bigquery.read(session.streams[0].name)
        ]


def test_messages_are_bounded_by_rows():
    found = sizes(testing.Settings(response_rows_max=7), ["x"] * 30)

    assert [rows for rows, _ in found] == [7, 7, 7, 7, 2]


def test_messages_are_bounded_by_bytes():
    found = sizes(testing.Settings(response_bytes_max=10_000), ["x" * 1_000] * 50)

    assert sum(rows for rows, _ in found) == 50
    assert max(size for _, size in found) < 11_000


def test_a_row_above_the_bound_is_a_message_of_its_own():
    found = sizes(testing.Settings(response_bytes_max=10), ["x" * 100] * 3)

    assert [rows for rows, _ in found] == [1, 1, 1]


@pytest.mark.parametrize(
    ("kind", "expression", "value"),
    [
        ("STRING", "'it''s'", None),
        ("STRING", r"'it\'s'", "it's"),
        ("STRING", '"double"', "double"),
        ("STRING", r"r'\n'", r"\n"),
        ("INT64", "-5", -5),
        ("FLOAT64", "1.5e3", 1500.0),
        ("NUMERIC", "1.25", Decimal("1.25")),
        ("NUMERIC", "NUMERIC '1.25'", Decimal("1.25")),
        ("BOOL", "true", True),
        ("DATE", "DATE '2020-01-31'", datetime.date(2020, 1, 31)),
        ("DATETIME", "DATETIME '2020-01-31 01:02:03'", datetime.datetime(2020, 1, 31, 1, 2, 3)),  # noqa: DTZ001
        ("TIME", "TIME '01:02:03'", datetime.time(1, 2, 3)),
        ("JSON", """JSON '{"a":1}'""", '{"a":1}'),
        ("INT64", "NULL", None),
        ("TIMESTAMP", "CURRENT_TIMESTAMP()", datetime.datetime(2023, 11, 14, 22, 13, 20, tzinfo=datetime.timezone.utc)),
        ("DATE", "CURRENT_DATE", datetime.date(2023, 11, 14)),
    ],
)  # fmt: skip
def test_default_expressions(kind, expression, value):
    field = Field(name="x", type=kind, default_value_expression=expression)

    if expression == "'it''s'":
        # Two literals side by side: BigQuery has no doubled quotes.
        with pytest.raises(Refused):
            default_maker(field, testing.FakeClock())
    else:
        assert default_maker(field, testing.FakeClock())() == value


@pytest.mark.parametrize(
    ("kind", "expression"),
    [
        ("INT64", "1 + 1"),
        ("STRING", "LOWER('X')"),
        ("DATE", "'never'"),
        ("INT64", "1.5"),
        ("INT64", "RAND()"),
    ],
)
def test_default_expressions_that_are_not_understood_are_refused(kind, expression):
    field = Field(name="x", type=kind, default_value_expression=expression)

    with pytest.raises(Refused, match="default value expression"):
        default_maker(field, testing.FakeClock())


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("TIMESTAMP '2020-01-31 01:02:03.123456789012+01:00'", "2020-01-31T00:02:03.123456789012Z"),
        ("CURRENT_TIMESTAMP()", "2023-11-14T22:13:20.000000000000Z"),
    ],
)
def test_defaults_of_picoseconds_are_text_as_they_are_stored(expression, text):
    field = Field(
        name="x", type="TIMESTAMP", timestamp_precision=12, default_value_expression=expression
    )

    assert default_maker(field, testing.FakeClock())() == text


def test_each_row_gets_its_own_uuid():
    field = Field(name="x", type="STRING", default_value_expression="GENERATE_UUID()")
    make = default_maker(field, testing.FakeClock())

    assert make() != make()


@pytest.mark.parametrize(("over", "taken"), [(1, True), (0, False), (-1, False)])
def test_a_request_must_be_smaller_than_the_limit(over, taken):
    writer = Writer(s="string")
    request = append_request("", [writer.row(s="x" * 100)], writer=writer)
    path = "projects/test-project/datasets/conformance/tables/t0/_default"
    request.write_stream = path
    limit = len(request.SerializeToString()) + over
    with embedded.direct(testing.Settings(append_bytes_max=limit)) as bigquery:
        bigquery.make_table([{"name": "s", "type": "STRING"}])

        with bigquery.connection() as append:
            answer = append(request)

    assert (answer.WhichOneof("response") == "append_result") == taken


def test_throttling_is_told():
    writer = Writer(s="string")
    with embedded.direct() as bigquery:
        bigquery.transport._services[
            "google.cloud.bigquery.storage.v1.BigQueryRead"
        ].throttle_percent = 42
        table = bigquery.make_table([{"name": "s", "type": "STRING"}])
        bigquery.append(table.default_stream, writer, [writer.row(s="x")])
        session = bigquery.create_session(table)

        (message,) = bigquery.read(session.streams[0].name)

    assert message.throttle_state.throttle_percent == 42


@pytest.mark.parametrize(
    ("rows", "least", "streams"), [(3, 0, 1), (250, 0, 3), (250, 9, 3), (0, 5, 0)]
)
def test_the_size_of_a_table_and_the_request_make_the_number_of_streams(rows, least, streams):
    writer = Writer(s="string")
    with embedded.direct(testing.Settings(rows_per_stream=100)) as bigquery:
        table = bigquery.make_table([{"name": "s", "type": "STRING"}])
        if rows:
            bigquery.append(table.default_stream, writer, [writer.row(s="x")] * rows)

        session = bigquery.create_session(table, streams_min=least)

        assert len(session.streams) == streams


def test_a_session_can_be_written_down_while_it_is_split():
    writer = Writer(s="string")
    with embedded.direct() as bigquery:
        table = bigquery.make_table([{"name": "s", "type": "STRING"}])
        bigquery.append(table.default_stream, writer, [writer.row(s="x")] * 100)
        made = bigquery.create_session(table, streams_max=2)
        session = bigquery.transport._services[READ]._sessions[made.name]

        names = iter(session.streams)
        first = next(names)
        bigquery.split(first, 0.5)

        assert [first, *names] == [stream.name for stream in made.streams]


def test_rows_of_the_streams_read_last_are_kept_and_others_made_again():
    def rows(number):
        made.append(number)
        found = Rows(merge=False)
        found.append([pa.RecordBatch.from_pydict({"n": [number] * 1000})])
        return found

    made = []
    cache = RowCache(20_000)  # two streams of 8,000 bytes
    for number in (1, 2, 1, 3, 1, 2):
        (chunk,) = cache.rows(str(number), lambda number=number: rows(number)).slice(0, 1000)
        assert chunk.column(0)[0].as_py() == number

    assert made == [1, 2, 3, 2]


def test_a_refusal_of_a_long_text_arrives_as_what_it_is():
    with embedded.served() as bigquery:
        table = bigquery.make_table([{"name": "s", "type": "STRING"}])
        with pytest.raises(Failure) as failed:
            bigquery.commit(table, "ä" * 100_000)

    assert failed.value.code == "INVALID_ARGUMENT"
    assert failed.value.text.startswith("Invalid stream name. Entity: ää")
