"""The distinct values of a number column with their counts, in any order merged to the same: all of
them, or no more than so many, which are then rounded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ALL = 2**63
"""Values to be told apart if every one counts: memory grows with them."""

ENOUGH = 2**14
"""The same for quantiles: 256 KiB a column, and an edge moves by no more than one of so many values
lies from the next."""

DIGITS = 52
"""Binary digits of a double beside its leading one."""


@dataclass(frozen=True, eq=False)
class Distinct:
    """values: ascending, float64 [k]; counts: [k], of the narrowest signed type that holds them,
    as most values of thousands of columns are there once. most: of them, but that each power of
    two stays one.

    dropped: last binary digits that are 0 in all values, because with one less there would be more
    than `most` of them. However parts are merged it is the same number in the end: no part needs
    more than the whole."""

    values: np.ndarray
    counts: np.ndarray
    most: int = ALL
    dropped: int = 0

    @classmethod
    def of(cls, values: np.ndarray, most: int = ALL) -> Distinct:
        """Of finite values, float64 [n]. -0.0 and 0.0, which compare equal, are one value."""
        distinct, counts = np.unique(values + 0.0, return_counts=True)
        return cls(distinct, counts, most)._rounded(0)

    def merge(self, other: Distinct) -> Distinct:
        """Those of both."""
        values = np.concatenate([self.values, other.values])
        counts = np.concatenate([self.counts, other.counts])
        order = np.argsort(values, kind="stable")
        both = Distinct(values[order], counts[order], self.most)
        return both._rounded(max(self.dropped, other.dropped))

    def with_value(self, value: float, times: int) -> Distinct:
        """With a value that is there so many times more."""
        return self.merge(Distinct(np.array([value + 0.0]), np.array([times]), self.most))

    def mode(self) -> float:
        """The most frequent value, the smallest of equally frequent ones."""
        return float(self.values[np.argmax(self.counts)])

    def quantiles(self, parts: int) -> list[float]:
        """The parts + 1 edges of so many parts of equally many values, in ascending order;
        interpolated between neighbours, as numpy.quantile does by default."""
        ends = np.cumsum(self.counts, dtype=np.int64)
        last = ends[-1] - 1
        below, beyond = np.divmod(np.arange(parts + 1) * last, parts)
        at = np.concatenate([below, np.minimum(below + 1, last)])
        low, high = self.values[np.searchsorted(ends, at, "right")].reshape(2, -1)
        with np.errstate(over="ignore", invalid="ignore"):  # the ends of all doubles
            found: list[float] = (low + (high - low) * (beyond / parts)).tolist()
        return found

    def _rounded(self, dropped: int) -> Distinct:
        """Equal neighbours as one, with so many digits dropped, or as many as it takes."""
        found = self._dropping(dropped)
        if len(found.values) <= self.most:
            return found
        too_few, enough = dropped, DIGITS
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            if len(found._dropping(middle).values) <= self.most:
                enough = middle
            else:
                too_few = middle
        return found._dropping(enough)

    def _dropping(self, dropped: int) -> Distinct:
        values = self.values
        if dropped > self.dropped:  # towards zero, so that the order stays
            values = (values.view(np.int64) & (-1 << dropped)).view(np.float64) + 0.0
        if not len(values):
            return Distinct(values, self.counts, self.most, dropped)
        first = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
        counts = np.add.reduceat(self.counts, first, dtype=np.int64)
        narrow = counts.astype(np.min_scalar_type(~counts.max()))
        return Distinct(values[first], narrow, self.most, dropped)
