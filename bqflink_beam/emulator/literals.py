"""Text and packed forms of dates, times and intervals, to the integers that Arrow stores.

All raise ValueError, with the value in the message, for what is none.
"""

import datetime
import re
from typing import Any, TypeAlias

import numpy as np

Int64s: TypeAlias = "np.ndarray[Any, np.dtype[np.int64]]"

_DATE = r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2}):(?P<second>\d{1,2})(?:\.(?P<fraction>\d{1,%d}))?"
_DATE_TEXT = re.compile(rf"^{_DATE}$", re.ASCII)
_TIME_TEXT = re.compile(rf"^{_TIME % 6}$", re.ASCII)
_DATETIME_TEXT = re.compile(rf"^{_DATE}(?:[ Tt]{_TIME % 6})?$", re.ASCII)
_ZONE = r"(?P<zone>[Zz]|\s?UTC|[+-]\d{1,2}(?::?\d{2})?)?"
_TIMESTAMP_TEXT = re.compile(rf"^{_DATE}(?:[ Tt]{_TIME % 12}\s?{_ZONE})?$", re.ASCII)
_INTERVAL_TEXT = re.compile(
    r"^(?P<months>[+-]?)(?P<years>\d+)-(?P<month>\d+) (?P<days>[+-]?\d+) "
    r"(?P<clock>[+-]?)(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)(?:\.(?P<fraction>\d{1,6}))?$",
    re.ASCII,
)
_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()
_DAY_MICROS = 86_400_000_000
# The service takes 10,000 years of clock time too; Arrow counts them in 64 bits of nanoseconds.
_MONTHS_MAX, _DAYS_MAX, _CLOCK_MICROS_MAX = 120_000, 3_660_000, (2**63 - 1) // 1000


def days_from_text(text: str) -> int:
    """``2020-1-31`` to days since 1970."""
    return _days(_match(_DATE_TEXT, text), text)


def time_micros(text: str) -> int:
    """``12:34:56.789`` to microseconds since midnight."""
    return _clock_micros(_match(_TIME_TEXT, text), text)


def datetime_micros(text: str) -> int:
    """``2020-01-31 12:34:56.789`` or with a T, to microseconds since 1970."""
    match = _match(_DATETIME_TEXT, text)
    return _days(match, text) * _DAY_MICROS + _clock_micros(match, text)


def timestamp_picos(text: str) -> int:
    """``2020-01-31 12:34:56.789012345678+01:00`` to picoseconds since 1970; UTC if it names no zone."""
    match = _match(_TIMESTAMP_TEXT, text)
    whole = re.sub(r"\.\d+", "", match.group(0))
    micros = datetime_micros_of(match, whole)
    fraction = (match["fraction"] or "").ljust(12, "0")
    return micros * 10**6 + int(fraction) - _zone_picos(match["zone"])


def datetime_micros_of(match: "re.Match[str]", text: str) -> int:
    """Microseconds of a match's date and time without its fraction."""
    clock = (
        (int(match["hour"]) * 3600 + int(match["minute"]) * 60 + int(match["second"])) * 1_000_000
        if match["hour"]
        else 0
    )
    if match["hour"] and not (
        int(match["hour"]) < 24 and int(match["minute"]) < 60 and int(match["second"]) < 60
    ):
        raise ValueError(repr(text))
    return _days(match, text) * _DAY_MICROS + clock


def picos_text(text: str) -> str:
    """A timestamp in any form to the stored form of TIMESTAMP(12)."""
    return text_of_picos(timestamp_picos(text))


def text_of_picos(picos: int) -> str:
    """Picoseconds since 1970 to the stored form of TIMESTAMP(12)."""
    seconds, rest = divmod(picos, 10**12)
    try:
        moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(seconds=seconds)  # noqa: DTZ001
    except OverflowError:
        raise ValueError(f"{picos} picoseconds since 1970 are out of range") from None
    return f"{moment.isoformat(timespec='seconds')}.{rest:012d}Z"


