"""Checks what flight_delays.py left in BigQuery, with Google's own client.

Every raw table must equal its source file, and the delays must equal what plain Python
computes from the files: as multisets of rows, NULLs and types included.

    python verify_demo.py --dataset=demo.flights --rest=http://127.0.0.1:9050 --storage=127.0.0.1:9060
"""

import argparse
import collections
import sys
from collections.abc import Iterable
from typing import Any

import delay_statistics
import nyc_flights
import pyarrow as pa
from google_reader import GoogleReader

_BIGQUERY_TYPES = {
    "INT64": "INTEGER",
    "FLOAT64": "FLOAT",
    "STRING": "STRING",
    "TIMESTAMP": "TIMESTAMP",
}


def expected_delays() -> Iterable[dict[str, Any]]:
    """Computes the result table from the source files, without Beam and without BigQuery."""
    names = {row["carrier"]: row["name"] for row in nyc_flights.read("airlines").to_pylist()}
    weather = nyc_flights.read("weather").to_pylist()
    rainy = {(row["origin"], row["time_hour"]) for row in weather if (row["precip"] or 0) > 0}
    groups = collections.defaultdict(list)
    for row in nyc_flights.read("flights").to_pylist():
        groups[row["carrier"], row["month"], row["origin"], row["dest"]].append(row)
    for (carrier, month, origin, dest), rows in groups.items():
        departed = [row["dep_delay"] for row in rows if row["dep_delay"] is not None]
        arrived = [row["arr_delay"] for row in rows if row["arr_delay"] is not None]
        yield {
            "carrier": carrier,
            "airline": names[carrier],
            "month": month,
            "origin": origin,
            "dest": dest,
            "flights": len(rows),
            "cancelled": len(rows) - len(departed),
            "in_rain": sum((origin, row["time_hour"]) in rainy for row in rows),
            "mean_dep_delay": sum(departed) / len(departed) if departed else None,
            "mean_arr_delay": sum(arrived) / len(arrived) if arrived else None,
        }


def differences(found: pa.Table, expected: pa.Table) -> tuple[int, int]:
    """Returns how many rows are missing from `found`, and how many it has too many."""
    columns = expected.column_names
    found, expected = found.select(columns), expected.cast(found.select(columns).schema)
    order = [(name, "ascending") for name in columns]
    if found.num_rows == expected.num_rows and found.sort_by(order).equals(expected.sort_by(order)):
        return 0, 0
    there, wanted = (collections.Counter(map(repr, t.to_pylist())) for t in (found, expected))
    return (wanted - there).total(), (there - wanted).total()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("dataset", "rest", "storage"):
        parser.add_argument(f"--{name}", required=True)
    arguments = parser.parse_args(argv)
    reader = GoogleReader(arguments.dataset.split(".")[0], arguments.rest, arguments.storage)
    delays = list(expected_delays())
    checks = [
        (name, nyc_flights.schema(name), nyc_flights.read(name)) for name in nyc_flights.TABLES
    ]
    checks.append(("delays", delay_statistics.SCHEMA, pa.Table.from_pylist(delays)))
    written = missing = duplicates = 0
    for name, schema, expected in checks:
        table = f"{arguments.dataset}.{name}"
        wanted = [(field.name, _BIGQUERY_TYPES[field.type], field.mode) for field in schema]
        if reader.schema(table) != wanted:
            raise SystemExit(f"{table} has columns {reader.schema(table)}, expected {wanted}")
        found = reader.rows(table)
        written += found.num_rows
        less, more = differences(found, expected)
        missing, duplicates = missing + less, duplicates + more
    read = sum(reader.rows(f"{arguments.dataset}.delays")["flights"].to_pylist())
    ok = not missing and not duplicates and read == nyc_flights.read("flights").num_rows
    print(
        f"demo {'ok' if ok else 'FAILED'}: read {read} rows, wrote {written} rows, "
        f"{missing} missing, {duplicates} duplicates"
    )
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
