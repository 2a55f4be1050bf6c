"""The admin API: faults, counters and the clock from another process, and nobody else."""

import http.client
import json
import urllib.error
import urllib.request

import grpc
import pytest

from bqflink_beam import testing
from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.emulator.moving_clock import MovingClock
from bqflink_beam.names import TableReference
from bqflink_beam.testing.conformance import kit


@pytest.fixture
def server():
    with testing.Emulator(admin_port=0, clock=MovingClock(SYSTEM_CLOCK)) as server:
        server.create_table("p.d.t", [{"name": "id", "type": "INT64"}], rows=[{"id": 7}])
        yield server


def call(server, method, path, body=None, **headers):
    request = urllib.request.Request(
        server.admin_endpoint + path,
        method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", **headers},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def refused(server, method, path, body=None, **headers) -> int:
    with pytest.raises(urllib.error.HTTPError) as failed:
        call(server, method, path, body, **headers)
    assert json.load(failed.value)["error"]
    failed.value.close()
    return failed.value.code


def test_faults_are_added_listed_and_removed(server):
    first = call(server, "POST", "/faults", {"method": "FlushRows", "code": "ABORTED"})["id"]
    call(server, "POST", "/faults", {"method": "ReadRows", "action": "cut", "after_responses": 2})

    listed = call(server, "GET", "/faults")
    call(server, "DELETE", f"/faults/{first}")

    assert [fault["method"] for fault in listed] == ["FlushRows", "ReadRows"]
    assert listed[0]["hits"] == 0
    assert [fault.method for fault in server.faults.rules().values()] == ["ReadRows"]
    call(server, "DELETE", "/faults")
    assert server.faults.rules() == {}


def test_rows_streams_and_counters_are_told(server):
    assert call(server, "GET", "/rows?table=p.d.t") == [{"f": [{"v": "7"}]}]
    assert call(server, "GET", "/streams?table=p.d.t") == []
    assert isinstance(call(server, "GET", "/counters"), dict)


def test_tables_are_listed(server):
    (table,) = call(server, "GET", "/tables")

    assert (table["table"], table["kind"], table["rows"]) == ("p.d.t", "TABLE", 1)


def test_the_page_for_people_asks_for_what_is_served(server):
    with urllib.request.urlopen(server.admin_endpoint + "/", timeout=10) as answer:
        page = answer.read().decode()
        kind = answer.headers["Content-Type"]

    assert kind.startswith("text/html")
    assert "innerHTML" not in page
    for name in ("tables", "streams", "faults", "counters"):
        assert f'id="{name}"' in page
        call(server, "GET", f"/{name}")


def test_streams_and_sessions_are_made_too_old(server):
    with grpc.insecure_channel(server.storage_endpoint) as channel:
        bigquery = kit.BigQuery(kit.GrpcTransport(channel), None, None, None)
        table = TableReference("p", "d", "t")
        stream = bigquery.create_stream(table, "BUFFERED")
        session = bigquery.create_session(table)

        call(server, "POST", "/expire", {"name": stream})
        call(server, "POST", "/expire", {"name": session.name})

        with pytest.raises(kit.Failure, match="NOT_FOUND"):
            bigquery.get_stream(stream)
        with pytest.raises(kit.Failure, match="session expired at"):
            bigquery.read(session.streams[0].name)
    assert refused(server, "POST", "/expire", {"name": "nobody"}) == 404


def test_the_clock_moves_on(server):
    before = server.clock.now_s()

    call(server, "POST", "/clock", {"advance_s": 1000})

    assert 1000 <= server.clock.now_s() - before < 1010


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/faults", {"method": "M", "code": "NOPE"}),
        ("POST", "/faults", {"nonsense": 1}),
        ("POST", "/faults", {"code": "ABORTED"}),
        ("POST", "/faults", [1]),
        ("GET", "/rows?table=", None),
        ("POST", "/clock", {"advance_s": "soon"}),
        ("POST", "/clock", {"advance_s": float("nan")}),
        ("POST", "/clock", {"advance_s": -1}),
        ("POST", "/faults", {"method": "M", "code": "ABORTED", "nth": "3"}),
    ],
)
def test_nonsense_is_a_bad_request(server, method, path, body):
    assert refused(server, method, path, body) == 400


@pytest.mark.parametrize("path", ["/nothing", "/faults/x", "/rows?table=p.d.none"])
def test_what_is_not_there_is_not_found(server, path):
    assert refused(server, "GET", path) == 404


def test_a_form_of_a_web_page_is_refused(server):
    body = {"method": "FlushRows", "code": "ABORTED"}

    assert refused(server, "POST", "/faults", body, **{"Content-Type": "text/plain"}) == 400
    assert server.faults.rules() == {}


def test_a_name_that_only_resolves_to_this_machine_is_refused(server):
    host, _, port = server.admin_endpoint.removeprefix("http://").partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)

    connection.request("GET", "/counters", headers={"Host": "evil.example:80"})
    answer = connection.getresponse()
    answer.read()
    connection.close()

    assert answer.status == 403


def test_there_is_no_admin_api_unless_asked_for():
    with testing.Emulator() as server:
        assert server.admin_endpoint is None
