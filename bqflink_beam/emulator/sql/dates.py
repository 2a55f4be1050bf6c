"""Functions on DATE, TIME, DATETIME and TIMESTAMP."""

import datetime
from collections.abc import Callable
from typing import Any

from sqlglot import exp

from bqflink_beam.emulator.sql import exact
from bqflink_beam.emulator.sql.casts import cast, coerce
from bqflink_beam.emulator.sql.expressions import Env, Reader, register
from bqflink_beam.emulator.sql.intervals import CLOCK_UNITS, MONTH_UNITS, amount, shifted
from bqflink_beam.emulator.sql.invalid import InvalidQuery, describe, only, unsupported
from bqflink_beam.emulator.sql.kinds import (
    DATE,
    DATETIME,
    INT64,
    STRING,
    TIME,
    TIMESTAMP,
    Kind,
    array_of,
)
from bqflink_beam.emulator.sql.literals import typed_of
from bqflink_beam.emulator.sql.operators import checked_date, checked_timestamp
from bqflink_beam.emulator.sql.scope import Scalar
from bqflink_beam.emulator.sql.zones import to_civil, zone_of

_DAYS = ("SUNDAY", "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY")
_UTC = frozenset({"UTC", "Etc/UTC", "+00:00", "+0", "GMT"})


def _unit(node: Any) -> str:
    """Returns a date part: ``MONTH``, or ``WEEK(MONDAY)`` with its day."""
    if isinstance(node, exp.WeekStart):
        day = node.this.name.upper()
        if day not in _DAYS:
            raise InvalidQuery(f"Invalid weekday {day}")
        return f"WEEK({day})"
    return str(node.name).upper()


def _week_start(unit: str) -> int | None:
    """Returns the weekday a week begins on (Sunday is 0), None if the unit is no week."""
    if unit == "WEEK":
        return 0
    if unit == "ISOWEEK":
        return 1
    return _DAYS.index(unit[5:-1]) if unit.startswith("WEEK(") else None


def _zone(env: Env, node: Any) -> Scalar | None:
    """Returns the time zone that a node names; None is UTC."""
    if node is None:
        return None
    zone = env.typed(node, STRING, "a time zone")
    if isinstance(zone.literal, str):
        zone_of(zone.literal)
    return None if zone.literal in _UTC else zone


def _civil(env: Env, value: Scalar, zone: Scalar | None) -> Scalar:
    """Returns a TIMESTAMP as the DATETIME that it is in a time zone."""
    if zone is None:
        return Scalar(value.sql, DATETIME)
    return Scalar(env.plan.call("to_civil", value.sql, zone.sql), DATETIME)


def _moment(env: Env, value: Scalar, zone: Scalar | None) -> Scalar:
    """Returns the TIMESTAMP at which it is a DATETIME in a time zone."""
    if zone is None:
        return Scalar(value.sql, TIMESTAMP)
    return Scalar(env.plan.call("from_civil", value.sql, zone.sql), TIMESTAMP)


def _only_timestamp(value: Scalar, zone: Scalar | None, name: str) -> None:
    if zone is not None and value.kind != TIMESTAMP:
        raise InvalidQuery(f"{name} of type {value.kind} takes no time zone")


# --- parts ------------------------------------------------------------------------------


def _since_weekday(text: str, start: int) -> str:
    return f"((dayofweek({text}) - {start} + 7) % 7)"


_PARTS = {
    "YEAR": "year({0})",
    "QUARTER": "quarter({0})",
    "MONTH": "month({0})",
    "DAY": "day({0})",
    "DAYOFWEEK": "(dayofweek({0}) + 1)",
    "DAYOFYEAR": "dayofyear({0})",
    "ISOYEAR": "isoyear({0})",
    "ISOWEEK": "weekofyear({0})",
}
_CLOCK_PARTS = {
    "HOUR": "hour({0})",
    "MINUTE": "minute({0})",
    "SECOND": "second({0})",
    "MILLISECOND": "((microsecond({0}) % 1000000) // 1000)",
    "MICROSECOND": "(microsecond({0}) % 1000000)",
}


