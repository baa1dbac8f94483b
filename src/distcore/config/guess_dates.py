"""Which columns of texts are dates, and how they are spelled: for `distcore init`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from distcore_data.arrow import flags, truths

ISO = (
    r"^\d{4}(-\d{2}-\d{2}|/\d{2}/\d{2})([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?"
    r"( ?(Z|[+-]\d{2}(:?\d{2})?))?)?$"
)
"""What a feature `date` reads without being told how dates are spelled."""

SHAPE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T]\d{1,2}:\d{2}.*)?$"
"""2020-01-31, 31/1/2020 or 1.31.20, with or without a time."""

DAYS = ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y-%m-%d", "%Y.%m.%d")
TIMES = ("", " %H:%M", " %H:%M:%S")


def shaped(texts: pa.Array) -> pa.Array:
    """Which texts have the shape of a date."""
    return pc.match_substring_regex(texts, SHAPE)


def is_iso(texts: pa.Array) -> pa.Array:
    """Which texts are a day of the calendar as ISO 8601 writes it, with or without a time."""
    spelled = pc.match_substring_regex(texts, ISO)
    # What a shape cannot tell: Arrow's strptime takes February 31 for March 2.
    days = pc.replace_substring(pc.utf8_slice_codeunits(texts, 0, 10), "/", "-")
    read = pc.strptime(days, format="%Y-%m-%d", unit="s", error_is_null=True)
    again = pc.equal(read.cast(pa.date32()).cast(pa.utf8()), days)
    return pc.and_(spelled, truths(flags(again)))


def formats(texts: pa.Array) -> list[str]:
    """The patterns of strptime's, of DAYS and TIMES, that read every text."""
    found = []
    for time in TIMES:
        for day in DAYS:
            spelling = day + time
            read = pc.strptime(texts, format=spelling, unit="s", error_is_null=True)
            if not read.null_count and _four_digits(texts):
                found.append(spelling)
    return found


def _four_digits(texts: pa.Array) -> bool:
    """Whether years have all four: %Y of strptime's takes 20 for the year 20."""
    return bool(pc.all(pc.match_substring_regex(texts, r"(^|[-/.])\d{4}($|[-/. ])")).as_py())
