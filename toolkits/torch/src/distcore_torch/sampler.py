"""Which row is in which global batch, for any number of workers; no torch, and the same bits
everywhere.

The rows of a split are dealt to L lanes (a power of two), contiguously and evenly. A global batch
takes its rows from every lane in turn; a worker owns its share of the lanes and reads only those.
In every epoch a lane's blocks are permuted, taken a window at a time, and the rows of a window
permuted. All of it is a function of (seed, epoch, lane), so a position (epoch, step) is all that a
resume needs, under any number of workers.

One rule deals everything: m things over p parts give part i floor((m + i) / p) of them. These sum
to m, differ by at most one, and only grow with m; so batch k, which takes from lane l the
difference between m = k·G and m = (k + 1)·G, has exactly G rows, and all lanes end together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from distcore_core.errors import ConfigError, ConfigIssue
from distcore_torch.gather import places_by

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_core.contracts import Rank

BLOCK_BYTES = 256 << 10
"""Most bytes of a block: rows that stay neighbours on their way from the file to the window. A disk
gave scattered blocks a quarter as large at half the rate (docs/log.md)."""

BLOCKS_IN_WINDOW = 8
"""Fewest blocks of a window; a small window gets smaller blocks."""

_BLOCKS, _ROWS = 1, 2  # what a stream of random bits is for


def boundaries(things: int, parts: int) -> NDArray[np.int64]:
    """Where each part starts, and the end: int64 [parts + 1]; part i has floor((things + i) /
    parts)."""
    starts = np.zeros(parts + 1, np.int64)
    if parts:
        np.cumsum((things + np.arange(parts)) // parts, out=starts[1:])
    return starts


def permutation(
    size: int, seed: int, epoch: int, lane: int, window: int, purpose: int
) -> NDArray[np.int64]:
    """A permutation of range(size), size < 2**32, from a random stream of its own.

    Sorts the indices by 32 random bits, equal ones by themselves, so every correct sort gives the
    same answer. The bits are those of Philox4x64-10 (Salmon et al. 2011, "Parallel random numbers:
    as easy as 1, 2, 3"): a published function of key (seed, epoch) and counter (n, window, lane,
    purpose). numpy may change `Generator.permutation`; not this.
    """
    mask = (1 << 64) - 1
    stream = np.random.Philox(
        key=np.array([seed & mask, epoch], np.uint64), counter=[0, window, lane, purpose]
    )
    bits = stream.random_raw((size + 1) // 2).astype("<u8", copy=False).view("<u4")[:size]
    return places_by(bits)


@dataclass(frozen=True)
class Window:
    """How far rows of a lane are shuffled: `blocks` blocks of at most `block_rows` rows at a
    time."""

    block_rows: int
    blocks: int

    @classmethod
    def of(cls, window_bytes: int, row_bytes: int, lanes: int) -> Window:
        """The window whose rows take at most `window_bytes` over all lanes (but at least one row
        of a lane)."""
        row_bytes = max(1, row_bytes)
        rows = max(1, window_bytes // (row_bytes * lanes))
        block_rows = max(1, min(BLOCK_BYTES // row_bytes, rows // BLOCKS_IN_WINDOW))
        return cls(block_rows, rows // block_rows)

    @property
    def rows(self) -> int:
        """Most rows of a lane's window."""
        return self.block_rows * self.blocks


