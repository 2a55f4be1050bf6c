"""Dates and times to texts by a format string, by the rules of BigQuery's FORMAT functions."""

import datetime
import re
from collections.abc import Callable

from bqflink_beam.emulator.sql.datereading import EPOCH
from bqflink_beam.emulator.sql.invalid import unsupported
from bqflink_beam.emulator.sql.zones import to_civil, zone_of

_ELEMENT = re.compile(r"%(E(?:\*S|[0-6]S|4Y|z)|[^EO])", re.DOTALL)
_DATES = frozenset("YmdjeyFDxBbhAauwGVUWQnt%") | {"E4Y"}
_CLOCKS = frozenset("HMSTRXIlkpPnt%") | {"E*S", *(f"E{n}S" for n in range(7))}
_KNOWN = {
    "DATE": _DATES,
    "TIME": _CLOCKS,
    "DATETIME": _DATES | _CLOCKS | {"c"},
    "TIMESTAMP": _DATES | _CLOCKS | {"c", "s", "z", "Z", "Ez"},
}


def check_format(form: str, kind: str) -> None:
    """Refuses a format that is not written exactly here.

    Raises:
        InvalidQuery: it is not.
    """
    elements = _ELEMENT.findall(form)
    if form.count("%") != len(elements) + elements.count("%"):
        raise unsupported(f"Format string {form!r}")
    for element in elements:
        if element not in _KNOWN[kind]:
            raise unsupported(f"Format element %{element} for {kind}")


def _seconds(value: datetime.datetime, digits: str) -> str:
    micros = f"{value.microsecond:06d}"
    fraction = micros.rstrip("0") if digits == "*" else micros[: int(digits)]
    return f"{value.second:02d}" + (f".{fraction}" if fraction else "")


def _hour(value: datetime.datetime) -> int:
    return value.hour % 12 or 12


_WRITERS: dict[str, Callable[[datetime.datetime], str]] = {
    "n": lambda value: "\n",
    "t": lambda value: "\t",
    "%": lambda value: "%",
    "Y": lambda value: str(value.year),
    "E4Y": lambda value: f"{value.year:04d}",
    "Q": lambda value: str((value.month + 2) // 3),
    "e": lambda value: f"{value.day:2d}",
    "F": lambda value: f"{value:%Y-%m-%d}",
    "T": lambda value: f"{value:%H:%M:%S}",
    "X": lambda value: f"{value:%H:%M:%S}",
    "R": lambda value: f"{value:%H:%M}",
    "D": lambda value: f"{value:%m/%d/%y}",
    "x": lambda value: f"{value:%m/%d/%y}",
    "h": lambda value: f"{value:%b}",
    "l": lambda value: f"{_hour(value):2d}",
    "I": lambda value: f"{_hour(value):02d}",
    "k": lambda value: f"{value.hour:2d}",
    "p": lambda value: "PM" if value.hour >= 12 else "AM",
    "P": lambda value: "pm" if value.hour >= 12 else "am",
    "c": lambda value: f"{value:%a %b} {value.day:2d} {value:%H:%M:%S %Y}",
}


def write(value: datetime.datetime, form: str, kind: str) -> str:
    """Returns a value that is in no time zone by a format.

    Raises:
        InvalidQuery: the format is not written exactly here.
    """
    check_format(form, kind)
    if value.year < 1000 and kind != "TIME":
        raise unsupported("FORMAT of years before 1000")

    def element(match: "re.Match[str]") -> str:
        name = match[1]
        if name in _WRITERS:
            return _WRITERS[name](value)
        if name[0] == "E":
            return _seconds(value, name[1])
        return value.strftime(f"%{name}")

    return _ELEMENT.sub(element, form)


def format_date(form: str, value: datetime.date) -> str:
    return write(datetime.datetime.combine(value, datetime.time()), form, "DATE")


def format_time(form: str, value: datetime.time) -> str:
    return write(datetime.datetime.combine(EPOCH.date(), value), form, "TIME")


def format_civil(form: str, value: datetime.datetime) -> str:
    return write(value, form, "DATETIME")


def format_moment(form: str, moment: datetime.datetime, zone: str) -> str:
    """Returns a TIMESTAMP, which is naive and in UTC, as it is in a time zone."""
    check_format(form, "TIMESTAMP")
    local = to_civil(moment, zone)

    def element(match: "re.Match[str]") -> str:
        name = match[1]
        if name == "s":
            return str((moment - EPOCH) // datetime.timedelta(seconds=1))
        if name == "Z":
            if zone != "UTC":
                raise unsupported("%Z of a time zone other than UTC")
            return "UTC"
        if name in ("z", "Ez"):
            return _offset(moment, zone, ":" if name == "Ez" else "")
        return match[0]

    return write(local, _ELEMENT.sub(element, form), "TIMESTAMP")


def _offset(moment: datetime.datetime, zone: str, separator: str) -> str:
    aware = moment.replace(tzinfo=datetime.timezone.utc).astimezone(zone_of(zone))
    offset = aware.utcoffset()
    assert offset is not None
    minutes, rest = divmod(offset, datetime.timedelta(minutes=1))
    if rest:
        raise unsupported("%z where clocks are off by seconds")
    return (
        f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02d}{separator}{abs(minutes) % 60:02d}"
    )
