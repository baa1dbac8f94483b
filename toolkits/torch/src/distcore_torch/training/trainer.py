"""TorchTrainer: a `contracts.Trainer` over the loop, a strategy for its ranks, and a backend
that starts them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import (
    JSON,
    Backend,
    FeatureSet,
    Predictor,
    Rank,
    TrainJob,
    TrainResult,
    WorkerGroup,
)
from distcore_core.errors import CacheError, OtherRank, TrainingError, UserError
from distcore_core.progress import Progress
from distcore_core.registry.manager import Plugins
from distcore_torch.training.bound import BoundTrainer
from distcore_torch.training.job import own_checkpoints, train_options
from distcore_torch.training.launched import launched_rank
from distcore_torch.training.plan import TrainPlan, ludwigs_otherwise
from distcore_torch.training.rank_process import last_checkpoint, train_rank

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.strategy import Strategy

log = logging.getLogger("distcore")

MOST_ON_CPUS = 8
"""Ranks of a machine's CPUs if nobody says how many: as many as exact training has parts by
default, and half of the loader's lanes, so that neither refuses a machine for its size. Each has
its share of the CPUs as threads."""


class TorchTrainer(BoundTrainer):
    """Fits a torch module over one or many ranks.

    strategy: makes the strategy of one rank. options: of the plugin (`num_workers`, `max_retries`,
    `resources_per_worker`, `use_gpu`, `logdir`). default_workers(backend): how many ranks if
    `num_workers` is not set.
    rendezvous: how ranks find each other on backends that leave it to the worker group
        (`contracts.WorkerGroup`).
    binding: names of the options that change what a step makes of the gradients.
    """

    binding: Collection[str] = ()
    rendezvous: Mapping[str, str] = MappingProxyType({})

    def __init__(
        self,
        strategy: Callable[[], Strategy],
        options: Any,
        default_workers: Callable[[Backend], int] | None = None,
    ) -> None:
        self.strategy = strategy
        self.options = options
        self._default_workers = default_workers or (lambda backend: 1)

    # -------------------------------------------------------------- contracts.Trainer

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """Workers, rows of a step, steps, epochs. Without a cache, for the rows that are expected;
        None if nobody knows. Raises UserError if a GPU is asked for and this machine, if it is
        the one that trains, has none, or not one for each worker."""
        from distcore_torch.training.strategy import has_gpu

        workers = self.workers(backend)
        if not backend.distributed:
            has_gpu(self.options.use_gpu)
            if launched_rank() is None and self.uses_gpu(backend):
                refuse_shared_gpus(workers, backend.resources().gpus)
        options = train_options(job)
        refuse_few_lanes(job, workers, options.parts if options.exact else 0)
        rows = cached_rows(job) or job.expected_rows
        plan = TrainPlan.of(options, workers, rows or 0)
        return {
            "workers": workers,
            "batch_size": plan.micro_rows,
            "gradient_accumulation_steps": plan.accumulation,
            "effective_batch_size": plan.batch_rows,
            "learning_rate": plan.learning_rate,
            "precision": options.precision,
            "rows": rows,
            "steps_per_epoch": plan.steps_per_epoch if rows else None,
            "steps": plan.total_steps if rows or options.train_steps else None,
            "epochs": plan.total_steps / plan.steps_per_epoch if rows else None,
            "steps_per_evaluation": plan.steps_per_round if rows else None,
            "notes": [*exact_notes(options), *(ludwigs_otherwise(plan, options) if rows else ())],
        }

    def check_features(self, job: TrainJob, features: FeatureSet, validates: bool) -> None:
        """Raise what `fit` raises if what the options have a run aim at (`validation_metric`, what
        is watched for a plateau) is not there.

        Args:
            job: Its config is looked at.
            features: Fitted.
            validates: Whether there are validation rows.
        """
        from distcore_torch.training.monitor import Monitor

        Monitor(features, train_options(job), validates)

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        """Train, and write the best and the last weights as a model folder.

        In this process where one rank is enough and the backend is this machine, or where a
        launcher (torchrun) started this process as a rank of its own; else in a group of the
        backend, whose ranks go on from their last checkpoint when one of them dies.
        Raises TrainingError, which names the last checkpoint, and OtherRank in a launcher's
        processes other than rank 0: what follows is for one alone."""
        rank = launched_rank()
        try:
            result = self._fit(rank, job, backend, progress)
            if result is None and rank is None:
                raise TrainingError("Rank 0 gave no result. Report this.")
        except TrainingError as error:
            if rank is None or not rank.index:
                error.args = (f"{error} {last_checkpoint(job)}",)
            raise
        if result is None:
            assert rank is not None
            log.info("Rank %d is done; rank 0 has the result and goes on alone.", rank.index)
            raise OtherRank(rank.index)
        return result

    def _fit(
        self, rank: Rank | None, job: TrainJob, backend: Backend, progress: Progress
    ) -> TrainResult | None:
        """rank: the launcher's rank that this process is."""
        workers = self.workers(backend)
        if rank is not None:
            return train_rank(rank, job, progress)
        if workers == 1 and not self.options.resources_per_worker and not backend.distributed:
            return train_rank(Rank(), job, progress)
        return self._run_group(job, backend, workers, progress)

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> Predictor:
        """The best weights as a predictor. Raises ArtifactError if the folder is not one that
        `fit` wrote."""
        from distcore_torch.training.torch_model import open_predictor

        return open_predictor(directory, features, trust=trust)

    @property
    def bound(self) -> JSON:
        """Those of `binding` that are not at their default: so every trainer makes the same
        steps, and a run may move from one to another."""
        if not self.binding:
            return {}
        found: JSON = self.options.model_dump(include=set(self.binding), exclude_defaults=True)
        return found

    # -------------------------------------------------------------- inside

    @property
    def resources_per_worker(self) -> Mapping[str, float]:
        """As the options say."""
        return dict(self.options.resources_per_worker)

    def uses_gpu(self, backend: Backend) -> bool:
        """auto: where the backend has any."""
        asked = self.options.use_gpu
        return backend.resources().gpus > 0 if asked == "auto" else bool(asked)

    def workers(self, backend: Backend) -> int:
        """How many ranks: of the launcher we are in, of the options, or of the default."""
        rank = launched_rank()
        if rank is not None:
            return rank.world
        return self._given()[1] or self._default_workers(backend)

    def _given(self) -> tuple[int, int]:
        """`num_workers` as (fewest, most): (0, n) for a fixed number, (0, 0) if it is not set."""
        given = self.options.num_workers
        return (given[0], given[1]) if isinstance(given, list | tuple) else (0, given or 0)

    def _run_group(
        self, job: TrainJob, backend: Backend, workers: int, progress: Progress
    ) -> TrainResult | None:
        from distcore_torch.training.progress_channel import file_progress_channel
        from distcore_torch.training.rank import refuse_too_many

        refuse_too_many(job, workers, Plugins(job.plugins_block))
        fewest = self._given()[0]
        if fewest:
            job = replace(job, planned_workers=workers)
        if self.options.max_retries and own_checkpoints(job) is None:
            log.warning(
                "No checkpoints are kept, so a worker that dies makes training start again from "
                "the beginning."
            )
        resources = self.resources_per_worker
        channel = backend.progress_channel(progress) or file_progress_channel(progress)
        with channel as progress_channel:
            group = WorkerGroup(
                function=train_rank,
                arguments=(job, progress_channel.reporter),
                ranks=workers,
                max_retries=self.options.max_retries,
                threads=int(resources.get("CPU", 0)),
                use_gpu=self.uses_gpu(backend),
                resources_per_worker=resources,
                min_ranks=fewest,
                rendezvous=dict(self.rendezvous),
                grace_seconds=train_options(job).grace_seconds,
                hang_seconds=train_options(job).hang_seconds,
            )
            return backend.run_group(group)[0]


