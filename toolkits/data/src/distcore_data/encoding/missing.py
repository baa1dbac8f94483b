"""Missing values whose treatment looks at other rows or takes the row away: ffill, bfill and
drop_row.

A feature says its strategy in an attribute `missing`; the other strategies fill with a constant,
which is part of the feature's own encoding. As in Ludwig, what ffill cannot fill (the first rows)
is filled as by bfill, and the other way round; a column without any value stays empty. Separate
sets are one dataset here, too: the last row of one fills the first of the next. Statistics are of
the filled column; a row that is dropped for one column still counts in the statistics of the
others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from distcore_data.arrow import bits_of, from_numpy, one_array

DROP = "drop_row"
FILLS = ("ffill", "bfill")


@dataclass(frozen=True)
class Ends:
    """The first and last value of some rows of a column, each an array of one, or None if all
    are missing."""

    first: pa.Array | None = None
    last: pa.Array | None = None


@dataclass(frozen=True)
class Neighbours:
    """The nearest value before and behind some rows of a column."""

    before: pa.Array | None = None
    behind: pa.Array | None = None


def ends(column: pa.ChunkedArray) -> Ends:
    """The first and last values of a column."""
    places = np.flatnonzero(valid(column))
    if not len(places):
        return Ends()
    return Ends(_value(column, int(places[0])), _value(column, int(places[-1])))


def neighbours(shards: Sequence[Ends]) -> list[Neighbours]:
    """For each shard in order: the last value of those before it, and the first of those behind."""
    before: list[pa.Array | None] = [None]
    for each in shards:
        before.append(before[-1] if each.last is None else each.last)
    behind: list[pa.Array | None] = [None]
    for each in reversed(shards):
        behind.append(behind[-1] if each.first is None else each.first)
    return [
        Neighbours(left, right)
        for left, right in zip(before[:-1], reversed(behind[:-1]), strict=True)
    ]


def fill(column: pa.ChunkedArray, strategy: str, around: Neighbours) -> pa.Array:
    """The column of one shard with missing values taken from the nearest row before (ffill) or
    behind (bfill)."""
    known = valid(column)
    count = len(known)
    if count and known.all():
        return one_array(column)
    # Places: the rows, then the value before them all, then the one behind.
    extra = [value for value in (around.before, around.behind) if value is not None]
    at_before = count if around.before is not None else -1
    at_behind = count + len(extra) - 1 if around.behind is not None else -1
    rows = np.arange(count)
    forward = np.maximum.accumulate(np.where(known, rows, -1)) if count else rows
    backward = np.minimum.accumulate(np.where(known, rows, count)[::-1])[::-1] if count else rows
    forward = np.where(forward < 0, at_before, forward)
    backward = np.where(backward == count, at_behind, backward)
    first, second = (forward, backward) if strategy == "ffill" else (backward, forward)
    places = np.where(first < 0, second, first)
    values = one_array(pa.chunked_array([*column.chunks, *extra], column.type))
    if (places < 0).any():  # the whole column is empty
        return one_array(column)
    return values.take(from_numpy(places))


def dropped(columns: Iterable[pa.ChunkedArray]) -> np.ndarray | None:
    """Which rows miss a value in one of the columns whose strategy is drop_row: bool [n]; None:
    no row does."""
    found: np.ndarray | None = None
    for column in columns:
        if column.null_count:
            missing = ~valid(column)
            found = missing if found is None else found | missing
    return found


def valid(column: pa.ChunkedArray) -> np.ndarray:
    """Which values are there: bool [n]."""
    parts = [_valid(chunk) for chunk in column.chunks]
    return np.concatenate(parts) if parts else np.zeros(0, bool)


# ------------------------------------------------------------------ inside


def _valid(array: pa.Array) -> np.ndarray:
    bitmap = array.buffers()[0]
    if not array.null_count or bitmap is None:
        return np.full(len(array), not array.null_count)
    return bits_of(bitmap, array)


def _value(column: pa.ChunkedArray, row: int) -> pa.Array:
    """The value of one row as an array of its own, that keeps nothing else alive."""
    value = one_array(column.slice(row, 1))
    if pa.types.is_dictionary(value.type):
        plain = value.dictionary.take(value.indices)
        return pa.DictionaryArray.from_arrays(from_numpy(np.zeros(1, np.int32)), plain)
    return value.take(from_numpy(np.zeros(1, np.int32)))
