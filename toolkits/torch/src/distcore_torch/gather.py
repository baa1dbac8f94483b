"""Rows of a packed matrix and of ragged columns in another order, one copy of what was asked for;
and orders.

Compiled code does it; where it was not built, numpy gives the same bytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

compiled: ModuleType | None
try:  # by name: import-linter takes a compiled module for its package, which would be a circle
    compiled = import_module("distcore_torch._gather")
except ImportError:
    compiled = None


def take_rows(matrix: NDArray[np.int32], rows: NDArray[np.int64]) -> NDArray[np.int32]:
    """Rows of a matrix.

    Args:
        matrix: int32 [m, W], contiguous.
        rows: int64 [n], each in range(m).

    Returns:
        int32 [n, W], memory of its own.
    """
    if compiled is None or not matrix.size:
        return matrix.take(rows, axis=0)
    out = np.empty((len(rows), matrix.shape[1]), np.int32)
    compiled.take_rows(out, matrix, rows, matrix.shape[1])
    return out


def take_lists(
    values: NDArray[np.int32], offsets: NDArray[np.int64], rows: NDArray[np.int64]
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Rows of a ragged column, whose row i is values[offsets[i]:offsets[i + 1]].

    Args:
        values: int32 [total], contiguous.
        offsets: int64 [m + 1], contiguous.
        rows: int64 [n], each in range(m).

    Returns:
        Their values, and their offsets from 0: int64 [n + 1].
    """
    if compiled is None:
        begins = offsets[rows]
        lengths = offsets[rows + 1] - begins
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return values.take(runs(begins, lengths)), ends
    ends = np.empty(len(rows) + 1, np.int64)
    out = np.empty(compiled.list_ends(ends, offsets, rows), np.int32)
    compiled.take_lists(out, values, offsets, rows)
    return out, ends


def places_by(bits: NDArray[np.uint32]) -> NDArray[np.int64]:
    """The places [n] in the order of their bits, equal ones in their own.

    Args:
        bits: uint32 [n], n < 2**32.
    """
    if compiled is None:  # two stable sorts of 16 bits, which numpy does by counting
        halves = bits.astype("<u4", copy=False).view("<u2").reshape(-1, 2)
        order = halves[:, 0].argsort(kind="stable")
        return order.take(halves[:, 1].take(order).argsort(kind="stable"))
    places = np.empty(len(bits), np.int64)
    compiled.places_by(places, bits.astype(np.uint32, copy=False))
    return places


def runs(begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """begins[0], begins[0] + 1, …, `lengths[0]` of them, then as many from begins[1] as
    lengths[1] says, …"""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    index = np.repeat(begins - (ends - lengths), lengths)
    index += np.arange(total)
    return index