def refuse_shared_gpus(workers: int, gpus: int) -> None:
    """Raise UserError if ranks of one machine would have to share GPUs, which nccl refuses.

    Args:
        workers: Ranks.
        gpus: What this process may use; 0 is none that could be shared.
    """
    if 0 < gpus < workers:
        raise UserError(
            f"{workers} workers cannot have a GPU each: this process may use {gpus} of this "
            f"machine. Set backend.trainer.num_workers to {gpus} or less, or "
            "backend.trainer.use_gpu to false."
        )


def exact_notes(options: TrainerOptions) -> list[str]:
    """What a plan says of exact training."""
    if not options.exact:
        return []
    return [
        f"Exact: a batch is computed in {options.parts} parts, each worker on one thread; batch "
        "sizes and learning rate are those of the run, whatever the number of workers. A module of "
        "your own must draw its random numbers from torch's default generator."
    ]


def default_workers(backend: Backend, use_gpu: Any) -> int:
    """How many ranks if nobody says: one for each GPU; without any, as many as the backend
    suggests, or one for each CPU up to MOST_ON_CPUS."""
    found = backend.resources()
    gpus = found.gpus if use_gpu else 0
    return max(1, gpus or found.workers or min(found.cpus, MOST_ON_CPUS))


def refuse_few_lanes(job: TrainJob, workers: int, parts: int) -> None:
    """Raise the ConfigError of a loader that deals rows to lanes, if it has too few of them."""
    from distcore_torch.sampler import owned

    loader: Any = Plugins(job.plugins_block).validate(
        "loaders", job.loader.name, job.loader.options
    )
    if hasattr(loader, "lanes"):
        owned(Rank(world=workers), loader.lanes, parts)


def cached_rows(job: TrainJob) -> int | None:
    """Of the training split; None without a cache."""
    from distcore_data.cache import open_cache

    try:
        with open_cache(job.cache, Plugins(job.plugins_block)) as reader:
            return reader.rows("train")
    except CacheError:  # a plan may be made before there is a cache
        return None
