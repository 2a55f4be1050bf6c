"""Faults act on the call they name, before or after it takes effect, once each."""

import datetime
import os
import subprocess
import sys
import threading

import grpc
import pytest
from google.cloud.bigquery_storage_v1 import types
from google.rpc import error_details_pb2, status_pb2

from bqflink_beam import testing
from bqflink_beam.emulator.faults import Call, Fault, Faults, Injected
from bqflink_beam.errors import ConfigError
from bqflink_beam.testing.conformance import embedded, kit
from bqflink_beam.testing.conformance.kit import Failure, append_request, error_of, offset_of
from bqflink_beam.testing.conformance.streams import FIELDS, WRITER, ids

TABLE = "p.d.t"
PATH = "projects/p/datasets/d/tables/t"


@pytest.fixture
def server():
    with testing.Emulator(settings=embedded.SETTINGS, clock=testing.FakeClock()) as server:
        server.create_table(TABLE, FIELDS)
        yield server


@pytest.fixture
def bigquery(server):
    with grpc.insecure_channel(server.storage_endpoint) as channel:
        yield kit.BigQuery(kit.GrpcTransport(channel), None, None, None)


def visible(server) -> list[int]:
    return sorted(row["id"] for row in server.visible_rows(TABLE))


class TestAppendRows:
    @pytest.mark.parametrize(("when", "kept"), [("before", [1]), ("after", [1, 2])])
    def test_status_before_or_after_the_rows_are_in(self, server, bigquery, when, kept):
        server.faults.add(Fault(method="AppendRows", code="UNAVAILABLE", when=when, nth=2))

        with bigquery.connection() as append:
            append(append_request(f"{PATH}/streams/_default", ids(1), writer=WRITER))
            with pytest.raises(Failure) as failed:
                append(append_request(rows=ids(2)))

        assert failed.value.code == "UNAVAILABLE"
        assert visible(server) == kept

    def test_status_in_band_keeps_the_connection(self, server, bigquery):
        stream = bigquery.create_stream(_reference(), "COMMITTED")
        server.faults.add(
            Fault(
                method="AppendRows",
                code="INTERNAL",
                in_band=True,
                storage_error="KMS_SERVICE_ERROR",
                nth=2,
            )
        )

        with bigquery.connection() as append:
            append(append_request(stream, ids(1), writer=WRITER, offset=0))
            error = error_of(append(append_request(rows=ids(2), offset=1)))
            after = append(append_request(rows=ids(2), offset=1))

        assert (error.code, error.storage_errors[0][0]) == ("INTERNAL", "KMS_SERVICE_ERROR")
        assert offset_of(after) == 1
        assert visible(server) == [1, 2]

    def test_a_request_that_arrives_twice_is_in_twice_only_without_an_offset(
        self, server, bigquery
    ):
        stream = bigquery.create_stream(_reference(), "COMMITTED")
        server.faults.add(Fault(method="AppendRows", action="duplicate", times=None))

        answer = bigquery.append(stream, WRITER, ids(1), offset=0)
        bigquery.append(f"{PATH}/streams/_default", WRITER, ids(2))

        assert offset_of(answer) == 0
        assert visible(server) == [1, 2, 2]

    def test_an_expired_stream_is_not_found(self, server, bigquery):
        stream = bigquery.create_stream(_reference(), "BUFFERED")
        server.faults.add(Fault(method="AppendRows", action="expire", stream=stream))

        with pytest.raises(Failure) as failed:
            bigquery.append(stream, WRITER, ids(1), offset=0)

        assert failed.value.code == "NOT_FOUND"
        assert [state.expired for state in server.streams()] == [True]

    def test_only_the_named_table_and_stream(self, server, bigquery):
        stream = bigquery.create_stream(_reference(), "COMMITTED")
        server.faults.add(Fault(method="AppendRows", code="ABORTED", table="p.d.other"))
        server.faults.add(Fault(method="AppendRows", code="ABORTED", stream="other"))

        assert offset_of(bigquery.append(stream, WRITER, ids(1))) == 0

    def test_a_partition_is_of_its_table(self, server, bigquery):
        server.create_table("p.d.days", FIELDS, timePartitioning={"type": "DAY"})
        server.faults.add(Fault(method="AppendRows", code="ABORTED", table="p.d.days"))
        today = datetime.datetime.fromtimestamp(server.clock.now_s(), datetime.timezone.utc)

        with pytest.raises(Failure, match="ABORTED"):
            bigquery.append(f"{PATH[:-1]}days${today:%Y%m%d}/_default", WRITER, ids(1))

    def test_status_in_band_does_not_hide_that_there_is_no_table(self, server, bigquery):
        server.faults.add(Fault(method="AppendRows", code="INTERNAL", in_band=True))

        with pytest.raises(Failure) as failed:
            bigquery.append(f"{PATH}x/_default", WRITER, ids(1))

        assert failed.value.code == "NOT_FOUND"

    def test_a_call_that_is_never_answered_is_freed_by_its_end(self, server, bigquery):
        server.faults.add(Fault(method="AppendRows", action="hang", when="after"))
        channel = grpc.insecure_channel(server.storage_endpoint)
        call = channel.stream_stream(
            f"/{kit.WRITE}/AppendRows",
            request_serializer=lambda request: request.SerializeToString(),
            response_deserializer=types.AppendRowsResponse.pb().FromString,
        )
        request = append_request(f"{PATH}/streams/_default", ids(1), writer=WRITER)

        with pytest.raises(grpc.RpcError) as failed:
            next(call(iter([request]), timeout=0.5))
        channel.close()

        assert failed.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        assert visible(server) == [1]
        server.stop()
        assert not [t for t in threading.enumerate() if t.name.startswith("bigquery")]


