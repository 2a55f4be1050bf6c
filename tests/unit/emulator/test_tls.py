"""What a stopped TLS front leaves behind: nothing."""

import gc
import socket
import ssl
import warnings

from bqflink_beam.emulator.server import EmulatorServer


def test_a_handshake_under_way_ends_with_the_server(caplog):
    server = EmulatorServer(tls_port=0).start()
    address = ("127.0.0.1", int(server.tls_endpoint.rpartition(":")[2]))
    context = ssl.create_default_context(cafile=server.ca_certificate)

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with socket.create_connection(address) as silent:
            # Whoever came first was taken when a later one has been served.
            with (
                socket.create_connection(address) as plain,
                context.wrap_socket(plain, server_hostname="localhost") as secure,
            ):
                secure.sendall(b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n")
                assert secure.recv(12) == b"HTTP/1.1 404"
            server.stop()
            silent.settimeout(30)
            assert silent.recv(1) == b""
        del server
        gc.collect()

    assert [str(each.message) for each in seen] == []
    assert [each.getMessage() for each in caplog.records if each.name == "asyncio"] == []
