"""Sums, extremes and codes of number columns by compiled code, if it was built: a pass each, to the
bits that exactsum.py and numpy give.

Whatever is not plain (an infinity, NaN, a code that is not finite) gets the answer None: numpy then
decides what it means. So nothing but speed depends on whether a C compiler was there when distcore
was installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from distcore_data.encoding.exactsum import Moments

if TYPE_CHECKING:
    from types import ModuleType

compiled: ModuleType | None
try:
    from distcore_data.encoding import _numbers as compiled
except ImportError:
    compiled = None


class Described(NamedTuple):
    """Of the values that are not null. low, high: extremes, inf and -inf of no values."""

    moments: Moments
    low: float
    high: float


def described(values: pa.Array) -> Described | None:
    """Moments and extremes of a float64 array [n]; None: numpy must look."""
    if compiled is None or values.type != pa.float64():
        return None
    valid, numbers = values.buffers()
    if numbers is None:
        return None
    bits = valid if values.null_count else None
    found = compiled.described(numbers, bits, values.offset, len(values))
    if found is None:
        return None
    count, total, squares, low, high = found
    moments = Moments(count, _whole(total), _whole(squares))
    return Described(moments, low + 0.0, high + 0.0)  # adding zero makes -0.0 and 0.0 one value


def surely_finite(values: pa.Array) -> bool:
    """Whether a float64 array [n] is finite, under its nulls too; False: it may not be, or another
    must look."""
    if compiled is None or values.type != pa.float64():
        return False
    numbers = values.buffers()[1]
    return numbers is not None and compiled.surely_finite(numbers, values.offset, len(values))


def scaled(values: pa.Array, shift: float, scale: float, fill: float) -> pa.Array | None:
    """(x - shift) / scale of a float64 array as float32 [n], and `fill` for null; None: numpy must
    look."""
    if compiled is None or values.type != pa.float64():
        return None
    valid, numbers = values.buffers()
    if numbers is None:
        return None
    count, bits = len(values), valid if values.null_count else None
    target = pa.allocate_buffer(4 * count)
    if not compiled.scaled(numbers, bits, values.offset, count, shift, scale, fill, target):
        return None
    return pa.Array.from_buffers(pa.float32(), count, [None, target], null_count=0)


def _whole(words: bytes) -> int:
    return int.from_bytes(words, "little", signed=True)