class TestUnaryCalls:
    @pytest.mark.parametrize(("when", "count"), [("before", 0), ("after", 1)])
    def test_create_write_stream(self, server, bigquery, when, count):
        server.faults.add(Fault(method="CreateWriteStream", code="RESOURCE_EXHAUSTED", when=when))

        with pytest.raises(Failure) as failed:
            bigquery.create_stream(_reference(), "PENDING")

        assert failed.value.code == "RESOURCE_EXHAUSTED"
        assert len(server.streams()) == count

    @pytest.mark.parametrize(("when", "kept"), [("before", []), ("after", [1])])
    def test_flush_rows(self, server, bigquery, when, kept):
        stream = bigquery.create_stream(_reference(), "BUFFERED")
        bigquery.append(stream, WRITER, ids(1))
        server.faults.add(Fault(method="FlushRows", code="DEADLINE_EXCEEDED", when=when))

        with pytest.raises(Failure):
            bigquery.flush(stream, 0)

        assert visible(server) == kept

    @pytest.mark.parametrize(("when", "kept"), [("before", []), ("after", [1])])
    def test_batch_commit(self, server, bigquery, when, kept):
        stream = bigquery.create_stream(_reference(), "PENDING")
        bigquery.append(stream, WRITER, ids(1))
        bigquery.finalize(stream)
        server.faults.add(Fault(method="BatchCommitWriteStreams", action="cut", when=when))

        with pytest.raises(Failure) as failed:
            bigquery.commit(_reference(), stream)

        assert failed.value.code == "UNAVAILABLE"
        assert visible(server) == kept

    def test_a_commit_that_arrives_twice_is_answered_by_the_first(self, server, bigquery):
        stream = bigquery.create_stream(_reference(), "PENDING")
        bigquery.append(stream, WRITER, ids(1))
        bigquery.finalize(stream)
        server.faults.add(Fault(method="BatchCommitWriteStreams", action="duplicate"))

        answer = bigquery.commit(_reference(), stream)

        assert answer.HasField("commit_time")
        assert visible(server) == [1]

    def test_a_flush_that_arrives_twice_is_answered_by_the_first(self, server, bigquery):
        stream = bigquery.create_stream(_reference(), "BUFFERED")
        bigquery.append(stream, WRITER, ids(1, 2))
        server.faults.add(Fault(method="FlushRows", action="duplicate"))

        assert bigquery.flush(stream, 1).offset == 1

        assert visible(server) == [1, 2]

    def test_a_stream_that_is_asked_for_twice_is_made_twice(self, server, bigquery):
        server.faults.add(Fault(method="CreateWriteStream", action="duplicate"))

        name = bigquery.create_stream(_reference(), "PENDING")

        assert [state.name for state in server.streams()][0] == name
        assert len(server.streams()) == 2

    def test_a_status_may_ask_for_a_pause(self, server, bigquery):
        server.faults.add(
            Fault(
                method="CreateWriteStream",
                code="RESOURCE_EXHAUSTED",
                retry_after_s=2.5,
                storage_error="KMS_SERVICE_ERROR",
            )
        )
        request = types.CreateWriteStreamRequest.pb()(parent=PATH)
        with grpc.insecure_channel(server.storage_endpoint) as channel:
            call = channel.unary_unary(
                f"/{kit.WRITE}/CreateWriteStream",
                request_serializer=lambda request: request.SerializeToString(),
            )
            with pytest.raises(grpc.RpcError) as failed:
                call(request, timeout=30)

        packed = dict(failed.value.trailing_metadata())["grpc-status-details-bin"]
        details = status_pb2.Status.FromString(packed).details
        pause = error_details_pb2.RetryInfo()
        assert details[1].Unpack(pause)
        assert pause.retry_delay.ToTimedelta().total_seconds() == 2.5

    @pytest.mark.parametrize("pid", [None, 2**31 - 1, 10**30])
    def test_a_kill_without_a_victim_says_so(self, server, bigquery, pid):
        server.faults.add(Fault(method="CreateWriteStream", action="kill", pid=pid))

        with pytest.raises(Failure) as failed:
            bigquery.create_stream(_reference(), "PENDING")

        assert failed.value.code == "FAILED_PRECONDITION"


