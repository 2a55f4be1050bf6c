"""The promises of one append connection, on a server that breaks them on purpose."""

import pytest

from bqflink_beam.clock import SystemClock
from bqflink_beam.errors import (
    AccessDeniedError,
    AlreadyWrittenError,
    ConfigError,
    InvalidRequestError,
    NotFoundError,
    OffsetGapError,
    OutcomeUnknownError,
    PermanentError,
    RowsRejectedError,
    SchemaMismatchError,
    StreamFinalizedError,
    StreamGoneError,
    TransientError,
)
from bqflink_beam.retry import Backoff
from bqflink_beam.schema.model import Field, TableSchema
from bqflink_beam.service import table_schema
from bqflink_beam.service.append import Appends, Limits, StreamAppends
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import Anonymous
from bqflink_beam.service.recent import Recent
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_storage import (
    CUT_BEFORE,
    DEFAULT,
    DESCRIPTOR,
    LOST_ANSWER,
    OK,
    SILENCE,
    SILENT_APPLY,
    STREAM,
    THEN_IDLE_CLOSE,
    React,
    end,
    refuse,
    retry_info,
    storage_error,
)


def send_all(connection, requests, stream=STREAM):
    """Sends requests of rows at following offsets without waiting; returns the tickets."""
    tickets, offset = [], 0
    for rows in requests:
        at = None if stream.endswith("_default") else offset
        tickets.append(connection.append(stream, DESCRIPTOR, rows, at))
        offset += len(rows)
    return tickets


def test_first_request_carries_schema_and_trace_and_every_request_its_stream(storage, appends):
    connection = StreamAppends(appends(), STREAM, DESCRIPTOR)

    landed = [connection.send([b"a", b"b"], 0).result(), connection.send([b"c"], 2).result()]

    assert landed == [0, 2]
    assert storage.streams == {STREAM: [b"a", b"b", b"c"]}
    first, second = storage.requests
    assert first.proto_rows.writer_schema.proto_descriptor.name == "Row"
    assert first.trace_id.startswith("bqflink_beam/")
    assert not second.proto_rows.HasField("writer_schema")
    assert [request.write_stream for request in storage.requests] == [STREAM, STREAM]
    assert len(storage.calls) == 1
    assert "write_stream=projects%2Fp" in storage.calls[0]["x-goog-request-params"]


def test_default_stream_answers_without_offset(storage, appends):
    ticket = appends().append(DEFAULT, DESCRIPTOR, [b"a"], None)

    assert ticket.result() is None
    assert not storage.requests[0].HasField("offset")


def test_requests_are_sent_without_waiting_for_answers_and_answered_in_order(storage, appends):
    tickets = send_all(appends(), [[b"%d" % n] for n in range(200)])

    assert [ticket.result() for ticket in tickets] == list(range(200))
    assert storage.streams[STREAM] == [b"%d" % n for n in range(200)]


@pytest.mark.parametrize("breakage", [CUT_BEFORE, end("INTERNAL"), end("ABORTED"), end("UNKNOWN")])
def test_broken_call_resends_what_is_unanswered_in_order_at_the_same_offsets(
    storage, appends, breakage
):
    storage.script.extend([OK, breakage])

    tickets = send_all(appends(), [[b"a"], [b"b"], [b"c"], [b"d"]])

    assert [ticket.result() for ticket in tickets] == [0, 1, 2, 3]
    assert storage.streams[STREAM] == [b"a", b"b", b"c", b"d"]
    assert len(storage.calls) == 2
    resent = [request for request in storage.requests if request.trace_id][1]
    assert resent.proto_rows.HasField("writer_schema")


def test_server_that_ends_the_call_without_an_answer_is_asked_again(storage, appends):
    storage.script.append(end("OK"))

    (ticket,) = send_all(appends(), [[b"a"]])

    assert ticket.result() == 0
    assert storage.streams[STREAM] == [b"a"]


def test_lost_answer_at_an_offset_says_already_written_by_our_own_resend(storage, appends):
    storage.script.append(LOST_ANSWER)

    first, second = send_all(appends(), [[b"a"], [b"b"]])

    with pytest.raises(AlreadyWrittenError) as caught:
        first.result()
    assert caught.value.resent
    assert second.result() == 1
    assert storage.streams[STREAM] == [b"a", b"b"]


def test_offset_taken_by_somebody_else_is_not_called_a_resend(storage, appends):
    storage.streams[STREAM].append(b"theirs")

    (ticket,) = send_all(appends(), [[b"a"]])

    with pytest.raises(AlreadyWrittenError) as caught:
        ticket.result()
    assert not caught.value.resent