def packed_time_micros(packed: int) -> int:
    """The Write API's packed TIME to microseconds since midnight."""
    micros = packed & 0xFFFFF
    clock = packed >> 20
    hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
    if not (0 <= hour < 24 and minute < 60 and second < 60 and micros < 1_000_000):
        raise ValueError(f"{packed} is no packed time")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + micros


def packed_datetime_micros(packed: int) -> int:
    """The Write API's packed DATETIME to microseconds since 1970."""
    date = packed >> 37
    year, month, day = date >> 9, date >> 5 & 15, date & 31
    try:
        ordinal = datetime.date(year, month, day).toordinal()
    except (ValueError, OverflowError):
        raise ValueError(f"{packed} is no packed datetime") from None
    return (ordinal - _EPOCH_ORDINAL) * _DAY_MICROS + packed_time_micros(packed & (1 << 37) - 1)


def packed_datetimes_micros(packed: Int64s) -> "Int64s | None":
    """Many packed DATETIMEs at once; None if one of them is none."""
    micros, clock, date = packed & 0xFFFFF, packed >> 20 & (1 << 17) - 1, packed >> 37
    hour, minute, second = clock >> 12, clock >> 6 & 63, clock & 63
    year, month, day = date >> 9, date >> 5 & 15, date & 31
    sound = (micros < 1_000_000) & (hour < 24) & (minute < 60) & (second < 60)
    sound &= (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 28)
    days = _days_from_civil(year, month, day)
    result: Int64s = micros + 1_000_000 * (days * 86_400 + hour * 3_600 + minute * 60 + second)
    if not sound.all():
        # Days 29 to 31 need a calendar, and so does a message about what is wrong.
        try:
            result[~sound] = [packed_datetime_micros(one) for one in packed[~sound].tolist()]
        except ValueError:
            return None
    return result


def _days_from_civil(year: Int64s, month: Int64s, day: Int64s) -> Int64s:
    # Counts from 1 March, so that the leap day is a year's last.
    shifted = year - (month <= 2)
    era_year = shifted % 400
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    day_of_era = era_year * 365 + era_year // 4 - era_year // 100 + day_of_year
    days: Int64s = shifted // 400 * 146_097 + day_of_era - 719_468
    return days


def interval_from_text(text: str) -> tuple[int, int, int]:
    """``Y-M D H:M:S.F`` to months, days and nanoseconds."""
    match = _match(_INTERVAL_TEXT, text)
    months = int(match["years"]) * 12 + int(match["month"])
    micros = (
        (int(match["hours"]) * 60 + int(match["minutes"])) * 60 + int(match["seconds"])
    ) * 1_000_000 + int((match["fraction"] or "").ljust(6, "0"))
    days = int(match["days"])
    if months > _MONTHS_MAX or abs(days) > _DAYS_MAX or micros > _CLOCK_MICROS_MAX:
        raise ValueError(f"{text!r} is out of range")
    return (
        -months if match["months"] == "-" else months,
        days,
        (-micros if match["clock"] == "-" else micros) * 1000,
    )


def _match(pattern: "re.Pattern[str]", text: str) -> "re.Match[str]":
    match = pattern.match(text.strip())
    if match is None:
        raise ValueError(repr(text))
    return match


def _days(match: "re.Match[str]", text: str) -> int:
    try:
        date = datetime.date(int(match["year"]), int(match["month"]), int(match["day"]))
    except ValueError:
        raise ValueError(repr(text)) from None
    return date.toordinal() - _EPOCH_ORDINAL


def _clock_micros(match: "re.Match[str]", text: str) -> int:
    if match["hour"] is None:
        return 0
    hour, minute, second = int(match["hour"]), int(match["minute"]), int(match["second"])
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(repr(text))
    fraction = int((match["fraction"] or "").ljust(6, "0"))
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction


def _zone_picos(zone: str | None) -> int:
    if zone is None or zone.strip().upper() in ("", "Z", "UTC"):
        return 0
    sign = -1 if zone[0] == "-" else 1
    digits = zone[1:].replace(":", "")
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    return sign * (hours * 60 + minutes) * 60 * 10**12
