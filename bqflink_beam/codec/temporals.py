"""Dates and times as integers: days and microseconds since 1970-01-01, or of the day.

Every wire format starts from these integers, so that each accepts and refuses the
same values: BigQuery's years are 1 to 9999, its clocks have microseconds and no leap
seconds. Functions named like a type read a user's value and raise `RowError` with
the reason alone (the caller knows the column); ``to_*`` functions go back.
"""

import datetime
import decimal
import re
from typing import Any

import numpy as np

from bqflink_beam.errors import RowError, shorten

DAYS_MIN, DAYS_MAX = -719_162, 2_932_896
MICROS_MIN, MICROS_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
DAY_MICROS = 86_400_000_000

_ORDINAL_1970 = 719_163
UTC = datetime.timezone.utc
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_CIVIL = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - civil time has no zone

_PICOS = {"ps": 1, "ns": 1_000, "us": 1_000_000, "ms": 10**9, "s": 10**12}
_PICOS |= {"m": 60 * 10**12, "h": 3_600 * 10**12, "D": 86_400 * 10**12, "W": 604_800 * 10**12}
# Have `micros` as Beam's Timestamp has, but are no moments.
SPANS = {"Duration", "Interval"}

_DATE = r"(?P<year>\d{4})-(?P<month>\d{1,2})-(?P<day>\d{1,2})"
_TIME = r"(?P<hour>\d{1,2}):(?P<minute>\d{1,2})(?::(?P<second>\d{1,2})(?:\.(?P<fraction>\d*))?)?"
_ZONE = r"(?P<zone>[Zz]|UTC|(?P<sign>[+-])(?P<zone_hour>\d{1,2})(?::?(?P<zone_minute>\d{2}))?)"
_DATE_TEXT = re.compile(_DATE, re.ASCII)
_TIME_TEXT = re.compile(_TIME, re.ASCII)
_DATETIME_TEXT = re.compile(rf"{_DATE}(?:[ Tt]{_TIME})?", re.ASCII)
_TIMESTAMP_TEXT = re.compile(rf"{_DATE}(?:[ Tt]{_TIME})?(?: ?{_ZONE})?", re.ASCII)


def date(value: Any, rounding: str | None = None) -> int:
    """Returns the days of a DATE: `datetime.date`, ISO text, numpy or pandas at midnight.

    `rounding` is not used: a time of day is never rounded away.
    """
    if isinstance(value, datetime.datetime):
        if not hasattr(value, "to_pydatetime"):
            raise refusal(value, "has a time of day, which a DATE would lose; pass value.date()")
        return _midnight(value, _civil_micros(value, None))
    if isinstance(value, datetime.date):
        return value.toordinal() - _ORDINAL_1970
    if isinstance(value, np.datetime64):
        return _midnight(value, _numpy_micros(value, None))
    match = _match(_DATE_TEXT, value, "a date like 2024-01-31")
    return _text_days(match, value)


def time(value: Any, rounding: str | None = None) -> int:
    """Returns the microseconds of a TIME: `datetime.time` without a zone, or ISO text."""
    if isinstance(value, datetime.time):
        if value.tzinfo is not None:
            raise refusal(value, "has a time zone, which a TIME would lose")
        return (
            (value.hour * 60 + value.minute) * 60 + value.second
        ) * 1_000_000 + value.microsecond
    match = _match(_TIME_TEXT, value, "a time like 23:59:59.999999")
    micros = _text_micros(match, value, rounding)
    if micros >= DAY_MICROS:
        raise refusal(value, "rounds to the next day")
    return micros


def civil(value: Any, rounding: str | None = None) -> int:
    """Returns the microseconds of a DATETIME: `datetime` without a zone, numpy, or ISO text."""
    if isinstance(value, datetime.datetime):
        return _in_years(value, _civil_micros(value, rounding))
    if isinstance(value, np.datetime64):
        return _in_years(value, _numpy_micros(value, rounding))
    match = _match(_DATETIME_TEXT, value, "a date and time like 2024-01-31T23:59:59, without zone")
    days, micros = _text_days(match, value), _text_micros(match, value, rounding)
    return _in_years(value, days * DAY_MICROS + micros)


