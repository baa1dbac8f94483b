"""The processor `horovod`: every rank of a launcher reads a share of the partitions and encodes the
shards of its rows.

A rank works as the local processor does, on its own share alone: a run of partitions, so a run of
rows. A shard that begins in one rank's rows and ends in another's is written by the rank with its
first row; the others send it theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from distcore_core.contracts import (
    PROCESSOR,
    Block,
    Partition,
    Processor,
    ShardPlan,
    Source,
    SourceBase,
)
from distcore_core.errors import CacheError
from distcore_core.registry.manager import Plugins
from distcore_data.sources.tiles import cut_evenly
from distcore_data.temporaries import temporary_folder
from distcore_data.threads import processors
from distcore_horovod.failure import Failed, failed
from distcore_horovod.make_process_group import process_group
from distcore_horovod.process_group import MOST_BYTES, ProcessGroup

if TYPE_CHECKING:
    from distcore_horovod.options import ProcessorOptions

T = TypeVar("T")
R = TypeVar("R")


class HorovodProcessor:
    """`contracts.Processor` over the launcher's ranks; without a launcher, the local processor
    in this process."""

    def __init__(self, options: ProcessorOptions) -> None:
        self.options = options
        self._process_group: ProcessGroup | None = process_group()
        self._alone: Processor | None = None
        self._starts: list[int] = []
        self._blocks: list[int] = []
        self._open = False

    def scan(self, source: Source, scratch: Path | None = None) -> int:
        """Cut the source into partitions and give each rank a run of them. scratch: for the rows
        that are kept."""
        self.close()
        if self._process_group is None:
            self._alone = Plugins().make(
                PROCESSOR, "local", {"parallelism": self.options.parallelism}
            )
            return self._alone.scan(source, scratch)
        ranks = self._process_group.size
        threads = self.options.parallelism or max(1, processors() // ranks)
        partitions = list(cut_evenly(source.partitions, ranks * threads))
        self._blocks = [len(partitions) * rank // ranks for rank in range(ranks + 1)]
        shares = [
            partitions[low:high] for low, high in zip(self._blocks, self._blocks[1:], strict=False)
        ]
        kept = str(scratch) if scratch is not None else None
        self._open = True
        self._process_group.everywhere(_scan, shares, kept, self.options.parallelism)
        return len(partitions)

    def fold(
        self, partial: Callable[[Block], T], merge: Callable[[T, T], T]
    ) -> tuple[T, list[int]]:
        """Read every partition once, in the rank that has it; merge in rank order."""
        if self._alone is not None:
            return self._alone.fold(partial, merge)
        assert self._process_group is not None
        found = self._process_group.everywhere(_fold, partial, merge, self._blocks)
        rows = [count for _, counts in found for count in counts]
        self._starts = [0, *accumulate(sum(counts) for _, counts in found)]
        parts = [each for some, _ in found for each in some]
        if not parts:
            raise ValueError("nothing was folded: the source has no partitions")
        value = parts[0]
        for each in parts[1:]:
            value = merge(value, each)
        return value, rows

    def write_shards(
        self, plans: Sequence[ShardPlan], write: Callable[[ShardPlan, list[Block]], R]
    ) -> list[R]:
        """Call write(plan, blocks) in the rank that has the plan's first row; results in plan
        order."""
        if self._alone is not None:
            return self._alone.write_shards(plans, write)
        assert self._process_group is not None
        found = self._process_group.everywhere(_write, list(plans), write, self._starts)
        written = {index: result for some in found for index, result in some}
        return [written[plan.index] for plan in plans]

    def close(self) -> None:
        """Let every rank drop the rows it kept."""
        if self._alone is not None:
            self._alone.close()
            self._alone = None
        if self._open and self._process_group is not None and not self._process_group.over:
            self._open = False
            self._process_group.everywhere(_close)


# ------------------------------------------------------------------ one rank's part


@dataclass
class _Part:
    """What this rank holds between orders."""

    local: Processor | None = None
    folder: ExitStack | None = None
    shares: list[int] = field(default_factory=list)


_part = _Part()


@dataclass(frozen=True)
class _Share(SourceBase):
    """A rank's partitions as a source of their own."""

    own: Sequence[Partition]

    def digest(self) -> str:
        """Nobody asks: the whole has one."""
        return ""

    def partitions(self, target_bytes: int) -> Sequence[Partition]:
        """As the leader cut them, whatever size is asked for."""
        return self.own

    def check_unchanged(self, content: bool = True) -> None:
        """The leader looks at the whole."""


