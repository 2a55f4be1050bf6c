"""`Settings`: the knobs of the embedded BigQuery. The defaults are the service's own."""

import dataclasses
import pathlib
from collections.abc import Mapping

from bqflink_beam.emulator.streams import TTL_S


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """How the server behaves where the real one's size or patience matters.

    Attributes:
        append_bytes_max: an AppendRows request must be smaller than that.
        row_errors_max: how many row errors one response lists; the real list may be cut too.
        stream_ttl_s: how long a write stream lives without traffic, by kind.
        session_ttl_s: how long a read session lives.
        response_rows_max, response_bytes_max: bounds of one ReadRows message.
        rows_per_stream: how many rows make the server add another read stream.
        streams_min: read streams to make whatever the table's size, if rows suffice and
            the request allows; for tests of parallel reads on small tables.
        split_rows_min: a read stream with fewer rows left cannot be split.
        idle_close_s: an AppendRows connection without a request for that long, by the
            server's clock, is closed with ABORTED, as the service's are after 600 s; None
            keeps it open.
        files_root: folder under which load and extract jobs may use ``file://``; None for none.
        gcs_endpoint: ``http://host:port`` of the Cloud Storage (emulator) behind ``gs://``, as
            STORAGE_EMULATOR_HOST has it; None for the server's own, at its REST endpoint.
        validation: False stores proto rows unchecked, for measuring what checks cost.
    """

    append_bytes_max: int = 20_000_000
    row_errors_max: int = 100
    stream_ttl_s: Mapping[str, float] = dataclasses.field(default_factory=lambda: dict(TTL_S))
    session_ttl_s: float = 6 * 3600.0
    response_rows_max: int = 16_384
    response_bytes_max: int = 2 << 20
    rows_per_stream: int = 100_000
    streams_min: int = 1
    split_rows_min: int = 2
    idle_close_s: float | None = None
    files_root: pathlib.Path | None = None
    gcs_endpoint: str | None = None
    validation: bool = True