def instant(value: Any, rounding: str | None = None) -> int:
    """Returns the microseconds of a TIMESTAMP.

    Reads `datetime` with a zone, an int (microseconds since the epoch), an object with
    `micros` (Beam's Timestamp), numpy (UTC by its own rule), and ISO text, which is UTC
    where it names no zone, as it is for the service.
    """
    if isinstance(value, datetime.datetime):
        return _in_years(value, _instant_micros(value, rounding))
    if isinstance(value, np.datetime64):
        return _in_years(value, _numpy_micros(value, rounding))
    if is_whole(value):
        return _in_years(value, int(value))
    micros: Any = getattr(value, "micros", None)
    if is_whole(micros) and type(value).__name__ not in SPANS:
        return _in_years(value, int(micros))
    match = _match(_TIMESTAMP_TEXT, value, "a time with zone like 2024-01-31T23:59:59.999999+01:00")
    days, micros = _text_days(match, value), _text_micros(match, value, rounding)
    return _in_years(value, days * DAY_MICROS + micros - _text_offset(match, value))


def instant_picos(value: Any) -> str:
    """Returns a TIMESTAMP(12) as text with 12 fractional digits, the only type that has them.

    Reads what `instant` does, and what it refuses for being finer than a microsecond.
    """
    if not isinstance(value, str):
        picos = 0
        if isinstance(value, datetime.datetime):
            value, picos = _without_pandas(_is_time(value))
        elif isinstance(value, np.datetime64):
            value, picos = divmod(_numpy_picos(value), 1_000_000)
        return picos_text(instant(value), f"{picos:06d}")
    match = _match(_TIMESTAMP_TEXT, value, "a time with zone and at most 12 fractional digits")
    fraction = (match["fraction"] or "").rstrip("0")
    if len(fraction) > 12:
        raise refusal(value, "has more than 12 fractional digits")
    digits = fraction.ljust(12, "0")
    micros = _clock(match, value) * 1_000_000 + int(digits[:6]) - _text_offset(match, value)
    return picos_text(_in_years(value, _text_days(match, value) * DAY_MICROS + micros), digits[6:])


def picos_text(micros: int, rest: str) -> str:
    """Returns ``2024-01-31T23:59:59.123456789012Z``; `rest` is the last six digits."""
    return f"{to_civil(micros).isoformat(timespec='microseconds')}{rest}Z"


def to_date(days: int) -> datetime.date:
    """Returns the date that lies `days` after 1970-01-01."""
    return datetime.date.fromordinal(days + _ORDINAL_1970)


def to_time(micros: int) -> datetime.time:
    """Returns the time of day `micros` after midnight."""
    return (EPOCH_CIVIL + datetime.timedelta(microseconds=micros)).time()


def to_civil(micros: int) -> datetime.datetime:
    """Returns the `datetime` without a zone, `micros` after 1970-01-01."""
    return EPOCH_CIVIL + datetime.timedelta(microseconds=micros)


def to_instant(micros: int) -> datetime.datetime:
    """Returns the `datetime` in UTC, `micros` after the epoch."""
    return EPOCH + datetime.timedelta(microseconds=micros)


