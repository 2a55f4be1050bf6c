"""A figure with everything that is behind it, and how the parts of one are measured."""

import dataclasses
import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from benchmarks.data import hash_of, in_order
from benchmarks.server import Server


class Unequal(Exception):
    """Rows came back that are not the rows that were made: the timing is worth nothing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Figure:
    """One number of the bench.

    `rows`, `seconds`, `cpu_s` (of this process) and `server_cpu_s` are those of the round in
    the middle. `readback` is a hash of the rows read back, which were equal to those made.
    `spread` is how far the rounds lie apart, as a part of the value. `wall`: the value
    comes from a clock on the wall, which a busy machine slows.
    """

    key: str
    value: float
    rows: int
    seconds: float
    cpu_s: float
    server_cpu_s: float = 0.0
    readback: int = 0
    spread: float = 0.0
    wall: bool = False


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one run took, here and in the server."""

    seconds: float
    cpu_s: float
    server_cpu_s: float

    @property
    def all_cpu_s(self) -> float:
        return self.cpu_s + self.server_cpu_s


@dataclasses.dataclass(frozen=True)
class Way:
    """One way of doing a job: `run` is timed; `found` says from its result which rows there are."""

    name: str
    run: Callable[[str], Any]
    found: Callable[[str, Any], pa.Table]


@dataclasses.dataclass(frozen=True)
class Contest:
    """Ways that did the same job in turn, `costs` by way, one a round."""

    rows: int
    readback: int
    costs: dict[str, list[Cost]]

    def rate(self, key: str, way: str, *, per_cpu: bool = False) -> Figure:
        """Returns rows a second, of the wall's or of this process's CPU."""
        values = [self.rows / (cost.cpu_s if per_cpu else cost.seconds) for cost in self.costs[way]]
        return self._figure(key, values, way, wall=not per_cpu)

    def ratio(self, key: str, way: str, limit: str, of: Callable[[Cost], float]) -> Figure:
        """Returns how many times as good `way` is as `limit`; above 1 it is better."""
        pairs = zip(self.costs[way], self.costs[limit], strict=True)
        values = [of(other) / of(ours) for ours, other in pairs]
        return self._figure(key, values, way, wall=of is wall)

    def _figure(self, key: str, values: Sequence[float], way: str, *, wall: bool) -> Figure:
        value = statistics.median_low(values)
        cost = self.costs[way][values.index(value)]
        return Figure(
            key=key,
            value=value,
            rows=self.rows,
            seconds=cost.seconds,
            cpu_s=cost.cpu_s,
            server_cpu_s=cost.server_cpu_s,
            readback=self.readback,
            spread=(max(values) - min(values)) / value,
            wall=wall,
        )


def cpu(cost: Cost) -> float:
    return cost.cpu_s


def all_cpu(cost: Cost) -> float:
    return cost.all_cpu_s


def wall(cost: Cost) -> float:
    return cost.seconds


def contest(
    server: Server,
    ways: Sequence[Way],
    *,
    table: Callable[[], str],
    expected: pa.Table,
    rounds: int,
) -> Contest:
    """Runs each way once a round, so that a slower moment of the machine meets all of them.

    Args:
        table: names the table that a run reads from or writes to.
        expected: the rows that every run must have, `in_order`.

    Raises:
        Unequal: a way lost, doubled or changed a row.
    """
    costs: dict[str, list[Cost]] = {way.name: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            name = table()
            cost, result = _timed(server, way, name)
            check(way.name, way.found(name, result), expected)
            costs[way.name].append(cost)
            print(f"  {way.name}: {cost.seconds:.2f} s, {cost.cpu_s:.2f} s of CPU", file=sys.stderr)
    return Contest(expected.num_rows, hash_of(expected), costs)


def check(what: str, found: pa.Table, expected: pa.Table) -> None:
    """Raises `Unequal` if `found` has other rows than `expected`, which is `in_order`."""
    if not in_order(found).equals(expected):
        raise Unequal(
            f"{what}: the {found.num_rows} rows read back are not the {expected.num_rows} made"
        )


def _timed(server: Server, way: Way, table: str) -> tuple[Cost, Any]:
    gc.collect()
    server_s, cpu_s, began = server.cpu_s(), time.process_time(), time.perf_counter()
    result = way.run(table)
    seconds, own_s = time.perf_counter() - began, time.process_time() - cpu_s
    return Cost(seconds, own_s, server.cpu_s() - server_s), result