def _scan(
    process_group: ProcessGroup,
    shares: list[list[Partition]],
    scratch: str | None,
    parallelism: int | None,
) -> None:
    _close(process_group)
    threads = parallelism or max(1, processors() // process_group.local_size)
    _part.local = Plugins().make(PROCESSOR, "local", {"parallelism": threads})
    # The leader's folder goes with the cache that is being built; other ranks may be on other
    # machines.
    _part.folder = ExitStack()
    own = _part.folder.enter_context(temporary_folder("rows"))
    folder = Path(scratch) if process_group.rank == 0 and scratch is not None else own
    _part.local.scan(_Share(shares[process_group.rank]), folder)


def _fold(
    process_group: ProcessGroup,
    partial: Callable[[Block], T],
    merge: Callable[[T, T], T],
    blocks: list[int],
) -> tuple[list[T], list[int]]:
    """([the merged value], rows of each block) of this rank; ([], []) if it has no partitions."""
    assert _part.local is not None
    first = blocks[process_group.rank]
    if first == blocks[process_group.rank + 1]:
        return [], []
    value, rows = _part.local.fold(
        lambda block: partial(Block(index=first + block.index, start=None, table=block.table)),
        merge,
    )
    return [value], rows


def _write(
    process_group: ProcessGroup,
    plans: list[ShardPlan],
    write: Callable[[ShardPlan, list[Block]], R],
    starts: list[int],
) -> list[tuple[int, R]]:
    """[(index of the plan, what write gave)] of the plans whose first row is this rank's."""
    rank = process_group.rank
    low, high = starts[rank], starts[rank + 1]
    mine = [plan for plan in plans if low <= plan.start < high]
    try:
        lent: dict[int, bytes] | Failed = _lent(
            [plan for plan in plans if plan.start < low < plan.stop and low < high], low, high
        )
    except Exception as error:  # noqa: BLE001 - all ranks must come to the exchange
        lent = failed(rank, error)
    received = _exchanged(process_group, plans, lent, starts)

    def one(plan: ShardPlan, blocks: list[Block]) -> tuple[int, R]:
        whole = plan_of[plan.index]
        own = [
            Block(index=block.index, start=(block.start or 0) + low, table=block.table)
            for block in blocks
        ]
        return plan.index, write(whole, own + received.get(plan.index, []))

    assert _part.local is not None
    plan_of = {plan.index: plan for plan in mine}
    local = [
        ShardPlan(index=plan.index, start=plan.start - low, stop=min(plan.stop, high) - low)
        for plan in mine
    ]
    return _part.local.write_shards(local, one) if local else []


def _lent(plans: list[ShardPlan], low: int, high: int) -> dict[int, bytes]:
    """{index of the plan: this rank's rows of it}, for plans that begin in another rank's rows."""
    import pyarrow as pa

    def one(plan: ShardPlan, blocks: list[Block]) -> tuple[int, bytes]:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, blocks[0].table.schema) as stream:
            for block in blocks:
                stream.write_batch(block.table)
        return plan.index, sink.getvalue().to_pybytes()

    assert _part.local is not None
    local = [
        ShardPlan(index=plan.index, start=0, stop=min(plan.stop, high) - low) for plan in plans
    ]
    return dict(_part.local.write_shards(local, one)) if local else {}


def _exchanged(
    process_group: ProcessGroup,
    plans: list[ShardPlan],
    lent: dict[int, bytes] | Failed,
    starts: list[int],
) -> dict[int, list[Block]]:
    """Send the rows of other ranks' shards; {index of the plan: blocks} of those that came, in
    row order."""
    import numpy as np
    import pyarrow as pa
    import torch

    answers = process_group.hvd.allgather_object(
        lent if isinstance(lent, Failed) else {index: len(rows) for index, rows in lent.items()},
        name="distcore.lent",
    )
    for each in answers:
        if isinstance(each, Failed):
            each.raised()
    assert not isinstance(lent, Failed)
    owners = {
        plan.index: next(
            rank
            for rank in range(process_group.size)
            if starts[rank] <= plan.start < starts[rank + 1]
        )
        for plan in plans
    }
    if not any(answers):
        return {}
    splits = _sent(answers, owners)[process_group.rank]
    order = sorted(lent, key=lambda index: (owners[index], index))
    packed = torch.from_numpy(
        np.frombuffer(b"".join(lent[index] for index in order), np.uint8).copy()
    )
    arrived, _ = process_group.hvd.alltoall(
        packed, torch.tensor(splits, dtype=torch.int32), name="distcore.rows"
    )
    data, place = arrived.numpy(), 0
    found: dict[int, list[Block]] = {}
    for rank, sizes in enumerate(answers):
        for index in sorted(sizes):
            if owners[index] == process_group.rank:
                stream = pa.ipc.open_stream(
                    pa.py_buffer(data[place : place + sizes[index]].tobytes())
                )
                start = starts[rank]
                for table in stream:
                    found.setdefault(index, []).append(Block(index=-1, start=start, table=table))
                    start += table.num_rows
                place += sizes[index]
    return found


def _sent(answers: Sequence[Mapping[int, int]], owners: Mapping[int, int]) -> list[list[int]]:
    """How many bytes each rank gives to each.

    Args:
        answers: Of each rank, the bytes of each shard's rows that it gives.
        owners: Who writes each shard.

    Raises:
        CacheError: In every rank, if a rank has more than Horovod carries: one that did not come to
            the exchange would be waited for.
    """
    ranks = range(len(answers))
    sent = [
        [sum(size for index, size in sizes.items() if owners[index] == rank) for rank in ranks]
        for sizes in answers
    ]
    if max(map(sum, [*sent, *zip(*sent, strict=True)])) > MOST_BYTES:
        raise CacheError(
            f"A rank has more than {MOST_BYTES} bytes of rows of the cache's shards to give to "
            "others, or to take, and Horovod carries no more at once. Set backend.processor to "
            "local: rank 0 then prepares the data."
        )
    return sent


def _close(process_group: ProcessGroup) -> None:
    if _part.local is not None:
        _part.local.close()
        _part.local = None
    if _part.folder is not None:
        _part.folder.close()
        _part.folder = None
