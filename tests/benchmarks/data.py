"""The rows that everything is measured with: ten columns of mixed types, about 100 bytes."""

import datetime
import decimal
import hashlib
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

FIELDS = [
    {"name": "id", "type": "INT64", "mode": "REQUIRED"},
    {"name": "user", "type": "STRING", "maxLength": "64"},
    {"name": "city", "type": "STRING"},
    {"name": "amount", "type": "NUMERIC"},
    {"name": "score", "type": "FLOAT64"},
    {"name": "active", "type": "BOOL"},
    {"name": "day", "type": "DATE"},
    {"name": "at", "type": "TIMESTAMP"},
    {"name": "local", "type": "DATETIME"},
    {"name": "note", "type": "STRING"},
]
ARROW_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "user": pa.string(),
        "city": pa.string(),
        "amount": pa.decimal128(38, 9),
        "score": pa.float64(),
        "active": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "local": pa.timestamp("us"),
        "note": pa.string(),
    }
)
_CITIES = ("Amsterdam", "Nairobi", "Montevideo", "Osaka", "Tromsø")
_UTC = datetime.timezone.utc
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=_UTC)


def rows(count: int) -> list[dict[str, Any]]:
    """Makes rows, the same ones every time."""
    chance = random.Random(1)
    start = datetime.datetime(2024, 1, 1, tzinfo=_UTC)
    made = []
    for number in range(count):
        at = start + datetime.timedelta(seconds=number, microseconds=chance.randrange(10**6))
        made.append(
            {
                "id": number,
                "user": f"user-{chance.randrange(10**6):07d}",
                "city": chance.choice(_CITIES),
                "amount": decimal.Decimal(chance.randrange(-(10**9), 10**9)).scaleb(-2),
                "score": chance.random() if number % 10 else None,
                "active": chance.random() < 0.5,
                "day": at.date(),
                "at": at,
                "local": at.replace(tzinfo=None),
                "note": f"order {number} is on its way" if number % 3 else None,
            }
        )
    return made


def proto_values(row: dict[str, Any]) -> dict[str, Any]:
    """Returns what Google's clients put into a proto row: packed DATETIME, NUMERIC as bytes."""
    local = row["local"]
    packed = (
        (local.year << 26 | local.month << 22 | local.day << 17)
        | (local.hour << 12 | local.minute << 6 | local.second)
    ) << 20 | local.microsecond
    values = {
        **row,
        "amount": int(row["amount"].scaleb(9)).to_bytes(9, "little", signed=True),
        "day": (row["day"] - _EPOCH.date()).days,
        "at": (row["at"] - _EPOCH) // datetime.timedelta(microseconds=1),
        "local": packed,
    }
    return {name: value for name, value in values.items() if value is not None}


def arrow_batch(made: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(made), schema=ARROW_SCHEMA)


def in_order(found: pa.Table) -> pa.Table:
    """Returns rows in the order of their ids, in one chunk and with the types of `ARROW_SCHEMA`."""
    return found.sort_by([("id", "ascending")]).combine_chunks().cast(ARROW_SCHEMA)


def hash_of(ordered: pa.Table) -> int:
    """Returns 48 bits that stand for the values of a table that is `in_order`."""
    digest = hashlib.sha256()
    for batch in ordered.to_batches():
        digest.update(batch.serialize())
    return int.from_bytes(digest.digest()[:6], "big")
