"""Where BigQuery is and who asks: what may be said, and what is said back when it is wrong."""

import pickle
import threading

import pytest

from bqflink_beam.errors import ConfigError, TransientError
from bqflink_beam.names import TableReference
from bqflink_beam.retry import Backoff
from bqflink_beam.service.channel import Channels, Method
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import (
    AccessToken,
    Anonymous,
    ApplicationDefault,
    Impersonate,
    ServiceAccountFile,
    ServiceAccountJson,
)
from bqflink_beam.service.recent import Recent
from bqflink_beam.service.rest import Rest
from bqflink_beam.service.status import Call
from bqflink_beam.service.tables import RestTables
from bqflink_beam.service.write import StorageWrite
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_rest import ScriptedRest
from tests.unit.service.scripted_storage import DEFAULT, ScriptedStorage, end

_TABLE = TableReference("p", "d", "t")


def test_defaults_are_googles_own_addresses():
    connection = Connection()

    assert connection.rest_url == "https://bigquery.googleapis.com"
    assert connection.storage_address == "bigquerystorage.googleapis.com:443"
    assert connection.credentials == ApplicationDefault()


def test_universe_moves_both_addresses():
    connection = Connection(universe_domain="example.goog")

    assert connection.rest_url == "https://bigquery.example.goog"
    assert connection.storage_address == "bigquerystorage.example.goog:443"


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"storage_endpoint": "localhost"}, "'localhost'"),
        ({"storage_endpoint": "http://localhost:1"}, "'http://localhost:1'"),
        ({"storage_endpoint": "localhost:99999"}, "'localhost:99999'"),
        ({"storage_endpoint": ""}, "storage_endpoint"),
        ({"rest_endpoint": "localhost:9050"}, "'localhost:9050'"),
        ({"rest_endpoint": "ftp://localhost"}, "'ftp://localhost'"),
        ({"rest_endpoint": "http://localhost:port"}, "'http://localhost:port'"),
        ({"rest_endpoint": ""}, "rest_endpoint"),
        ({"plaintext": True}, "storage_endpoint"),
        ({"plaintext": True, "storage_endpoint": "10.0.0.1:80"}, "10.0.0.1"),
        ({"plaintext": True, "storage_endpoint": "bigquery.example:80"}, "bigquery.example"),
        ({"rest_endpoint": "http://10.0.0.1:80"}, "10.0.0.1"),
        ({"credentials": "token"}, "credentials"),
        ({"credentials": None}, "credentials"),
    ],
)
def test_mistake_is_named_when_the_connection_is_made(fields, names):
    with pytest.raises(ConfigError, match=names.replace(".", r"\.")):
        Connection(**fields)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "localhost", "[::1]"])
def test_plaintext_is_for_this_machine(host):
    assert Connection(plaintext=True, storage_endpoint=f"{host}:1").plaintext


def test_plaintext_to_another_machine_must_be_asked_for():
    assert Connection(
        plaintext=True, storage_endpoint="emulator:1", allow_remote_plaintext=True
    ).plaintext


def test_explicit_credentials_never_travel_unencrypted():
    with pytest.raises(ConfigError, match="unencrypted"):
        Connection(plaintext=True, storage_endpoint="localhost:1", credentials=AccessToken("x"))
    with pytest.raises(ConfigError, match="unencrypted"):
        Connection(rest_endpoint="http://localhost:1", credentials=ServiceAccountFile("/x"))


def test_password_in_an_address_is_refused_and_not_shown():
    with pytest.raises(ConfigError) as caught:
        Connection(rest_endpoint="https://me:hunter2@example.com")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigError) as caught:
        Connection(rest_endpoint="ftp://me:hunter2@example.com")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "credentials",
    [
        Anonymous(),
        ApplicationDefault(),
        ServiceAccountFile("/key.json"),
        ServiceAccountJson("{}"),
        AccessToken("secret-token"),
        Impersonate("a@b.iam.gserviceaccount.com", source=AccessToken("secret-token")),
    ],
)
def test_connection_is_a_value_that_pickles(credentials):
    connection = Connection(billing_project="p", credentials=credentials)

    again = pickle.loads(pickle.dumps(connection))

    assert again == connection
    assert hash(again) == hash(connection)
    assert b"secret-token" not in pickle.dumps(connection)
    assert "secret-token" not in repr(connection)


