"""Feature `date`: a day, or a day and a time, as the parts that a calendar and a clock give it;
inputs only."""

from __future__ import annotations

import math
import re
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from distcore_core.contracts import JSON, Column
from distcore_core.errors import DataError
from distcore_data.arrow import from_numpy, plain, strings
from distcore_data.encoding.calendar import DAY_SECONDS, FIRST_DAY, LAST_DAY, PARTS
from distcore_data.encoding.dates import parts_of
from distcore_data.encoding.texts import without_unused
from distcore_tabular.columns import filled, null_mask
from distcore_tabular.date_texts import parse
from distcore_tabular.feature import TabularFeature
from distcore_tabular.member_network import EncoderNetwork
from distcore_tabular.vocabulary import as_dictionary

EXACT_ROWS = 1 << 16
"""Squares of this many rows' days are summed at once: up to the year 9999 no such sum leaves
int64."""


SHORT_YEAR = re.compile(r"\s*\d{1,3}([-/])\d\d\1\d\d(?!\d)")
"""How pandas writes days before the year 1000: read, a mistyped 202-01-31 would be one of them."""


class DateState(NamedTuple):
    """Mergeable statistics of some dates, in whole days since 1970-01-01: sums without rounding."""

    dates: int
    missing: int
    total: int
    squares: int


class DateFeature(TabularFeature):
    """The data half. Metadata: count, missing, mean and std of the days since 1970-01-01, and fill
    (the parts of what a missing date becomes).

    A missing date is zeros, which no date is: months count from 1.
    """

    kind = "date"
    raw: Literal["category", "time"] = "time"

    def __init__(self, name: str, role: str, options: Any) -> None:
        super().__init__(name, role, options)
        if options.preprocessing.datetime_format is not None:
            self.raw = "category"  # which is the form of texts

    def partial(self, values: pa.Array) -> DateState:
        """Statistics of some rows. Raises DataError for a value that is no date."""
        seconds, missing = self._seconds(values)
        days = (seconds if missing is None else seconds[~missing]) // DAY_SECONDS
        starts = range(0, len(days), EXACT_ROWS)
        squares = sum(int((days[at : at + EXACT_ROWS] ** 2).sum()) for at in starts)
        return DateState(len(days), len(values) - len(days), int(days.sum()), squares)

    def merge(self, left: DateState, right: DateState) -> DateState:
        return DateState(*(one + other for one, other in zip(left, right, strict=True)))

    def finish(self, state: DateState) -> JSON:
        """Raises DataError if there is no date."""
        count = state.dates
        if not count:
            raise self.nothing_in_it()
        spread = count * state.squares - state.total**2
        return {
            "count": count,
            "missing": state.missing,
            "mean": state.total / count,
            "std": math.sqrt(spread / count**2),
            "fill": self._fill(),
        }

    def column(self, metadata: JSON) -> Column:
        return Column(name=self.name, dtype="int32", width=len(PARTS))

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """The parts of each date: FixedSizeList<int32>[9] [n]. Raises DataError for a value that is
        no date."""
        seconds, missing = self._seconds(values)
        parts = parts_of(seconds)
        if missing is not None:
            parts[missing] = metadata["fill"]
        return pa.FixedSizeListArray.from_arrays(from_numpy(parts.reshape(-1)), len(PARTS))

    def network(self) -> EncoderNetwork:
        return EncoderNetwork(self)

    def _seconds(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
        """Since 1970-01-01 00:00:00, of the years 1 to 9999, int64 [n], and 0 where a date is
        missing; which are, bool [n], or None."""
        if pa.types.is_timestamp(values.type):
            return self._of_times(values)
        # Some rows of a block have all of its dictionary; a text that comes again is read once.
        values = without_unused(as_dictionary(values))
        spelling = self.options.preprocessing.datetime_format
        found, read = parse(values.dictionary, spelling)
        # The last is that of null.
        seconds, missing = np.append(found, 0), np.append(np.zeros(len(found), bool), True)
        null = null_mask(values.dictionary)
        if null is not None:
            missing[:-1], seconds[:-1][null] = null, 0
        codes = filled(values.indices, len(found))
        if not read.all():
            bad = np.flatnonzero(~(missing | np.append(read, True))[codes])
            if len(bad):
                text = values.dictionary[int(codes[bad[0]])].as_py()
                raise DataError(self._refusal(text, spelling))
        is_missing = missing[codes]
        return seconds[codes], is_missing if is_missing.any() else None

    def _of_times(self, values: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
        """As `_seconds`, of timestamps to the second."""
        seconds, missing = plain(values.view(pa.int64())), null_mask(values)
        if missing is not None:
            seconds = np.where(missing, 0, seconds)
        if len(seconds):
            first, end = FIRST_DAY * DAY_SECONDS, (LAST_DAY + 1) * DAY_SECONDS
            for at in (int(seconds.argmin()), int(seconds.argmax())):
                if not first <= seconds[at] < end:
                    raise DataError(
                        f"Column {self.name!r}: {values[at].cast(pa.utf8())} is not of the years 1 "
                        "to 9999. Correct the value, or leave it empty."
                    )
        return seconds, missing

    def _refusal(self, text: str, spelling: str | None) -> str:
        shown = repr(text if len(text) <= 60 else text[:59] + "…")
        if spelling is not None:
            return (
                f"Column {self.name!r}: {shown} is no date of the form {spelling!r}. Correct the "
                "value or preprocessing.datetime_format, or leave the value empty."
            )
        years = ""
        if SHORT_YEAR.match(text):
            years = (
                "A year has four digits here, such as 0238 (pandas leaves its zeros out in a csv "
                "file; a Parquet file has no texts). "
            )
        return (
            f"Column {self.name!r}: {shown} is not a date as 2024-01-31, 2024/01/31 or 2024-01-31 "
            f"18:30:00. {years}Write how dates are spelled here as preprocessing.datetime_format, "
            "such as '%d/%m/%Y', or correct the value, or leave it empty."
        )

    def _fill(self) -> list[int]:
        options = self.options.preprocessing
        if options.missing_value_strategy != "fill_with_const" or not options.fill_value:
            return [0] * len(PARTS)
        seconds, _ = parse(strings([options.fill_value]), options.datetime_format)
        found: list[int] = parts_of(seconds)[0].tolist()
        return found
