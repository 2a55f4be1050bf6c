"""Packed and textual dates, times and intervals mean what Python's own types say."""

import datetime

import numpy as np
import pytest
from google.cloud.bigquery import _helpers
from google.cloud.bigquery.schema import SchemaField
from hypothesis import given
from hypothesis import strategies as st

from bqflink_beam.emulator import literals, values

EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001, DATETIME has no zone


def pack(at: datetime.datetime) -> int:
    date = at.year << 26 | at.month << 22 | at.day << 17
    return (date | at.hour << 12 | at.minute << 6 | at.second) << 20 | at.microsecond


def micros(at: datetime.datetime) -> int:
    return (at - EPOCH) // datetime.timedelta(microseconds=1)


@given(st.lists(st.datetimes(), max_size=20))
def test_packed_datetimes_one_by_one_and_together(moments):
    packed = [pack(at) for at in moments]

    together = literals.packed_datetimes_micros(np.array(packed, np.int64))

    assert together.tolist() == [micros(at) for at in moments]
    assert [literals.packed_datetime_micros(one) for one in packed] == together.tolist()


def test_leap_days_and_ends_of_years_are_right():
    moments = [
        datetime.datetime(year, month, day)  # noqa: DTZ001
        for year in (1, 4, 100, 400, 1600, 1900, 1999, 2000, 2001, 2024, 9999)
        for month, day in ((1, 1), (2, 28), (3, 1), (12, 31), (6, 15))
    ]

    together = literals.packed_datetimes_micros(np.array([pack(at) for at in moments]))

    assert together.tolist() == [micros(at) for at in moments]


@given(st.integers(-(2**63), 2**63 - 1))
def test_any_number_is_a_datetime_both_ways_or_neither(number):
    together = literals.packed_datetimes_micros(np.array([number], np.int64))
    try:
        alone = [literals.packed_datetime_micros(number)]
    except ValueError:
        alone = None

    assert (None if together is None else together.tolist()) == alone


@given(st.datetimes())
def test_canonical_text_of_a_datetime(at):
    assert literals.datetime_micros(at.isoformat(" ")) == micros(at)
    assert literals.datetime_micros(at.isoformat("T")) == micros(at)


@given(st.times())
def test_text_and_packed_form_of_a_time(at):
    whole = micros(datetime.datetime.combine(EPOCH.date(), at))

    assert literals.time_micros(at.isoformat()) == whole
    clock = at.hour << 12 | at.minute << 6 | at.second
    assert literals.packed_time_micros(clock << 20 | at.microsecond) == whole


@pytest.mark.parametrize(
    ("text", "picos"),
    [
        ("1970-01-01", 0),
        ("1970-01-01 00:00:01.5", 1_500_000_000_000),
        ("1970-01-01T00:00:00.000000000001Z", 1),
        ("1970-01-01 01:00:00+01:00", 0),
        ("1970-01-01 01:00:00+01", 0),
        ("1969-12-31 23:59:59.999999999999 UTC", -1),
        ("1969-12-31 19:30:00-04:30", 0),
    ],
)
def test_timestamps_with_zones_and_picoseconds(text, picos):
    assert literals.timestamp_picos(text) == picos


@pytest.mark.parametrize("text", ["", "1970-01-01 24:00:00", "1970-13-01", "now", "1970-01-01 1:2"])
def test_text_that_is_no_timestamp(text):
    with pytest.raises(ValueError):
        literals.timestamp_picos(text)


@given(
    months=st.integers(-120_000, 120_000),
    days=st.integers(-3_660_000, 3_660_000),
    micros=st.integers(-(10**15), 10**15),
)
def test_interval_text_is_read_by_us_and_by_googles_client(months, days, micros):
    text = values.interval_text((months, days, micros * 1000))

    assert literals.interval_from_text(text) == (months, days, micros * 1000)
    google = _helpers.CellDataParser().interval_to_py(text, SchemaField("x", "INTERVAL"))
    assert google.years * 12 + google.months == months
    clock = datetime.timedelta(
        days=google.days,
        hours=google.hours,
        minutes=google.minutes,
        seconds=google.seconds,
        microseconds=google.microseconds,
    )
    assert clock == datetime.timedelta(days=days, microseconds=micros)