def test_missing_certificate_file_is_named_at_open(tmp_path):
    connection = Connection(ca_certificate=str(tmp_path / "none.pem"))

    with pytest.raises(ConfigError, match="none.pem"):
        connection.open()


def test_missing_credentials_file_is_named_before_any_network(storage, tmp_path):
    path = str(tmp_path / "none.json")
    connection = Connection(
        storage_endpoint=f"127.0.0.1:{storage.port}", credentials=ServiceAccountFile(path)
    )

    with pytest.raises(ConfigError, match="none.json"):
        connection.open()
    assert storage.unary_requests == []


def test_opening_needs_no_server():
    Connection(
        storage_endpoint="127.0.0.1:1",
        rest_endpoint="http://127.0.0.1:1",
        plaintext=True,
        credentials=Anonymous(),
    ).open().close()


def test_equal_connections_share_channels_until_the_last_is_closed(storage, opened):
    first, second = storage.connection.open(), opened(storage.connection.open())
    shared = first.write

    assert second.write is shared
    first.close()
    first.close()

    assert second.write is shared
    assert second.write.get_stream(DEFAULT).name == ""
    with pytest.raises(ConfigError, match="closed"):
        first.write  # noqa: B018


def test_after_the_last_close_a_connection_opens_anew(storage):
    first = storage.connection.open()
    write = first.write
    write.get_stream(DEFAULT)
    first.close()
    again = storage.connection.open()

    assert again.write is not write
    assert again.write.get_stream(DEFAULT).name == ""
    again.close()
    with pytest.raises(ConfigError, match="closed"):
        write.get_stream(DEFAULT)


def test_hundred_opens_and_closes_leave_no_thread(storage):
    def run(times):
        for _ in range(times):
            client = storage.connection.open()
            client.write.get_stream(DEFAULT)
            client.close()

    run(5)
    before = threading.active_count()

    run(100)

    assert threading.active_count() <= before + 1


def test_client_closed_while_a_call_starts_is_told_in_our_words(storage):
    channels = Channels(storage.connection, lambda: None)

    class Closing:
        """A message during whose serialization another thread might close the channels."""

        @staticmethod
        def SerializeToString(message):
            channels.close()
            return b""

        FromString = bytes

    call = Call(what="look", endpoint="x", changes=False)

    with pytest.raises(ConfigError, match="is closed"):
        channels.unary(
            Method("/a/b", Closing, Closing), b"", call=call, deadline_s=5.0, routing="name=x"
        )


def test_token_and_quota_project_reach_a_trusted_server(certificate, opened):
    storage, rest = opened(ScriptedStorage(certificate)), opened(ScriptedRest(certificate))
    client = opened(
        Connection(
            storage_endpoint=f"127.0.0.1:{storage.port}",
            rest_endpoint=rest.url,
            ca_certificate=certificate[0],
            credentials=AccessToken("secret-token"),
            quota_project="quota",
        ).open()
    )

    client.write.get_stream(DEFAULT)
    client.tables.delete(_TABLE)

    sent = storage.unary_requests[0][2]
    assert sent["authorization"] == "Bearer secret-token"
    assert sent["x-goog-user-project"] == "quota"
    assert rest.asked[0].headers["authorization"] == "Bearer secret-token"
    assert rest.asked[0].headers["x-goog-user-project"] == "quota"


