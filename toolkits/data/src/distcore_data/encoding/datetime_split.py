"""The split `datetime`, in which a row's place in time counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore_data.arrow import (
    flags,
    from_numpy,
    null,
    plain,
    scalar,
    strings,
    to_numpy,
    truths,
    with_nulls,
)
from distcore_data.blame import BadRow
from distcore_data.encoding.dates import DAY, SECOND, seconds_of
from distcore_data.encoding.splitter import Rows, Splitter
from distcore_data.encoding.texts import without_unused

DAYS = (
    "%Y/%m/%d",
    "%m/%d/%Y",
    "%d %b %Y",
    "%d %B %Y",
    "%b %d, %Y",
    "%B %d, %Y",
    "%b %d %Y",
    "%B %d %Y",
)
CLOCKS = (" %I:%M %p", " %I:%M:%S %p")
TIMES = ("", " %H:%M:%S", " %H:%M", *CLOCKS)
FORMATS = (*(f"%Y-%m-%d{time}" for time in CLOCKS), *(day + time for day in DAYS for time in TIMES))
"""Spellings of a date that are tried after ISO 8601; 01/02/2020 is the second of January, as it
is for pandas."""


BILLION = 10**9

MOST_SECONDS = 9.2e9
"""Whose nanoseconds an int64 holds: until 2261."""


FEWEST_SECONDS = 10**8
"""Numbers below are no times if dates stand beside them: years, and days as 20261121."""

NUMBER = r"^[+-]?\d+(\.\d*)?([eE][+-]?\d+)?$"

Place = tuple[int, str]
"""A row's number, and its text."""


class DatetimeSplitter(Splitter):
    """The earliest rows train, then validation, then test: exact counts; rows of one time are taken
    in row order.

    Of a column of numbers the smallest are the earliest, whether they are seconds, years, or days
    as 20261121: only their order counts. So such numbers and dates in one column are refused.

    The survey keeps each distinct time with its count: 16 bytes for each in a shard."""

    surveys: ClassVar[bool] = True

    def survey(
        self, rows: Rows
    ) -> tuple[np.ndarray, np.ndarray, tuple[Place | None, Place | None]]:
        """Distinct times (int64 nanoseconds since 1970) and their rows; see `_mixed`."""
        times = self._times(rows)
        return *np.unique(times, return_counts=True), self._mixed(rows, times)

    def carries(self, surveys: Sequence[Any]) -> list[Any]:
        """For each border between splits: its time, rows of that time before it, and those that
        earlier shards have. Raises BadRow for a column of small numbers and of dates."""
        self._refuse_mixed([found for *_, found in surveys])
        surveys = [(times, counts) for times, counts, _ in surveys]
        times = np.concatenate([times for times, _ in surveys])
        counts = np.concatenate([counts for _, counts in surveys])
        order = np.argsort(times, kind="stable")
        times, ends = times[order], np.cumsum(counts[order])
        total = int(ends[-1]) if len(ends) else 0
        borders = [
            int(self.probabilities[0] * total + 0.5),
            int(sum(self.probabilities[:2]) * total + 0.5),
        ]
        found: list[list[tuple[int, int, int]]] = [[] for _ in surveys]
        for border in borders:
            at = int(np.searchsorted(ends, border, side="right"))
            if at == len(times):  # everything lies before
                time, allowed = np.iinfo(np.int64).max, total
            else:
                time = int(times[at])
                allowed = border - int(counts[np.concatenate([t for t, _ in surveys]) < time].sum())
            used = 0
            for shard, (own, rows) in zip(found, surveys, strict=True):
                shard.append((time, allowed, used))
                used += int(rows[own == time].sum())
        return found

    def assign(self, rows: Rows, carry: Any = None) -> np.ndarray:
        times = self._times(rows)
        splits = np.zeros(len(times), np.int8)
        for time, allowed, used in carry:
            ties = times == time
            splits += (times > time) | (ties & (np.cumsum(ties) > allowed - used))
        return splits

    def _times(self, rows: Rows) -> np.ndarray:
        column, start = rows.columns[self.column or ""], 0
        found = [np.zeros(0, np.int64)]
        for chunk in column.chunks:
            times = times_of(chunk)
            if times.null_count:
                row = int(np.argmin(flags(times.is_valid())))
                raise self._refusal(chunk[row].as_py(), int(rows.numbers[start + row]))
            found.append(to_numpy(times))
            start += len(chunk)
        return np.concatenate(found)

    def _mixed(self, rows: Rows, times: np.ndarray) -> tuple[Place | None, Place | None]:
        """The first small number of a shard and its first date, None if it has none; without a
        small number only its first row is looked at."""
        column = rows.columns[self.column or ""]
        if pa.types.is_floating(column.type) or pa.types.is_integer(column.type):
            return None, None
        small = np.abs(times) < FEWEST_SECONDS * BILLION
        if not small.any():
            column = column.slice(0, 1)
        texts = column.cast(pa.utf8()).combine_chunks()
        is_number = flags(pc.match_substring_regex(texts, NUMBER))

        def first(which: np.ndarray) -> Place | None:
            found = np.flatnonzero(which)
            if not len(found):
                return None
            return int(rows.numbers[found[0]]), texts[int(found[0])].as_py()

        return first(is_number & small[: len(is_number)]), first(~is_number)

    def _refuse_mixed(self, found: Sequence[tuple[Place | None, Place | None]]) -> None:
        number = next((each for each, _ in found if each is not None), None)
        date = next((each for _, each in found if each is not None), None)
        if number is not None and date is not None:
            raise BadRow(
                f"Column {self.column!r}: {number[1]!r} is a number, and row {date[0]} (the "
                f"first is 0) has the date {date[1]!r}. Write all rows alike: dates as 2026-11-21 "
                "or 2026-11-21 10:30:00, or numbers, of which the smallest are the earliest.",
                number[0],
            )

    def _refusal(self, value: Any, row: int) -> BadRow:
        why = "the date is missing" if value is None else f"{value!r} is no date that is understood"
        return BadRow(
            f"Column {self.column!r}: {why}. Write dates as 2026-11-21 or 2026-11-21 10:30:00, "
            "of the years 1678 to 2261, or numbers below 9200000000, such as seconds since 1970 or "
            "years, in every row.",
            row,
        )


