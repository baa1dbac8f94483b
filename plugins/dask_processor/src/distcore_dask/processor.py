"""The Dask processor: partitions, statistics and shards as tasks of one graph a pass, wherever Dask
runs.

The driver sees the merged statistics and what was written, never rows. Partitions are a few
megabytes and each CPU has one at a time, so data larger than memory stream; what a cluster keeps in
memory it spills to disk when that is full.
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
from distcore_dask.engines import Engine, Graph, find_engine
from distcore_dask.options import DaskOptions
from distcore_data import cluster_tasks as tasks
from distcore_data.cluster_tasks import FAN_IN
from distcore_data.sources.tiles import cut_evenly

T = TypeVar("T")
R = TypeVar("R")


class DaskProcessor:
    """`contracts.Processor` over Dask. options: `DaskOptions`.

    Rows that were read wait for `write_shards` with the engine, or in files of `_folder`, or are
    read again."""

    def __init__(self, options: DaskOptions) -> None:
        self.options = options
        self._engine: Engine | None = None
        self._partitions: Sequence[Partition] = ()
        self._scratch: Path | None = None
        self._starts: list[int] = []
        self._kept: list[Any] = []
        self._folder: str | None = None

    def scan(self, source: Source, scratch: Path | None = None) -> int:
        """Cut the source into partitions. scratch: a folder for kept rows that all tasks see
        (default: the system's, where tasks run on this machine)."""
        self.close()
        self._engine = find_engine(self.options)
        cpus, wanted = self._engine.cpus, self.options.parallelism
        self._partitions = cut_evenly(source.partitions, cpus, wanted)
        if scratch is not None or not self._engine.remote:
            self._scratch = Path(tempfile.mkdtemp(prefix="rows-", dir=scratch))
            if not self._in_engine() and self._engine.sees(str(self._scratch)):
                self._folder = str(self._scratch)
        return len(self._partitions)

    def fold(
        self, partial: Callable[[Block], T], merge: Callable[[T, T], T]
    ) -> tuple[T, list[int]]:
        """Read every partition once. Raises what the first partition in row order that failed
        raised."""
        if not self._partitions:
            raise ValueError("nothing was folded: the source has no partitions")
        token = uuid.uuid4().hex
        graph: dict[str, Any] = {
            f"partial-{token}": (_itself, partial),
            f"merge-{token}": (_itself, merge),
        }
        reads = _keys(f"read-{token}", len(self._partitions))
        held = reads if self._in_engine() else []
        marks = self._marks(token)
        level = _keys(f"fold-{token}", len(self._partitions))
        for index, (partition, read, key) in enumerate(
            zip(self._partitions, reads, level, strict=True)
        ):
            if held:
                graph[read] = (tasks.read, index, partition, marks)
                graph[key] = (tasks.fold, index, read, f"partial-{token}", marks)
            else:
                graph[key] = (
                    tasks.read_and_fold,
                    index,
                    partition,
                    f"partial-{token}",
                    self._folder,
                    marks,
                )
        root = _tree(graph, level, f"merge-{token}")
        folded, references = self._run(graph, root, held, marks)
        assert isinstance(folded, tasks.Folded)
        if folded.failure is not None:
            tasks.raise_failure(folded.failure)
        return folded.state, self._keep(folded, references)

    def write_shards(
        self, plans: Sequence[ShardPlan], write: Callable[[ShardPlan, list[Block]], R]
    ) -> list[R]:
        """Call write(plan, slices) for each plan, in a task of its own."""
        token = uuid.uuid4().hex
        graph: dict[str, Any] = {f"write-{token}": (_itself, write)}
        marks = self._marks(token)
        keys = _keys(f"shard-{token}", len(plans))
        for plan, key in zip(plans, keys, strict=True):
            pieces = tasks.slices(plan, self._starts)
            kept = [self._block(graph, token, piece.index) for piece in pieces]
            graph[key] = (tasks.write, f"write-{token}", plan, pieces, kept, marks)
        graph[f"all-{token}"] = (_itself, keys)
        results, _ = self._run(graph, f"all-{token}", (), marks)
        tasks.raise_first(results)
        return list(results)

    def close(self) -> None:
        """Let go of what was kept, and of the cluster."""
        self._kept, self._starts = [], []
        if self._engine is not None:
            self._engine.close()
            self._engine = None
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = self._folder = None

    # -------------------------------------------------------------- inside

    def _in_engine(self) -> bool:
        """Whether the engine keeps the rows."""
        assert self._engine is not None, "scan comes first"
        return self._engine.remote and self.options.persist

    def _marks(self, token: str) -> str | None:
        """The folder of this pass in which failures leave their marks."""
        if self._scratch is None:
            return None
        path = self._scratch / f"failed-{token}"
        path.mkdir()
        return str(path)

    def _keep(self, folded: tasks.Folded, references: Sequence[Any]) -> list[int]:
        """Take note of where each block's rows are; returns their numbers."""
        found = sorted(folded.kept)
        rows = [count for _, count, _ in found]
        self._starts = [0, *accumulate(rows)]
        if references:
            self._kept = list(references)
        else:
            self._kept = [path or self._partitions[index] for index, _, path in found]
        return rows

    def _block(self, graph: dict[str, Any], token: str, index: int) -> Any:
        """How a task asks for a block: the key of a reference, the path of a file, or the
        partition itself."""
        if not self._in_engine():
            return self._kept[index]
        key = f"block-{token}-{index}"
        graph[key] = self._kept[index]
        return key

    def _run(
        self, graph: Graph, key: str, hold: Sequence[str], marks: str | None
    ) -> tuple[Any, list[Any]]:
        """The graph's value. Raises CacheError if the engine fails: what tasks raise comes back
        as values."""
        assert self._engine is not None, "scan comes first"
        with tasks.waiting_for(f"on {self._engine.name}", marks):
            return self._engine.run(graph, key, hold)


def _itself(value: Any) -> Any:
    return value


def _keys(prefix: str, count: int) -> list[str]:
    """Keys that Dask's order of execution, as it is today, takes from first to last: it prefers
    the greatest."""
    return [f"{prefix}-{count - index:08d}" for index in range(count)]


def _tree(graph: dict[str, Any], level: list[str], merge: str) -> str:
    """Add the merges of these keys, FAN_IN at a time, and return the last one's key."""
    depth = 0
    while len(level) > 1:
        groups = [level[start : start + FAN_IN] for start in range(0, len(level), FAN_IN)]
        level = _keys(f"{merge}-{depth}", len(groups))
        graph.update(
            {
                key: (tasks.merge_folded, merge, group)
                for key, group in zip(level, groups, strict=True)
            }
        )
        depth += 1
    return level[0]