def test_refused_and_repeated_request_is_not_called_a_resend(storage, appends):
    # The first send was answered: it was not accepted. So the rows there are not ours.
    storage.script.extend([refuse("INTERNAL"), refuse("ALREADY_EXISTS")])

    (ticket,) = send_all(appends(), [[b"a"]])

    with pytest.raises(AlreadyWrittenError) as caught:
        ticket.result()
    assert not caught.value.resent


def test_idle_close_is_no_error_and_the_next_send_reopens(storage, appends):
    storage.script.extend([THEN_IDLE_CLOSE, THEN_IDLE_CLOSE])
    connection = appends()

    landed = [connection.append(STREAM, DESCRIPTOR, [b"x"], n).result() for n in range(3)]

    assert landed == [0, 1, 2]
    assert storage.streams[STREAM] == [b"x"] * 3


@pytest.mark.parametrize(
    ("reaction", "kind"),
    [
        (refuse("OUT_OF_RANGE", "x", storage_error("OFFSET_OUT_OF_RANGE")), OffsetGapError),
        (
            refuse("INVALID_ARGUMENT", "x", storage_error("STREAM_FINALIZED")),
            StreamFinalizedError,
        ),
        (refuse("INVALID_ARGUMENT", "Stream has been finalized"), StreamFinalizedError),
        (
            refuse("INVALID_ARGUMENT", "x", storage_error("SCHEMA_MISMATCH_EXTRA_FIELDS")),
            SchemaMismatchError,
        ),
        (refuse("NOT_FOUND", "x", storage_error("STREAM_NOT_FOUND")), StreamGoneError),
        (refuse("NOT_FOUND", "x", storage_error("TABLE_NOT_FOUND")), NotFoundError),
        (refuse("NOT_FOUND"), StreamGoneError),
        (refuse("INVALID_ARGUMENT"), InvalidRequestError),
        (refuse("PERMISSION_DENIED"), AccessDeniedError),
        (end("NOT_FOUND"), StreamGoneError),
        (end("INVALID_ARGUMENT"), InvalidRequestError),
        (end("PERMISSION_DENIED"), AccessDeniedError),
        (end("RESOURCE_EXHAUSTED", "Received message larger than max (9 vs. 4)"), InvalidRequestError),
    ],
)  # fmt: skip
def test_refusal_becomes_the_error_that_says_what_to_do(storage, appends, reaction, kind):
    storage.script.append(reaction)

    (ticket,) = send_all(appends(), [[b"a"]])

    with pytest.raises(kind) as caught:
        ticket.result()
    assert caught.type is kind
    assert caught.value.table == "p.d.t"
    assert storage.streams[STREAM] == []


def test_bad_rows_are_listed_and_the_connection_goes_on(storage, appends):
    storage.script.append(React(apply=False, row_errors=((1, "bad date"), (4, "too long"))))
    connection = appends()

    ticket = connection.append(STREAM, DESCRIPTOR, [b"r"] * 5, 0)

    with pytest.raises(RowsRejectedError) as caught:
        ticket.result()
    assert caught.value.rows == ((1, "bad date"), (4, "too long"))
    assert connection.append(STREAM, DESCRIPTOR, [b"good"], 0).result() == 0
    assert len(storage.calls) == 1


def test_requests_behind_a_refused_one_fail_by_themselves(storage, appends):
    storage.script.append(refuse("INVALID_ARGUMENT"))

    first, second, third = send_all(appends(), [[b"a"], [b"b"], [b"c"]])

    with pytest.raises(InvalidRequestError):
        first.result()
    for behind in (second, third):
        with pytest.raises(OffsetGapError):
            behind.result()
    assert storage.streams[STREAM] == []


