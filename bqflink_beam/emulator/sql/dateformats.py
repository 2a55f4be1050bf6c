"""PARSE_DATE, FORMAT_TIMESTAMP and the others: SQL's side of `datereading` and `datewriting`."""

from bqflink_beam.emulator.sql import datereading, datewriting, exact
from bqflink_beam.emulator.sql.expressions import Env
from bqflink_beam.emulator.sql.kinds import DATE, DATETIME, STRING, TIME, TIMESTAMP, Kind
from bqflink_beam.emulator.sql.named import NamedReader, register_named, typed
from bqflink_beam.emulator.sql.scope import Scalar
from bqflink_beam.emulator.sql.zones import zone_of

_UTC = Scalar("'UTC'", STRING)


def _parse(kind: Kind) -> NamedReader:
    name = f"PARSE_{kind.name}"

    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        kinds = (STRING, STRING, STRING) if kind == TIMESTAMP else (STRING, STRING)
        values = typed(env, arguments, kinds, name, needed=2)
        if kind == TIMESTAMP:
            values = _with_zone(values)
        return Scalar(
            env.plan.call(f"read_{kind.name.lower()}", *(value.sql for value in values)), kind
        )

    return read


def _format(kind: Kind) -> NamedReader:
    name = f"FORMAT_{kind.name}"

    def read(env: Env, arguments: list[Scalar]) -> Scalar:
        kinds = (STRING, kind, STRING) if kind == TIMESTAMP else (STRING, kind)
        values = typed(env, arguments, kinds, name, needed=2)
        if isinstance(values[0].literal, str):
            datewriting.check_format(values[0].literal, kind.name)
        if kind == TIMESTAMP:
            values = _with_zone(values)
        return Scalar(
            env.plan.call(f"write_{kind.name.lower()}", *(value.sql for value in values)), STRING
        )

    return read


def _with_zone(values: list[Scalar]) -> list[Scalar]:
    if len(values) == 3 and isinstance(values[2].literal, str):
        zone_of(values[2].literal)
    return values if len(values) == 3 else [*values, _UTC]


_V = "VARCHAR"
exact.add(
    {
        "read_date": exact.Exact(datereading.parse_date, (_V, _V), "DATE"),
        "read_time": exact.Exact(datereading.parse_time, (_V, _V), "TIME"),
        "read_datetime": exact.Exact(datereading.parse_civil, (_V, _V), "TIMESTAMP"),
        "read_timestamp": exact.Exact(datereading.parse_moment, (_V, _V, _V), "TIMESTAMP"),
        "write_date": exact.Exact(datewriting.format_date, (_V, "DATE"), _V),
        "write_time": exact.Exact(datewriting.format_time, (_V, "TIME"), _V),
        "write_datetime": exact.Exact(datewriting.format_civil, (_V, "TIMESTAMP"), _V),
        "write_timestamp": exact.Exact(datewriting.format_moment, (_V, "TIMESTAMP", _V), _V),
    }
)
register_named(
    {
        **{f"PARSE_{kind.name}": _parse(kind) for kind in (DATE, TIME, DATETIME, TIMESTAMP)},
        **{f"FORMAT_{kind.name}": _format(kind) for kind in (DATE, TIME, DATETIME, TIMESTAMP)},
    }
)
