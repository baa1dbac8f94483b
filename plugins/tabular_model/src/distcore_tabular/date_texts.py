"""Texts as dates: ISO 8601, or a pattern of strptime's, for whole columns, and by no locale.

A date is read as its text says it, by the clock of the place where it was written: of an offset
from UTC it is checked that it is one, and no more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_data.arrow import from_numpy, plain, strings
from distcore_data.encoding import dates
from distcore_data.encoding.calendar import DAY_SECONDS, MONTH_DAYS, days_of, is_leap
from distcore_tabular.columns import filled, null_mask

MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")

_OFFSET = r"[zZ]|[+-](?:2[0-3]|[01]\d)(?::?[0-5]\d(?::?[0-5]\d)?)?"
_TIME = (
    r"(?:[ tT](?P<H>2[0-3]|[01]\d):(?P<M>[0-5]\d)(?::(?P<S>[0-5]\d)(?:\.\d+)?)?"
    rf"(?: ?(?:{_OFFSET}))?)?"
)
ISO = tuple(
    rf"^(?P<Y>\d{{4}}){mark}(?P<m>\d{{2}}){mark}(?P<d>\d{{2}}){_TIME}$" for mark in ("-", "/")
)
"""YYYY-MM-DD or YYYY/MM/DD, alone or with a time of minutes, seconds or fractions of one, and then
perhaps an offset."""

_SHORT = {"F": "%Y-%m-%d", "D": "%m/%d/%y", "T": "%H:%M:%S", "R": "%H:%M"}
_DIRECTIVES = {
    "Y": r"\d{4}",
    "y": r"\d{2}",
    "m": r"1[0-2]|0[1-9]|[1-9]",
    "d": r"3[01]|[12]\d|0[1-9]|[1-9]",
    "j": r"36[0-6]|3[0-5]\d|[12]\d\d|0[1-9]\d|00[1-9]|[1-9]\d|0[1-9]|[1-9]",
    "H": r"2[0-3]|[01]\d|\d",
    "I": r"1[0-2]|0[1-9]|[1-9]",
    "M": r"[0-5]\d|\d",
    "S": r"[0-5]\d|\d",
    "f": r"\d{1,9}",
    "p": "am|pm",
    "B": "|".join(MONTHS),
    "b": "|".join(name[:3] for name in MONTHS),
    "A": "|".join(WEEKDAYS),
    "a": "|".join(name[:3] for name in WEEKDAYS),
    "z": _OFFSET,
    "Z": "utc|gmt|[a-z]{3,5}",
    "%": "%",
}
_UNREAD = "fAazZ%"
"""What is checked and says no more than the other parts do."""

_SAME = ("Yy", "mBb", "HI")
"""Of each of these a pattern has one at most."""


@lru_cache(maxsize=64)
def pattern_of(spelling: str) -> str:
    """The regular expression of a pattern of strptime's.

    Raises ValueError saying what of it is not understood."""
    for mark, long in _SHORT.items():
        spelling = spelling.replace(f"%{mark}", long)
    found, seen, at = "^", "", 0
    while at < len(spelling):
        letter = spelling[at]
        if letter != "%":
            blank = letter.isspace()
            found += re.escape(letter) if not blank else "" if found.endswith(r"\s+") else r"\s+"
            at += 1
            continue
        mark = spelling[at + 1 : at + 2]
        if mark not in _DIRECTIVES or not mark:
            known = " ".join(f"%{each}" for each in (*_DIRECTIVES, *_SHORT))
            raise ValueError(f"%{mark} is not read here; what is: {known}")
        if mark in seen and mark != "%":
            raise ValueError(f"it has %{mark} twice")
        seen += mark
        found += (
            f"(?:{_DIRECTIVES[mark]})" if mark in _UNREAD else (f"(?P<{mark}>{_DIRECTIVES[mark]})")
        )
        at += 2
    _check_together(seen)
    return f"(?i){found}$"


def _check_together(seen: str) -> None:
    """Raise ValueError for parts that contradict or say nothing without another."""
    for group in _SAME:
        both = [f"%{mark}" for mark in group if mark in seen]
        if len(both) > 1:
            raise ValueError(f"it has {' and '.join(both)}, which say the same; keep one")
    if "j" in seen and set(seen) & set("mBbd"):
        raise ValueError("it has %j, which says month and day by itself; keep one of them")
    if ("p" in seen) != ("I" in seen):
        raise ValueError("%I and %p need each other; write %H for hours of 0 to 23")
    if not set(seen) & set("YymBbdjHI"):
        raise ValueError("it has no part of a date, such as %Y, %m and %d")


def parse(texts: pa.Array, spelling: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The seconds of each date since 1970-01-01 00:00:00, and which texts are one.

    Args:
        texts: utf8 [n].
        spelling: A pattern of strptime's; None: ISO 8601.

    Returns:
        int64 [n], 0 if it is no date; bool [n].
    """
    seconds, read = np.zeros(len(texts), np.int64), np.zeros(len(texts), bool)
    if spelling is None:
        seconds, read = dates.seconds_of(texts)
        if read.all():
            return seconds, read
    trimmed = pc.utf8_trim(texts, " \t")
    for pattern in ISO if spelling is None else (pattern_of(spelling),):
        left = np.flatnonzero(~read)
        if len(left):
            groups = pc.extract_regex(trimmed.take(from_numpy(left)), pattern=pattern)
            names = [groups.type.field(at).name for at in range(groups.type.num_fields)]
            found, sound = _dates(dict(zip(names, groups.flatten(), strict=True)), len(left))
            null = null_mask(groups)
            sound = sound if null is None else sound & ~null
            seconds[left[sound]], read[left[sound]] = found[sound], True
    return seconds, read


