"""Flight delays, through BigQuery and back, on any runner.

1. writes the raw tables flights, airlines, planes and weather, exactly once;
2. reads flights (seven columns of them) and weather (the hours with rain), joins the
   airlines, and writes delays per carrier, month and route, exactly once;
3. reads a query over the result, prints it, and draws the monthly picture.

    python flight_delays.py --dataset=my-project.flights --output=out --runner=FnApiRunner
"""

import argparse
import sys

import apache_beam as beam
import delay_report
import delay_statistics
import nyc_flights
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

import bqflink_beam as bq

_COLUMNS = ["carrier", "month", "origin", "dest", "dep_delay", "arr_delay", "time_hour"]
_BY_MONTH = """
SELECT month, SUM(flights) AS flights, SUM(cancelled) AS cancelled,
       SUM(mean_dep_delay * (flights - cancelled)) / SUM(flights - cancelled) AS dep_delay
FROM `{}.delays` GROUP BY month"""


def load(p: beam.Pipeline, dataset: str) -> None:
    """Writes the four raw tables."""
    for name in nyc_flights.TABLES:
        rows = (
            p
            | f"Parts {name}" >> beam.Create(nyc_flights.parts(name, 8 if name == "flights" else 1))
            | f"Spread {name}" >> beam.Reshuffle()
            | f"Rows {name}" >> beam.FlatMap(nyc_flights.rows)
        )
        create = bq.CreateTable(schema=nyc_flights.schema(name))
        rows | f"Write {name}" >> bq.WriteToBigQueryStorage(f"{dataset}.{name}", create=create)


def summarize(p: beam.Pipeline, dataset: str) -> None:
    """Reads flights and weather back, and writes the delays."""
    flights = p | bq.ReadFromBigQueryStorage(f"{dataset}.flights", columns=_COLUMNS)
    rain = p | bq.ReadFromBigQueryStorage(
        f"{dataset}.weather", columns=["origin", "time_hour"], row_filter="precip > 0"
    )
    airlines = p | bq.ReadFromBigQueryStorage(f"{dataset}.airlines")
    rainy_hours = rain | "Hour" >> beam.Map(lambda row: ((row["origin"], row["time_hour"]), True))
    names = airlines | "Name" >> beam.Map(lambda row: (row["carrier"], row["name"]))
    delays = (
        flights
        | "Key" >> beam.Map(delay_statistics.of_flight, beam.pvalue.AsDict(rainy_hours))
        | "Sum" >> beam.CombinePerKey(delay_statistics.add_up)
        | "Row" >> beam.Map(delay_statistics.as_row, beam.pvalue.AsDict(names))
    )
    create = bq.CreateTable(schema=delay_statistics.SCHEMA, clustering=("carrier", "month"))
    delays | bq.WriteToBigQueryStorage(f"{dataset}.delays", create=create)


def report(p: beam.Pipeline, dataset: str, output: str) -> None:
    """Reads a query over the result, and leaves a table and a picture at `output`."""
    months = p | bq.ReadFromBigQueryStorage(query=_BY_MONTH.format(dataset))
    months | "All" >> beam.combiners.ToList() | "Publish" >> beam.Map(delay_report.publish, output)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", required=True, help="project.dataset of the tables")
    parser.add_argument("--output", required=True, help="path of the report, without .txt and .png")
    arguments, beam_arguments = parser.parse_known_args(argv)
    for step, more in ((load, ()), (summarize, ()), (report, (arguments.output,))):
        with beam.Pipeline(options=PipelineOptions(beam_arguments)) as p:
            step(p, arguments.dataset, *more)
    with FileSystems.open(f"{arguments.output}.txt") as file:
        print(file.read().decode())


if __name__ == "__main__":
    main(sys.argv[1:])
