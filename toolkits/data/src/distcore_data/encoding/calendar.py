"""Days of the calendar and times of a clock as seconds since 1970-01-01 00:00:00, and those as
parts."""

from __future__ import annotations

import numpy as np

PARTS = (
    "year",
    "month",
    "day",
    "weekday",
    "yearday",
    "hour",
    "minute",
    "second",
    "second_of_day",
)
"""In Ludwig's order: month, day and yearday count from 1, the weekday from Monday, which is 0."""

DAY_SECONDS = 86_400

EPOCH = 719_163
"""1970-01-01 as days, of which 0001-01-01 is the first."""

FIRST_DAY, LAST_DAY = 1 - EPOCH, 2_932_896
"""0001-01-01 and 9999-12-31 as days since 1970-01-01."""

MONTH_DAYS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
"""Days of each month, which count from 1."""


def is_leap(years: np.ndarray) -> np.ndarray:
    """Whether each year has 366 days."""
    return (years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0))


def days_of(
    years: np.ndarray, months: np.ndarray, days: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Days since 1970-01-01, and whether the calendar has the day.

    Args:
        years, months, days: int64 [n], 0 or more.

    Returns:
        int64 [n], any number where it has no such day; bool [n].
    """
    leap = is_leap(years)
    longest = MONTH_DAYS[months.clip(0, 12)] + ((months == 2) & leap)
    sound = (years > 0) & (months > 0) & (months < 13) & (days > 0) & (days <= longest)
    yeardays = np.cumsum(MONTH_DAYS)[months.clip(1, 12) - 1] + ((months > 2) & leap) + days
    before = years - 1
    return 365 * before + before // 4 - before // 100 + before // 400 + yeardays - EPOCH, sound


def parts_of_days(days: np.ndarray) -> np.ndarray:
    """The parts that a day has: int64 [n] since 1970-01-01, of the years 1 to 9999 → int32
    [n, 5]."""
    given = days.astype("datetime64[D]")
    years, months = given.astype("datetime64[Y]"), given.astype("datetime64[M]")
    parts = np.empty((len(days), 5), np.int32)
    parts[:, 0] = years.astype(np.int64) + 1970
    parts[:, 1] = months.astype(np.int64) % 12 + 1
    parts[:, 2] = (given - months.astype("datetime64[D]")).astype(np.int64) + 1
    parts[:, 3] = (days - FIRST_DAY) % 7  # that was a Monday
    parts[:, 4] = (given - years.astype("datetime64[D]")).astype(np.int64) + 1
    return parts