def is_whole(value: Any) -> bool:
    """Says whether a value is an int, Python's or numpy's; a bool is none, nor a span of time."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.timedelta64))


def refusal(value: Any, reason: str) -> RowError:
    """Returns the error for a value; where it stands is for the caller to add."""
    return RowError(reason, value=shorten(value))


def _micros(delta: datetime.timedelta) -> int:
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _instant_micros(value: datetime.datetime, rounding: str | None) -> int:
    if _is_time(value).utcoffset() is None:
        raise refusal(
            value, "has no time zone; a TIMESTAMP needs one: value.replace(tzinfo=timezone.utc)"
        )
    plain, picos = _without_pandas(value)
    return _micros(plain - EPOCH) + _rounded(value, picos, rounding)


def _civil_micros(value: datetime.datetime, rounding: str | None) -> int:
    if _is_time(value).tzinfo is not None:
        raise refusal(value, "has a time zone, which this type would lose")
    plain, picos = _without_pandas(value)
    return _micros(plain - EPOCH_CIVIL) + _rounded(value, picos, rounding)


def _without_pandas(value: datetime.datetime) -> tuple[datetime.datetime, int]:
    """Splits a pandas Timestamp, a `datetime` with nanoseconds, into it and picoseconds."""
    picos = getattr(value, "nanosecond", 0) * 1_000
    if hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime(warn=False)
    return value, picos


def _is_time(value: datetime.datetime) -> datetime.datetime:
    # Of pandas' NaT, which calls itself a datetime, nothing else is safe to ask.
    if value != value:
        raise refusal(value, "is not a time; pass None for NULL")
    return value


def _numpy_picos(value: np.datetime64) -> int:
    """Returns the picoseconds since the epoch; in Python's ints, for numpy's own wrap around."""
    if np.isnat(value):
        raise refusal(value, "is not a time; pass None for NULL")
    unit, step = np.datetime_data(value.dtype)
    count = int(value.astype("int64")) * step
    if unit in ("Y", "M"):
        years, month = divmod(count * 12 if unit == "Y" else count, 12)
        if not datetime.MINYEAR <= 1970 + years <= datetime.MAXYEAR:
            raise refusal(value, "lies outside the years 1 to 9999")
        first = datetime.date(1970 + years, month + 1, 1)
        return (first.toordinal() - _ORDINAL_1970) * _PICOS["D"]
    if unit in _PICOS:
        return count * _PICOS[unit]
    picos, rest = divmod(count, 1_000 if unit == "fs" else 1_000_000)
    if rest:
        raise refusal(value, "has parts of a picosecond")
    return picos


def _numpy_micros(value: np.datetime64, rounding: str | None) -> int:
    micros, picos = divmod(_numpy_picos(value), 1_000_000)
    return micros + _rounded(value, picos, rounding)


def _rounded(value: Any, picos: int, rounding: str | None) -> int:
    """Returns the whole microseconds that less than one microsecond rounds to."""
    if not picos:
        return 0
    if rounding is None:
        raise refusal(value, "has parts of a microsecond, which would be lost; set `rounding`")
    return int(decimal.Decimal(f"{picos}E-6").to_integral_value(rounding))


def _midnight(value: Any, micros: int) -> int:
    days, rest = divmod(_in_years(value, micros), DAY_MICROS)
    if rest:
        raise refusal(value, "has a time of day, which a DATE would lose")
    return days


def _in_years(value: Any, micros: int) -> int:
    if not MICROS_MIN <= micros <= MICROS_MAX:
        hint = "; microseconds are expected" if isinstance(value, int) else ""
        raise refusal(value, f"lies outside the years 1 to 9999{hint}")
    return micros


def _match(pattern: re.Pattern[str], value: Any, wanted: str) -> re.Match[str]:
    match = pattern.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise refusal(value, f"is not {wanted}")
    return match


def _text_days(match: re.Match[str], value: Any) -> int:
    try:
        day = datetime.date(int(match["year"]), int(match["month"]), int(match["day"]))
    except ValueError as error:
        raise refusal(value, f"is no date: {error}") from error
    return day.toordinal() - _ORDINAL_1970


def _clock(match: re.Match[str], value: Any) -> int:
    """Returns the whole seconds of the day; a date alone is midnight."""
    hour, minute, second = (int(match[part] or 0) for part in ("hour", "minute", "second"))
    if hour > 23 or minute > 59 or second > 59:
        raise refusal(value, "is no time of day; hours end at 23, minutes and seconds at 59")
    return (hour * 60 + minute) * 60 + second


def _text_micros(match: re.Match[str], value: Any, rounding: str | None) -> int:
    fraction = match["fraction"] or ""
    rest = fraction[6:].rstrip("0")
    micros = int(fraction[:6].ljust(6, "0"))
    if rest:
        if rounding is None:
            raise refusal(value, "has parts of a microsecond, which would be lost; set `rounding`")
        exact = decimal.Decimal(f"{micros}.{rest}")
        micros = int(exact.to_integral_value(rounding))
    return _clock(match, value) * 1_000_000 + micros


def _text_offset(match: re.Match[str], value: Any) -> int:
    if not match["sign"]:
        return 0
    hour, minute = int(match["zone_hour"]), int(match["zone_minute"] or 0)
    if hour > 23 or minute > 59:
        raise refusal(value, "has a zone beyond a day")
    micros = (hour * 60 + minute) * 60_000_000
    return micros if match["sign"] == "+" else -micros
