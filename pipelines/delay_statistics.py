"""What flight_delays.py computes: delays per carrier, month and route, from whole numbers."""

from typing import Any

import bqflink_beam as bq

SCHEMA = bq.TableSchema(
    (
        bq.Field(name="carrier", type="STRING", mode="REQUIRED"),
        bq.Field(name="airline", type="STRING", mode="REQUIRED"),
        bq.Field(name="month", type="INT64", mode="REQUIRED"),
        bq.Field(name="origin", type="STRING", mode="REQUIRED"),
        bq.Field(name="dest", type="STRING", mode="REQUIRED"),
        bq.Field(name="flights", type="INT64", mode="REQUIRED"),
        bq.Field(name="cancelled", type="INT64", mode="REQUIRED"),
        bq.Field(name="in_rain", type="INT64", mode="REQUIRED"),
        bq.Field(name="mean_dep_delay", type="FLOAT64"),
        bq.Field(name="mean_arr_delay", type="FLOAT64"),
    )
)


def of_flight(row: dict[str, Any], rainy_hours: dict[Any, bool]) -> tuple[Any, Any]:
    """Returns (carrier, month, origin, dest) and the counts and sums of one flight."""
    dep, arr = row["dep_delay"], row["arr_delay"]
    rain = (row["origin"], row["time_hour"]) in rainy_hours
    counts = (
        1,
        int(dep is None),
        int(rain),
        dep or 0,
        int(dep is not None),
        arr or 0,
        int(arr is not None),
    )
    return (row["carrier"], row["month"], row["origin"], row["dest"]), counts


def add_up(counts: Any) -> tuple[int, ...]:
    return tuple(map(sum, zip(*counts, strict=True))) or (0,) * 7


def as_row(keyed: tuple[Any, tuple[int, ...]], names: dict[str, str]) -> dict[str, Any]:
    (carrier, month, origin, dest), (flights, cancelled, in_rain, dep, departed, arr, arrived) = (
        keyed
    )
    return {
        "carrier": carrier,
        "airline": names[carrier],
        "month": month,
        "origin": origin,
        "dest": dest,
        "flights": flights,
        "cancelled": cancelled,
        "in_rain": in_rain,
        "mean_dep_delay": dep / departed if departed else None,
        "mean_arr_delay": arr / arrived if arrived else None,
    }