def _extract(env: Env, node: Any) -> Scalar:
    only(node, "this", "expression")
    unit = _unit(node.this)
    inner, zone = node.expression, None
    if isinstance(inner, exp.AtTimeZone):
        only(inner, "this", "zone")
        zone = _zone(env, inner.args["zone"])
        inner = inner.this
    value = env.expr(inner)
    _only_timestamp(value, zone, "EXTRACT")
    if zone is not None:
        value = _civil(env, value, zone)
    if value.kind not in (DATE, TIME, DATETIME, TIMESTAMP):
        raise InvalidQuery(f"EXTRACT of {unit} is not defined for type {value.kind}")
    if unit in ("DATE", "TIME", "DATETIME") and value.kind in (DATETIME, TIMESTAMP):
        return cast(env.plan, value, Kind(unit))
    parts = {} if value.kind == TIME else _PARTS
    parts = parts if value.kind == DATE else {**parts, **_CLOCK_PARTS}
    week = _week_start(unit)
    if unit in parts:
        text = parts[unit].format(value.sql)
    elif week is not None and value.kind != TIME:
        text = f"((dayofyear({value.sql}) + 6 - {_since_weekday(value.sql, week)}) // 7)"
    else:
        raise InvalidQuery(f"EXTRACT of {unit} is not defined for type {value.kind}")
    return Scalar(f"CAST({text} AS BIGINT)", INT64)


# --- truncation -----------------------------------------------------------------------------


def _truncated(text: str, unit: str, kind: Kind) -> str:
    """Returns the DuckDB text of a value cut to a unit."""
    week = _week_start(unit)
    day = f"CAST({text} AS DATE)"
    if week is not None:
        cut = checked_date(f"({day} - CAST({_since_weekday(text, week)} AS INTEGER))")
    elif unit == "ISOYEAR":
        # The fourth of January is always in the first ISO week.
        fourth = f"make_date(isoyear({text}), 1, 4)"
        cut = checked_date(f"({fourth} - CAST({_since_weekday(fourth, 1)} AS INTEGER))")
    elif unit in ("DAY", "MONTH", "QUARTER", "YEAR"):
        cut = f"CAST(date_trunc('{unit.lower()}', {day}) AS DATE)"
    elif unit in CLOCK_UNITS and kind != DATE:
        return text if unit == "MICROSECOND" else f"date_trunc('{unit.lower()}', {text})"
    else:
        raise InvalidQuery(f"Truncation to {unit} is not defined for type {kind}")
    return cut if kind == DATE else f"CAST({cut} AS TIMESTAMP)"


def _trunc(name: str, kind: Kind) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "unit", "zone", ignored=("input_type_preserved",))
        zone = _zone(env, node.args.get("zone"))
        value = env.expr(node.this)
        if value.is_literal or value.kind not in (DATE, DATETIME, TIMESTAMP):
            value = coerce(env.plan, value, kind, name)
        _only_timestamp(value, zone, name)
        unit = _unit(node.args["unit"])
        if zone is not None:
            return _truncated_there(env, value, unit, zone)
        return Scalar(_truncated(value.sql, unit, value.kind), value.kind)

    return read


def _truncated_there(env: Env, value: Scalar, unit: str, zone: Scalar) -> Scalar:
    local = _civil(env, value, zone)
    cut = Scalar(_truncated(local.sql, unit, DATETIME), DATETIME)
    if unit in CLOCK_UNITS and unit != "DAY":
        # What is cut off is less than an hour, and no clock is set back within it.
        lost = f"(epoch_us({local.sql}) - epoch_us({cut.sql}))"
        return Scalar(f"({value.sql} - to_microseconds({lost}))", TIMESTAMP)
    return _moment(env, cut, zone)


