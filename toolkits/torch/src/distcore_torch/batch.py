"""A batch of encoded rows: one packed 32-bit matrix, and typed views of its columns.

Columns lie side by side, float32 columns first, then int32 ones, so that a run of columns of one
dtype is one strided view and no copy. Ragged columns (tokens, set members) lie beside the matrix as
values and offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import torch

from distcore_core import contracts
from distcore_core.contracts import Column

DTYPES = {"float32": torch.float32, "int32": torch.int32}


class Slot(NamedTuple):
    """Where a column lies in the packed matrix: words [start, start + width) of each row."""

    start: int
    width: int
    dtype: torch.dtype


class Ragged(NamedTuple):
    """A ragged column: row i holds values[offsets[i]:offsets[i + 1]].

    values: int32 [total]; offsets: int64 [B + 1]."""

    values: torch.Tensor
    offsets: torch.Tensor


@dataclass(frozen=True)
class Layout:
    """How columns are packed. `words` is W, the 32-bit words of one row; `ragged` names what
    lies beside."""

    slots: Mapping[str, Slot]
    ragged: tuple[str, ...] = ()
    _blocks: dict[tuple[str, ...], Slot | None] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @cached_property
    def words(self) -> int:
        return sum(slot.width for slot in self.slots.values())

    @classmethod
    def of(cls, columns: Iterable[Column]) -> Layout:
        """Float columns first, then int columns, each in the given order."""
        columns = list(columns)
        slots: dict[str, Slot] = {}
        start = 0
        for dtype in ("float32", "int32"):
            for column in columns:
                if column.dtype == dtype and column.width is not None:
                    slots[column.name] = Slot(start, column.width, DTYPES[dtype])
                    start += column.width
        return cls(slots, tuple(column.name for column in columns if column.width is None))

    def _block(self, names: Sequence[str]) -> Slot | None:
        """These columns as one, or None if they do not lie side by side.

        Kept: a network asks for the same names at every step, maybe for a thousand."""
        key = tuple(names)
        if key not in self._blocks:
            slots = [self.slots[name] for name in key]
            ends = [slot.start + slot.width for slot in slots]
            together = ends[:-1] == [slot.start for slot in slots[1:]]
            start, _, dtype = slots[0]
            self._blocks[key] = Slot(start, ends[-1] - start, dtype) if together else None
        return self._blocks[key]


class Batch(contracts.Batch):
    """B rows. batch["age"] is a float32 or int32 view [B] (or [B, width]), or a `Ragged`.

    packed: int32 [B, W]. start: position of the first row in the split, for batches in row order.
    part_rows: see `contracts.Batch`.
    """

    __slots__ = ("_part_rows", "layout", "packed", "ragged", "start")

    def __init__(
        self,
        packed: torch.Tensor,
        layout: Layout,
        ragged: Mapping[str, Ragged] | None = None,
        start: int = 0,
        part_rows: Sequence[int] = (),
    ) -> None:
        self.packed = packed
        self.layout = layout
        self.ragged = ragged or {}
        self.start = start
        self._part_rows = part_rows

    @property
    def rows(self) -> int:
        return self.packed.shape[0]

    @property
    def part_rows(self) -> Sequence[int]:
        return self._part_rows

    def __getitem__(self, name: str) -> torch.Tensor | Ragged:
        slot = self.layout.slots.get(name)
        if slot is None:
            return self.ragged[name]
        words = slot.start if slot.width == 1 else slice(slot.start, slot.start + slot.width)
        return _seen_as(self.packed[:, words], slot.dtype)

    def __iter__(self) -> Iterator[str]:
        yield from self.layout.slots
        yield from self.layout.ragged

    def __len__(self) -> int:
        return len(self.layout.slots) + len(self.layout.ragged)

    def block(self, names: Sequence[str]) -> torch.Tensor:
        """Columns of one dtype as [B, words]: one view if they lie side by side, a copy if they
        do not."""
        block = self.layout._block(names)
        if block is not None:
            return _seen_as(self.packed[:, block.start : block.start + block.width], block.dtype)
        slots = [self.layout.slots[name] for name in names]
        parts = [self.packed[:, each.start : each.start + each.width] for each in slots]
        return _seen_as(torch.cat(parts, 1), slots[0].dtype)

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        ragged = {
            name: Ragged(*(part.to(device, non_blocking=non_blocking) for part in column))
            for name, column in self.ragged.items()
        }
        packed = self.packed.to(device, non_blocking=non_blocking)
        return Batch(packed, self.layout, ragged, self.start, self.part_rows)

    def part(self, start: int, stop: int) -> Batch:
        """Rows [start, stop), as views."""
        ragged = {}
        for name, column in self.ragged.items():
            first, last = int(column.offsets[start]), int(column.offsets[stop])
            ragged[name] = Ragged(
                column.values[first:last], column.offsets[start : stop + 1] - first
            )
        return Batch(self.packed[start:stop], self.layout, ragged, self.start + start)

    def copy(self) -> Batch:
        """The same rows in memory of their own.

        Kernels may add in another order in memory that begins elsewhere; what torch allocates
        begins alike."""
        ragged = {
            name: Ragged(*(part.clone() for part in column)) for name, column in self.ragged.items()
        }
        packed = self.packed.clone(memory_format=torch.contiguous_format)
        return Batch(packed, self.layout, ragged, self.start, self.part_rows)

    def parts(self) -> Iterator[Batch]:
        """Its parts in turn, as `part_rows` says, each as `copy` gives it; parts without rows
        too."""
        start = 0
        for rows in self.part_rows:
            yield self.part(start, start + rows).copy()
            start += rows


def _seen_as(words: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The int32 words as they are, or as another dtype."""
    return words if dtype is torch.int32 else words.view(dtype)