class TestReadRows:
    def test_cut_after_some_responses(self, server, bigquery):
        bigquery.append(f"{PATH}/streams/_default", WRITER, ids(*range(50)))
        session = bigquery.create_session(_reference(), streams_max=1)
        server.faults.add(Fault(method="ReadRows", action="cut", after_responses=2))
        request = types.ReadRowsRequest.pb()(read_stream=session.streams[0].name)
        responses = bigquery.transport.server_stream(
            kit.READ, "ReadRows", request, types.ReadRowsResponse.pb()
        )

        got = [next(responses).row_count for _ in range(2)]
        with pytest.raises(Failure) as failed:
            next(responses)

        assert got == [10, 10]
        assert failed.value.code == "UNAVAILABLE"
        assert len(bigquery.stream_rows(session, session.streams[0].name, 20)) == 30
        assert server.counters["ReadRows.resumed"] == 1

    def test_session_that_expires_in_the_middle(self, server, bigquery):
        bigquery.append(f"{PATH}/streams/_default", WRITER, ids(*range(50)))
        session = bigquery.create_session(_reference(), streams_max=1)
        server.faults.add(Fault(method="ReadRows", action="expire", after_responses=1))

        with pytest.raises(Failure) as failed:
            bigquery.read(session.streams[0].name)

        assert failed.value.code == "FAILED_PRECONDITION"
        assert "session expired at" in failed.value.text


class TestCounting:
    def test_the_nth_call_is_exact_among_threads(self):
        faults = Faults(testing.FakeClock())
        number = faults.add(Fault(method="M", code="ABORTED", nth=500, times=3))
        hit = []

        def work() -> None:
            for _ in range(250):
                try:
                    faults.arrive("M", call=Call()).before()
                except Injected:
                    hit.append(1)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(hit) == faults.hits(number) == 3
        assert faults.counters()["M"] == 2000

    def test_delay_is_the_clocks(self):
        clock = testing.FakeClock()
        faults = Faults(clock)
        faults.add(Fault(method="M", action="delay", delay_s=5.0))

        faults.arrive("M", call=Call()).before()

        assert clock.slept == [5.0]

    def test_removed_rules_do_not_act(self):
        faults = Faults(testing.FakeClock())
        faults.remove(faults.add(Fault(method="M", code="ABORTED")))
        faults.add(Fault(method="M", code="ABORTED"))
        faults.clear()

        faults.arrive("M", call=Call()).before()

    @pytest.mark.parametrize(
        "wrong",
        [
            {"action": "explode"},
            {"code": None},
            {"code": "NOPE"},
            {"code": "OK"},
            {"code": "ABORTED", "nth": 0},
            {"code": "ABORTED", "action": "cut"},
            {"code": "ABORTED", "when": "during"},
            {"code": "ABORTED", "in_band": True},
            {"code": "ABORTED", "after_responses": 1},
            {"code": "ABORTED", "retry_after_s": -1},
            {"code": "ABORTED", "storage_error": "NOPE"},
            {"code": "ABORTED", "method": "jobs.get", "retry_after_s": 1},
            {"action": "cut", "method": "AppendRows", "in_band": True},
            {"action": "cut", "method": "ReadRows", "after_responses": 1, "when": "after"},
            {"action": "delay", "delay_s": float("nan")},
            {"action": "duplicate", "method": "ReadRows"},
        ],
    )
    def test_rules_that_make_no_sense(self, wrong):
        with pytest.raises(ConfigError):
            Fault(**{"method": "M", **wrong})


def test_kill_ends_the_caller_that_named_itself(server):
    server.faults.add(Fault(method="CreateWriteStream", action="kill", when="after"))
    script = (
        "import grpc, os, sys\n"
        "from google.cloud.bigquery_storage_v1 import types\n"
        "request = types.CreateWriteStreamRequest.pb()(parent=sys.argv[2])\n"
        "request.write_stream.type_ = 2\n"
        "call = grpc.insecure_channel(sys.argv[1]).unary_unary(\n"
        f"    '/{kit.WRITE}/CreateWriteStream',\n"
        "    request_serializer=lambda r: r.SerializeToString())\n"
        "call(request, timeout=30, metadata=(('x-bqflink-pid', str(os.getpid())),))\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", script, server.storage_endpoint, PATH],
        check=False,
        timeout=60,
        capture_output=True,
        env={**os.environ, "GRPC_VERBOSITY": "NONE"},
    )

    assert done.returncode == -9
    assert len(server.streams()) == 1


def _reference():
    from bqflink_beam.names import TableReference

    return TableReference.parse(TABLE)
