"""An epoch in shuffled order, a piece of some batches at a time, with one window of every lane
in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from distcore_local.packed import Lists, Store
from distcore_torch.gather import runs
from distcore_torch.sampler import LaneOrder, Lanes, Window

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass
class Piece:
    """The rows of successive batches.

    matrix: int32 [n, W]; sizes: of each batch; starts: of batches in order; part_rows: of each
    batch's parts, if it has any."""

    matrix: NDArray[np.int32]
    lists: dict[str, Lists]
    sizes: list[int]
    starts: list[int] = field(default_factory=list)
    part_rows: list[list[int]] = field(default_factory=list)

    def copy(self) -> Piece:
        """The same rows in memory of its own."""
        lists = {
            name: Lists(column.values.copy(), column.offsets.copy())
            for name, column in self.lists.items()
        }
        return Piece(self.matrix.copy(), lists, self.sizes, self.starts, self.part_rows)

    def after(self, steps: int) -> Piece:
        """The piece without its first batches."""
        if not steps:
            return self
        skip, rows = sum(self.sizes[:steps]), len(self.matrix)
        lists = {name: column.slice(skip, rows) for name, column in self.lists.items()}
        return Piece(
            self.matrix[skip:],
            lists,
            self.sizes[steps:],
            self.starts[steps:],
            self.part_rows[steps:],
        )


@dataclass(frozen=True)
class Deal:
    """What a rank's shuffled epochs have in common.

    mine: the rank's lanes; the store holds their rows and no others. steps_in_piece: batches of a
        piece. parts: how many the rank's lanes make up; 0: batches are not cut into parts.
    """

    lanes: Lanes
    mine: range
    batch_size: int
    seed: int
    window: Window
    steps_in_piece: int
    parts: int = 0

    @property
    def first_row(self) -> int:
        """Position in the split of the store's first row."""
        return int(self.lanes.starts[self.mine.start])

    @property
    def rows(self) -> int:
        """Rows of the rank's lanes."""
        return int(self.lanes.starts[self.mine.stop]) - self.first_row

    @property
    def window_rows(self) -> int:
        """Most rows of one window of one lane."""
        return min(self.window.rows, -(-self.lanes.rows // self.lanes.lanes))

    @property
    def lane_rows(self) -> int:
        """Most rows of a lane that are in memory: a window, and what is left of the one before
        for the next piece."""
        return self.window_rows + -(-self.steps_in_piece * self.batch_size // self.lanes.lanes)


class Buffers:
    """Memory of an epoch, used again by the next. lanes: [own lanes, lane_rows, width], of the
    store's dtype; laid: one window as read."""

    def __init__(self, deal: Deal, store: Store) -> None:
        self.lanes = np.empty((len(deal.mine), deal.lane_rows, store.width), store.dtype)
        self.laid = np.empty((deal.window_rows, store.width), store.dtype)


class LaneRows:
    """A lane's rows, or where they lie, in the order of the epoch. buffer[at:filled] is what comes
    next, as far as it was read."""

    def __init__(
        self,
        store: Store,
        first: int,
        order: LaneOrder,
        buffer: NDArray[Any],
        laid: NDArray[Any],
        at: int,
    ) -> None:
        self._store, self._first, self._order = store, first, order
        self._buffer, self._laid = buffer, laid
        self._lists: dict[str, Lists] = {}
        self._next = order.window_at(at) if order.windows else 0
        self._skip = at - int(order.window_starts[self._next])
        self.at = self._filled = 0

    def provide(self, count: int) -> int:
        """Read windows until the next `count` rows lie in the buffer; returns where they begin."""
        while self._filled - self.at < count:
            self._read_window()
        return self.at

    def advance(self, count: int) -> dict[str, Lists]:
        """Step over `count` rows; their ragged columns."""
        begin, self.at = self.at, self.at + count
        return {name: lists.slice(begin, self.at) for name, lists in self._lists.items()}

    def _ranges(self, window: int) -> list[tuple[int, int]]:
        """The window's blocks as rows of the store."""
        return [
            (self._first + start, self._first + stop) for start, stop in self._order.blocks(window)
        ]

    def _read_window(self) -> None:
        left = self._filled - self.at
        self._buffer[:left] = self._buffer[self.at : self._filled]
        order = self._order.rows(self._next)
        lists = self._store.read(self._ranges(self._next), self._laid)
        if self._next + 1 < self._order.windows:
            self._store.expect(self._ranges(self._next + 1))
        # mode="clip" lets take write straight into `out`; the order is a permutation, so nothing is
        # ever clipped.
        self._laid[: len(order)].take(
            order, axis=0, out=self._buffer[left : left + len(order)], mode="clip"
        )
        for name, column in lists.items():
            taken = column.take(order)
            self._lists[name] = (
                Lists.join([self._lists[name].slice(self.at, self._filled), taken])
                if left
                else taken
            )
        self.at, self._filled = 0, left + len(order)
        self._next += 1
        # Only the first window of a resumed epoch is entered in its middle.
        self.at, self._skip = self.at + self._skip, 0


def shuffled(store: Store, deal: Deal, epoch: int, start: int, buffers: Buffers) -> Iterator[Piece]:
    """The rank's parts of global batches start, start + 1, … of the epoch."""
    steps = deal.lanes.steps(deal.batch_size)
    streams = _streams(store, deal, epoch, start, buffers)
    flat = buffers.lanes.reshape(-1, store.width)
    bases = np.arange(len(deal.mine)) * deal.lane_rows
    for first in range(start, steps, deal.steps_in_piece):
        last = min(first + deal.steps_in_piece, steps)
        taken = deal.lanes.taken(first, last, deal.batch_size)[:, deal.mine.start : deal.mine.stop]
        counts = np.diff(taken, axis=0)
        totals = (taken[-1] - taken[0]).tolist()
        at = np.array(
            [stream.provide(count) for stream, count in zip(streams, totals, strict=True)]
        )
        # Row after row of the piece: for each batch, from each lane, the run of rows that it takes.
        found = flat.take(
            runs((taken[:-1] - taken[0] + at + bases).ravel(), counts.ravel()), axis=0
        )
        parts = [stream.advance(count) for stream, count in zip(streams, totals, strict=True)]
        matrix, lists = store.whole(found, _interleaved(store.beside, parts, taken, counts))
        rows = counts.reshape(len(counts), deal.parts, -1).sum(2).tolist() if deal.parts else []
        yield Piece(matrix, lists, counts.sum(1).tolist(), part_rows=rows)


def _streams(store: Store, deal: Deal, epoch: int, start: int, buffers: Buffers) -> list[LaneRows]:
    starts, taken = deal.lanes.starts, deal.lanes.taken(start, start, deal.batch_size)[0]
    streams = []
    for slot, lane in enumerate(deal.mine):
        order = LaneOrder(int(starts[lane + 1] - starts[lane]), lane, deal.seed, epoch, deal.window)
        first = int(starts[lane]) - deal.first_row
        streams.append(
            LaneRows(store, first, order, buffers.lanes[slot], buffers.laid, int(taken[lane]))
        )
    return streams


def _interleaved(
    names: tuple[str, ...],
    parts: list[dict[str, Lists]],
    taken: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> dict[str, Lists]:
    """The ragged columns of a piece, from each lane's part of it. taken, counts: [steps (+ 1),
    own lanes]."""
    if not names:
        return {}
    totals = taken[-1] - taken[0]
    rows = runs((taken[:-1] - taken[0] + np.cumsum(totals) - totals).ravel(), counts.ravel())
    return {
        name: Lists.join(part[name] for part in parts if name in part).take(rows) for name in names
    }
