"""What a date is encoded as, and days of the calendar as such parts."""

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

OF_DAY, OF_TIME = slice(0, 5), slice(5, 9)
"""Of the parts, those that a day has, and those of a clock."""

EPOCH = 719_163
"""1970-01-01 as days, of which 0001-01-01 is the first."""

MONTHS = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
"""Days of each, which count from 1."""


def days_of(parts: np.ndarray) -> np.ndarray:
    """Days since 1970-01-01 of some dates: int32 [n, 9] → int64 [n]."""
    years = parts[:, 0].astype(np.int64) - 1
    return 365 * years + years // 4 - years // 100 + years // 400 + parts[:, 4] - EPOCH


def is_leap(years: np.ndarray) -> np.ndarray:
    """Whether each year has 366 days."""
    return (years % 4 == 0) & ((years % 100 != 0) | (years % 400 == 0))


def of_days(
    years: np.ndarray, months: np.ndarray, days: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The parts of some days.

    Args:
        years, months, days: int64 [n], 0 or more.

    Returns:
        int32 [n, 9], of which the clock's are zeros; whether the calendar has the day, bool [n].
    """
    leap = is_leap(years)
    longest = MONTHS[months.clip(0, 12)] + ((months == 2) & leap)
    sound = (years > 0) & (months > 0) & (months < 13) & (days > 0) & (days <= longest)
    before = np.cumsum(MONTHS)
    parts = np.zeros((len(years), len(PARTS)), np.int32)
    parts[:, 0], parts[:, 1], parts[:, 2] = years, months, days
    parts[:, 4] = before[months.clip(1, 12) - 1] + ((months > 2) & leap) + days
    parts[:, 3] = (days_of(parts) + 3) % 7
    return parts, sound


def of_times(hours: np.ndarray, minutes: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The clock's parts of some times: of [n] each int32 [n, 4]."""
    parts = np.stack([hours, minutes, seconds, 3600 * hours + 60 * minutes + seconds], axis=1)
    return parts.astype(np.int32, copy=False)
