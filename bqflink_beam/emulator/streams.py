"""Write streams: what state they are in, and the rules of changing it.

States are documents of the store, so that a stream, the rows it holds and the rows of
its table change together, and survive a restart where the store does.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from bqflink_beam.emulator.refused import Refused
from bqflink_beam.emulator.store import Store, StoredTable, Transaction
from bqflink_beam.emulator.versions import Chunk
from bqflink_beam.names import TableReference

KIND = "write_stream"
COMMITTED, BUFFERED, PENDING = "COMMITTED", "BUFFERED", "PENDING"
DAY_S = 86_400.0
TTL_S: Mapping[str, float] = {COMMITTED: 3 * DAY_S, BUFFERED: 7 * DAY_S, PENDING: 3 * DAY_S}
COMMIT_STREAMS_MAX = 10_000

_NAME = re.compile(
    r"^projects/(?P<project>[^/]+)/datasets/(?P<dataset>[^/]+)/tables/(?P<table>[^/]+)"
    r"(?:/streams/(?P<stream>[^/]+)|/(?P<default>_default))$"
)
_TABLE = re.compile(
    r"^projects/(?P<project>[^/]+)/datasets/(?P<dataset>[^/]+)/tables/(?P<table>[^/]+)$"
)


class WriteStreams:
    """The application-made write streams of a store."""

    def __init__(self, store: Store, ttl_s: Mapping[str, float] = TTL_S) -> None:
        self._store = store
        self._ttl_s = dict(ttl_s)

    def create(self, table: StoredTable, kind: str) -> dict[str, Any]:
        """Makes a stream and returns its state."""
        now_s = self._store.clock.now_s()
        name = f"{table.reference.path}/streams/{uuid.uuid4().hex}"
        state = {
            "name": name,
            "table": [table.reference.project, table.reference.dataset, table.reference.table],
            "uid": table.uid,
            "kind": kind,
            "location": table.location,
            "rows": 0,
            "flushed": 0,
            "finalized": False,
            "create_s": now_s,
            "commit_s": now_s if kind == COMMITTED else None,
            "touched_s": now_s,
        }
        with self._store.transaction() as change:
            change.put_document(KIND, name, state)
        return state

    def get(self, name: str) -> dict[str, Any]:
        """Returns the state of a stream.

        Raises:
            Refused: NOT_FOUND: never made, too old, or its table is gone.
        """
        state = self._store.document(KIND, name)
        if state is None or self._too_old(state) or self._table(state) is None:
            raise stream_not_found(name)
        return state

    def append(
        self,
        name: str,
        offset: int | None,
        chunk: Chunk,
    ) -> int:
        """Adds rows at the end of a stream; returns the offset they begin at.

        Raises:
            Refused: NOT_FOUND; INVALID_ARGUMENT after finalize; ALREADY_EXISTS or
                OUT_OF_RANGE when `offset` is not the end of the stream.
        """
        with self._store.transaction() as change:
            state = self.get(name)
            self.check_append(state, offset)
            table = self._table(state)
            assert table is not None
            if state["kind"] == COMMITTED:
                change.append(table, [chunk])
            else:
                change.hold(name, [chunk])
            self._put(change, state, rows=state["rows"] + chunk.num_rows)
        return int(state["rows"])

    def check_append(self, state: Mapping[str, Any], offset: int | None) -> None:
        """Refuses an append that the stream's state does not allow; see `append`."""
        name, end = state["name"], state["rows"]
        if state["finalized"]:
            raise Refused(
                f"Stream has been finalized and cannot be appended. Entity: {name}",
                storage_error="STREAM_FINALIZED",
                entity=name,
            )
        if offset is None or offset == end:
            return
        if offset < 0:
            raise Refused(f"Offset must not be negative, got {offset}. Entity: {name}")
        if offset < end:
            raise Refused(
                f"The offset is within stream, expected offset {end}, received {offset} "
                f"Entity: {name}",
                code="ALREADY_EXISTS",
                storage_error="OFFSET_ALREADY_EXISTS",
                entity=name,
            )
        raise Refused(
            f"The offset is beyond stream, expected offset {end}, received {offset} Entity: {name}",
            code="OUT_OF_RANGE",
            storage_error="OFFSET_OUT_OF_RANGE",
            entity=name,
        )

    def finalize(self, name: str) -> int:
        """Ends a stream; returns its row count. May be repeated."""
        with self._store.transaction() as change:
            state = self.get(name)
            if not state["finalized"]:
                self._put(change, state, finalized=True)
            return int(state["rows"])

    def flush(self, name: str, offset: int) -> None:
        """Makes the rows of a buffered stream up to and including `offset` visible.

        Raises:
            Refused: INVALID_ARGUMENT, the stream is not BUFFERED or is finalized;
                ALREADY_EXISTS, flushed before; OUT_OF_RANGE, no such row yet.
        """
        with self._store.transaction() as change:
            state = self.get(name)
            if state["kind"] != BUFFERED:
                raise Refused(
                    f"Only BUFFERED streams can be flushed, actual: {state['kind']}. "
                    f"Entity: {name}",
                    storage_error="INVALID_STREAM_TYPE",
                    entity=name,
                )
            if offset < 0:
                raise Refused(f"Offset must not be negative, got {offset}. Entity: {name}")
            if state["finalized"]:
                raise Refused(
                    f"Stream has been finalized. Entity: {name}",
                    storage_error="STREAM_FINALIZED",
                    entity=name,
                )
            if offset < state["flushed"]:
                raise Refused(
                    f"Offset {offset} is already flushed. Entity: {name}",
                    code="ALREADY_EXISTS",
                    storage_error="OFFSET_ALREADY_EXISTS",
                    entity=name,
                )
            if offset >= state["rows"]:
                raise Refused(
                    f"Offset {offset} is beyond the end of the stream Entity: {name}",
                    code="OUT_OF_RANGE",
                    storage_error="OFFSET_OUT_OF_RANGE",
                    entity=name,
                )
            table = self._table(state)
            assert table is not None
            change.append_held(table, name, state["flushed"], offset + 1)
            self._put(change, state, flushed=offset + 1)

    def commit(
        self, table: StoredTable, names: Sequence[str]
    ) -> tuple[float | None, list[Refused]]:
        """Makes the rows of finalized pending streams visible at once, all or none.

        Returns:
            The time of the commit; or None and what is wrong with which stream.
        """
        with self._store.transaction() as change:
            problems: list[Refused] = []
            states = []
            for name in names:
                try:
                    states.append(self._committable(table, name))
                except Refused as refused:
                    problems.append(refused)
            if problems:
                return None, problems
            # In the service's microseconds, so that GetWriteStream tells the same time.
            now_s = int(self._store.clock.now_s() * 1e6) / 1e6
            for state in states:
                if state["rows"]:
                    change.append_held(table, state["name"], 0, state["rows"])
                    change.drop_held(state["name"])
                self._put(change, state, commit_s=now_s)
            return now_s, []

    def _committable(self, table: StoredTable, name: str) -> dict[str, Any]:
        state = self.get(name)
        if state["uid"] != table.uid:
            raise Refused(
                f"Stream does not belong to table {table.reference.path}. Entity: {name}",
                storage_error="STREAM_NOT_FOUND",
                entity=name,
            )
        if state["kind"] != PENDING:
            raise Refused(
                f"Stream must be created in pending mode, actual: {state['kind']}. Entity: {name}",
                storage_error="INVALID_STREAM_TYPE",
                entity=name,
            )
        if state["commit_s"] is not None:
            raise Refused(
                f"Stream is already committed. Entity: {name}",
                storage_error="STREAM_ALREADY_COMMITTED",
                entity=name,
            )
        if not state["finalized"]:
            raise Refused(
                f"Stream must be finalized before it is committed. Entity: {name}",
                storage_error="INVALID_STREAM_STATE",
                entity=name,
            )
        return state

    def expire(self, name: str) -> bool:
        """Makes a stream too old at once, for faults; tells whether there is one."""
        with self._store.transaction() as change:
            state = self._store.document(KIND, name)
            if state is not None:
                change.put_document(KIND, name, {**state, "touched_s": float("-inf")})
                change.drop_held(name)
        return state is not None

    def states(self) -> list[dict[str, Any]]:
        """Returns every stream's state, those too old too (`expired`), in order of creation."""
        return [
            {**state, "expired": self._too_old(state)}
            for state in self._store.list_documents(KIND).values()
        ]

    def table_of(self, state: Mapping[str, Any]) -> StoredTable:
        """Returns the table that a living stream writes to."""
        table = self._table(state)
        if table is None:
            raise stream_not_found(state["name"])
        return table

    def _table(self, state: Mapping[str, Any]) -> StoredTable | None:
        table = self._store.get_table(TableReference(*state["table"]))
        return table if table is not None and table.uid == state["uid"] else None

    def _too_old(self, state: Mapping[str, Any]) -> bool:
        return bool(self._store.clock.now_s() > state["touched_s"] + self._ttl_s[state["kind"]])

    def _put(self, change: Transaction, state: Mapping[str, Any], **changed: Any) -> None:
        now_s = self._store.clock.now_s()
        change.put_document(KIND, state["name"], {**state, "touched_s": now_s, **changed})


