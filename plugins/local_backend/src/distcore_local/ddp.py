"""The strategy of the trainer `ddp`: gradients over gloo or nccl, or through shared memory on one machine."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from distcore.contracts import Member
from distcore.training.flat import Exchange
from distcore.training.strategy import FlatStrategy, choose_device
from distcore_local import shared_memory

TIMEOUT = timedelta(minutes=30)
"""How long a collective waits for the slowest rank: a checkpoint or an evaluation may lie between two steps."""

log = logging.getLogger("distcore")


class DDP(FlatStrategy):
    """torch.distributed: gloo on CPUs, nccl on GPUs, and shared memory for ranks of one machine without GPUs."""

    def __init__(self, use_gpu: Any = "auto") -> None:
        super().__init__()
        self.use_gpu = use_gpu
        self._control: Any = None
        self._owns = False

    def setup(self, member: Member) -> None:
        self.member = member
        self.device = choose_device(self.use_gpu, member.local_rank)
        if not dist.is_initialized():
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            store = _fresh_store(member)
            dist.init_process_group(backend, store=store, rank=member.rank, world_size=member.world, timeout=TIMEOUT)
            self._owns = True
        # Objects travel through the CPU, also where gradients go from GPU to GPU.
        self._control = dist.new_group(backend="gloo", timeout=TIMEOUT) if self.device.type == "cuda" else None

    def all_reduce(self, values: torch.Tensor) -> None:
        dist.all_reduce(values)

    def gather(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.member.world
        dist.all_gather_object(found, value, group=self._control)
        return found

    def exchange(self, numel: int, dtype: torch.dtype) -> Exchange:
        world = self.member.world
        local_world = int(os.environ.get("LOCAL_WORLD_SIZE", 0))
        if self.device.type == "cpu" and world > 1 and shared_memory.possible(world, numel, dtype, local_world):
            try:
                return shared_memory.SharedSum(self.member.rank, world, numel, dtype, self.gather)
            except OSError as error:
                log.info("Gradients go through gloo: shared memory cannot be used (%s).", error)
        return super().exchange(numel, dtype)

    def teardown(self) -> None:
        super().teardown()
        if self._owns and dist.is_initialized():
            dist.destroy_process_group()
            self._owns = False


_stores: list[Any] = []
"""The connection to the launcher's store, once made, and one entry for each group that used it."""


def _fresh_store(member: Member) -> Any:
    """The launcher's key-value store under a prefix of its own.

    Neither a second run in a process nor a gang that was started again may find addresses of the one before."""
    if not _stores:
        _stores.append(next(iter(dist.rendezvous("env://", member.rank, member.world, timeout=TIMEOUT)))[0])
    _stores.append(None)
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return dist.PrefixStore(f"distcore-{attempt}-{len(_stores)}", _stores[0])
