"""Exact sums of doubles: the same bits for any partition of the values and any order of merging.

A double is an integer times a power of two, so a sum of doubles is an integer too; only
floating-point addition loses that. Here every value is cut into slices of SLICE_BITS bits (Rump,
Ogita and Oishi, "Accurate floating-point summation", 2008: q = (x + C) - C rounds x to a multiple
of a power of two, and x - q is exact). A slice is a small integer, so sums of ROW slices, or of
products of two slices, stay below 2**53 and are exact whatever order numpy or BLAS adds them in
(Demmel, Ahrens and Nguyen, "Efficient reproducible floating point summation and BLAS", 2016, use
the same bound). Those integers are added as Python integers, in units of 2**-1074, and rounded once
at the end.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

UNIT = 1074
"""Every double is a whole number of 2**-UNIT."""

SLICE_BITS = 21
ROW = 1 << 13
"""Values whose products are added as doubles: ROW * 2**(2 * (SLICE_BITS - 1)) = 2**53."""

CHUNK = 32768
"""Values worked on at a time: the buffers stay in a core's cache, also if two threads share it."""

DEPTHS = {3: 2.0**-9, 4: 2.0**-30, 5: 2.0**-51}
"""How far below the largest value (as a power of two above it) a value may lie for that many slices
to hold all its
bits: the first slice ends 20 bits below the top, each further one 21 bits lower, and a double
    has 53 bits."""


def total(values: Sequence[float]) -> float:
    """The sum of a few doubles, rounded once; as floating-point addition has it if it is not
    finite."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)


def exact_sum(parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The element-wise sum of a few arrays of one shape, each element rounded once, in their
    dtype."""
    if len(parts) == 1:
        return parts[0]
    flat = np.stack([part.reshape(-1) for part in parts]).T.tolist()
    return np.array([total(each) for each in flat], parts[0].dtype).reshape(parts[0].shape)


@dataclass(frozen=True, slots=True)
class ExactSum:
    """An exact sum. `total` is in units of 2**-1074; equal sums compare equal, whatever values
    they were made of."""

    total: int = 0

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> ExactSum:
        """The exact sum of values [n], as doubles. Raises ValueError at NaN or infinity."""
        return cls(_sums(_as_doubles(values), squares=False)[0])

    def merge(self, other: ExactSum) -> ExactSum:
        return ExactSum(self.total + other.total)

    __add__ = merge

    def value(self) -> float:
        """The sum as the nearest double; an infinity if it is beyond the largest one."""
        return _rounded(self.total, 1 << UNIT)


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, exact sum and exact sum of squares of values.

    total: in units of 2**-1074; squares: in units of 2**-2148 (the square of the first)."""

    count: int = 0
    total: int = 0
    squares: int = 0

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Moments:
        """The moments of values [n], as doubles. Raises ValueError at NaN or infinity."""
        values = _as_doubles(values)
        return cls(len(values), *_sums(values, squares=True))

    def merge(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count, self.total + other.total, self.squares + other.squares
        )

    __add__ = merge

    def sum(self) -> float:
        """The sum, correctly rounded."""
        return _rounded(self.total, 1 << UNIT)

    def mean(self) -> float:
        """The mean, correctly rounded; NaN of no values."""
        return _rounded(self.total, self.count << UNIT) if self.count else math.nan

    def variance(self, ddof: int = 0) -> float:
        """The variance, correctly rounded (integers do not cancel); NaN of `ddof` values or fewer.

        Sum of (x - mean)**2 over (count - ddof), as (count * squares - total**2) / (count *
        (count - ddof))."""
        if self.count <= ddof:
            return math.nan
        return _rounded(
            self.count * self.squares - self.total**2,
            self.count * (self.count - ddof) << (2 * UNIT),
        )

    def std(self, ddof: int = 0) -> float:
        """Square root of the variance."""
        return math.sqrt(self.variance(ddof))


def moments_of_one(value: float, times: int) -> Moments:
    """The moments of one value so many times; less than 0: to take it out of others. Raises
    ValueError or OverflowError at NaN or infinity."""
    numerator, denominator = float(value).as_integer_ratio()  # over a power of two
    whole = numerator << (UNIT + 1 - denominator.bit_length())
    return Moments(times, times * whole, times * whole * whole)


def _as_doubles(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, np.float64).reshape(-1)


def _rounded(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator  # Python divides integers with one correct rounding
    except OverflowError:
        return math.inf if numerator > 0 else -math.inf


def _sums(values: NDArray[np.float64], squares: bool) -> tuple[int, int]:
    """Exact (sum, sum of squares) of the values, in units of 2**-1074 and 2**-2148."""
    work = _work()
    found: dict[tuple[int, int, int], list[NDArray[np.float64]]] = {}
    # Values far below their chunk's largest are put aside and summed among themselves.
    waiting = [values] if len(values) else []
    while waiting:
        part = waiting.pop()
        aside = []
        for start in range(0, len(part), CHUNK):
            scale, sums, small = work.sum(part[start : start + CHUNK], squares)
            found.setdefault(scale, []).append(sums)
            if len(small):
                aside.append(small)
        if aside:
            waiting.append(np.concatenate(aside))
    total = square = 0
    for scale, parts in found.items():
        part_total, part_square = _as_integers(scale, np.concatenate(parts, axis=1), squares)
        total, square = total + part_total, square + part_square
    return total, square


def _work() -> _Work:
    """This thread's buffers: fresh ones would cost more page faults than the sums take."""
    work: _Work | None = getattr(_LOCAL, "work", None)
    if work is None:
        work = _LOCAL.work = _Work()
    return work


