"""``python -m bqflink_beam emulator``: an embedded BigQuery in a process of its own."""

import gc
import pathlib
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType

from bqflink_beam.clock import SYSTEM_CLOCK
from bqflink_beam.emulator.moving_clock import MovingClock
from bqflink_beam.emulator.server import EmulatorServer
from bqflink_beam.emulator.settings import Settings
from bqflink_beam.errors import ConfigError


def serve(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    storage_port: int = 0,
    admin_port: int | None = None,
    tls_port: int | None = None,
    tls_names: Sequence[str] = (),
    data_dir: pathlib.Path | None = None,
    settings: Settings | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT. When ready, prints one line with the endpoints:

    ``bigquery ready rest=http://127.0.0.1:9050 storage=127.0.0.1:9060``

    Args:
        host: the address to listen at.
        port: of REST; 0 for any.
        storage_port: of gRPC; 0 for any.
        admin_port: of the admin API (faults, counters, clock); None for no such API.
        tls_port: of REST and gRPC over TLS; None for no TLS.
        tls_names: more hosts that the certificate is for.
        data_dir: folder that keeps everything over restarts; None for memory only.
        settings: its limits.

    Raises:
        ConfigError: a port is taken.
    """
    over = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    server = EmulatorServer(
        clock=MovingClock(SYSTEM_CLOCK),
        settings=settings,
        host=host,
        rest_port=port,
        storage_port=storage_port,
        admin_port=admin_port,
        tls_port=tls_port,
        tls_names=tls_names,
        data_dir=data_dir,
    )
    try:
        server.start()
    except OSError as error:
        raise ConfigError(f"the emulator cannot start: {error}") from error
    # Decoding makes many small objects that die at once, and none in circles.
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)
    try:
        line = f"bigquery ready rest={server.rest_endpoint} storage={server.storage_endpoint}"
        if server.tls_endpoint is not None:
            line += f" tls={server.tls_endpoint} ca={server.ca_certificate}"
        if server.admin_endpoint is not None:
            line += f" admin={server.admin_endpoint}"
        print(line, flush=True)
        over.wait()
    finally:
        server.stop()
    print("bigquery stopped", file=sys.stderr, flush=True)
