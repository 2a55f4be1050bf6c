"""What one bounded run commits: the document that the register holds."""

import collections
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence

from bqflink_beam.errors import BqflinkError
from bqflink_beam.write.pending import StagedStream

_FORMAT_VERSION = 1
STREAMS_PER_COMMIT_MAX = 10_000
"""BigQuery takes this many streams in one commit."""


@dataclasses.dataclass(frozen=True)
class RunIdentity:
    """Which run this is, and which submission of it.

    Made once for each translation of a pipeline, so that a restart by the runner has the
    same, and a second `run()` another. `nonce` differs between submissions even when the
    user names the run.
    """

    run_id: str
    nonce: str

    def sink_id(self, label: str) -> str:
        """Returns the register's id for one sink of this run; two sinks never share one."""
        digest = hashlib.sha256(json.dumps([self.run_id, label]).encode()).hexdigest()
        return f"bqflink-{digest[:40]}"


@dataclasses.dataclass(frozen=True)
class Chunk:
    """Streams of one table that are committed together."""

    table: str
    streams: tuple[StagedStream, ...]


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The commits of one sink in one run, in order."""

    run_id: str
    label: str
    nonce: str
    chunks: tuple[Chunk, ...]

    @property
    def rows_by_table(self) -> Mapping[str, int]:
        """How many rows each table gets."""
        rows: collections.Counter[str] = collections.Counter()
        for chunk in self.chunks:
            rows[chunk.table] += sum(stream.rows for stream in chunk.streams)
        return dict(rows)

    def to_bytes(self) -> bytes:
        """Returns a versioned form; equal manifests give equal bytes."""
        return json.dumps(
            {
                "version": _FORMAT_VERSION,
                "run_id": self.run_id,
                "label": self.label,
                "nonce": self.nonce,
                "chunks": [
                    [chunk.table, [[stream.stream, stream.rows] for stream in chunk.streams]]
                    for chunk in self.chunks
                ],
                "rows": self.rows_by_table,
            },
            separators=(",", ":"),
            sort_keys=True,
        ).encode()

    @staticmethod
    def from_bytes(data: bytes) -> "Manifest":
        """Reads what `to_bytes` wrote.

        Raises:
            BqflinkError: it is of a newer version, or its totals do not add up.
        """
        read = json.loads(data)
        if read.get("version") != _FORMAT_VERSION:
            raise BqflinkError(
                f"the registered run has format {read.get('version')}; this version reads {_FORMAT_VERSION}"
            )
        chunks = tuple(
            Chunk(table, tuple(StagedStream(table, stream, rows) for stream, rows in streams))
            for table, streams in read["chunks"]
        )
        manifest = Manifest(read["run_id"], read["label"], read["nonce"], chunks)
        if manifest.rows_by_table != read["rows"]:
            raise BqflinkError("the registered run is damaged: its row counts do not add up")
        return manifest


def plan(identity: RunIdentity, label: str, staged: Iterable[StagedStream]) -> Manifest:
    """Sorts the staged streams into commits of one table each, as few as BigQuery allows.

    Raises:
        BqflinkError: a stream is named twice.
    """
    by_table: dict[str, list[StagedStream]] = collections.defaultdict(list)
    seen: set[str] = set()
    for stream in sorted(staged):
        if stream.stream in seen:
            raise BqflinkError(
                "a stream was gathered twice", table=stream.table, stream=stream.stream
            )
        seen.add(stream.stream)
        by_table[stream.table].append(stream)
    chunks = [
        Chunk(table, tuple(part))
        for table, streams in sorted(by_table.items())
        for part in _parts(streams, STREAMS_PER_COMMIT_MAX)
    ]
    return Manifest(identity.run_id, label, identity.nonce, tuple(chunks))


def _parts(streams: Sequence[StagedStream], size: int) -> Iterable[Sequence[StagedStream]]:
    return (streams[start : start + size] for start in range(0, len(streams), size))
