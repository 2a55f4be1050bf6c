"""``python -m bqflink_beam``."""

from bqflink_beam.cli import main

main(prog_name="python -m bqflink_beam")