def _time_trunc(env: Env, node: Any) -> Scalar:
    only(node, "this", "unit")
    unit = _unit(node.args["unit"])
    if unit not in CLOCK_UNITS or unit == "DAY":
        raise InvalidQuery(f"Truncation to {unit} is not defined for type TIME")
    value = env.typed(node.this, TIME, "TIME_TRUNC").sql
    cut = _truncated(f"(DATE '2000-01-01' + {value})", unit, DATETIME)
    return Scalar(f"CAST({cut} AS TIME)", TIME)


def _last_day(env: Env, node: Any) -> Scalar:
    only(node, "this", "unit")
    unit_node = node.args.get("unit")
    unit = "MONTH" if unit_node is None else _unit(unit_node)
    value = env.expr(node.this)
    if value.kind == DATETIME:
        value = cast(env.plan, value, DATE)
    day = coerce(env.plan, value, DATE, "LAST_DAY").sql
    week = _week_start(unit)
    if week is not None:
        return Scalar(
            checked_date(f"({day} + CAST(6 - {_since_weekday(day, week)} AS INTEGER))"), DATE
        )
    ends = {
        "MONTH": f"last_day({day})",
        "QUARTER": f"last_day(make_date(year({day}), quarter({day}) * 3, 1))",
        "YEAR": f"make_date(year({day}), 12, 31)",
    }
    if unit not in ends:
        raise unsupported(f"LAST_DAY of {unit}")
    return Scalar(ends[unit], DATE)


# --- adding and subtracting -------------------------------------------------------------------


def _add(name: str, kind: Kind, sign: str = "") -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression", "unit")
        value = env.expr(node.this)
        if value.is_literal or value.kind not in (DATE, DATETIME, TIMESTAMP):
            value = coerce(env.plan, value, kind, name)
        count = amount(env, node.expression)
        return shifted(value, f"({sign}{count})", _unit(node.args["unit"]), name)

    return read


def _difference(name: str, kind: Kind) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression", "unit", ignored=("date_part_boundary",))
        later = coerce(env.plan, env.expr(node.this), kind, name).sql
        earlier = coerce(env.plan, env.expr(node.expression), kind, name).sql
        unit = _unit(node.args["unit"])
        return Scalar(f"CAST({_distance(later, earlier, unit, kind)} AS BIGINT)", INT64)

    return read


def _distance(later: str, earlier: str, unit: str, kind: Kind) -> str:
    if kind in (TIMESTAMP, TIME) and unit in CLOCK_UNITS and (kind, unit) != (TIME, "DAY"):
        if kind == TIME:
            later, earlier = (f"(DATE '2000-01-01' + {side})" for side in (later, earlier))
            return _boundaries(later, earlier, unit)
        # Whole units that have gone by, not borders that were crossed.
        return f"((epoch_us({later}) - epoch_us({earlier})) // {CLOCK_UNITS[unit]})"
    if kind == DATETIME and unit in CLOCK_UNITS:
        return _boundaries(later, earlier, unit)
    if kind == DATE and unit == "DAY":
        return f"({later} - {earlier})"
    if kind in (DATE, DATETIME):
        if unit in MONTH_UNITS:
            months = f"((year({later}) - year({earlier})) * 12 + month({later}) - month({earlier}))"
            quarter = (
                f"((year({later}) - year({earlier})) * 4 + quarter({later}) - quarter({earlier}))"
            )
            years = f"(year({later}) - year({earlier}))"
            return {"MONTH": months, "QUARTER": quarter, "YEAR": years}[unit]
        week = _week_start(unit)
        if week is not None:
            first, second = (
                f"(CAST({side} AS DATE) - CAST({_since_weekday(side, week)} AS INTEGER))"
                for side in (later, earlier)
            )
            return f"(({first} - {second}) // 7)"
    raise InvalidQuery(f"A difference in {unit} is not defined for type {kind}")


