"""The monthly report of flight_delays.py: a small table, and a picture."""

import io
from typing import Any

import matplotlib
from apache_beam.io.filesystems import FileSystems

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402  after the choice of a backend without windows


def publish(months: list[dict[str, Any]], output: str) -> None:
    """Writes rows ``month, flights, cancelled, dep_delay`` to `output`.txt and .png."""
    months = sorted(months, key=lambda row: row["month"])
    lines = ["month  flights  cancelled  mean departure delay (min)"]
    lines += [
        "{month:5} {flights:8} {cancelled:10} {dep_delay:27.1f}".format(**row) for row in months
    ]
    with FileSystems.create(f"{output}.txt") as file:
        file.write("\n".join([*lines, ""]).encode())
    figure, axes = pyplot.subplots(figsize=(8, 4))
    axes.bar([row["month"] for row in months], [row["dep_delay"] for row in months])
    axes.set(
        title="Flights from New York, 2013", xlabel="month", ylabel="mean departure delay (min)"
    )
    picture = io.BytesIO()
    figure.savefig(picture, format="png")
    pyplot.close(figure)
    with FileSystems.create(f"{output}.png") as file:
        file.write(picture.getvalue())