_LOCAL = threading.local()
_NONE = np.zeros(0)
_ONES = np.ones(ROW)


class _Work:
    """Buffers for one thread."""

    def __init__(self) -> None:
        self.slices = np.empty((max(DEPTHS), CHUNK))
        self.flags = np.empty(CHUNK, bool)

    def sum(
        self, values: NDArray[np.float64], squares: bool
    ) -> tuple[tuple[int, int, int], NDArray[np.float64], NDArray[np.float64]]:
        """The chunk's slices summed, ROW values at a time.

        Returns how they are scaled (shift, exponent of the first unit, depth), the sums [depth +
        products, rows], and the values that were too small to be among them."""
        magnitude = np.abs(values, out=self.slices[1, : len(values)])
        largest = float(magnitude.max())
        if not math.isfinite(largest):
            raise ValueError(
                "NaN or infinity among the values to be summed exactly. Drop or refuse them before."
            )
        if largest == 0.0:
            return (0, 0, 1), np.zeros((2, 1)), _NONE
        top = math.frexp(largest)[1]  # every |x| < 2**top
        depth, small = self._depth(magnitude, top)
        aside = _NONE
        if len(small):
            aside = values[small]
            aside = aside[aside != 0.0]
        shift = 0
        if abs(top) > 300:
            # Powers of two bring the values where neither products nor units leave the doubles'
            # range.
            shift = top
            values = values * 2.0 ** (-shift // 2) * 2.0 ** (-shift - (-shift // 2))
        first = top - shift - SLICE_BITS + 1
        self._slice(values, small, depth, first)
        return (shift, first, depth), self._add_up(len(values), depth, squares), aside

    def _depth(self, magnitude: NDArray[np.float64], top: int) -> tuple[int, NDArray[np.intp]]:
        """How many slices to cut, and the places of the values that are too small for them."""
        small = self.flags[: len(magnitude)]
        for depth in DEPTHS:
            left = np.count_nonzero(np.less(magnitude, math.ldexp(DEPTHS[depth], top), out=small))
            if left * 16 < len(magnitude):
                break
        return depth, np.flatnonzero(small)

    def _slice(
        self, rest: NDArray[np.float64], small: NDArray[np.intp], depth: int, first: int
    ) -> None:
        """Cut values into slices whose units are 2**first, 2**(first - SLICE_BITS), …; those at
        `small` count as 0."""
        count = len(rest)
        last = self.slices[depth - 1, :count]
        for number in range(depth - 1):
            bias = math.ldexp(1.5, 52 + first - number * SLICE_BITS)
            piece = self.slices[number, :count]
            np.add(rest, bias, out=piece)
            np.subtract(piece, bias, out=piece)
            np.subtract(rest, piece, out=last)
            if number == 0 and len(small):
                piece[small] = 0.0
                last[small] = 0.0
            rest = last

    def _add_up(self, count: int, depth: int, squares: bool) -> NDArray[np.float64]:
        """Sums of the slices, and of products of two (first with first, with second, …; second
        with second, …)."""
        rows = -(-count // ROW)
        self.slices[:depth, count : rows * ROW] = 0.0
        slices = self.slices[:depth, : rows * ROW].reshape(depth, rows, ROW)
        sums = np.empty((depth + (depth * (depth + 1) // 2 if squares else 0), rows))
        np.vecdot(slices, _ONES, out=sums[:depth])
        at = depth
        for number in range(depth if squares else 0):
            np.vecdot(slices[number:], slices[number], out=sums[at : at + depth - number])
            at += depth - number
        return sums


def _as_integers(
    scale: tuple[int, int, int], sums: NDArray[np.float64], squares: bool
) -> tuple[int, int]:
    """Total and total of squares of what `_Work.sum` found, in units of 2**-1074 and 2**-2148."""
    shift, first, depth = scale
    units = [first - number * SLICE_BITS for number in range(depth)]
    pairs = [(i, j) for i in range(depth) for j in range(i, depth)] if squares else []
    exponents = units + [units[i] + units[j] for i, j in pairs]
    numbers = [0] * len(exponents)
    # Whole numbers up to 2**53: 2**9 of them fit an int64.
    for start in range(0, sums.shape[1], 1 << 9):
        part = np.ldexp(
            sums[: len(exponents), start : start + (1 << 9)], -np.array(exponents)[:, None]
        )
        numbers = [
            a + b for a, b in zip(numbers, part.astype(np.int64).sum(axis=1).tolist(), strict=True)
        ]
    total = sum(number << (unit + BASE) for number, unit in zip(numbers, units, strict=False))
    square = 0
    for (i, j), number, unit in zip(pairs, numbers[depth:], exponents[depth:], strict=True):
        square += number << (unit + 2 * BASE + (i != j))
    more = shift + UNIT - BASE
    return _shifted(total, more), _shifted(square, 2 * more)


BASE = 1100
"""Sums inside a chunk are counted in units of 2**-BASE, below every unit that a slice can have."""


def _shifted(number: int, bits: int) -> int:
    return number << bits if bits >= 0 else number >> -bits
