"""Texts to dates and times by a format string, by the rules of BigQuery's PARSE functions.

Values are naive; `parse_moment` answers in UTC. What a text leaves unsaid is 1970-01-01 00:00.
"""

import dataclasses
import datetime
import re

from bqflink_beam.emulator.sql.invalid import InvalidQuery, unsupported
from bqflink_beam.emulator.sql.zones import from_civil

EPOCH = datetime.datetime.combine(datetime.date(1970, 1, 1), datetime.time())
_BLANKS = " \t\n\v\f\r"
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september",
    "october", "november", "december",
)  # fmt: skip
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_ELEMENT = re.compile(r"%(?:E(?:\*S|[0-6]S|4Y|z)|[^EO])", re.DOTALL)
_NOT_IN = {
    "DATE": frozenset("cHIklMPpRrSsTXZz"),
    "TIME": frozenset("AaBbhCcDdeFGgjmsUuVWwxYyZz"),
    "DATETIME": frozenset("Zz"),
    "TIMESTAMP": frozenset(),
}
_COMPOUND = {"F": "Y-m-d", "T": "H:M:S", "R": "H:M", "D": "m/d/y", "X": "H:M:S", "x": "m/d/y"}
_NUMBERS = {"Y": (4, 0, 9999), "m": (2, 1, 12), "d": (2, 1, 31), "e": (2, 1, 31),
            "H": (2, 0, 23), "M": (2, 0, 59), "S": (2, 0, 60), "y": (2, 0, 99)}  # fmt: skip


@dataclasses.dataclass
class _Parts:
    """What has been read so far."""

    year: int = 1970
    month: int = 1
    day: int = 1
    hour: int = 0
    minute: int = 0
    second: int = 0
    micros: int = 0
    day_of_year: int | None = None
    half_day: bool = False
    afternoon: bool = False
    offset_minutes: int | None = None
    zone: str | None = None
    since_epoch: int | None = None


