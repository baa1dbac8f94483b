"""The split `stratify`, in which a row's rank in its class counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from distcore_data.encoding.hashing import key_of, row_hashes
from distcore_data.encoding.splitter import Rows, Splitter, coded

GROUP = 1000
"""Rows of a class that are permuted together: sorting stays local, and every group has its
proportions."""


class StratifySplitter(Splitter):
    """In every class of the column, train has its proportion to within one row, the others to
    within two.

    The rows of a class are numbered by rank. Groups of GROUP ranks are permuted by a hash of (seed,
    row number), and the permuted rank says the split: `spread` deals splits evenly over ranks. So a
    row's split depends on the rows of its class in its group, and not on any partition. Rounding
    starts at a random place in each class, so that many small classes together have the proportions
    too. As in Ludwig, the only row of a class trains. A missing value is a class of its own.
    """

    surveys: ClassVar[bool] = True

    def survey(self, rows: Rows) -> tuple[dict[Any, int], dict[Any, np.ndarray]]:
        """{class: rows of it in this shard}, and the row numbers of at most GROUP of its first
        and last rows."""
        codes, values = coded(rows.columns[self.column or ""])
        counts = np.bincount(codes, minlength=len(values))
        ends = {}
        for code, members in _members(codes, counts):
            numbers = rows.numbers[members]
            ends[values[code]] = (
                numbers if len(numbers) <= 2 * GROUP else numbers[np.r_[:GROUP, -GROUP:0]]
            )
        return {
            value: int(count) for value, count in zip(values, counts, strict=True) if count
        }, ends

    def carries(self, surveys: Sequence[Any]) -> list[Any]:
        """For each shard and class: rank of its first row, rows before and behind that share its
        groups, size."""
        totals: dict[Any, int] = {}
        for counts, _ in surveys:
            for value, count in counts.items():
                totals[value] = totals.get(value, 0) + count
        seen: dict[Any, int] = dict.fromkeys(totals, 0)
        before: dict[Any, np.ndarray] = {value: np.zeros(0, np.int64) for value in totals}
        found: list[dict[Any, Any]] = []
        for counts, ends in surveys:
            found.append(
                {value: [seen[value], before[value], None, totals[value]] for value in counts}
            )
            for value, count in counts.items():
                seen[value] += count
                open_rows = seen[value] % GROUP
                tail = np.concatenate([before[value], ends[value]])
                before[value] = tail[len(tail) - open_rows :] if open_rows else tail[:0]
        behind: dict[Any, np.ndarray] = {value: np.zeros(0, np.int64) for value in totals}
        for carry, (counts, ends) in zip(reversed(found), reversed(surveys), strict=True):
            for value in counts:
                carry[value][2] = behind[value]
                behind[value] = np.concatenate([ends[value][:GROUP], behind[value]])[:GROUP]
        return found

    def assign(self, rows: Rows, carry: Any = None) -> np.ndarray:
        codes, values = coded(rows.columns[self.column or ""])
        splits = np.zeros(len(codes), np.int8)
        key = key_of(self.seed, "split")
        for code, members in _members(codes, np.bincount(codes, minlength=len(values))):
            first, before, behind, total = carry[values[code]]
            if total == 1:
                continue
            wanted = -(first + len(members)) % GROUP
            numbers = np.concatenate([before, rows.numbers[members], behind[:wanted]])
            ranks = _permuted(row_hashes(key, numbers), first - len(before))
            dither = key_of(self.seed, f"class {values[code]}") / 2.0**64
            splits[members] = spread(
                ranks[len(before) : len(before) + len(members)], self.probabilities, dither
            )
        return splits


def spread(
    ranks: np.ndarray, probabilities: tuple[float, float, float], dither: float
) -> np.ndarray:
    """The split at each place of an endless sequence in which every beginning has the right
    proportions: int8 [n].

    Of the first N places floor(train * N + dither) train, 0 <= dither < 1, and validation and test
    share the others in the same way."""
    train, validation, test = probabilities
    trained = _dealt(train, ranks, dither)
    splits = np.zeros(len(ranks), np.int8)
    others = trained == _dealt(train, ranks + 1, dither)
    places = ranks[others] - trained[others]  # how many before it do not train
    share = validation / (validation + test) if validation + test > 0 else 0.0
    taken = _dealt(share, places + 1, dither) > _dealt(share, places, dither)
    splits[others] = np.where(taken, 1, 2)
    return splits


# ------------------------------------------------------------------ inside


def _dealt(share: float, count: np.ndarray, dither: float) -> np.ndarray:
    """floor(share * count + dither); one place more never gives more than one."""
    return np.floor(share * count + dither).astype(np.int64) if share < 1.0 else count


def _members(codes: np.ndarray, counts: np.ndarray) -> Any:
    """(code, places of its rows in order) for each code that occurs."""
    # numpy sorts 16 bits by radix.
    narrow = codes.astype(np.uint16) if len(counts) <= 1 << 16 else codes
    order = np.argsort(narrow, kind="stable")
    ends = np.cumsum(counts)
    for code in np.flatnonzero(counts).tolist():
        yield code, order[ends[code] - counts[code] : ends[code]]


def _permuted(hashes: np.ndarray, first: int) -> np.ndarray:
    """Ranks first, first + 1, … permuted within groups: the rank that each row gets. `first`
    starts a group."""
    groups = np.arange(len(hashes)) // GROUP
    order = np.lexsort((hashes, groups))
    ranks = np.empty(len(hashes), np.int64)
    ranks[order] = np.arange(first, first + len(hashes))
    return ranks
