"""The trainers `local` (one process, all threads) and `ddp` (a process for each GPU or CPU, or those of torchrun)."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from distcore.contracts import JSON, Backend, Member, TrainJob
from distcore.training.flat import Exchange
from distcore.training.strategy import FlatStrategy, SingleProcess, choose_device
from distcore.training.trainer import TorchTrainer, launched_member
from distcore_local import shared_memory

if TYPE_CHECKING:
    from distcore_local.options import TrainerOptions

TIMEOUT = timedelta(minutes=30)
"""How long a collective waits for the slowest rank: a checkpoint or an evaluation may lie between two steps."""

log = logging.getLogger("distcore")


def make(name: str, options: TrainerOptions) -> TorchTrainer:
    """The trainer `local` or `ddp`."""
    if name == "local":
        return LocalTrainer(partial(SingleProcess, options.use_gpu), options)
    return DDPTrainer(partial(DDP, options.use_gpu), options, partial(default_workers, use_gpu=options.use_gpu))


def default_workers(backend: Backend, use_gpu: Any = "auto") -> int:
    """A rank for each GPU; without any, as many as the backend suggests, or one for each CPU."""
    found = backend.resources()
    gpus = found.gpus if use_gpu else 0
    return max(1, gpus or found.workers or found.cpus)


class LocalTrainer(TorchTrainer):
    """One process."""

    def workers(self, backend: Backend) -> int:
        """One."""
        return 1

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """As TorchTrainer's, with the threads."""
        found = super().plan(job, backend)
        if self.options.num_workers not in (None, 1):
            found["notes"].append(
                f"num_workers is {self.options.num_workers}, but the trainer `local` is one process; `ddp` has several"
            )
        return {**found, "threads": torch.get_num_threads()}


class DDPTrainer(TorchTrainer):
    """A gang of ranks that sum their gradients every step."""

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """As TorchTrainer's, with how gradients travel, and a word where one process would be faster."""
        found = super().plan(job, backend)
        resources = backend.resources()
        on_cpu = not resources.gpus or self.options.use_gpu is False
        if on_cpu and resources.nodes == 1 and found["workers"] > 1:
            found["notes"].append(
                "on the CPUs of one machine the threads of one process are faster than several processes: "
                "the trainer `local` does the same work"
            )
        return {**found, "collectives": "gloo and shared memory" if on_cpu else "nccl"}


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


__all__ = ["DDP", "DDPTrainer", "LocalTrainer", "default_workers", "launched_member", "make"]
