import contextlib
import datetime
import ipaddress

import pytest

from bqflink_beam.retry import Backoff
from bqflink_beam.service.append import Appends, Limits
from bqflink_beam.service.channel import Channels
from bqflink_beam.service.recent import Recent
from bqflink_beam.testing.clock import FakeClock
from tests.unit.service.scripted_rest import ScriptedRest
from tests.unit.service.scripted_storage import STREAM, ScriptedStorage

_FAST = Backoff(wait_initial_s=0.001, wait_max_s=0.01)


@pytest.fixture
def storage():
    server = ScriptedStorage()
    yield server
    server.close()


@pytest.fixture
def rest():
    server = ScriptedRest()
    yield server
    server.close()


@pytest.fixture
def opened():
    """Opens things that are closed, whatever happens, when the test is over."""
    with contextlib.ExitStack() as stack:

        def register(thing):
            stack.callback(thing.close)
            return thing

        yield register


@pytest.fixture
def channels(storage, opened):
    return opened(Channels(storage.connection, lambda: None))


@pytest.fixture
def appends(channels, opened):
    def make(*, budget_s=20.0, recent=None, limits=Limits(), backoff=_FAST):  # noqa: B008
        return opened(
            Appends(
                channels,
                recent or Recent(FakeClock()),
                routing=f"write_stream={STREAM}",
                budget_s=budget_s,
                limits=limits,
                backoff=backoff,
            )
        )

    return make


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """Paths of a self-signed certificate for this machine and of its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return str(folder / "cert.pem"), str(folder / "key.pem")
