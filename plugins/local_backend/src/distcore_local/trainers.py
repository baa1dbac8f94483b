"""The trainers `local` (one process, all threads) and `data_parallel` (a process a GPU or CPU, or
torchrun's).

No torch here: the process that starts a group has no use for it, and importing it would keep the
ranks waiting."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON, Backend, Rank, TrainJob, TrainResult
from distcore_core.errors import Stopped
from distcore_data.threads import processors
from distcore_local.processes import Length, Pace, sharing
from distcore_torch.signals import is_own_process, signal_received
from distcore_torch.training.job import own_checkpoints, train_options
from distcore_torch.training.plan import TrainPlan, refuse_without_parts
from distcore_torch.training.trainer import (
    TorchTrainer,
    cached_rows,
    default_workers,
)

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_local.options import TrainerOptions
    from distcore_torch.training.strategy import Strategy

log = logging.getLogger("distcore")


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


class LocalTrainer(TorchTrainer):
    """One process; in exact training, whose bits do not depend on it, several where they are
    faster (`processes.py`)."""

    def workers(self, backend: Backend) -> int:
        """One."""
        return 1

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """As TorchTrainer's, with the threads, and the processes that exact training may go on
        in."""
        import torch

        found = {**super().plan(job, backend), "threads": torch.get_num_threads()}
        options = train_options(job)
        if not options.exact:
            found["notes"] += self._unused()
            return found
        given = self._given()[1]
        if not backend.distributed:  # there it is one process, whatever is given
            refuse_without_parts(options, given)
        processes = given or sharing(options.parts, _room())
        if processes > 1 and not given:
            found["notes"].append(
                f"exact training measures its first steps, and goes on in {processes} processes if "
                "that is faster; the bits are the same"
            )
        return {**found, "processes": processes}

    def _fit(
        self, rank: Rank | None, job: TrainJob, backend: Backend, progress: Progress
    ) -> TrainResult | None:
        options, given = train_options(job), self._given()[1]
        if not options.exact:
            for each in self._unused():
                log.warning("%s.", each)
        if not options.exact or rank is not None or backend.distributed:
            return super()._fit(rank, job, backend, progress)
        several = given or sharing(options.parts, _room())
        # Where no checkpoint is kept there is none to go on from.
        if several == 1 or not (given or own_checkpoints(job)):
            return super()._fit(rank, job, backend, progress)
        if not given:
            length = Length.of(TrainPlan.of(options, 1, cached_rows(job) or 0), options)
            with Pace(progress, length, options.parts, several) as pace:
                try:
                    return super()._fit(rank, job, backend, progress)
                except Stopped:
                    if pace.processes == 1 or signal_received():
                        raise
        parallel = replace(job, trainer=replace(job.trainer, name="data_parallel"))
        return self._run_group(parallel, backend, several, progress)

    def _unused(self) -> Iterator[str]:
        """What is given and does not count where training is not exact."""
        if self.options.num_workers not in (None, 1):
            yield (
                f"num_workers is {self.options.num_workers}, but the trainer `local` is one "
                "process; `data_parallel` has several"
            )


def _room() -> int:
    """For so many processes. A process that is not a command's may be a script, which each new one
    would run."""
    import torch

    return min(processors(), torch.get_num_threads()) if is_own_process() else 1


class DataParallelTrainer(TorchTrainer):
    """A worker group of ranks that sum their gradients every step."""

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """As TorchTrainer's, with how gradients travel, and a word if one process would do."""
        found = super().plan(job, backend)
        resources = backend.resources()
        on_cpu = not resources.gpus or self.options.use_gpu is False
        several = resources.nodes == 1 and found["workers"] > 1
        if on_cpu and several and not train_options(job).exact:
            found["notes"].append(
                "on the CPUs of one machine the threads of one process are about as fast as "
                "several processes, and start sooner: the trainer `local` does the same work"
            )
        return {**found, "collectives": "gloo and shared memory" if on_cpu else "nccl"}


__all__ = ["DataParallelTrainer", "LocalTrainer", "make"]
