"""Texts as dates, and dates as the parts that a calendar and a clock give them, by compiled code if
it was built, else by numpy to the same numbers in two to four times the time.

A date is the seconds since 1970-01-01 00:00:00 by the clock of the place where it was written.
Texts are read by the places of their digits: `2024-01-31` or `2024/01/31`, alone or with a time as
`18:30:00`, and behind it a fraction of a second, `Z` or an offset as `+01:00`. Whoever reads other
forms does so by slower means.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from distcore_data.encoding.calendar import (
    DAY_SECONDS,
    FIRST_DAY,
    LAST_DAY,
    PARTS,
    days_of,
    parts_of_days,
)

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.encoding import _dates as compiled
except ImportError:
    compiled = None

ZERO = ord("0")
DATE, CLOCK = (0, 1, 2, 3, 5, 6, 8, 9), (11, 12, 14, 15, 17, 18)
"""Where digits stand."""

DAY, SECOND, LONGEST = 10, 19, 35
"""Letters of a day, of a day and a time, and of one with nine digits behind the second and an
offset."""

AT_ONCE = 1 << 16
"""Texts of which the letters stay in a processor's cache while they are looked at."""


def seconds_of(texts: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Dates in such a form.

    Args:
        texts: utf8 [n].

    Returns:
        Seconds, int64 [n], 0 where a text is none; which texts are one, bool [n]. A null may be
        among them.
    """
    seconds, found = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    _, ends, content = texts.buffers()
    if content is None or not len(texts):
        return seconds, found
    if compiled is not None:
        compiled.seconds(ends, content, texts.offset, len(texts), seconds, found.view(np.uint8))
        return seconds, found
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(content, np.uint8)
    for start in range(0, len(texts), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        _read(letters, bounds[start : start + AT_ONCE + 1], seconds[some], found[some])
    return seconds, found


def parts_of(seconds: np.ndarray) -> np.ndarray:
    """The parts of dates, as calendar.PARTS says: int64 [n] → int32 [n, 9].

    Raises:
        ValueError: One is not of the years 1 to 9999.
    """
    parts = np.empty((len(seconds), len(PARTS)), np.int32)
    if compiled is not None:
        if not compiled.parts(np.ascontiguousarray(seconds, np.int64), parts):
            raise ValueError("a date is not of the years 1 to 9999")
        return parts
    days, clock = np.divmod(seconds, DAY_SECONDS)
    low, high = (int(days.min()), int(days.max())) if len(days) else (0, 0)
    if low < FIRST_DAY or high > LAST_DAY:
        raise ValueError("a date is not of the years 1 to 9999")
    if high - low < len(days):  # the same days come again and again
        known, places = np.arange(low, high + 1), days - low
    else:
        known, places = np.unique(days, return_inverse=True)
    parts[:, :5] = parts_of_days(known)[places]
    parts[:, 5], parts[:, 6], parts[:, 7] = clock // 3600, clock // 60 % 60, clock % 60
    parts[:, 8] = clock
    return parts


# ------------------------------------------------------------------ inside


def _read(letters: np.ndarray, bounds: np.ndarray, seconds: np.ndarray, found: np.ndarray) -> None:
    """As `seconds_of`, of a few texts, into slices of what it returns.

    letters: of all texts, uint8. bounds: where each begins and the last ends, int32 [n + 1]."""
    sizes = np.diff(bounds)
    for size in np.flatnonzero(np.bincount(sizes.clip(0, LONGEST + 1))).tolist():
        if size == DAY or SECOND <= size <= LONGEST:
            rows = np.flatnonzero(sizes == size)
            if len(rows) == len(sizes):
                written = letters[bounds[0] : bounds[-1]].reshape(-1, size)
            else:
                written = letters[bounds[rows][:, None] + np.arange(size)]
            # Place by place, or every look at one would go through all of them.
            _fill(np.ascontiguousarray(written.T), rows, seconds, found)


def _fill(letters: np.ndarray, rows: np.ndarray, seconds: np.ndarray, found: np.ndarray) -> None:
    """Fill in the rows that are dates.

    letters: uint8 [size, m], at each place those of the m rows."""
    digits = letters - ZERO  # a letter below the zero becomes a number above the nine
    sound = (letters[4] == letters[7]) & _is_one_of(letters[4], "-/")
    sound &= _are_digits(digits, DATE)
    if len(letters) > DAY:
        sound &= _are_digits(digits, CLOCK) & _is_one_of(letters[10], " tT")
        sound &= (letters[13] == ord(":")) & (letters[16] == ord(":"))
        sound &= _ends(letters[SECOND:], digits[SECOND:])
    clock = [_number(digits, place, place + 1) for place in CLOCK[::2] if place < len(letters)]
    for number, limit in zip(clock, (24, 60, 60), strict=False):
        sound &= number < limit
    days, is_day = days_of(*(_number(digits, *places) for places in (range(4), (5, 6), (8, 9))))
    sound &= is_day
    days *= DAY_SECONDS
    for number, worth in zip(clock, (3600, 60, 1), strict=False):
        days += worth * number
    rows = rows[sound]
    seconds[rows], found[rows] = days[sound], True


def _is_one_of(letters: np.ndarray, which: str) -> np.ndarray:
    return np.logical_or.reduce([letters == ord(each) for each in which])


def _are_digits(digits: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
    return np.logical_and.reduce([digits[place] < 10 for place in places])


def _number(digits: np.ndarray, *places: int) -> np.ndarray:
    """Of the digits at these places: int64 [m]."""
    found = digits[places[0]].astype(np.int64)
    for place in places[1:]:
        found = 10 * found + digits[place]
    return found


def _ends(letters: np.ndarray, digits: np.ndarray) -> np.ndarray | bool:
    """Whether a time ends so: with a fraction of a second or none, and an offset or none."""

    def is_fraction(size: int) -> np.ndarray | bool:
        if size < 2:
            return size == 0
        return (letters[0] == ord(".")) & _are_digits(digits, tuple(range(1, size)))

    size = len(letters)
    found = is_fraction(size)
    if size >= 1:
        found = found | (_is_one_of(letters[-1], "zZ") & is_fraction(size - 1))
    if size >= 6:
        hours, minutes = _number(digits, -5, -4), _number(digits, -2, -1)
        is_offset = _is_one_of(letters[-6], "+-") & (letters[-3] == ord(":"))
        is_offset &= _are_digits(digits, (-5, -4, -2, -1)) & (hours < 24) & (minutes < 60)
        found = found | (is_offset & is_fraction(size - 6))
    return found
