"""Time zones: a TIMESTAMP's civil time somewhere, and back. Moments are naive and in UTC."""

import datetime
import re
import zoneinfo

from bqflink_beam.emulator.sql.invalid import InvalidQuery

_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{2}))?\Z", re.ASCII)
_UTC = datetime.timezone.utc


def zone_of(name: str) -> datetime.tzinfo:
    """Returns a time zone by its name, or by an offset such as ``+05:30``.

    Raises:
        InvalidQuery: there is none of that name.
    """
    match = _OFFSET.match(name)
    if match:
        hours, minutes = int(match[2]), int(match[3] or 0)
        if hours > 14 or minutes > 59:
            raise InvalidQuery(f"Invalid time zone: {name}")
        offset = datetime.timedelta(hours=hours, minutes=minutes)
        return datetime.timezone(-offset if match[1] == "-" else offset)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidQuery(f"Invalid time zone: {name}") from None


def to_civil(moment: datetime.datetime, zone: str) -> datetime.datetime:
    """Returns what a clock shows at a moment."""
    try:
        local = moment.replace(tzinfo=_UTC).astimezone(zone_of(zone))
    except OverflowError:
        raise InvalidQuery(f"{moment} is out of range in time zone {zone}") from None
    return local.replace(tzinfo=None, fold=0)


def from_civil(local: datetime.datetime, zone: str) -> datetime.datetime:
    """Returns when a clock shows a time: the first time, where it does twice.

    A time that the clock skips is counted on from before the gap, as the service does.
    """
    try:
        moment = local.replace(tzinfo=zone_of(zone), fold=0).astimezone(_UTC)
    except OverflowError:
        raise InvalidQuery(f"{local} in time zone {zone} is out of range") from None
    return moment.replace(tzinfo=None)
