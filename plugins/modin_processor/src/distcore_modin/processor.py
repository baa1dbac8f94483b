"""The Modin processor: partitions are read and shards written by tasks of Modin's engine, on Ray.

The rows lie between the two in a Modin frame, whose blocks are in Ray's object store, which spills
to disk when it is full. The driver sees the merged statistics and what was written, never rows.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from distcore_core.contracts import Block, Partition, ShardPlan, Source
from distcore_data import cluster_tasks as tasks
from distcore_data.cluster_tasks import FAN_IN
from distcore_data.sources.tiles import cut_evenly
from distcore_modin import blocks
from distcore_modin.engine import ModinEngine
from distcore_modin.options import ModinOptions

T = TypeVar("T")
R = TypeVar("R")


class ModinProcessor:
    """`contracts.Processor` over Modin on Ray. options: `ModinOptions`."""

    def __init__(self, options: ModinOptions) -> None:
        self.options = options
        self._engine: ModinEngine | None = None
        self._partitions: Sequence[Partition] = ()
        self._scratch: Path | None = None
        self._starts: list[int] = []
        self._frame: Any = None
        self._blocks: dict[int, Any] = {}

    def scan(self, source: Source, scratch: Path | None = None) -> int:
        """Cut the source into partitions. scratch: a folder where tasks leave a mark when they
        fail."""
        self._forget()
        self._engine = self._engine or ModinEngine()
        cpus, wanted = self._engine.cpus, self.options.parallelism
        self._partitions = cut_evenly(source.partitions, cpus, wanted)
        self._scratch = Path(tempfile.mkdtemp(prefix="failed-", dir=scratch))
        return len(self._partitions)

    def fold(
        self, partial: Callable[[Block], T], merge: Callable[[T, T], T]
    ) -> tuple[T, list[int]]:
        """Read every partition once. Raises what the first partition in row order that failed
        raised."""
        if not self._partitions:
            raise ValueError("nothing was folded: the source has no partitions")
        engine, marks = self._ready()
        statistics, join = engine.put(partial), engine.put(merge)
        read = [
            engine.run(blocks.read, index, partition, statistics, marks, returns=2)
            for index, partition in enumerate(self._partitions)
        ]
        level = [folded for _, folded in read]
        while len(level) > 1:
            level = [
                engine.run(blocks.merge, join, *level[start : start + FAN_IN])
                for start in range(0, len(level), FAN_IN)
            ]
        folded = self._values(level, marks)[0]
        if folded.failure is not None:
            tasks.raise_failure(folded.failure)
        rows = [count for _, count, _ in sorted(folded.kept)]
        self._keep([block for block, _ in read], rows)
        return folded.state, rows

    def write_shards(
        self, plans: Sequence[ShardPlan], write: Callable[[ShardPlan, list[Block]], R]
    ) -> list[R]:
        """Call write(plan, slices) for each plan, in a task of its own."""
        engine, marks = self._ready()
        function = engine.put(write)
        begun = []
        for plan in plans:
            pieces = tasks.slices(plan, self._starts)
            begun.append(
                engine.run(
                    blocks.write,
                    function,
                    plan,
                    pieces,
                    marks,
                    *(self._blocks[each.index] for each in pieces),
                )
            )
        results = self._values(begun, marks)
        tasks.raise_first(results)
        return results

    def close(self) -> None:
        """Let go of the rows, and of the Ray that was started for them."""
        self._forget()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    # -------------------------------------------------------------- inside

    def _ready(self) -> tuple[ModinEngine, str]:
        """The engine, and a folder for the marks of this pass."""
        assert self._engine is not None, "scan comes first"
        assert self._scratch is not None
        marks = self._scratch / uuid.uuid4().hex
        marks.mkdir()
        return self._engine, str(marks)

    def _keep(self, found: Sequence[Any], rows: Sequence[int]) -> None:
        """Make the Modin frame of the blocks that have rows."""
        assert self._engine is not None
        self._starts = [0, *accumulate(rows)]
        filled = [index for index, count in enumerate(rows) if count]
        if not filled:
            return
        names = self._values([self._engine.run(list, found[filled[0]])], None)[0]
        self._frame = self._engine.frame(
            [found[index] for index in filled], [rows[index] for index in filled], names
        )
        self._blocks = dict(zip(filled, self._engine.blocks(self._frame), strict=True))

    def _values(self, references: Sequence[Any], marks: str | None) -> list[Any]:
        """Results of tasks. Raises CacheError if Ray fails: what tasks raise comes back as
        values."""
        assert self._engine is not None
        with tasks.waiting_for("with Modin on Ray", marks):
            return self._engine.values(references)

    def _forget(self) -> None:
        self._frame, self._blocks, self._starts = None, {}, []
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None