def times_of(values: pa.Array) -> pa.Array:
    """Nanoseconds since 1970 of each value, int64 [n], null if it is no time.

    Args:
        values: [n], texts or a dictionary of them, or numbers, which are seconds since 1970.
    """
    if not pa.types.is_dictionary(values.type):
        values = values.dictionary_encode()
    elif values.type.index_type == pa.int32():
        values = without_unused(values)
    texts = values.dictionary
    if not pa.types.is_string(texts.type):
        texts = strings([str(value) for value in texts.to_pylist()])
    return _parsed(texts).take(values.indices)


# ------------------------------------------------------------------ inside


def _parsed(texts: pa.Array) -> pa.Array:
    """int64 nanoseconds of texts; those of the usual forms at once, others one form after the
    other."""
    seconds, usual = seconds_of(texts)
    usual &= _are_plain(texts) & (np.abs(seconds) < MOST_SECONDS) & flags(texts.is_valid())
    found = seconds * BILLION
    if usual.all():
        return from_numpy(found)
    others, is_time = _by_forms(texts.filter(truths(~usual))), usual.copy()
    found[~usual], is_time[~usual] = plain(others), flags(others.is_valid())
    return with_nulls(found, is_time)


def _are_plain(texts: pa.Array) -> np.ndarray:
    """Which texts are a day or a time to the second as ISO 8601 writes it, if they are one: bool
    [n]. With a fraction, an offset or other marks they are read otherwise."""
    _, ends, content = texts.buffers()
    if content is None or content.size <= DAY:
        return np.zeros(len(texts), bool)
    bounds = np.frombuffer(ends, np.int32)[texts.offset :][: len(texts) + 1]
    letters, starts, sizes = np.frombuffer(content, np.uint8), bounds[:-1], np.diff(bounds)
    found = (sizes == DAY) | (sizes == SECOND)
    starts = np.where(found, starts, 0)
    found &= letters[starts + 4] == ord("-")
    between = letters[np.where(sizes == SECOND, starts + DAY, 0)]
    return found & ((sizes == DAY) | (between == ord(" ")) | (between == ord("T")))


def _by_forms(texts: pa.Array) -> pa.Array:
    """int64 nanoseconds; ISO 8601 first, then FORMATS, each for the texts that are still unread,
    then plain numbers."""
    kind = pa.timestamp("ns")
    result = _iso(texts)
    for spelling in FORMATS:
        if result.null_count == texts.null_count:
            break
        seconds = pc.strptime(texts, spelling, "s", error_is_null=True)
        held = pc.less(pc.abs(seconds.view(pa.int64())), scalar(int(MOST_SECONDS)))
        seconds = pc.if_else(held, seconds, null(seconds.type))
        result = pc.coalesce(result, seconds.cast(kind))
    numbers = result.cast(pa.int64())
    if result.null_count > texts.null_count:
        is_number = pc.match_substring_regex(texts, NUMBER)
        spelled = pc.if_else(pc.and_(is_number, result.is_null()), texts, null(pa.utf8()))
        seconds = spelled.cast(pa.float64())
        # Beyond them, as milliseconds since 1970 are, all times would be one.
        held = pc.less(pc.abs(seconds), scalar(MOST_SECONDS))
        seconds = pc.if_else(held, seconds, null(pa.float64()))
        ticks = pc.multiply(seconds, scalar(1e9))
        numbers = pc.coalesce(numbers, ticks.cast(pa.int64(), safe=False))
    return numbers


def _iso(texts: pa.Array) -> pa.Array:
    kind = pa.timestamp("ns")
    pattern = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}(:\d{2}(:\d{2}(\.\d{1,9})?)?)?)?$"
    local_ones = pc.match_substring_regex(texts, pattern)
    zoned = pc.match_substring_regex(texts, pattern[:-1] + r"(Z|[+-]\d{2}(:?\d{2})?)$")
    none = null(pa.utf8())
    try:
        local = pc.if_else(local_ones, texts, none).cast(kind)
        utc = pc.if_else(zoned, texts, none).cast(pa.timestamp("ns", "UTC")).cast(kind)
    except pa.ArrowInvalid:
        # A text of the right shape that is no date (2026-02-31): find out which, one by one over
        # distinct values.
        return pa.chunked_array(
            [_one(texts.slice(row, 1)) for row in range(len(texts))], kind
        ).combine_chunks()
    return pc.coalesce(local, utc)


def _one(text: pa.Array) -> pa.Array:
    kind = pa.timestamp("ns")
    for target in (kind, pa.timestamp("ns", "UTC")):
        try:
            return text.cast(target).cast(kind)
        except pa.ArrowInvalid:
            continue
    return pa.nulls(1, kind)
