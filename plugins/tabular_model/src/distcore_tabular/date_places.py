"""The most common dates by the places of their digits: `2024-01-31` or `2024/01/31`, alone or with
a time as `18:30:00`, and behind it a fraction of a second, `Z` or an offset as `+01:00`.

It takes a tenth of the time of regular expressions, which read the other forms, and say what is no
date.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from distcore_tabular.calendar import OF_DAY, OF_TIME, of_days, of_times

ZERO = ord("0")
DATE, CLOCK = (0, 1, 2, 3, 5, 6, 8, 9), (11, 12, 14, 15, 17, 18)
"""Where digits stand."""

DAY, SECOND, LONGEST = 10, 19, 35
"""Letters of a day, of a day and a time, and of one with nine digits behind the second and an
offset."""

AT_ONCE = 1 << 16
"""Texts of which the letters stay in a processor's cache while they are looked at."""

MONTHS, DAYS = 12, 31
"""Of a year and of a month, at most."""


def read(texts: pa.Array, parts: np.ndarray) -> np.ndarray:
    """Fill in the parts of dates in such a form.

    Args:
        texts: utf8 [n].
        parts: int32 [n, 9], as calendar.PARTS says.

    Returns:
        Which rows were filled in, bool [n]; a null may be among them.
    """
    found = np.zeros(len(texts), bool)
    for start in range(0, len(texts), AT_ONCE):
        some = slice(start, start + AT_ONCE)
        found[some] = _read(texts[some], parts[some])
    return found


# ------------------------------------------------------------------ inside


def _read(texts: pa.Array, parts: np.ndarray) -> np.ndarray:
    """As `read`, of a few texts."""
    found = np.zeros(len(texts), bool)
    _, ends, content = texts.buffers()
    if content is None:
        return found
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters, sizes = np.frombuffer(content, np.uint8), np.diff(bounds)
    for size in np.flatnonzero(np.bincount(sizes.clip(0, LONGEST + 1))).tolist():
        if size == DAY or SECOND <= size <= LONGEST:
            rows = np.flatnonzero(sizes == size)
            if len(rows) == len(texts):
                written = letters[bounds[0] : bounds[-1]].reshape(-1, size)
            else:
                written = letters[bounds[rows][:, None] + np.arange(size)]
            # Place by place, or every look at one would go through all of them.
            found[_fill(np.ascontiguousarray(written.T), rows, parts)] = True
    return found


def _fill(letters: np.ndarray, rows: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """Fill in the rows that are dates, and say which.

    letters: uint8 [size, m], at each place those of the m rows."""
    digits = letters - ZERO  # a letter below the zero becomes a number above the nine
    sound = (letters[4] == letters[7]) & _is_one_of(letters[4], "-/")
    sound &= _are_digits(digits, DATE)
    if len(letters) > DAY:
        sound &= _are_digits(digits, CLOCK) & _is_one_of(letters[10], " tT")
        sound &= (letters[13] == ord(":")) & (letters[16] == ord(":"))
        sound &= _ends(letters[SECOND:], digits[SECOND:])
    year, month, day = (_number(digits, *places) for places in (range(4), (5, 6), (8, 9)))
    sound &= (month > 0) & (month <= MONTHS) & (day > 0) & (day <= DAYS)
    clock = [_number(digits, place, place + 1) for place in CLOCK[::2] if place < len(letters)]
    for number, limit in zip(clock, (24, 60, 60), strict=False):
        sound &= number < limit
    number = (year * MONTHS + month - 1) * DAYS + day - 1
    of_day, is_day = _days(number[sound])
    if not is_day.all():
        sound[sound], of_day = is_day, of_day[is_day]
    rows = rows[sound]
    parts[rows, OF_DAY] = of_day
    if clock:
        parts[rows, OF_TIME] = of_times(*(number[sound] for number in clock))
    return rows


def _is_one_of(letters: np.ndarray, which: str) -> np.ndarray:
    return np.logical_or.reduce([letters == ord(each) for each in which])


def _are_digits(digits: np.ndarray, places: tuple[int, ...]) -> np.ndarray:
    return np.logical_and.reduce([digits[place] < 10 for place in places])


def _number(digits: np.ndarray, *places: int) -> np.ndarray:
    """Of the digits at these places: int32 [m]."""
    found = digits[places[0]].astype(np.int32)
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


def _days(numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The parts of days that are counted as if every month had 31, int32 [m, 5], and whether there
    is such a day, bool [m]. A few thousand days come again and again."""
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    if high - low < len(numbers):
        known, places = np.arange(low, high + 1), numbers - low
    else:
        known, places = np.unique(numbers, return_inverse=True)
    months, days = np.divmod(known, DAYS)
    parts, is_day = of_days(months // MONTHS, months % MONTHS + 1, days + 1)
    return parts[places, OF_DAY], is_day[places]