# --- names -----------------------------------------------------------------------------


def parse_stream(name: str) -> tuple[TableReference, str]:
    """Splits a stream's name into its table and id; ``_default`` for the default stream.

    Raises:
        Refused: INVALID_ARGUMENT.
    """
    match = _NAME.match(name)
    if match is None:
        raise Refused(f"Invalid stream name. Entity: {name}", entity=name)
    return (
        TableReference(match["project"], match["dataset"], match["table"]),
        match["stream"] or "_default",
    )


def parse_table(path: str) -> TableReference:
    """Reads a table's path.

    Raises:
        Refused: INVALID_ARGUMENT.
    """
    match = _TABLE.match(path)
    if match is None:
        raise Refused(f"Invalid table name. Entity: {path}", entity=path)
    return TableReference(match["project"], match["dataset"], match["table"])


def stream_not_found(name: str) -> Refused:
    return Refused(
        f"Requested entity was not found. Entity: {name}",
        code="NOT_FOUND",
        storage_error="STREAM_NOT_FOUND",
        entity=name,
    )


def table_not_found(reference: TableReference) -> Refused:
    return Refused(
        f"Requested entity was not found. Entity: {reference.path}",
        code="NOT_FOUND",
        storage_error="TABLE_NOT_FOUND",
        entity=reference.path,
    )