class _Reader:
    """One text while it is read by a format."""

    def __init__(self, form: str, text: str) -> None:
        self.form = form
        self.text = text
        self.at = 0
        self.parts = _Parts()

    def fail(self) -> InvalidQuery:
        return InvalidQuery(f'Failed to parse input string "{self.text}"')

    def blanks(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in _BLANKS:
            self.at += 1

    def number(self, width: int, least: int, most: int) -> int:
        found = re.compile(rf"-?\d{{1,{width}}}", re.ASCII).match(self.text, self.at)
        digits = found[0][:width] if found else ""
        if not digits.strip("-") or digits == "-0" * bool(digits.startswith("-")):
            raise self.fail()
        value = int(digits)
        if (digits[0] == "-" and not value) or not least <= value <= most:
            raise self.fail()
        self.at += len(digits)
        return value

    def spaced_number(self, width: int, least: int, most: int) -> int:
        """Reads a number of the C library's, which lets blanks stand before it, but no sign."""
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1
        if self.text[self.at : self.at + 1] == "-":
            raise self.fail()
        return self.number(width, least, most)

    def word(self, names: tuple[str, ...]) -> int:
        rest = self.text[self.at : self.at + 9].lower()
        for position, name in enumerate(names):
            for form in (name, name[:3]):
                if rest.startswith(form):
                    self.at += len(form)
                    return position
        raise self.fail()

    def run(self) -> _Parts:
        """Reads all of the text.

        Raises:
            InvalidQuery: it does not fit the format.
        """
        form, place = self.form, 0
        self.blanks()
        while self.at < len(self.text) and place < len(form):
            if form[place] in _BLANKS:
                self.blanks()
                place += 1
            elif form[place] != "%":
                if self.text[self.at] != form[place]:
                    raise self.fail()
                self.at += 1
                place += 1
            else:
                match = _ELEMENT.match(form, place)
                if match is None:
                    raise unsupported(f"Format string {form!r}")
                place = match.end()
                self.element(match[0][1:], last=form[place : place + 1] != "%")
        self.blanks()
        rest = re.sub(r"\A(?:[ \t\n\v\f\r]|%[nt])+", "", form[place:])
        if rest or self.at < len(self.text):
            raise self.fail()
        return self.parts

    def element(self, name: str, *, last: bool) -> None:
        parts = self.parts
        if name == "Y":
            parts.year = self.number(5 if last else 4, 0, 10000 if last else 9999)
        elif name == "E4Y":
            start = self.at
            parts.year = self.number(4, 0, 9999)
            if self.at - start != 4:
                raise self.fail()
        elif name in _NUMBERS and name != "e":
            self.assign(name, self.number(*_NUMBERS[name]))
        elif name == "e":
            parts.day = self.spaced_number(2, 1, 31)
        elif name in _COMPOUND:
            self.compound(_COMPOUND[name])
        elif name in "Bbh":
            parts.month = self.word(_MONTHS) + 1
        elif name in "Aa":
            self.word(_WEEKDAYS)  # says nothing where there is no number of a week
        elif name in "nt":
            self.blanks()
        elif name == "%":
            self.literal("%")
        else:
            self.clock_element(name)

    def clock_element(self, name: str) -> None:
        parts = self.parts
        if name in "Il":
            self.blanks()
            parts.hour = self.number(2, 1, 12) % 12
            parts.half_day = True
        elif name in "pP":
            half = self.text[self.at : self.at + 2].lower()
            if half not in ("am", "pm"):
                raise self.fail()
            parts.afternoon = half == "pm"
            self.at += 2
        elif name.endswith("S"):
            parts.second = self.number(2, 0, 60)
            self.fraction(99 if name == "E*S" else int(name[1]))
        elif name == "j":
            parts.day_of_year = self.number(3, 1, 366)
        elif name == "s":
            parts.since_epoch = self.number(12, -62135596800, 253402300799)
        elif name in ("z", "Ez"):
            self.offset(":" if name == "Ez" else "")
        elif name == "Z":
            found = re.compile(r"[^ \t\n\v\f\r]+").match(self.text, self.at)
            assert found is not None  # there is a character that is no blank, or the end
            parts.zone, parts.offset_minutes = found[0], None
            self.at = found.end()
        else:
            raise unsupported(f"Format element %{name}")

    def assign(self, name: str, value: int) -> None:
        parts = self.parts
        if name == "y":
            parts.year = value + (2000 if value < 69 else 1900)
        elif name in "de":
            parts.day = value
        else:
            part = {"Y": "year", "m": "month", "H": "hour", "M": "minute", "S": "second"}[name]
            setattr(parts, part, value)
            if name == "H":
                parts.half_day = False

    def literal(self, char: str) -> None:
        if self.text[self.at : self.at + 1] != char:
            raise self.fail()
        self.at += 1

    def compound(self, form: str) -> None:
        for char in form:
            if char in _NUMBERS:
                self.assign(char, self.spaced_number(*_NUMBERS[char]))
            else:
                self.literal(char)

    def fraction(self, digits_max: int) -> None:
        if digits_max and self.text[self.at : self.at + 1] == ".":
            found = re.compile(rf"\.(\d{{0,{digits_max}}})", re.ASCII).match(self.text, self.at)
            if found is None or not found[1]:
                raise self.fail()
            self.parts.micros = int(found[1][:6].ljust(6, "0"))
            self.at = found.end()

    def offset(self, separator: str) -> None:
        if separator and self.text[self.at] == "Z":
            self.parts.offset_minutes = 0
            self.at += 1
            return
        found = re.compile(rf"([+-])(\d\d)(?:{separator}(\d\d))?", re.ASCII).match(
            self.text, self.at
        )
        if found is None and separator:
            found = re.compile(r"([+-])(\d\d)(\d\d)?", re.ASCII).match(self.text, self.at)
        if found is None or int(found[2]) > 23 or int(found[3] or 0) > 59:
            raise self.fail()
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        if minutes > 14 * 60:
            raise InvalidQuery(f"Timezone offset out of valid range: {found[0]}")
        self.parts.offset_minutes = -minutes if found[1] == "-" else minutes
        self.at = found.end()


def check_format(form: str, kind: str) -> None:
    """Refuses a format that is wrong for a type, or that is not read exactly here.

    Raises:
        InvalidQuery: it is.
    """
    bare = form.replace("%%", "")
    elements = _ELEMENT.findall(bare)
    for element in elements:
        if set(element[1:]) & _NOT_IN[kind]:
            raise InvalidQuery(f"Invalid format: {element} is not allowed for the {kind} type")
        if element[1] not in "YmdeHMSyFTRDXxBbhAantIlpPjszZE":
            raise unsupported(f"Format element {element}")
    if bare.count("%") != len(elements):
        raise unsupported(f"Format string {form!r}")
    letters = "".join(element[-1] for element in elements)
    if "j" in letters and (set(letters) & set("mdeFDxBbh") or "j" in letters.rstrip("j")[:-1]):
        raise unsupported("%j with a month or a day")
    if "j" in letters and max(letters.rfind("Y"), letters.rfind("y")) > letters.rfind("j"):
        raise unsupported("%j before a year")


def _read(form: str, text: str, kind: str) -> tuple[datetime.datetime, _Parts]:
    check_format(form, kind)
    if "\0" in text or "\0" in form:
        raise unsupported("A text with a NUL to parse")
    parts = _Reader(form, text).run()
    hour = parts.hour + 12 * (parts.half_day and parts.afternoon)
    leap = parts.second == 60
    micros = 1_000_000 if leap else parts.micros
    if parts.year in (0, 10000) and (parts.zone is not None or parts.offset_minutes):
        raise unsupported("A year that a time zone brings into range")
    try:
        day = datetime.date(parts.year, parts.month, parts.day)
        clock = datetime.time(hour, parts.minute, parts.second - leap)
        moment = datetime.datetime.combine(day, clock)
        if parts.day_of_year is not None:
            moment += datetime.timedelta(parts.day_of_year - 1)
            if moment.year != parts.year:
                raise InvalidQuery(f"Day {parts.day_of_year} is not in the year {parts.year}")
        return moment + datetime.timedelta(microseconds=micros), parts
    except (ValueError, OverflowError):
        raise InvalidQuery(f"Out-of-range datetime field in parsing {text!r}") from None


def parse_date(form: str, text: str) -> datetime.date:
    return _read(form, text, "DATE")[0].date()


def parse_time(form: str, text: str) -> datetime.time:
    return _read(form, text, "TIME")[0].time()


def parse_civil(form: str, text: str) -> datetime.datetime:
    moment, parts = _read(form, text, "DATETIME")
    return moment if parts.since_epoch is None else _since_epoch(parts.since_epoch)


def parse_moment(form: str, text: str, zone: str) -> datetime.datetime:
    local, parts = _read(form, text, "TIMESTAMP")
    if parts.since_epoch is not None:
        return _since_epoch(parts.since_epoch)
    if parts.offset_minutes is None:
        return from_civil(local, parts.zone or zone)
    try:
        return local - datetime.timedelta(minutes=parts.offset_minutes)
    except OverflowError:
        raise InvalidQuery(f"Invalid result from parsing {text!r}") from None


def _since_epoch(seconds: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=seconds)
