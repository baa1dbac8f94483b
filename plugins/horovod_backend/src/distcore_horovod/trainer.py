"""The trainer `horovod`: the torch toolkit's loop, in ranks that sum gradients through Horovod."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from distcore_core.contracts import JSON, Backend, TrainJob, TrainResult
from distcore_core.errors import UserError
from distcore_core.progress import Progress
from distcore_horovod.backend import Joined
from distcore_horovod.installed import problem, require
from distcore_horovod.launcher import Launched, launched
from distcore_horovod.strategy import HorovodStrategy
from distcore_torch.training.trainer import TorchTrainer, default_workers

if TYPE_CHECKING:
    from distcore_horovod.options import TrainerOptions

log = logging.getLogger("distcore")


def launch_of(backend: Backend) -> Launched | None:
    """The launcher's processes that a backend joined; None: it joined none."""
    return backend.launched if isinstance(backend, Joined) else None


def make(options: TrainerOptions) -> HorovodTrainer:
    """The trainer."""
    workers = partial(default_workers, use_gpu=options.use_gpu)
    return HorovodTrainer(lambda: HorovodStrategy(options), options, workers)


class HorovodTrainer(TorchTrainer):
    """Under a launcher its ranks, whatever `num_workers` says; else a worker group of the backend.

    If the launcher is elastic, `num_workers` is the number of ranks that batches are planned
    for."""

    binding = ("op", "compression", "gradient_predivide_factor")

    def workers(self, backend: Backend) -> int:
        """The launcher's ranks (the planned ones if it is elastic), else as TorchTrainer."""
        process_group = launch_of(backend)
        if process_group is None:
            return super().workers(backend)
        return (self._given()[1] if process_group.elastic else 0) or process_group.size

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """As TorchTrainer's, with what stands against Horovod here."""
        found = super().plan(job, backend)
        if (said := problem()) is not None:
            found["notes"].append(said)
        return {
            **found,
            "collectives": "horovod",
            "compression": self.options.compression,
            "op": self.options.op,
        }

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        """As TorchTrainer's. Raises UserError under a launcher whose ranks the backend knows
        nothing of."""
        require()
        here, process_group = launched(), launch_of(backend)
        if here is not None and here.size > 1 and process_group is None:
            raise UserError(
                f"{here.by} started {here.size} processes, but backend {backend.name} would train "
                "a model in each. Leave out backend.type, or give --backend horovod."
            )
        given = self._given()[1]
        if (
            process_group is not None
            and not process_group.elastic
            and given not in (0, process_group.size)
        ):
            log.info(
                "%s started %d ranks; backend.trainer.num_workers %d is for other backends.",
                process_group.by,
                process_group.size,
                given,
            )
        return super().fit(job, backend, progress)