def _boundaries(later: str, earlier: str, unit: str) -> str:
    if unit == "MICROSECOND":
        return f"(epoch_us({later}) - epoch_us({earlier}))"
    size = CLOCK_UNITS[unit]
    first, second = (_floor_divide(f"epoch_us({side})", size) for side in (later, earlier))
    return f"({first} - {second})"


def _floor_divide(text: str, size: int) -> str:
    return f"(({text} - ((({text} % {size}) + {size}) % {size})) // {size})"


# --- from and to numbers ----------------------------------------------------------------------


def _unix(name: str, size: int) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this")
        value = env.typed(node.this, TIMESTAMP, name).sql
        return Scalar(_floor_divide(f"epoch_us({value})", size), INT64)

    return read


def _unix_date(env: Env, node: Any) -> Scalar:
    only(node, "this")
    value = env.typed(node.this, DATE, "UNIX_DATE").sql
    return Scalar(f"CAST({value} - DATE '1970-01-01' AS BIGINT)", INT64)


def _date_from_unix(env: Env, node: Any) -> Scalar:
    only(node, "this")
    days = env.typed(node.this, INT64, "DATE_FROM_UNIX_DATE").sql
    return Scalar(checked_date(f"(DATE '1970-01-01' + CAST({days} AS INTEGER))"), DATE)


def _from_unix(env: Env, node: Any) -> Scalar:
    only(node, "this", "scale")
    scale = node.args.get("scale")
    size = {None: 1_000_000, "3": 1_000, "6": 1}[None if scale is None else scale.name]
    count = env.typed(node.this, INT64, "TIMESTAMP_SECONDS").sql
    return Scalar(checked_timestamp(f"make_timestamp({count} * {size})", "timestamp"), TIMESTAMP)


# --- constructors ---------------------------------------------------------------------------


def _converted(kind: Kind, name: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "zone", "expression", ignored=("with_tz",))
        value = env.expr(node.this)
        if kind == DATETIME and (clock := _time_argument(env, node)) is not None:
            day = coerce(env.plan, value, DATE, name)
            return Scalar(f"({day.sql} + {clock.sql})", DATETIME)
        zone = _zone(env, node.args.get("zone") or node.args.get("expression"))
        if zone is not None:
            return _converted_there(env, value, zone, kind, name)
        if value.kind == kind and not value.is_null:
            return value
        if value.kind not in (DATE, DATETIME, TIMESTAMP, STRING) and not value.is_null:
            raise InvalidQuery(f"No matching signature for {name} for type {value.kind}")
        return cast(env.plan, value, kind)

    return read


def _converted_there(env: Env, value: Scalar, zone: Scalar, kind: Kind, name: str) -> Scalar:
    if kind == TIMESTAMP:
        if value.kind not in (DATE, DATETIME, STRING) and not value.is_null:
            raise InvalidQuery(f"{name} of type {value.kind} takes no time zone")
        return _moment(env, cast(env.plan, value, DATETIME), zone)
    value = coerce(env.plan, value, TIMESTAMP, name)
    return cast(env.plan, _civil(env, value, zone), kind)


def _time_argument(env: Env, node: Any) -> Scalar | None:
    """Returns the second argument of ``DATETIME(date, time)``; a time zone is none."""
    second = node.args.get("zone") or node.args.get("expression")
    value = env.expr(second) if second is not None else None
    return value if value is not None and value.kind == TIME else None


def _date_parts(env: Env, node: Any) -> Scalar:
    only(node, "year", "month", "day")
    year, month, day = (
        env.typed(node.args[part], INT64, "DATE").sql for part in ("year", "month", "day")
    )
    return Scalar(checked_date(f"make_date({year}, {month}, {day})"), DATE)


def _datetime_parts(env: Env, node: Any) -> Scalar:
    names = ("year", "month", "day", "hour", "min", "sec")
    only(node, *names)
    if any(node.args.get(name) is None for name in names):
        raise InvalidQuery("No matching signature for function DATETIME: a time needs six numbers")
    texts = [env.typed(node.args[name], INT64, "DATETIME").sql for name in names]
    texts[3:] = _clock(texts[3:], "DATETIME")
    moment = f"make_timestamp({', '.join(texts)})"
    return Scalar(checked_timestamp(moment, "datetime"), DATETIME)


