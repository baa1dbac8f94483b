"""The packed loader: a rank's rows in one 32-bit matrix, the same global batches on any number of
workers.

Shuffled: cache → packed rows of the rank's lanes, in memory or in a scratch file → windows of lanes
→ pieces of some batches, made ahead by a thread → batches, which are views of a piece. In order:
cache → packed pieces → batches.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from distcore_core.contracts import LoadRequest
from distcore_core.errors import CacheError
from distcore_data.memory import free_bytes
from distcore_data.printable import printable
from distcore_local.packed import FileStore, Lists, MemoryStore, Store
from distcore_local.prefetch import Prefetch
from distcore_local.transfer import Transfer
from distcore_local.windows import Buffers, Deal, Piece, shuffled
from distcore_torch.batch import Batch, Layout, Ragged
from distcore_torch.gather import runs, take_rows
from distcore_torch.packing import row_bytes
from distcore_torch.sampler import Lanes, Window, owned
from distcore_torch.sampler import share as share_of

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_local.options import LoaderOptions

READ_ROWS, READ_BYTES = 65_536, 32 << 20
"""Most rows, and most packed bytes, that are read from the cache at once to be packed."""

PIECE_BYTES = 4 << 20
"""Bytes of a piece: enough to spread what a piece costs over many batches, few enough to stay in
the caches."""

MEMORY_SHARE = 4
"""`fully_executed: auto` holds a split in memory if it takes at most 1 / MEMORY_SHARE of what is
free."""

Made = tuple[Piece, Batch, "torch.cuda.Event | None"]


class PackedLoader:
    """Batches of one split for one rank. Packs the rows when batches are first asked for.

    Raises ConfigError if there are more ranks than lanes, CacheError if the cache has no such
    column.
    """

    def __init__(self, request: LoadRequest, options: LoaderOptions) -> None:
        self._request, self._options = request, options
        self._lanes = Lanes(request.reader.rows(request.split), options.lanes)
        # One beyond the split's rows is all of them: memory is for rows that are there.
        self._batch_size = min(request.batch_size, max(1, self._lanes.rows))
        self._mine = owned(request.rank, options.lanes, request.parts)
        self._layout = _layout(request)
        self._row_bytes = row_bytes(request.reader, request.split, self._layout)
        self._store: Store | None = None
        self._buffers: Buffers | None = None
        self._kept: dict[int, Piece] = {}
        self._passes = 0
        self._under_way: weakref.WeakSet[Prefetch[Made]] = weakref.WeakSet()

    @property
    def steps(self) -> int:
        """Global batches of an epoch."""
        return self._lanes.steps(self._batch_size)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's part of global batches start, start + 1, … of the epoch; a part may have
        no rows."""
        transfer = Transfer(self._request.device)
        pieces = self._shuffled(epoch, start) if self._request.shuffle else self._in_order(start)
        made = ((piece, *transfer.send(self._whole(piece))) for piece in pieces)
        for piece, whole, event in self._ahead(made):
            yield from _cut(piece, transfer.receive(whole, event))

    def close(self) -> None:
        """End the threads under way, and let go of memory and scratch files."""
        for prefetch in list(self._under_way):
            prefetch.close()
        if self._store is not None:
            self._store.close()
        self._store = self._buffers = None
        self._kept.clear()

    # -------------------------------------------------------------- shuffled

    def _shuffled(self, epoch: int, start: int) -> Generator[Piece, None, None]:
        request, options = self._request, self._options
        window = Window.of(options.window_size_bytes, self._row_bytes, options.lanes)
        share = -(-self._batch_size * len(self._mine) // options.lanes)
        deal = Deal(
            self._lanes,
            self._mine,
            self._batch_size,
            request.seed,
            window,
            self._steps_in_piece(share),
            len(share_of(request.rank, request.parts)),
        )
        store = self._store = self._store or self._packed(deal)
        buffers, self._buffers = self._buffers or Buffers(deal, store), None
        return self._returning(buffers, shuffled(store, deal, epoch, start, buffers))

    def _returning(self, buffers: Buffers, pieces: Iterator[Piece]) -> Generator[Piece, None, None]:
        """The pieces; the buffers go back to the loader when they end or are given up."""
        try:
            yield from pieces
        finally:
            self._buffers = buffers

    def _packed(self, deal: Deal) -> Store:
        """The rows of our lanes, read from the cache in pieces and packed."""
        store: Store
        if self._fits_memory():
            store = MemoryStore(deal.rows, self._layout)
        else:
            store = FileStore(self._layout, self._request.scratch)
        try:
            stop, count = (
                deal.first_row + deal.rows,
                max(1, min(READ_ROWS, READ_BYTES // self._row_bytes)),
            )
            self._request.reader.expect(self._request.split, deal.first_row, stop)
            for start in range(deal.first_row, stop, count):
                store.append(self._read(start, min(start + count, stop)))
            store.finish()
        except BaseException:
            store.close()
            raise
        return store

    # -------------------------------------------------------------- in order

    def _in_order(self, start: int) -> Generator[Piece, None, None]:
        """Pieces as they come from the cache; kept if they fit, once there is more than one pass
        over them."""
        keep = (self._options.fully_executed is True or self._passes > 0) and self._fits_memory()
        self._passes += 1
        count = self._steps_in_piece(self._batch_size)
        begin = start - start % count
        if not self._kept:
            self._request.reader.expect(
                self._request.split, begin * self._batch_size, self._lanes.rows
            )
        for first in range(begin, self.steps, count):
            piece = self._kept.get(first) or self._read_piece(first, min(first + count, self.steps))
            if keep:
                self._kept[first] = piece
                piece = piece.copy()
            yield piece.after(max(0, start - first))

    def _read_piece(self, first: int, last: int) -> Piece:
        """Our part of the in-order batches first, …, last - 1: of each, an even share of its
        rows."""
        rank, size, rows = self._request.rank, self._batch_size, self._lanes.rows
        begin, end = first * size, min(last * size, rows)
        store = MemoryStore(end - begin, self._layout)
        store.append(self._read(begin, end))
        store.finish()
        steps = np.arange(first, last)
        whole = np.minimum((steps + 1) * size, rows) - steps * size
        parts = self._request.parts
        mine, of = (
            (share_of(rank, parts), parts)
            if parts
            else (range(rank.index, rank.index + 1), rank.world)
        )
        cuts = whole[:, None] * np.arange(mine.start, mine.stop + 1) // of
        starts, sizes = steps * size + cuts[:, 0], cuts[:, -1] - cuts[:, 0]
        matrix, lists = store.matrix, store.lists
        if rank.world > 1:
            own = runs(starts - begin, sizes)
            matrix, lists = (
                take_rows(matrix, own),
                {name: column.take(own) for name, column in lists.items()},
            )
        return Piece(
            matrix, lists, sizes.tolist(), starts.tolist(), np.diff(cuts).tolist() if parts else []
        )

    # -------------------------------------------------------------- both

    def _ahead(self, made: Generator[Made, None, None]) -> Iterator[Made]:
        if not self._options.prefetch:
            yield from made
            return
        prefetch = Prefetch(made, self._options.prefetch)
        self._under_way.add(prefetch)
        try:
            yield from prefetch
        finally:
            prefetch.close()

    def _whole(self, piece: Piece) -> Batch:
        ragged = {
            name: Ragged(*map(torch.from_numpy, column)) for name, column in piece.lists.items()
        }
        return Batch(torch.from_numpy(piece.matrix), self._layout, ragged)

    def _read(self, start: int, stop: int) -> pa.RecordBatch:
        return self._request.reader.read(
            self._request.split, start, stop, list(self._request.columns)
        )

    def _steps_in_piece(self, batch_rows: int) -> int:
        most = min(PIECE_BYTES, self._options.window_size_bytes // 4)
        return max(1, min(most // (batch_rows * self._row_bytes), self.steps))

    def _fits_memory(self) -> bool:
        """Whether the whole split is to be held in memory (all ranks' rows: they may share a
        machine)."""
        if self._options.fully_executed == "auto":
            return self._lanes.rows * self._row_bytes <= free_bytes() // MEMORY_SHARE
        return self._options.fully_executed


def _layout(request: LoadRequest) -> Layout:
    known = request.reader.columns
    for name in request.columns:
        if name not in known:
            raise CacheError(
                f"The cache has no column {name!r}; it has {', '.join(map(printable, known))}. Run "
                "preprocess again."
            )
    return Layout.of(known[name] for name in request.columns)


def _cut(piece: Piece, whole: Batch) -> Iterator[Batch]:
    """The batches of a piece, as views."""
    layout, starts = whole.layout, piece.starts or [0] * len(piece.sizes)
    part_rows: Sequence[Sequence[int]] = piece.part_rows or [()] * len(piece.sizes)
    matrices = whole.packed.split(piece.sizes)
    if not whole.ragged:
        for matrix, start, rows in zip(matrices, starts, part_rows, strict=True):
            yield Batch(matrix, layout, None, start, rows)
        return
    ends = np.cumsum([0, *piece.sizes])
    ragged = {
        name: _cut_ragged(piece.lists[name], ends, column) for name, column in whole.ragged.items()
    }
    for index, (matrix, start, rows) in enumerate(zip(matrices, starts, part_rows, strict=True)):
        yield Batch(
            matrix, layout, {name: columns[index] for name, columns in ragged.items()}, start, rows
        )


def _cut_ragged(lists: Lists, ends: np.ndarray, column: Ragged) -> list[Ragged]:
    """The ragged column of each batch. lists: the same on the host, which knows the lengths
    without a wait."""
    at, cuts = ends.tolist(), lists.offsets[ends].tolist()
    return [
        Ragged(column.values[low:high], column.offsets[first : last + 1] - low)
        for first, last, low, high in zip(at[:-1], at[1:], cuts[:-1], cuts[1:], strict=True)
    ]
