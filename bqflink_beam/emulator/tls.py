"""TLS in front of the server: one port for REST and gRPC, told apart by ALPN.

Google's clients speak TLS unless told otherwise, and some cannot be told. The
certificate is made at start, for ``localhost``, loopback addresses and the one that is
listened at; clients trust it by its file. What comes in with ``h2`` goes to the gRPC port, all else to REST.
"""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import pathlib
import ssl
import tempfile
import threading
from collections.abc import Sequence

from bqflink_beam.clock import SYSTEM_CLOCK

_CHUNK_BYTES = 1 << 18
_VALID = datetime.timedelta(days=30)


class TlsFront:
    """Takes TLS connections and passes what they carry on to the plaintext ports.

    Args:
        names: what clients may call this server besides ``localhost`` and `host`.
        rest: host and port of what takes HTTP/1.1.
        grpc: host and port of what takes HTTP/2.

    Attributes:
        ca_certificate: path of the certificate, in PEM; gone when the front stops.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        rest: tuple[str, int],
        grpc: tuple[str, int],
        names: Sequence[str] = (),
    ) -> None:
        self._host = host
        self.port = port
        self._rest, self._grpc = rest, grpc
        self._folder = tempfile.TemporaryDirectory(prefix="bigquery-tls-")
        self.ca_certificate = pathlib.Path(self._folder.name) / "ca.pem"
        self._context = _server_context(self.ca_certificate, (host, *names))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="bigquery-tls")
        self._server: asyncio.Server | None = None

    def start(self) -> None:
        """Opens the port.

        Raises:
            OSError: it is taken.
        """
        self._thread.start()
        try:
            opened = asyncio.run_coroutine_threadsafe(self._open(), self._loop)
            self._server = opened.result()
        except OSError:
            self.stop()
            raise
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Breaks all connections and closes the port."""
        if self._thread.is_alive():
            asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
        self._folder.cleanup()

    async def _open(self) -> asyncio.Server:
        return await asyncio.start_server(
            self._accept, self._host, self.port, ssl=self._context, limit=_CHUNK_BYTES
        )

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        # Handshakes that are under way too, and connections that have not begun.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._serve(reader, writer))
        # A task that is cancelled before it begins runs no line of its own.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            tls = writer.get_extra_info("ssl_object")
            host, port = self._grpc if tls.selected_alpn_protocol() == "h2" else self._rest
            back_reader, back_writer = await asyncio.open_connection(host, port, limit=_CHUNK_BYTES)
            try:
                await asyncio.gather(_pump(reader, back_writer), _pump(back_reader, writer))
            finally:
                await _abort(back_writer)
        except (OSError, asyncio.CancelledError):
            # Either side hung up, or the server stops.
            pass
        finally:
            await _abort(writer)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    with contextlib.suppress(OSError, NotImplementedError):
        # TLS has no half-closed connections; ending ours ends both ways.
        writer.close()


async def _abort(writer: asyncio.StreamWriter) -> None:
    # Not a polite end: that would wait for a peer that may be gone.
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


def _server_context(ca_certificate: pathlib.Path, names: Sequence[str]) -> ssl.SSLContext:
    certificate, key = _self_signed(names)
    ca_certificate.write_bytes(certificate)
    key_path = ca_certificate.with_name("key.pem")
    with open(os.open(key_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(ca_certificate, key_path)
    context.set_alpn_protocols(["h2", "http/1.1"])
    key_path.unlink()
    return context


def _self_signed(names: Sequence[str]) -> tuple[bytes, bytes]:
    """Returns a certificate for this machine, whatever it is called, and its key, in PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "embedded BigQuery")])
    # A certificate is checked against the clock of the machine, whatever the server's shows.
    now = datetime.datetime.fromtimestamp(SYSTEM_CLOCK.now_s(), datetime.timezone.utc)
    alternatives: list[x509.GeneralName] = []
    for each in dict.fromkeys(("localhost", "127.0.0.1", "::1", *names)):
        try:
            alternatives.append(x509.IPAddress(ipaddress.ip_address(each)))
        except ValueError:
            alternatives.append(x509.DNSName(each))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(key, hashes.SHA256())
    )
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
