"""The local processor: threads read tiles (some columns of some rows), keep each in a scratch file,
and hand out slices of those.

Parsing, statistics and encoding spend their time in Arrow and numpy, which release Python's lock,
so threads are enough and nothing is copied between processes. The rows that were read are kept as
uncompressed Arrow files: written once through the page cache, mapped when shards are written, never
on Python's heap. So memory is a few blocks a thread, however many rows there are.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from distcore_core.contracts import Block, Partition, ShardPlan, Source
from distcore_data.sources.tiles import cut_evenly, tiles_of
from distcore_data.threads import processors, run_all, sharing
from distcore_local.options import ProcessorOptions

T = TypeVar("T")
R = TypeVar("R")


class LocalProcessor:
    """`contracts.Processor` over threads. options: `ProcessorOptions`."""

    def __init__(self, options: ProcessorOptions) -> None:
        self.threads = options.parallelism or processors()
        self._tiles: Sequence[Sequence[Partition]] = ()
        self._folder: Path | None = None
        self._starts: list[int] = []

    def scan(self, source: Source, scratch: Path | None = None) -> int:
        """Cut the source into tiles. scratch: folder for the rows that are kept (default: the
        system's)."""
        self.close()
        self._tiles = cut_evenly(
            lambda size: tiles_of(source, size),
            self.threads,
            count=lambda tiles: sum(map(len, tiles)),
        )
        self._folder = Path(tempfile.mkdtemp(prefix="rows-", dir=scratch))
        return len(self._tiles)

    def fold(
        self, partial: Callable[[Block], T], merge: Callable[[T, T], T]
    ) -> tuple[T, list[int]]:
        """Read every tile once. Raises what the first of them that failed, in the order of rows
        and then of columns, raised."""
        # Of the tiles with the same columns: two threads merge what two large columns have.
        states = [_Merged(merge) for _ in range(max(map(len, self._tiles), default=0))]

        def one(place: tuple[int, int]) -> int:
            index, number = place
            table = self._tiles[index][number].read()
            states[number].add(partial(Block(index=index, start=None, table=table)))
            self._keep(self._path(index, number), table)
            return table.num_rows

        places = [(index, n) for index, tiles in enumerate(self._tiles) for n in range(len(tiles))]
        found = run_all(one, places, self.threads)
        rows = [count for (_, number), count in zip(places, found, strict=True) if number == 0]
        self._starts = [0, *accumulate(rows)]
        # parsing leaves more behind than encoding will need
        pa.default_memory_pool().release_unused()
        return _whole(merge, states), rows

    def write_shards(
        self, plans: Sequence[ShardPlan], write: Callable[[ShardPlan, list[Block]], R]
    ) -> list[R]:
        """Call write(plan, slices) for each plan; the slices are views of mapped files. Threads
        that few plans leave idle work on columns."""
        share = self.threads // max(1, len(plans))

        def one(plan: ShardPlan) -> R:
            with sharing(share):
                result = write(plan, self._slices(plan))
            # a shard's buffers are larger than what the next step keeps
            pa.default_memory_pool().release_unused()
            return result

        return run_all(one, plans, self.threads)

    def close(self) -> None:
        """Delete the rows that were kept."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _path(self, index: int, number: int) -> bytes:
        assert self._folder is not None
        return os.fsencode(self._folder / f"{index:06d}-{number:04d}.arrow")

    def _keep(self, path: bytes, table: pa.RecordBatch) -> None:
        if table.num_rows:
            with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
                writer.write_batch(table)

    def _kept(self, index: int) -> pa.RecordBatch:
        """All columns of the rows of some tiles."""
        batches = []
        for number in range(len(self._tiles[index])):
            with pa.memory_map(self._path(index, number)) as file:
                batches.append(pa.ipc.open_file(file).get_batch(0))
        if len(batches) == 1:
            return batches[0]
        names = [name for each in batches for name in each.schema.names]
        return pa.record_batch([column for each in batches for column in each.columns], names)

    def _slices(self, plan: ShardPlan) -> list[Block]:
        """The rows [plan.start, plan.stop) as slices of blocks, in row order."""
        found = []
        index = bisect_right(self._starts, plan.start) - 1
        while index < len(self._starts) - 1 and self._starts[index] < plan.stop:
            start, stop = self._starts[index], self._starts[index + 1]
            low, high = max(start, plan.start), min(stop, plan.stop)
            if low < high:
                table = self._kept(index).slice(low - start, high - low)
                found.append(Block(index=index, start=low, table=table))
            index += 1
        return found


def _whole(merge: Callable[[T, T], T], states: Sequence[_Merged]) -> T:
    if not states:
        raise ValueError("nothing was folded: the source has no partitions")
    return reduce(merge, [state.value() for state in states])


class _Merged:
    """A running merge that threads add to: each merges what it made with what lies there,
    outside the lock."""

    def __init__(self, merge: Callable[[Any, Any], Any]) -> None:
        self._merge = merge
        self._waiting: list[Any] = []
        self._lock = threading.Lock()

    def add(self, value: Any) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._waiting.append(value)
                    return
                other = self._waiting.pop()
            value = self._merge(other, value)

    def value(self) -> Any:
        return self._waiting[0]
