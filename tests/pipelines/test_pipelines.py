"""The examples, on small pieces of their data: what they write is checked as the demo checks it."""

import flight_delays
import nyc_flights
import pytest
import verify_demo

from bqflink_beam import testing
from bqflink_beam.names import TableReference

ROWS = {"flights": 3000, "airlines": 16, "planes": 500, "weather": 2000}


@pytest.fixture
def small_tables(monkeypatch):
    """A slice of each table; flights of the first days, and the weather of those days."""
    tables = {name: nyc_flights.read(name).slice(0, rows) for name, rows in ROWS.items()}
    monkeypatch.setattr(nyc_flights, "read", tables.__getitem__)


@pytest.fixture
def server():
    with testing.Emulator() as emulator:
        emulator.create_dataset("demo", "flights")
        yield emulator


def run_demo(server, output):
    flight_delays.main(
        [
            "--dataset=demo.flights",
            f"--output={output}",
            "--project=demo",
            "--runner=FnApiRunner",
            f"--bq_endpoint={server.rest_endpoint}",
            f"--bq_storage_endpoint={server.storage_endpoint}",
        ]
    )


def verify(server):
    return verify_demo.main(
        [
            "--dataset=demo.flights",
            f"--rest={server.rest_endpoint}",
            f"--storage={server.storage_endpoint}",
        ]
    )


def test_the_demo_writes_what_plain_python_computes(small_tables, server, tmp_path, capsys):
    run_demo(server, tmp_path / "report")

    assert verify(server) == 0
    assert "demo ok: read 3000 rows" in capsys.readouterr().out
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")
    assert "month  flights" in (tmp_path / "report.txt").read_text()


def test_the_check_of_the_demo_sees_one_row_too_few_and_one_too_many(
    small_tables, server, tmp_path, capsys
):
    run_demo(server, tmp_path / "report")
    table = server.store.require_table(TableReference.parse("demo.flights.planes"))
    chunks = table.snapshot().chunks

    table.replace([chunks[0].slice(1), *chunks[1:]])
    assert verify(server) == 1
    assert "1 missing, 0 duplicates" in capsys.readouterr().out

    table.replace([*chunks, chunks[0].slice(0, 1)])
    assert verify(server) == 1
    assert "0 missing, 1 duplicates" in capsys.readouterr().out