def test_nobody_sends_no_authorization(storage, rest, opened):
    connection = Connection(
        storage_endpoint=f"127.0.0.1:{storage.port}",
        rest_endpoint=rest.url,
        plaintext=True,
    )
    client = opened(connection.open())

    client.write.get_stream(DEFAULT)
    client.tables.delete(_TABLE)

    assert "authorization" not in storage.unary_requests[0][2]
    assert "authorization" not in rest.asked[0].headers


def test_untrusted_certificate_is_a_config_error_at_once(certificate, opened):
    storage, rest = opened(ScriptedStorage(certificate)), opened(ScriptedRest(certificate))
    client = opened(
        Connection(
            storage_endpoint=f"127.0.0.1:{storage.port}",
            rest_endpoint=rest.url,
            credentials=Anonymous(),
        ).open()
    )

    with pytest.raises(ConfigError, match="ca_certificate"):
        client.write.get_stream(DEFAULT)
    with pytest.raises(ConfigError, match="ca_certificate"):
        client.tables.get(_TABLE)


def test_plaintext_server_taken_for_tls_is_a_config_error_at_once(storage, opened):
    client = opened(
        Connection(storage_endpoint=f"127.0.0.1:{storage.port}", credentials=Anonymous()).open()
    )

    with pytest.raises(ConfigError, match="plaintext=True"):
        client.write.get_stream(DEFAULT)


def test_unreachable_endpoints_end_in_one_error_that_names_them(unreachable, opened):
    connection = Connection(
        storage_endpoint=f"127.0.0.1:{unreachable}",
        rest_endpoint=f"http://127.0.0.1:{unreachable}",
        plaintext=True,
    )
    backoff, clock = Backoff(budget_s=1.0), FakeClock()
    write = StorageWrite(
        opened(Channels(connection, lambda: None)), Recent(clock), backoff=backoff, clock=clock
    )
    tables = RestTables(
        opened(Rest(connection, lambda: None)), Recent(clock), backoff=backoff, clock=clock
    )

    for attempt in (lambda: write.get_stream(DEFAULT), lambda: tables.get(_TABLE)):
        clock.slept.clear()
        with pytest.raises(TransientError, match=f"127.0.0.1:{unreachable}.*endpoint right"):
            attempt()
        assert len(clock.slept) > 2


def test_endpoint_that_has_never_answered_is_given_up_soon_and_said_so(unreachable, opened, caplog):
    connection = Connection(storage_endpoint=f"127.0.0.1:{unreachable}", plaintext=True)
    clock = FakeClock()
    write = StorageWrite(
        opened(Channels(connection, lambda: None)),
        Recent(clock),
        backoff=Backoff(budget_s=600.0),
        clock=clock,
    )

    with pytest.raises(TransientError):
        write.get_stream(DEFAULT)

    assert 5.0 < sum(clock.slept) <= 20.0
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    assert f"127.0.0.1:{unreachable}" in warnings[0]


def test_endpoint_that_has_answered_before_is_waited_for(storage, opened):
    clock = FakeClock()
    write = StorageWrite(
        opened(Channels(storage.connection, lambda: None)),
        Recent(clock),
        backoff=Backoff(budget_s=200.0),
        clock=clock,
    )
    write.get_stream(DEFAULT)
    storage.close()

    with pytest.raises(TransientError):
        write.get_stream(DEFAULT)

    assert sum(clock.slept) > 150.0


def test_endpoint_that_answers_for_the_first_time_gets_its_whole_time(storage, opened):
    clock = FakeClock()
    write = StorageWrite(
        opened(Channels(storage.connection, lambda: None)),
        Recent(clock),
        backoff=Backoff(budget_s=200.0),
        clock=clock,
    )
    storage.unary_script.extend([end("UNAVAILABLE")] * 1000)

    with pytest.raises(TransientError):
        write.get_stream(DEFAULT)

    assert sum(clock.slept) > 150.0


@pytest.fixture
def unreachable():
    """A port of this machine on which nothing listens, kept from others meanwhile."""
    import socket

    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]
