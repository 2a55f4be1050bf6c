"""Measures everything, once, and writes ``build/bench.json``: one flat object, key to number.

    make bench

Beside each key stand its rows, seconds, CPU seconds (here, and in the server), how far the
rounds lie apart, and a hash of the rows that were read back. Rows that are read back
otherwise than they were made end the run with an error.
"""

import json
import os
import pathlib
import sys
import time

from benchmarks import codecs, emulator, transforms
from benchmarks.figures import Figure, Unequal

# What a figure must be at least, and what it may be at most.
FLOORS = {
    "emulator_arrow_rows_per_s": 3_000_000,
    "emulator_arrow_mb_per_s": 300,
    "emulator_arrow_filtered_rows_per_s": 1_000_000,
    "emulator_arrow_append_rows_per_s": 1_000_000,
    "emulator_proto_append_rows_per_s": 100_000,
    "emulator_proto_append_unvalidated_rows_per_s": 1_000_000,
    "proto_encode_vs_upb": 0.5,
    "arrow_encode_vs_from_pylist": 0.6,
    "arrow_decode_vs_to_pylist": 2.2,
    "batch_to_proto_vs_dicts": 1.8,
    "wide_row_vs_narrow": 1 / 1.1,
}
CEILINGS = {"emulator_start_s": 1.0, "emulator_rss_per_stored_byte": 1.5}
_NOISY_SPREAD = 0.25
_BUSY_LOAD = 0.75
_JSON = pathlib.Path("build/bench.json")


def main() -> int:
    began, load = time.monotonic(), os.getloadavg()[0] / (os.cpu_count() or 1)
    figures: list[Figure] = []
    _JSON.unlink(missing_ok=True)  # a run that fails leaves no figures, old ones neither
    for part in (codecs, emulator, transforms):
        print(f"measuring {part.__name__.rpartition('.')[2]} ...", file=sys.stderr)
        try:
            figures += part.figures()
        except Unequal as error:
            print(f"FAILED: {error}", file=sys.stderr)
            return 1
    _JSON.parent.mkdir(exist_ok=True)
    _JSON.write_text(json.dumps(flat(figures), indent=2) + "\n")
    print("\n".join(table(figures, busy=load > _BUSY_LOAD)))
    print(f"\n{time.monotonic() - began:.0f} s in all; {_JSON} has every number")
    return 0


def flat(figures: list[Figure]) -> dict[str, float]:
    """Returns each figure under its key, and what is behind it under ``key.part``."""
    made: dict[str, float] = {}
    for figure in figures:
        made[figure.key] = round(figure.value, 4)
        behind = {
            "rows": figure.rows,
            "seconds": round(figure.seconds, 4),
            "cpu_s": round(figure.cpu_s, 4),
            "server_cpu_s": round(figure.server_cpu_s, 2),
            "spread": round(figure.spread, 3),
            "readback_hash": figure.readback,
        }
        made.update({f"{figure.key}.{part}": number for part, number in behind.items()})
    return made


def table(figures: list[Figure], *, busy: bool) -> list[str]:
    """Returns the lines of a table for people."""
    heads = f"{'figure':48}{'value':>12}{'bound':>14}{'rows':>10}{'s':>8}{'CPU s':>8}{'server':>8}{'±%':>5}"
    lines = [heads, "-" * len(heads)]
    for figure in figures:
        lines.append(
            f"{figure.key:48}{_short(figure.value):>12}{_bound(figure.key):>14}{figure.rows:>10,}"
            f"{figure.seconds:>8.2f}{figure.cpu_s:>8.2f}{figure.server_cpu_s:>8.2f}"
            f"{50 * figure.spread:>5.0f}  {_remarks(figure, busy)}"
        )
    lines.append("")
    lines.append(
        "vs: how many times as good as the other, of CPU unless it says wall. ±: half of what lies "
        "between the best and the worst round."
    )
    if busy:
        lines.append(
            "The machine was busy when this began: whatever is of the wall's clock is low."
        )
    return lines


def missed(figure: Figure) -> bool:
    """Says whether a figure is on the wrong side of its bound."""
    low = FLOORS.get(figure.key, figure.value)
    return not low <= figure.value <= CEILINGS.get(figure.key, figure.value)


def _remarks(figure: Figure, busy: bool) -> str:
    noisy = figure.spread > _NOISY_SPREAD or (busy and figure.wall)
    said = ["MISSED"] * missed(figure) + ["wall"] * figure.wall + ["noisy"] * noisy
    return ", ".join(said)


def _bound(key: str) -> str:
    if key in FLOORS:
        return f">= {_short(FLOORS[key])}"
    return f"<= {_short(CEILINGS[key])}" if key in CEILINGS else ""


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
