"""The trainers `local` (one process, all threads) and `data_parallel` (a process a GPU or CPU, or
torchrun's).

No torch here: the process that starts a group has no use for it, and importing it would keep the
ranks waiting."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON, Backend, TrainJob
from distcore_torch.training.trainer import TorchTrainer, launched_rank

if TYPE_CHECKING:
    from distcore_local.options import TrainerOptions
    from distcore_torch.training.strategy import Strategy


def make(name: str, options: TrainerOptions) -> TorchTrainer:
    """The trainer `local` or `data_parallel`."""
    if name == "local":
        return LocalTrainer(partial(_single, options.use_gpu), options)
    return DataParallelTrainer(
        partial(_data_parallel, options.use_gpu),
        options,
        partial(default_workers, use_gpu=options.use_gpu),
    )


def _single(use_gpu: Any) -> Strategy:
    from distcore_torch.training.strategy import SingleProcess

    return SingleProcess(use_gpu)


def _data_parallel(use_gpu: Any) -> Strategy:
    from distcore_local.data_parallel import DataParallel

    return DataParallel(use_gpu)


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
        import torch

        found = super().plan(job, backend)
        if self.options.num_workers not in (None, 1):
            found["notes"].append(
                f"num_workers is {self.options.num_workers}, but the trainer `local` is one "
                "process; `data_parallel` has several"
            )
        return {**found, "threads": torch.get_num_threads()}


class DataParallelTrainer(TorchTrainer):
    """A worker group of ranks that sum their gradients every step."""

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """As TorchTrainer's, with how gradients travel, and a word if one process would be
        faster."""
        found = super().plan(job, backend)
        resources = backend.resources()
        on_cpu = not resources.gpus or self.options.use_gpu is False
        if on_cpu and resources.nodes == 1 and found["workers"] > 1:
            found["notes"].append(
                "on the CPUs of one machine the threads of one process are faster than several "
                "processes: the trainer `local` does the same work"
            )
        return {**found, "collectives": "gloo and shared memory" if on_cpu else "nccl"}


__all__ = ["DataParallelTrainer", "LocalTrainer", "default_workers", "launched_rank", "make"]