def _clock(parts: list[str], word: str) -> list[str]:
    """Returns hour, minute and second, each of which ends the query where it is none."""
    checked = []
    for part, limit in zip(parts, (23, 59, 59), strict=True):
        bad = f"CAST(error('Input calculates to invalid {word.lower()}: ' || {part}) AS BIGINT)"
        checked.append(f"(CASE WHEN {part} NOT BETWEEN 0 AND {limit} THEN {bad} ELSE {part} END)")
    return checked


def _time_parts(env: Env, node: Any) -> Scalar:
    names = ("hour", "min", "sec")
    only(node, *names)
    parts = [env.typed(node.args[name], INT64, "TIME").sql for name in names]
    return Scalar(f"make_time({', '.join(_clock(parts, 'TIME'))})", TIME)


def _current(kind: Kind) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this")
        zone = _zone(env, node.this)
        now = env.plan.now
        if zone is not None:
            if not isinstance(zone.literal, str):
                raise unsupported(f"A computed time zone ({describe(node)})")
            now = to_civil(now, zone.literal)
        value = {"DATE": now.date(), "TIME": now.time()}.get(kind.name, now)
        return typed_of(value, kind)

    return read


def _generate_dates(env: Env, node: Any) -> Scalar:
    only(node, "start", "end", "step")
    start, end = (
        env.typed(node.args[p], DATE, "GENERATE_DATE_ARRAY").sql for p in ("start", "end")
    )
    step = node.args["step"]
    only(step, "this", "unit")
    count, unit = amount(env, step.this), _unit(step.args["unit"])
    if unit in MONTH_UNITS:
        months = f"({count} * {MONTH_UNITS[unit]})"
        return Scalar(env.plan.call("dates_by_months", start, end, months), array_of(DATE))
    if unit not in ("DAY", "WEEK"):
        raise InvalidQuery(f"GENERATE_DATE_ARRAY with a step in {unit}")
    zero = "CAST(error('Sequence step cannot be 0') AS BIGINT)"
    count = f"(CASE WHEN {count} = 0 THEN {zero} ELSE {count} END)"
    size = f"to_days(CAST({count} * {7 if unit == 'WEEK' else 1} AS INTEGER))"
    series = f"generate_series(CAST({start} AS TIMESTAMP), CAST({end} AS TIMESTAMP), {size})"
    return Scalar(f"list_transform({series}, lambda d: CAST(d AS DATE))", array_of(DATE))


def _generate_moments(env: Env, node: Any) -> Scalar:
    only(node, "start", "end", "step")
    name = "GENERATE_TIMESTAMP_ARRAY"
    start, end = (env.typed(node.args[p], TIMESTAMP, name).sql for p in ("start", "end"))
    step = node.args["step"]
    only(step, "this", "unit")
    count, unit = amount(env, step.this), _unit(step.args["unit"])
    if unit not in CLOCK_UNITS:
        raise InvalidQuery(f"{name} with a step in {unit}")
    zero = "CAST(error('Sequence step cannot be 0') AS BIGINT)"
    size = f"(CASE WHEN {count} = 0 THEN {zero} ELSE {count} END) * {CLOCK_UNITS[unit]}"
    series = f"generate_series({start}, {end}, to_microseconds({size}))"
    return Scalar(series, array_of(TIMESTAMP))


