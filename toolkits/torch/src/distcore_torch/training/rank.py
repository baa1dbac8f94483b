"""What one rank does: open the cache, build the module, make the loaders, run the loop, write
the model."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import (
    JSON,
    LOADER,
    Loader,
    LoadRequest,
    Rank,
    Split,
    TrainJob,
    TrainResult,
)
from distcore_core.errors import UserError
from distcore_data.artifact import write_artifact
from distcore_data.cache import open_cache
from distcore_data.features import Features
from distcore_data.memory import keep_freed_memory
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL
from distcore_torch.training.checkpoint import copy_newest_from, list_checkpoints
from distcore_torch.training.heartbeat import SAVING, TELLING, heartbeat
from distcore_torch.training.job import (
    checkpoints_of,
    model_of,
    output_folder,
    own_checkpoints,
    train_options,
)
from distcore_torch.training.ledger import LEDGER
from distcore_torch.training.loop import Finished, TrainLoop, Work
from distcore_torch.training.plan import TrainPlan
from distcore_torch.training.state import identity
from distcore_torch.training.tensorfile import tensor_writer
from distcore_torch.training.torch_model import BEST, LAST, build_module, start_from

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_core.registry.manager import Plugins
    from distcore_data.cache import CacheReader
    from distcore_torch.training.strategy import Strategy


def fit_rank(
    job: TrainJob, strategy: Strategy, plugins: Plugins, progress: Progress, bound: JSON
) -> TrainResult | None:
    """Train this rank of the job; strategy: set up; bound: `BoundTrainer.bound`. The result in rank
    0, None in the others."""
    keep_freed_memory()
    options = train_options(job)
    rank = strategy.rank
    with ExitStack() as stack:
        reader = stack.enter_context(open_cache(job.cache, plugins))
        if not reader.rows("train"):
            raise UserError(
                "The training split has no rows. Change preprocessing.split, or give more data."
            )
        features = Features.of(job.config, plugins).fitted(reader.metadata)
        plan = TrainPlan.of(options, job.planned_workers or rank.world, reader.rows("train"))
        reference = model_of(job)
        module = build_module(reference, features, plugins, job.seed)
        if job.initial_weights is not None:
            start_from(module, job.initial_weights)
        module.to(strategy.device)
        loaders = _Loaders(job, reader, features, rank, str(strategy.device), plugins, stack)
        work = Work(
            module,
            features,
            train=loaders.make("train", plan.batch_rows, options.should_shuffle),
            validation=loaders.make("validation", plan.evaluation_rows)
            if reader.rows("validation")
            else None,
            train_in_order=loaders.make("train", plan.evaluation_rows)
            if options.evaluate_training_set
            else None,
            plan=plan,
            seed=job.seed,
            checkpoints=own_checkpoints(job),
            ledger=job.directory / LEDGER if job.save_statistics and job.directory else None,
            mirror=job.mirror,
            identity=identity(job, plan.batch_rows, bound),
            on_round=partial(_tell_round, plugins, job.directory),
            on_checkpoint=partial(_tell_checkpoint, plugins),
        )
        loop = TrainLoop(work, options, strategy, progress)
        # Every rank's folder may be another; rank 0's counts.
        start = strategy.gather(_where_to_go_on(job) if rank.index == 0 else None)[0]
        if start is not None:
            loop.resume(start)
        finished = loop.run()
    if rank.index:
        return None
    with heartbeat().during(SAVING):
        return _written(job, features, reference, finished, plan)


def refuse_too_many(job: TrainJob, workers: int, plugins: Plugins) -> None:
    """Raise what so many ranks would meet when they share batches, parts and rows, before any of
    them is started."""
    with ExitStack() as stack:
        reader = stack.enter_context(open_cache(job.cache, plugins))
        TrainPlan.of(train_options(job), workers, reader.rows("train"))
        features = Features.of(job.config, plugins)
        last = Rank(index=workers - 1, world=workers)
        _Loaders(job, reader, features, last, "cpu", plugins, stack).make("train", workers)


def _where_to_go_on(job: TrainJob) -> Path | None:
    """This run's own checkpoints (a worker group that was started again), else those it was told
    to resume."""
    if job.mirror is not None and job.directory is not None:
        copy_newest_from(job.mirror, job.directory / CHECKPOINTS)
        with suppress(FileNotFoundError):
            job.mirror.get_file(LEDGER, job.directory / LEDGER)
    own = own_checkpoints(job)
    if own is not None and list_checkpoints(own):
        return own
    return checkpoints_of(job.resume) if job.resume is not None else None


class _Loaders:
    """Makes this rank's loaders, closed with the stack."""

    def __init__(
        self,
        job: TrainJob,
        reader: CacheReader,
        features: Features,
        rank: Rank,
        device: str,
        plugins: Plugins,
        stack: ExitStack,
    ) -> None:
        self.job, self.reader, self.rank, self.device = job, reader, rank, device
        options = train_options(job)
        self.parts = options.parts if options.exact else 0
        self.plugins, self.stack = plugins, stack
        self.columns = [each.name for each in (*features.inputs, *features.outputs)]

    def make(self, split: Split, rows: int, shuffle: bool = False) -> Loader:
        """A loader of global batches of `rows` rows."""
        request = LoadRequest(
            reader=self.reader,
            split=split,
            columns=self.columns,
            batch_size=rows,
            seed=self.job.seed,
            rank=Rank(
                index=self.rank.index, world=self.rank.world, local_rank=self.rank.local_rank
            ),
            shuffle=shuffle,
            parts=self.parts,
            device=self.device,
        )
        loader: Loader = self.plugins.make(
            LOADER, self.job.loader.name, self.job.loader.options, request=request
        )
        self.stack.callback(loader.close)
        return loader


def _tell_round(
    plugins: Plugins, directory: Path | None, epoch: int, step: int, metrics: JSON
) -> str:
    """Why extensions ask to end training here; "": none does."""
    hook = plugins.manager.hook
    with heartbeat().during(TELLING):
        answers = hook.epoch_finished(epoch=epoch, step=step, metrics=metrics, directory=directory)
    return " ".join(answers)


def _tell_checkpoint(plugins: Plugins, step: int, path: Path) -> None:
    with heartbeat().during(TELLING):
        plugins.manager.hook.checkpoint_saved(step=step, directory=path)


def _written(
    job: TrainJob, features: Features, reference: JSON, finished: Finished, plan: TrainPlan
) -> TrainResult:
    """Write the model folder: the best weights, and the last where they are others."""
    state = finished.state
    files: dict[str, Any] = {BEST: tensor_writer(finished.best_weights)}
    same = state.best.get("step", state.step) == state.step
    if not same:
        files[LAST] = tensor_writer(finished.last_weights)
    extra: JSON = {
        "model": reference,
        "best": state.best,
        "weights": {"best": BEST, "last": BEST if same else LAST},
    }
    if finished.stopped:
        extra["stopped"] = finished.stopped
    if train_options(job).exact:
        extra["exact"] = True
    model = write_artifact(output_folder(job) / MODEL, job, features, files, extra)
    return TrainResult(
        model=model,
        statistics=state.statistics,
        best=state.best,
        steps=state.step,
        epochs=state.step / plan.steps_per_epoch,
    )
