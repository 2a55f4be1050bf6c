"""Credentials: loaded without the network, wrong ones named by path, secrets never shown."""

import base64
import json
import logging
import pickle
import subprocess
import sys
import traceback

import pytest
from google.cloud.bigquery_storage_v1 import types

from bqflink_beam.errors import AccessDeniedError, ConfigError, TransientError
from bqflink_beam.names import TableReference
from bqflink_beam.service import credentials as module
from bqflink_beam.service.channel import Channels, Method
from bqflink_beam.service.connection import Connection
from bqflink_beam.service.credentials import (
    AccessToken,
    Anonymous,
    ApplicationDefault,
    Impersonate,
    ServiceAccountFile,
    ServiceAccountJson,
    load,
)
from bqflink_beam.service.rest import Rest
from bqflink_beam.service.secret import Secret
from bqflink_beam.service.status import Call
from tests.unit.service.scripted_rest import ScriptedRest, error
from tests.unit.service.scripted_storage import DEFAULT, ScriptedStorage


@pytest.fixture(scope="module")
def key_text():
    """A service account's key that nobody has."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return json.dumps(
        {
            "type": "service_account",
            "project_id": "p",
            "private_key_id": "1",
            "private_key": pem.decode(),
            "client_email": "loader@p.iam.gserviceaccount.com",
            "token_uri": "http://127.0.0.1:1/token",
        }
    )


@pytest.fixture
def no_default(monkeypatch):
    """Makes any look for application default credentials a loud failure."""
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/default.json")


def test_anonymous_asks_nobody(no_default):
    assert load(Anonymous()) is None


def test_missing_default_file_is_named(no_default):
    with pytest.raises(ConfigError, match="/nowhere/default.json"):
        load(ApplicationDefault())


def test_key_is_read_from_file_text_and_base64(tmp_path, key_text):
    path = tmp_path / "key.json"
    path.write_text(key_text)
    encoded = base64.b64encode(key_text.encode()).decode()

    loaded = [
        load(ServiceAccountFile(str(path))),
        load(ServiceAccountJson(key_text)),
        load(ServiceAccountJson(encoded)),
        load(ServiceAccountJson(f"{encoded[:40]}\n{encoded[40:]}\n")),
    ]

    emails = {found.service_account_email for found in loaded}
    assert emails == {"loader@p.iam.gserviceaccount.com"}


def test_users_key_is_read():
    info = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "r"}

    assert load(ServiceAccountJson(json.dumps(info))).refresh_token == "r"


def test_quota_project_goes_with_the_credentials(key_text):
    assert load(ServiceAccountJson(key_text), quota_project="q").quota_project_id == "q"


def test_impersonation_starts_from_its_source(key_text):
    found = load(Impersonate("target@p.iam.gserviceaccount.com", ServiceAccountJson(key_text)))

    assert found.service_account_email == "target@p.iam.gserviceaccount.com"


@pytest.mark.parametrize("target", ["", "not an address"])
def test_impersonated_account_is_an_address(target):
    with pytest.raises(ConfigError, match="e-mail"):
        Impersonate(target)


def test_nobody_cannot_impersonate():
    with pytest.raises(ConfigError, match="Anonymous"):
        Impersonate("a@b", source=Anonymous())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not JSON"),
        (b"{hunter2", "not JSON"),
        (b"[1]", "type"),
        (b'{"type": "magic", "x": "hunter2"}', "'magic'"),
        (b'{"type": "service_account", "private_key": "hunter2"}', "service_account"),
        (b"\xff\xfehunter2", "UTF-8"),
    ],
)
def test_bad_file_is_named_and_its_content_is_not_shown(tmp_path, content, says):
    path = tmp_path / "key.json"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=says) as caught:
        load(ServiceAccountFile(str(path)))

    assert str(path) in str(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_folder_is_no_credentials_file(tmp_path):
    with pytest.raises(ConfigError, match="directory"):
        load(ServiceAccountFile(str(tmp_path)))


@pytest.mark.parametrize("text", ["hunter2!", "eyJ0eXBlIjo=hunter2"])
def test_text_that_is_no_key_is_not_shown(text):
    with pytest.raises(ConfigError) as caught:
        load(ServiceAccountJson(text))

    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("value", ["", "  ", None, 5])
def test_inline_secret_must_be_a_text(value):
    with pytest.raises(ConfigError, match="token"):
        AccessToken(value)


def test_environment_is_read_at_first_use(monkeypatch, key_text):
    credentials = ServiceAccountJson.from_environment("BQ_KEY_OF_A_TEST")
    token = AccessToken.from_environment("BQ_TOKEN_OF_A_TEST")
    with pytest.raises(ConfigError, match="BQ_KEY_OF_A_TEST"):
        load(credentials)

    monkeypatch.setenv("BQ_KEY_OF_A_TEST", key_text)
    monkeypatch.setenv("BQ_TOKEN_OF_A_TEST", "hunter2\n")

    assert load(credentials).service_account_email == "loader@p.iam.gserviceaccount.com"
    assert load(token).token == "hunter2"


def test_same_process_gets_its_secret_back_from_a_pickle():
    credentials = AccessToken("hunter2")

    again = pickle.loads(pickle.dumps(credentials))

    assert again == credentials
    assert load(again).token == "hunter2"


def test_secret_is_in_no_repr_pickle_error_or_log(caplog):
    credentials = AccessToken("hunter2")
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("test").info("%s %r", credentials, Connection(credentials=credentials))

    assert b"hunter2" not in pickle.dumps(credentials)
    assert "hunter2" not in repr(credentials) + caplog.text


def test_other_process_is_told_to_use_a_file_or_a_variable():
    pickled = pickle.dumps(Connection(credentials=AccessToken("hunter2")))
    program = "import pickle, sys; pickle.loads(sys.stdin.buffer.read()).open()"

    run = subprocess.run(
        [sys.executable, "-c", program], input=pickled, capture_output=True, timeout=60, check=False
    )

    last = run.stderr.decode().strip().splitlines()[-1]
    assert "ConfigError" in last
    assert "from_environment" in last


def test_equal_texts_are_equal_secrets():
    assert Secret.of("hunter2") == Secret.of("hunter2")
    assert Secret.of("hunter2") != Secret.of("other")


def test_only_the_machines_own_credentials_may_need_the_network(key_text):
    assert module.may_ask_network(ApplicationDefault())
    assert module.may_ask_network(Impersonate("a@b"))
    assert not module.may_ask_network(Impersonate("a@b", ServiceAccountJson(key_text)))
    assert not module.may_ask_network(Anonymous())


def test_token_that_cannot_be_renewed_is_access_denied(certificate, opened):
    rest = opened(ScriptedRest(certificate))
    rest.script.extend([error(401, "authError", "Invalid Credentials")] * 3)
    client = opened(
        Connection(
            rest_endpoint=rest.url, ca_certificate=certificate[0], credentials=AccessToken("old")
        ).open()
    )

    with pytest.raises(AccessDeniedError) as caught:
        client.tables.get(TableReference("p", "d", "t"))
    assert "old" not in str(caught.value).replace("older", "")


def test_key_that_google_refuses_is_access_denied_in_one_line(certificate, key_text, opened, rest):
    storage = opened(ScriptedStorage(certificate))
    info = {**json.loads(key_text), "token_uri": f"{rest.url}/token"}
    rest.script.extend(
        [(400, {"error": "invalid_grant", "error_description": "Account not found"})] * 9
    )
    client = opened(
        Connection(
            storage_endpoint=f"127.0.0.1:{storage.port}",
            ca_certificate=certificate[0],
            credentials=ServiceAccountJson(json.dumps(info)),
        ).open()
    )

    with pytest.raises(AccessDeniedError, match="Account not found"):
        client.write.get_stream(DEFAULT)
    assert storage.unary_requests == []


def test_token_server_that_is_away_is_transient_and_nothing_is_sent(certificate, key_text, opened):
    storage = opened(ScriptedStorage(certificate))
    rest = opened(ScriptedRest(certificate))
    connection = Connection(
        storage_endpoint=f"127.0.0.1:{storage.port}",
        rest_endpoint=rest.url,
        ca_certificate=certificate[0],
        credentials=ServiceAccountJson(key_text),
    )
    # The key names a token server at a port where nothing listens.
    call = Call(what="look", endpoint="x", changes=True, table="p.d.t")
    channels = opened(Channels(connection, lambda: load(connection.credentials)))
    session = opened(Rest(connection, lambda: load(connection.credentials)))
    method = Method("/a/b", types.GetWriteStreamRequest.pb(), types.WriteStream.pb())

    with pytest.raises(TransientError, match="credentials unavailable") as by_grpc:
        channels.unary(method, method.request(), call=call, deadline_s=20.0, routing="name=x")
    with pytest.raises(TransientError, match="no token") as by_http:
        session.request("GET", "/x", call=call, deadline_s=20.0)

    assert "endpoint right" not in str(by_grpc.value)
    assert by_http.value.table == "p.d.t"
    assert storage.unary_requests == []
    assert rest.asked == []
