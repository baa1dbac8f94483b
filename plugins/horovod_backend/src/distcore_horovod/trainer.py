"""The trainer `horovod`: core's loop over ranks that sum their gradients through Horovod."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from distcore_core.contracts import JSON, Backend, TrainJob, TrainResult
from distcore_core.errors import UserError
from distcore_core.progress import Progress
from distcore_horovod.installed import problem, require
from distcore_horovod.launcher import launched
from distcore_horovod.strategy import HorovodStrategy
from distcore_torch.training.trainer import TorchTrainer

if TYPE_CHECKING:
    from distcore_horovod.options import TrainerOptions

log = logging.getLogger("distcore")


def make(options: TrainerOptions) -> HorovodTrainer:
    """The trainer."""

    def default_workers(backend: Backend) -> int:
        found = backend.resources()
        gpus = found.gpus if options.use_gpu else 0
        return max(1, gpus or found.workers or found.cpus)

    return HorovodTrainer(lambda: HorovodStrategy(options), options, default_workers)


class HorovodTrainer(TorchTrainer):
    """Under a launcher its ranks, whatever `num_workers` says; else a gang of the backend.

    Where the launcher is elastic, `num_workers` is the number of ranks that batches are planned for."""

    def workers(self, backend: Backend) -> int:
        """The launcher's ranks (the planned ones where it is elastic), else as TorchTrainer."""
        crew = getattr(backend, "launched", None)
        if crew is None:
            return super().workers(backend)
        return (self._given()[1] if crew.elastic else 0) or crew.size

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """As TorchTrainer's, with what stands against Horovod here."""
        found = super().plan(job, backend)
        if (said := problem()) is not None:
            found["notes"].append(said)
        return {**found, "collectives": "horovod", "compression": self.options.compression, "op": self.options.op}

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        """As TorchTrainer's. Raises UserError under a launcher whose ranks the backend knows nothing of."""
        require()
        here, crew = launched(), getattr(backend, "launched", None)
        if here is not None and here.size > 1 and crew is None:
            raise UserError(
                f"{here.by} started {here.size} processes, but backend {backend.name} would train a model in each. "
                "Leave out backend.type, or give --backend horovod."
            )
        given = self._given()[1]
        if crew is not None and not crew.elastic and given not in (0, crew.size):
            log.info(
                "%s started %d ranks; backend.trainer.num_workers %d is for other backends.", crew.by, crew.size, given
            )
        return super().fit(job, backend, progress)