@dataclass(frozen=True)
class Lanes:
    """How `rows` positions of a split are dealt to `lanes` lanes, and the lanes' rows to global
    batches."""

    rows: int
    lanes: int

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.lanes & (self.lanes - 1):
            raise ValueError(f"{self.lanes} lanes are not a power of two")

    @property
    def starts(self) -> NDArray[np.int64]:
        """First position of each lane, and the number of rows: int64 [L + 1]."""
        return boundaries(self.rows, self.lanes)

    def steps(self, batch_size: int) -> int:
        """Global batches of an epoch; the last may be short."""
        return -(-self.rows // batch_size)

    def batch_rows(self, step: int, batch_size: int) -> int:
        """Rows of a global batch."""
        return max(0, min(batch_size, self.rows - step * batch_size))

    def taken(self, first: int, last: int, batch_size: int) -> NDArray[np.int64]:
        """Rows of each lane that were taken before steps first, …, last: int64 [last - first +
        1, L]."""
        dealt = np.minimum(np.arange(first, last + 1) * batch_size, self.rows)
        return (dealt[:, None] + np.arange(self.lanes)) // self.lanes


def share(rank: Rank, things: int) -> range:
    """Which of neighbouring things a rank has: as evenly as can be."""
    return range(rank.index * things // rank.world, (rank.index + 1) * things // rank.world)


def owned(rank: Rank, lanes: int, parts: int = 0) -> range:
    """The lanes of a rank.

    Args:
        rank: Which one, of how many.
        lanes: How many there are.
        parts: If lanes are dealt as so many parts, each whole; 0: one by one.

    Raises:
        ConfigError: If there are more ranks, or more parts, than lanes.
    """
    if max(rank.world, parts) > lanes:
        need = 1 << (max(rank.world, parts) - 1).bit_length()
        what = f"{parts} parts" if parts > lanes else f"{rank.world} workers"
        message = f"{lanes} lanes cannot be shared by {what}; set it to {need} or more"
        raise ConfigError([ConfigIssue(0, "backend.loader.lanes", message)])
    if not parts:
        return share(rank, lanes)
    mine = share(rank, parts)
    return range(mine.start * lanes // parts, mine.stop * lanes // parts)


class LaneOrder:
    """The order of a lane's rows in an epoch; rows are counted from the lane's start.

    window_starts: int64 [windows + 1], where each window starts in that order, and the lane's rows.
    Blocks, and windows of blocks, are cut evenly, so no window is a small rest that would be
    shuffled badly.
    """

    def __init__(self, rows: int, lane: int, seed: int, epoch: int, window: Window) -> None:
        self._key = (seed, epoch, lane)
        count = -(-rows // window.block_rows)
        self._cuts = boundaries(rows, count)
        self._order = permutation(count, *self._key, 0, _BLOCKS)
        self._windows = boundaries(count, -(-count // window.blocks))
        sizes = np.diff(self._cuts)[self._order]
        self.window_starts = np.concatenate([[0], np.cumsum(sizes)])[self._windows]

    @property
    def windows(self) -> int:
        return len(self._windows) - 1

    def window_at(self, position: int) -> int:
        """The window that holds the row at a position of the order."""
        return int(np.searchsorted(self.window_starts, position, "right")) - 1

    def blocks(self, window: int) -> list[tuple[int, int]]:
        """The blocks of the window as ranges of the lane's rows, in the order in which they are
        laid down."""
        chosen = self._order[self._windows[window] : self._windows[window + 1]]
        return list(zip(self._cuts[chosen].tolist(), self._cuts[chosen + 1].tolist(), strict=True))

    def rows(self, window: int) -> NDArray[np.int64]:
        """The order of the window's rows: a permutation of them as they were laid down, block
        after block."""
        size = int(self.window_starts[window + 1] - self.window_starts[window])
        return permutation(size, *self._key, window, _ROWS)


def epoch_order(rows: int, lane: int, seed: int, epoch: int, window: Window) -> NDArray[np.int64]:
    """A lane's rows in the order of the epoch, whole: int64 [rows]. Plain and slow; the loader
    goes by windows."""
    order = LaneOrder(rows, lane, seed, epoch, window)
    parts = [np.zeros(0, np.int64)]
    for index in range(order.windows):
        laid = np.concatenate([np.arange(start, stop) for start, stop in order.blocks(index)])
        parts.append(laid[order.rows(index)])
    return np.concatenate(parts)


def global_batch(
    rows: int, lanes: int, batch_size: int, seed: int, epoch: int, step: int, window: Window
) -> NDArray[np.int64]:
    """Positions of a global batch in order: lane 0's rows, then lane 1's, … The definition,
    plain and slow."""
    dealt = Lanes(rows, lanes)
    starts, (before, after) = dealt.starts, dealt.taken(step, step + 1, batch_size)
    parts = []
    for lane in range(lanes):
        order = epoch_order(int(starts[lane + 1] - starts[lane]), lane, seed, epoch, window)
        parts.append(starts[lane] + order[before[lane] : after[lane]])
    return np.concatenate(parts)
