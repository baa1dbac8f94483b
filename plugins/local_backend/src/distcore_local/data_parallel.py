"""The strategy of the trainer `data_parallel`: gradients summed over gloo, nccl or shared
memory."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from distcore_core.contracts import Rank
from distcore_local.shared_memory import SharedSum, possible
from distcore_torch.training import meeting
from distcore_torch.training.exact.exchange import Shares, SlicedTree, TreeExchange
from distcore_torch.training.exact.tree import Total
from distcore_torch.training.flat import Exchange
from distcore_torch.training.plain import check_size, packed, unpacked
from distcore_torch.training.strategy import FlatStrategy, choose_device

SMALL_BYTES = 1 << 16
"""Values up to this size are gathered by one collective, padded; larger ones are sent one rank
after another."""

log = logging.getLogger("distcore")


class DataParallel(FlatStrategy):
    """torch.distributed: gloo on CPUs, nccl on GPUs, and shared memory for ranks of one machine
    without GPUs."""

    def __init__(self, use_gpu: Any = "auto") -> None:
        super().__init__()
        self.use_gpu = use_gpu
        self._control: Any = None
        self._owns = False

    def setup(self, rank: Rank) -> None:
        self.rank = rank
        self.device = choose_device(self.use_gpu, rank.local_rank)
        if rank.world == 1:  # nobody to meet, so nothing listens
            return
        timeout = timedelta(seconds=self.patience)
        if not dist.is_initialized():
            meeting.stay_on_loopback(rank)
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            store = meeting.fresh_store(rank)
            dist.init_process_group(
                backend, store=store, rank=rank.index, world_size=rank.world, timeout=timeout
            )
            self._owns = True
        # Values travel through the CPU, also if gradients go from GPU to GPU.
        self._control = (
            dist.new_group(backend="gloo", timeout=timeout) if self.device.type == "cuda" else None
        )

    def all_reduce(self, values: torch.Tensor) -> None:
        if self.rank.world > 1:
            dist.all_reduce(values)

    def gather(self, value: Any) -> list[Any]:
        if self.rank.world == 1:
            return [value]
        mine = packed(value)
        numels = torch.zeros(self.rank.world, dtype=torch.int64)
        numels[self.rank.index] = mine.numel()
        dist.all_reduce(numels, group=self._control)
        sizes = [check_size(int(each)) for each in numels]
        parts = (
            self._together(mine, max(sizes))
            if max(sizes) <= SMALL_BYTES
            else self._in_turn(mine, sizes)
        )
        return [unpacked(part[:size]) for part, size in zip(parts, sizes, strict=True)]

    def _together(self, mine: torch.Tensor, size: int) -> list[torch.Tensor]:
        parts = [torch.zeros(size, dtype=torch.uint8) for _ in range(self.rank.world)]
        dist.all_gather(
            parts, torch.nn.functional.pad(mine, (0, size - mine.numel())), group=self._control
        )
        return parts

    def _in_turn(self, mine: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
        parts = []
        for rank, size in enumerate(sizes):
            part = mine if rank == self.rank.index else torch.empty(size, dtype=torch.uint8)
            dist.broadcast(part, rank, group=self._control)
            parts.append(part)
        return parts

    def exchange(self, numel: int, dtype: torch.dtype) -> Exchange:
        shared = self._shared(numel, dtype, None) if self.rank.world > 1 else None
        return shared or super().exchange(numel, dtype)

    def tree_exchange(self, numel: int, dtype: torch.dtype, parts: int) -> TreeExchange:
        if self.rank.world == 1:
            return super().tree_exchange(numel, dtype, parts)
        shares = Shares(self.rank, parts)
        shared = self._shared(numel, dtype, shares)
        if shared is not None:
            return shared
        return SlicedTree(shares, numel, dtype, self.device, all_to_all, all_gather)

    def _shared(self, numel: int, dtype: torch.dtype, shares: Shares | None) -> SharedSum | None:
        """The exchange in shared memory; None if there can be none. shares: of exact training."""
        rank, local_world = self.rank, int(os.environ.get("LOCAL_WORLD_SIZE", 0))
        laid = [1] * rank.world if shares is None else [len(each) for each in shares.of]
        if self.device.type != "cpu" or not possible(
            rank.world, numel, dtype, local_world, sum(laid)
        ):
            return None
        add = None if shares is None else partial(_along_the_tree, shares, Total(shares.parts))
        try:
            return SharedSum(
                rank.index,
                rank.world,
                numel,
                dtype,
                self.gather,
                patience=self.patience,
                laid=laid,
                add=add,
            )
        except OSError as error:
            log.info("Gradients go through gloo: shared memory cannot be used (%s).", error)
            return None

    def teardown(self) -> None:
        super().teardown()
        if self._owns and dist.is_initialized():
            dist.destroy_process_group()
            self._owns = False


def all_to_all(values: torch.Tensor, sent: Sequence[int], received: Sequence[int]) -> torch.Tensor:
    """Give each rank its part of the values, and get theirs.

    Args:
        values: One after another what each rank gets: [sum(sent)].
        sent: How many go to each rank.
        received: How many come from each.

    Returns:
        What came, in the order of the ranks: [sum(received)].
    """
    found = values.new_empty(sum(received))
    dist.all_to_all_single(found, values, list(received), list(sent))
    return found


def all_gather(values: torch.Tensor) -> torch.Tensor:
    """The values of every rank, [numbers] from each, in the order of the ranks."""
    found = values.new_empty(dist.get_world_size() * values.numel())
    dist.all_gather_into_tensor(found, values)
    return found


def _along_the_tree(shares: Shares, total: Total, slots: torch.Tensor) -> torch.Tensor:
    return total(dict(zip(shares.all, slots, strict=True)))
