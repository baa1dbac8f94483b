"""From encoded Arrow columns to the packed 32-bit matrix that batches are views of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import torch

from distcore_data.arrow import to_numpy
from distcore_torch import gather
from distcore_torch.batch import Batch, Layout, Ragged

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_core.contracts import CachedRows, Split

TYPES = {torch.float32: pa.float32(), torch.int32: pa.int32()}

SAMPLE_ROWS = 4096
"""First rows of a split whose ragged columns tell how long its rows are; the same rows for every
worker."""


def row_bytes(reader: CachedRows, split: Split, layout: Layout) -> int:
    """Mean bytes of a packed row of a split with its ragged columns, at least 1; of these, from
    the first rows."""
    found, rows = 4 * layout.words, min(SAMPLE_ROWS, reader.rows(split))
    if layout.ragged and rows:
        sample = reader.read(split, 0, rows, list(layout.ragged))
        values = sum(len(sample.column(name).flatten()) for name in layout.ragged)
        found += 8 * len(layout.ragged) + 4 * values // rows
    return max(1, found)


def pack(encoded: pa.RecordBatch, layout: Layout, start: int = 0) -> Batch:
    """One batch of all rows.

    Args:
        encoded: Holds the layout's columns, without nulls.
        start: See `Batch`.
    """
    matrix = np.empty((encoded.num_rows, layout.words), np.int32)
    pack_into(matrix, encoded, layout)
    ragged = {name: ragged_of(encoded.column(name)) for name in layout.ragged}
    return Batch(torch.from_numpy(matrix), layout, ragged, start)


def pack_into(matrix: NDArray[np.int32], encoded: pa.RecordBatch, layout: Layout) -> None:
    """Fill matrix [n, W] with the fixed-width columns, bit-cast to int32."""
    together = set(_compiled(matrix, encoded, layout)) or {
        name for dtype in TYPES for name in _in_one_call(matrix, encoded, layout, dtype)
    }
    for name, slot in layout.slots.items():
        if name in together:
            continue
        column = encoded.column(name)
        if slot.width == 1:
            matrix[:, slot.start] = to_numpy(column).view(np.int32)
        else:
            values = to_numpy(column.flatten()).view(np.int32)
            matrix[:, slot.start : slot.start + slot.width] = values.reshape(-1, slot.width)


def _compiled(matrix: NDArray[np.int32], encoded: pa.RecordBatch, layout: Layout) -> list[str]:
    """Fill in all columns that are a word wide by compiled code. Gives their names; none if it
    cannot be done so."""
    names = [name for name, slot in layout.slots.items() if slot.width == 1]
    if gather.compiled is None or not names:
        return []
    columns = encoded if encoded.schema.names == names else encoded.select(names)
    places = np.array([layout.slots[name].start for name in names], np.int64)
    done = gather.compiled.pack_columns(matrix, layout.words, places, *columns.__arrow_c_array__())
    return names if done else []


def _in_one_call(
    matrix: NDArray[np.int32], encoded: pa.RecordBatch, layout: Layout, dtype: torch.dtype
) -> list[str]:
    """Fill in all columns of the dtype that are a word wide: a call for each takes longer than its
    work. Gives their names; none if it cannot be done so."""
    slots = layout.slots.items()
    places = {name: at for name, (at, width, kind) in slots if kind == dtype and width == 1}
    names = list(places)
    if len(names) < 2:
        return []
    columns = encoded if encoded.schema.names == names else encoded.select(names)
    if set(columns.schema.types) != {TYPES[dtype]}:
        return []
    try:
        found = columns.to_tensor(row_major=True).to_numpy()
    except pa.ArrowException:  # there are nulls: `to_numpy` tells of a column
        return []
    first, last = places[names[0]], places[names[-1]]
    neighbours = last - first == len(names) - 1
    matrix[:, slice(first, last + 1) if neighbours else list(places.values())] = found.view(
        np.int32
    )
    return names


def ragged_of(column: pa.ListArray) -> Ragged:
    """A List<int32> column as values and offsets that start at 0."""
    offsets = to_numpy(column.offsets).astype(np.int64)
    # A slice of a list array keeps the values of its neighbours; only this slice's are wanted.
    values = to_numpy(column.values)[offsets[0] : offsets[-1]]
    return Ragged(
        torch.from_numpy(np.array(values, np.int32)), torch.from_numpy(offsets - offsets[0])
    )
