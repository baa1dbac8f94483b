"""What the suites send to other processes: functions and partitions that can be imported there,
and nothing heavy."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import SourceBase

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import Block, Rank, ShardPlan


def square(number: int) -> int:
    """A task."""
    return number * number


def fail_in_rank_one(rank: Rank) -> None:
    """Raise in one rank only."""
    if rank.index == 1:
        raise ValueError("rank one gives up")


@dataclass(frozen=True)
class CountedPartition:
    """Rows [start, stop) of a numbered table; every read leaves a line in `folder`. bad: raises
    instead; late: after a while."""

    folder: str
    start: int
    stop: int
    bad: bool = False
    late: bool = False

    def read(self) -> pa.RecordBatch:
        import pyarrow as pa

        with open(Path(self.folder, f"read-{self.start}-{self.stop}"), "a") as file:
            file.write("read\n")
        if self.late:
            time.sleep(0.3)
        if self.bad:
            raise ValueError(f"rows {self.start} to {self.stop} are damaged")
        rows = range(self.start, self.stop)
        names = [name_of(row) for row in rows]
        return pa.record_batch(
            {
                "row": pa.array(rows, pa.float64()),
                "name": pa.array(names, pa.string()).dictionary_encode(),
                "size": pa.array([size_of(row) for row in rows], pa.float64()),
            }
        )


def name_of(row: int) -> str | None:
    """The name in a row of a numbered table; some are missing."""
    return f"name {row % 7}" if row % 11 else None


def size_of(row: int) -> float | None:
    """The size in a row of a numbered table; some are missing."""
    return row / 2 if row % 5 else None


class CountedSource(SourceBase):
    """A `contracts.Source` of numbered rows, cut as told. edges: 0, …, rows. bad: indices of
    partitions that raise, the first of them late."""

    def __init__(self, folder: Path, edges: Sequence[int], bad: Sequence[int] = ()) -> None:
        self.parts = [
            CountedPartition(
                str(folder), start, stop, index in bad, len(bad) > 1 and index == bad[0]
            )
            for index, (start, stop) in enumerate(pairwise(edges))
        ]

    def digest(self) -> str:
        """The same for the same rows."""
        return f"rows-{self.parts[-1].stop}"

    def partitions(self, target_bytes: int) -> Sequence[CountedPartition]:
        """As told, whatever size is asked for."""
        return self.parts

    def check_unchanged(self, content: bool = True) -> None:
        """Nothing changes."""


def total_of(block: Block) -> tuple[float, int]:
    """The sum of a block's row numbers, and its rows."""
    import pyarrow.compute as pc

    return float(pc.sum(block.table.column("row")).as_py() or 0.0), block.table.num_rows


def add(left: tuple[float, int], right: tuple[float, int]) -> tuple[float, int]:
    """Merge what `total_of` gave."""
    return left[0] + right[0], left[1] + right[1]


def rows_of(plan: ShardPlan, blocks: list[Block]) -> tuple[int, list[float], list[Any]]:
    """What a shard's writer is given: its index, its row numbers and its names in order."""
    rows = [row for block in blocks for row in block.table.column("row").to_pylist()]
    names = [name for block in blocks for name in block.table.column("name").to_pylist()]
    return plan.index, rows, names


def known_of(block: Block) -> list[tuple[int, int, int, float]]:
    """Of a block: its index, how many names and sizes are known, and the sum of the sizes."""
    import pyarrow.compute as pc

    names, sizes = block.table.column("name"), block.table.column("size")
    known = [len(each) - each.null_count for each in (names, sizes)]
    return [(block.index, *known, float(pc.sum(sizes).as_py() or 0.0))]


def together(left: list[Any], right: list[Any]) -> list[Any]:
    """Merge what `known_of` gave."""
    return [*left, *right]


def values_of(plan: ShardPlan, blocks: list[Block]) -> list[tuple[int | None, int, Any]]:
    """What a shard's writer is given: of each block with rows its start, its index and its rows."""
    return [
        (each.start, each.index, each.table.to_pylist()) for each in blocks if each.table.num_rows
    ]


def refuse_shards(plan: ShardPlan, blocks: list[Block]) -> int:
    """A shard's writer that fails but for the first shard, and for the second one late."""
    if plan.index == 1:
        time.sleep(0.3)
    if plan.index:
        raise ValueError(f"shard {plan.index} cannot be written")
    return plan.index


def refuse_block(block: Block) -> tuple[float, int]:
    """Statistics that fail for one block."""
    if block.index == 3:
        raise ValueError("block 3 has no statistics")
    return total_of(block)


def refuse_merge(left: tuple[float, int], right: tuple[float, int]) -> tuple[float, int]:
    """A merge that always fails."""
    raise ValueError("these do not merge")


@dataclass(frozen=True)
class Table:
    """A task's function that brings its data: the value at an index."""

    values: tuple[int, ...]

    def __call__(self, index: int) -> int:
        return self.values[index]


def process_of(item: Block | ShardPlan, *_: object) -> frozenset[int]:
    """The process that a task ran in."""
    return frozenset([os.getpid()])


def union(left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
    """Merge what `process_of` gave."""
    return left | right


@dataclass(frozen=True)
class DiesOnce:
    """A task's function that SIGKILLs its process at item `index`, the first time; a shard's writer
    leaves half a file.

    folder: for the mark that says it died. driver: the process that must not die, nor run tasks."""

    function: Callable[..., Any]
    index: int
    folder: str
    driver: int

    def __call__(self, item: Any, *rest: Any) -> Any:
        if item.index == self.index and os.getpid() != self.driver and self._first():
            builder = getattr(self.function, "builder", None)
            if builder is not None:
                path = Path(builder.folder, "rows", f"{self.index:05d}.parquet")
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(b"PAR1 half of it")
            self.die()
        return self.function(item, *rest)

    def die(self) -> None:
        """End this process; another suite may take more with it."""
        os.kill(os.getpid(), signal.SIGKILL)

    def _first(self) -> bool:
        try:
            os.close(os.open(self.mark(), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def mark(self) -> str:
        """The file that says it died."""
        return os.path.join(self.folder, f"died-{type(self.function).__name__}")
