"""Columns that tell the target by themselves, and targets of very unequal amounts or classes: what
`distcore init` says of them in comments."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from distcore.config.guess import RARE, Guess
from distcore_data.arrow import scalar, to_numpy
from distcore_data.printable import printable

TOLD = 0.95
"""Of the rows that the commonest class gets wrong: from this share on, a column tells the
target."""

LIKE = 0.999
"""From this correlation of ranks on, a number tells a number."""

LEAST = 20
"""Rows that have a target, that the commonest class gets wrong, or that have both numbers; fewer
say nothing."""

WAYS = 1e6
"""Ways to choose the rows that the commonest class gets wrong, from which on even fewer of these
say something: of a column whose values, or missing ones, are the classes exactly. Chance makes no
such column, and of a rare class few rows are looked at."""

ROWS = 10_000
"""That are looked at for columns that tell the target."""

UNEVEN = 0.1
"""Below this share of the rows a class of two is rare."""

SKEWED = 3.0
"""From this skewness on, a target's few largest values weigh more than all others."""


def remarked(
    inputs: Iterable[Guess], outputs: Iterable[Guess], table: pa.Table, share: float
) -> tuple[list[Guess], list[Guess]]:
    """The same, with a remark where a column gives a target away, or a target is uneven. share: of
    all rows that the table has."""
    targets = list(outputs)
    remarks = [(each, _of_target(each, table[each.name], share)) for each in targets]
    if table.num_rows > ROWS:  # from all of it: tables are sorted, by the target, too
        table = table.take(np.arange(ROWS) * table.num_rows // ROWS)
    wanted = [_Wanted(each, table[each.name]) for each in targets]
    found = []
    for each in inputs:
        told = next((one.name for one in wanted if each.type and one.tells(each, table)), None)
        if told is None:
            found.append(each)
            continue
        said = printable(told)  # no line of the config's own, whatever the column is called
        remark = f"it tells {said} by itself; leave it out unless it is known when you predict"
        found.append(each.remarked(remark))
    return found, [each.remarked(remark) if remark else each for each, remark in remarks]


def _of_target(guess: Guess, column: pa.ChunkedArray, share: float) -> str:
    """What is said of a target whose values are very unequal; "" of others. share: of all rows that
    the column has."""
    if guess.type == "number":
        if not _is_skewed(column):
            return ""
        return "skewed: preprocessing: {normalization: log1p} would learn ratios, not amounts"
    known = column.drop_null()
    if len(known) < LEAST:
        return ""
    rows = np.bincount(_codes(known))
    rare = rows.min() / rows.sum()
    if len(rows) == 2 and rare < UNEVEN:
        return (
            f"the rarer in {100 * rare:.2g} % of the rows: accuracy says little, and the report "
            "has other thresholds than 0.5"
        )
    few = int((rows < RARE * share).sum())
    if len(rows) > 2 and few:
        return f"{few} of them in fewer than {RARE} rows, too few to learn from"
    return ""


class _Wanted:
    """A target, of the rows that have one; looked at once for all columns that may tell it."""

    def __init__(self, guess: Guess, column: pa.ChunkedArray) -> None:
        self.name, self._is_number = guess.name, guess.type == "number"
        self._known = pc.is_valid(column)
        column = column.filter(self._known)
        self._values, self._wrong = np.zeros(0), 0
        if self._is_number:
            self._values = _numbers(column)
        elif len(column) >= LEAST:
            self._values = _codes(column)
            self._wrong = _wrong(np.zeros(len(column), np.int64), self._values)
        ways = math.comb(len(self._values), self._wrong)
        self._enough = self._wrong > 0 and ways >= WAYS

    def tells(self, guess: Guess, table: pa.Table) -> bool:
        """Whether an input's column tells it."""
        if self._is_number:
            return guess.type == "number" and _is_like(
                _numbers(table[guess.name].filter(self._known)), self._values
            )
        if not self._enough:
            return False
        column, classes = table[guess.name].filter(self._known), self._values
        groupings = [_codes(pc.is_valid(column))]
        if guess.type in ("binary", "category"):
            groupings.append(_codes(column))
        if self._wrong < LEAST:
            return any(_are_one(each, classes) for each in groupings)
        if guess.type == "number" and classes.max() == 1:
            groupings.append(_halves(_numbers(column), classes))
        return any(
            (each.max() + 1) * RARE <= len(classes)
            and _wrong(each, classes) <= (1 - TOLD) * self._wrong
            for each in groupings
        )


def _numbers(column: pa.ChunkedArray) -> np.ndarray:
    """float64 [n], NaN where there is none; texts that are numbers are read."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        doubles = column.cast(pa.float64(), safe=False)
    except pa.ArrowInvalid:  # texts of which some mean missing
        return np.full(len(column), math.nan)
    return to_numpy(pc.fill_null(doubles, scalar(math.nan)).combine_chunks())


def _codes(column: pa.ChunkedArray) -> np.ndarray:
    """int64 [n] from 0; a missing value has a code of its own."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    return to_numpy(encoded.indices).astype(np.int64)


def _wrong(groups: np.ndarray, classes: np.ndarray) -> int:
    """Rows of another class than the commonest of their group. Codes from 0, [n] each."""
    count = int(classes.max()) + 1
    pairs, rows = np.unique(groups * count + classes, return_counts=True)
    most = np.zeros(int(groups.max()) + 1, np.int64)
    np.maximum.at(most, pairs // count, rows)
    return len(classes) - int(most.sum())


def _are_one(groups: np.ndarray, classes: np.ndarray) -> bool:
    """Whether each group is a class, and each class a group."""
    count = int(classes.max()) + 1
    return len(np.unique(groups * count + classes)) == int(groups.max()) + 1 == count


def _halves(values: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Groups 0 and 1 on both sides of the number that divides two classes best, and 2 of those
    without a number."""
    known = ~np.isnan(values)
    order = np.argsort(values[known], kind="stable")
    ordered, ones = values[known][order], np.cumsum(classes[known][order])
    groups = np.full(len(values), 2, np.int64)
    cuts = np.flatnonzero(ordered[1:] != ordered[:-1])
    if not len(cuts):
        return groups
    left, below = cuts + 1, ones[cuts]
    right, above = len(ordered) - left, ones[-1] - below
    right_rows = np.maximum(below, left - below) + np.maximum(above, right - above)
    cut = ordered[cuts[np.argmax(right_rows)]]
    groups[known] = values[known] > cut
    return groups


def _is_like(values: np.ndarray, target: np.ndarray) -> bool:
    """Whether one number follows from the other, in whatever units."""
    both = ~(np.isnan(values) | np.isnan(target))
    if both.sum() < LEAST:
        return False
    ours, theirs = (np.unique(each[both], return_inverse=True)[1] for each in (values, target))
    if min(ours.max(), theirs.max()) < LEAST:
        return False
    return abs(float(np.corrcoef(ours, theirs)[0, 1])) >= LIKE


def _is_skewed(column: pa.ChunkedArray) -> bool:
    """Whether a number's logarithm is much less skewed."""
    values = _numbers(column)
    values = values[np.isfinite(values)]
    if len(values) < LEAST or values.min() < 0.0:
        return False
    skewness = _skewness(values)
    return skewness >= SKEWED and abs(_skewness(np.log1p(values))) < skewness / 2


def _skewness(values: np.ndarray) -> float:
    away = values - values.mean()
    spread = float(np.sqrt(np.mean(away**2)))
    return float(np.mean((away / spread) ** 3)) if spread > 0 else 0.0