@pytest.mark.parametrize("code", ["INTERNAL", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"])
def test_passing_refusal_resends_from_that_request_on(storage, appends, code):
    storage.script.extend([OK, refuse(code)])

    tickets = send_all(appends(), [[b"%d" % n] for n in range(20)])

    assert [ticket.result() for ticket in tickets] == list(range(20))
    assert storage.streams[STREAM] == [b"%d" % n for n in range(20)]
    assert len(storage.calls) == 1


def test_passing_refusal_on_a_default_stream_loses_nothing(storage, appends):
    storage.script.extend([OK, refuse("INTERNAL"), OK, refuse("RESOURCE_EXHAUSTED")])

    tickets = send_all(appends(), [[b"%d" % n] for n in range(9)], stream=DEFAULT)

    assert [ticket.result() for ticket in tickets] == [None] * 9
    assert sorted(storage.streams[DEFAULT]) == [b"%d" % n for n in range(9)]


def test_refused_until_the_budget_is_used_up_is_transient(storage, channels, opened):
    storage.script.extend([refuse("RESOURCE_EXHAUSTED", "quota of the region")] * 1000)
    appends = opened(
        Appends(
            channels,
            Recent(FakeClock()),
            routing=f"write_stream={STREAM}",
            budget_s=0.5,
            backoff=Backoff(wait_initial_s=0.2, wait_max_s=0.2),
            clock=_NoJitter(),
        )
    )

    (ticket,) = send_all(appends, [[b"a"]])

    with pytest.raises(TransientError, match="quota of the region") as caught:
        ticket.result()
    assert caught.type is TransientError
    assert len(storage.requests) == 3


def test_service_that_asks_for_more_patience_than_there_is_ends_it_at_once(storage, appends):
    storage.script.append(refuse("RESOURCE_EXHAUSTED", "later", retry_info(3600)))

    (ticket,) = send_all(appends(budget_s=60.0), [[b"a"]])

    with pytest.raises(TransientError, match="later"):
        ticket.result(timeout_s=10)
    assert len(storage.requests) == 1


def test_answer_that_comes_after_its_request_was_given_up_is_not_taken_for_another(
    storage, appends
):
    storage.script.extend([React(late=True), refuse("INVALID_ARGUMENT")])
    connection = appends(budget_s=0.3)
    with pytest.raises(OutcomeUnknownError):
        connection.append(DEFAULT, DESCRIPTOR, [b"a"], None).result()

    refused = connection.append(DEFAULT, DESCRIPTOR, [b"b"], None)

    with pytest.raises(InvalidRequestError):
        refused.result()


def test_message_that_answers_nothing_is_no_acknowledgement(storage, appends):
    storage.script.append(React(apply=False, refuse="INVALID_ARGUMENT", empty_first=True))

    (ticket,) = send_all(appends(), [[b"a"]])

    with pytest.raises(InvalidRequestError):
        ticket.result()


def test_no_answer_within_the_budget_is_an_unknown_outcome_for_all_that_was_sent(storage, appends):
    storage.script.append(SILENCE)
    storage.script.extend([SILENCE] * 10)

    tickets = send_all(appends(budget_s=0.3), [[b"a"], [b"b"]])

    for ticket in tickets:
        with pytest.raises(OutcomeUnknownError, match="no progress"):
            ticket.result()


def test_rows_applied_without_an_answer_are_never_called_refused(storage, appends):
    storage.script.extend([SILENT_APPLY] * 10)

    (ticket,) = send_all(appends(budget_s=0.2), [[b"a"]])

    with pytest.raises(OutcomeUnknownError):
        ticket.result()
    assert storage.streams[STREAM] == [b"a"]


def test_connection_is_usable_after_a_stall(storage, appends):
    storage.script.append(SILENCE)
    connection = appends(budget_s=0.3)
    with pytest.raises(OutcomeUnknownError):
        connection.append(STREAM, DESCRIPTOR, [b"a"], 0).result()

    assert connection.append(STREAM, DESCRIPTOR, [b"b"], 0).result() == 0
    assert storage.streams[STREAM] == [b"b"]


def test_impatient_wait_leaves_the_request_under_way(storage, appends):
    storage.script.append(LOST_ANSWER)
    slow = appends(backoff=Backoff(wait_initial_s=0.4, wait_max_s=0.4))
    ticket = slow.append(DEFAULT, DESCRIPTOR, [b"a"], None)

    with pytest.raises(OutcomeUnknownError, match="within 0.05 s"):
        ticket.result(timeout_s=0.05)

    assert ticket.result() is None


def test_unreachable_endpoint_is_a_transient_error_that_names_it(opened):
    with _closed_port() as port:
        connection = Connection(
            storage_endpoint=f"127.0.0.1:{port}", plaintext=True, credentials=Anonymous()
        )
        appends = opened(
            Appends(
                opened(Channels(connection, lambda: None)),
                Recent(FakeClock()),
                routing=f"write_stream={STREAM}",
                budget_s=0.5,
            )
        )

        ticket = appends.append(STREAM, DESCRIPTOR, [b"a"], 0)

        with pytest.raises(TransientError, match=f"127.0.0.1:{port}") as caught:
            ticket.result()
        assert caught.type is TransientError


def test_poison_request_fails_alone_though_many_were_under_way(storage, appends):
    poison = b"poison"
    storage.end_on = poison
    requests = [[b"a"], [b"b"], [poison], [b"c"], [b"d"]]

    tickets = send_all(appends(), requests, stream=DEFAULT)

    with pytest.raises(InvalidRequestError):
        tickets[2].result()
    assert [ticket.result() for ticket in tickets[:2] + tickets[3:]] == [None] * 4
    assert set(storage.streams[DEFAULT]) == {b"a", b"b", b"c", b"d"}


def test_denied_stream_fails_all_its_requests_at_once(storage, appends):
    storage.script.extend([end("PERMISSION_DENIED")] * 100)

    tickets = send_all(appends(), [[b"%d" % n] for n in range(50)])

    for ticket in tickets:
        with pytest.raises(AccessDeniedError):
            ticket.result()
    assert len(storage.calls) <= 3


def test_schema_is_repeated_until_a_request_with_it_is_accepted(storage, appends):
    storage.script.extend([refuse("INVALID_ARGUMENT"), refuse("INVALID_ARGUMENT")])
    connection = appends()
    for _ in range(2):
        with pytest.raises(InvalidRequestError):
            connection.append(STREAM, DESCRIPTOR, [b"bad"], 0).result()

    for offset in range(2):
        connection.append(STREAM, DESCRIPTOR, [b"good"], offset).result()

    carried = [request.proto_rows.HasField("writer_schema") for request in storage.requests]
    assert carried == [True, True, True, False]
    assert len(storage.calls) == 1


def test_stream_that_has_taken_rows_is_not_excused_as_new(storage, appends):
    recent = Recent(FakeClock())
    recent.created(STREAM)
    storage.script.extend([OK, refuse("NOT_FOUND")])
    connection = appends(recent=recent)
    connection.append(STREAM, DESCRIPTOR, [b"a"], 0).result()

    with pytest.raises(StreamGoneError):
        connection.append(STREAM, DESCRIPTOR, [b"b"], 1).result()
    assert len(storage.requests) == 2


@pytest.mark.parametrize("reaction", [refuse("NOT_FOUND"), end("NOT_FOUND")])
def test_stream_that_was_just_made_may_not_be_known_yet(storage, appends, reaction):
    recent = Recent(FakeClock())
    recent.created(STREAM)
    storage.script.extend([reaction, reaction])

    tickets = send_all(appends(recent=recent), [[b"a"], [b"b"]])

    assert [ticket.result() for ticket in tickets] == [0, 1]
    assert storage.streams[STREAM] == [b"a", b"b"]


def test_sender_waits_for_room(storage, appends):
    storage.script.extend([SILENCE, SILENCE])
    connection = appends(budget_s=0.4, limits=Limits(requests_max=2, bytes_max=10**6))
    tickets = [connection.append(STREAM, DESCRIPTOR, [b"a"], n) for n in (0, 1)]

    third = connection.append(STREAM, DESCRIPTOR, [b"a"], 0)

    assert all(ticket.done for ticket in tickets)
    assert third.result() == 0


def test_bytes_under_way_are_limited_but_one_request_always_fits(storage, appends):
    storage.script.append(SILENCE)
    connection = appends(budget_s=0.4, limits=Limits(requests_max=100, bytes_max=10))

    big = connection.append(STREAM, DESCRIPTOR, [b"x" * 1000], 0)
    small = connection.append(STREAM, DESCRIPTOR, [b"x"], 0)

    assert big.done
    assert small.result() == 0


def test_rows_that_land_elsewhere_are_an_error_not_a_success(storage, appends):
    storage.streams[STREAM].extend([b"theirs"] * 7)
    storage.wrong_offset = True

    (ticket,) = send_all(appends(), [[b"a"]])

    with pytest.raises(PermanentError, match="landed at 7"):
        ticket.result()


def test_updated_schema_is_told(storage, appends):
    schema = TableSchema((Field(name="a", type="INT64"), Field(name="new", type="STRING")))
    storage.script.append(React(schema=table_schema.to_message(schema)))
    connection = StreamAppends(appends(), STREAM, DESCRIPTOR)
    assert connection.updated_schema is None

    connection.send([b"a"], 0).result()

    assert connection.updated_schema == schema


def test_tables_share_a_connection_and_each_switch_carries_the_schema(storage, appends):
    other = "projects/p/datasets/d/tables/u/streams/_default"
    connection = appends()

    for stream, row in ((DEFAULT, b"1"), (other, b"2"), (other, b"3"), (DEFAULT, b"4")):
        connection.append(stream, DESCRIPTOR, [row], None).result()

    assert storage.streams == {DEFAULT: [b"1", b"4"], other: [b"2", b"3"]}
    carried = [request.proto_rows.HasField("writer_schema") for request in storage.requests]
    assert carried == [True, True, False, True]
    assert len(storage.calls) == 1


def test_descriptor_that_is_none_is_the_callers_mistake(appends):
    with pytest.raises(ConfigError, match="DescriptorProto"):
        appends().append(STREAM, b"\xff\xff", [b"a"], 0)


def test_stream_name_that_is_none_is_the_callers_mistake(appends):
    with pytest.raises(ConfigError, match="'nonsense'"):
        appends().append("nonsense", DESCRIPTOR, [b"a"], 0)


class _NoJitter(SystemClock):
    def random(self):
        return 1.0


class _closed_port:
    """A port of this machine on which nothing listens, kept from others meanwhile."""

    def __enter__(self):
        import socket

        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        return self._socket.getsockname()[1]

    def __exit__(self, *exc_info):
        self._socket.close()