# ------------------------------------------------------------------ inside


def _dates(groups: Mapping[str, pa.Array], rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of what was matched, int64 [n], and whether that is a day of the calendar."""

    def number(mark: str, default: int = 0) -> np.ndarray:
        if mark not in groups:
            return np.full(rows, default, np.int64)
        texts = pc.replace_substring_regex(groups[mark], pattern="^$", replacement="0")
        texts = texts.fill_null("0") if texts.null_count else texts
        return plain(texts.cast(pa.int64())).copy()

    years = number("Y", 1900)
    if "y" in groups:
        years = number("y")
        years += np.where(years < 69, 2000, 1900)
    months = _month(groups) if {"B", "b"} & set(groups) else number("m", 1)
    days, hours = number("d", 1), number("H")
    if "I" in groups:
        is_pm = filled(pc.index_in(pc.utf8_lower(groups["p"]), value_set=strings(["pm"])), -1) == 0
        hours = number("I") % 12 + np.where(is_pm, 12, 0)
    if "j" in groups:
        months, days = _month_and_day(number("j"), is_leap(years))
    found, sound = days_of(years, months, days)
    return DAY_SECONDS * found + 3600 * hours + 60 * number("M") + number("S"), sound


def _month(groups: Mapping[str, pa.Array]) -> np.ndarray:
    """Months by their English names, from 1; 0: none."""
    mark = "B" if "B" in groups else "b"
    names = [name if mark == "B" else name[:3] for name in MONTHS]
    found = filled(pc.index_in(pc.utf8_lower(groups[mark]), value_set=strings(names)), -1)
    return found.astype(np.int64) + 1


def _month_and_day(yeardays: np.ndarray, leap: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of the days of a year, counted from 1."""
    ends = np.cumsum(MONTH_DAYS)[None, :] + (leap[:, None] & (np.arange(13) >= 2))
    months = (yeardays[:, None] > ends).sum(1).clip(1, 12)
    return months, yeardays - np.take_along_axis(ends, months[:, None] - 1, 1)[:, 0]