def dates_by_months(start: datetime.date, end: datetime.date, months: int) -> list[datetime.date]:
    """Returns start, start and some months, and so on up to the end."""
    if not months:
        raise InvalidQuery("Sequence step cannot be 0")
    if start == end:
        return [start]
    if start.day > 28:
        raise unsupported("GENERATE_DATE_ARRAY by months from a day that not every month has")
    found = []
    number = start.year * 12 + start.month - 1
    day = start
    while day <= end if months > 0 else day >= end:
        found.append(day)
        number += months
        if not 12 <= number < 120_000:
            break
        day = datetime.date(number // 12, number % 12 + 1, start.day)
    return found


exact.add({"dates_by_months": exact.Exact(dates_by_months, ("DATE", "DATE", "BIGINT"), "DATE[]")})


def _time_add(name: str, sign: str) -> Reader:
    def read(env: Env, node: Any) -> Scalar:
        only(node, "this", "expression", "unit")
        value = env.typed(node.this, TIME, name).sql
        count, unit = amount(env, node.expression), _unit(node.args["unit"])
        if unit not in CLOCK_UNITS or unit == "DAY":
            raise InvalidQuery(f"{unit} is not defined for {name} of type TIME")
        # Round the clock any number of times.
        size = CLOCK_UNITS[unit]
        micros = f"({sign}({count} % {CLOCK_UNITS['DAY'] // size}) * {size})"
        return Scalar(
            f"CAST(DATE '2000-01-02' + {value} + to_microseconds({micros}) AS TIME)", TIME
        )

    return read


_UNIX: dict[type, Callable[..., Any]] = {
    exp.UnixSeconds: _unix("UNIX_SECONDS", 1_000_000),
    exp.UnixMillis: _unix("UNIX_MILLIS", 1_000),
    exp.UnixMicros: _unix("UNIX_MICROS", 1),
}

register(
    {
        **_UNIX,
        exp.Extract: _extract,
        exp.DateTrunc: _trunc("DATE_TRUNC", DATE),
        exp.DatetimeTrunc: _trunc("DATETIME_TRUNC", DATETIME),
        exp.TimestampTrunc: _trunc("TIMESTAMP_TRUNC", TIMESTAMP),
        exp.TimeTrunc: _time_trunc,
        exp.LastDay: _last_day,
        exp.DateAdd: _add("DATE_ADD", DATE),
        exp.DateSub: _add("DATE_SUB", DATE, "-"),
        exp.DatetimeAdd: _add("DATETIME_ADD", DATETIME),
        exp.DatetimeSub: _add("DATETIME_SUB", DATETIME, "-"),
        exp.TimestampAdd: _add("TIMESTAMP_ADD", TIMESTAMP),
        exp.TimestampSub: _add("TIMESTAMP_SUB", TIMESTAMP, "-"),
        exp.TimeAdd: _time_add("TIME_ADD", ""),
        exp.TimeSub: _time_add("TIME_SUB", "-"),
        exp.GenerateTimestampArray: _generate_moments,
        exp.DateDiff: _difference("DATE_DIFF", DATE),
        exp.DatetimeDiff: _difference("DATETIME_DIFF", DATETIME),
        exp.TimestampDiff: _difference("TIMESTAMP_DIFF", TIMESTAMP),
        exp.TimeDiff: _difference("TIME_DIFF", TIME),
        exp.UnixDate: _unix_date,
        exp.DateFromUnixDate: _date_from_unix,
        exp.UnixToTime: _from_unix,
        exp.Date: _converted(DATE, "DATE"),
        exp.TsOrDsToDatetime: _converted(DATETIME, "DATETIME"),
        exp.Datetime: _converted(DATETIME, "DATETIME"),
        exp.Timestamp: _converted(TIMESTAMP, "TIMESTAMP"),
        exp.TsOrDsToTime: _converted(TIME, "TIME"),
        exp.DateFromParts: _date_parts,
        exp.TimestampFromParts: _datetime_parts,
        exp.TimeFromParts: _time_parts,
        exp.CurrentDate: _current(DATE),
        exp.CurrentTime: _current(TIME),
        exp.CurrentDatetime: _current(DATETIME),
        exp.CurrentTimestamp: _current(TIMESTAMP),
        exp.GenerateDateArray: _generate_dates,
    }
)
