"""A rank's process: what a backend starts as one, and what it works in until it is over."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import TRAINER, Rank, TrainJob, TrainResult
from distcore_core.errors import StoreError, UserError
from distcore_core.progress import Progress
from distcore_core.registry.manager import Plugins
from distcore_data.stores.run_sync import how_to_go_on, newest_checkpoint, working_folder
from distcore_torch.guests import put_back
from distcore_torch.training.job import train_options

if TYPE_CHECKING:
    from distcore_torch.training.progress_channel import Reporter

log = logging.getLogger("distcore")


def train_rank(rank: Rank, job: TrainJob, progress: Progress | Reporter) -> TrainResult | None:
    """One rank of a run: importable by name, so that any backend can start it. The result in rank
    0, None elsewhere.

    progress: where to report, or what a progress channel gave to report through."""
    from distcore_core.registry.listening import listening
    from distcore_torch.training.determinism import one_training
    from distcore_torch.training.heartbeat import PREPARING, heartbeat
    from distcore_torch.training.peers import watching
    from distcore_torch.training.rank import fit_rank
    from distcore_torch.training.strategy import FlatStrategy, Waiting

    plugins = Plugins(job.plugins_block)
    trainer: Any = plugins.make(TRAINER, job.trainer.name, job.trainer.options)
    strategy, options = trainer.strategy(), train_options(job)
    if options.hang_seconds is not None and isinstance(strategy, FlatStrategy):
        # Whoever watches names the rank first; this is for what nobody sees.
        strategy.patience = 2 * options.hang_seconds + 60
    extensions = job.config.get("extensions", []) if rank.index == 0 else []
    try:
        with (
            one_training(job.directory) if rank.world == 1 else nullcontext(),
            _logging_to(trainer.options.logdir, rank),
        ):
            Waiting(strategy, heartbeat()).setup(rank)
            directory, home = strategy.gather((job.directory, job.home and str(job.home)))[0]
            last_words = partial(last_checkpoint, replace(job, directory=directory), home)
            with (
                watching(strategy, options.hang_seconds, last_words),
                heartbeat().during(PREPARING),
                _working_here(job, rank) as job,
                listening(extensions, plugins, put_back),
                _reporting(progress, rank) as shown,
            ):
                return fit_rank(job, strategy, plugins, shown, trainer.bound)
    finally:
        strategy.teardown()


@contextmanager
def _logging_to(folder: str | None, rank: Rank) -> Iterator[None]:
    """Also write what this rank logs, from INFO on, to rank-<n>.log in the folder
    (`backend.trainer.logdir`). Elsewhere no more is shown for that."""
    if folder is None:
        yield
        return
    path = Path(folder) / f"rank-{rank.index}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path)
    except OSError as error:
        raise UserError(
            f"backend.trainer.logdir: {path} cannot be written ({error.strerror}). Name another "
            "folder, or none."
        ) from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    before, shown_from = log.level, log.getEffectiveLevel()

    def as_before(record: logging.LogRecord) -> bool:
        return record.levelno >= shown_from or record.name.partition(".")[0] != log.name

    others = _handlers()
    for each in others:
        each.addFilter(as_before)
    # Python's own, which shows warnings where there is no other handler.
    resort = logging.lastResort if not others else None
    for added in (handler, resort):
        if added is not None:
            log.addHandler(added)
    log.setLevel(min(logging.INFO, before or logging.INFO))
    try:
        yield
    finally:
        for added in (handler, resort):
            if added is not None:
                log.removeHandler(added)
        log.setLevel(before)
        for each in others:
            each.removeFilter(as_before)
        handler.close()


def _handlers() -> list[logging.Handler]:
    """Those that get what is logged here."""
    found, logger = [], log
    while True:
        found += logger.handlers
        if logger.parent is None or not logger.propagate:
            return found
        logger = logger.parent


@contextmanager
def _working_here(job: TrainJob, rank: Rank) -> Iterator[TrainJob]:
    """The job, in a folder of this machine where its results go to a bucket and the driver's
    folder is elsewhere."""
    if job.mirror is None or job.directory is None or job.directory.is_dir():
        yield job
        return
    with working_folder(job.mirror) as folder:
        start = job.initial_weights
        # Of a module given from Python.
        if isinstance(start, Path) and start.parent == job.directory:
            job.mirror.get_file(start.name, folder / start.name)
            start = folder / start.name
        resume = folder if job.resume is not None else None
        yield replace(job, directory=folder, resume=resume, initial_weights=start)
        if rank.index == 0:  # what extensions wrote beside the checkpoints
            job.mirror.put_files(folder)


@contextmanager
def _reporting(progress: Progress | Reporter, rank: Rank) -> Iterator[Progress]:
    if isinstance(progress, Progress):
        yield progress
    elif rank.index:
        yield Progress()
    else:
        with progress.reporting() as shown:
            yield shown


def last_checkpoint(job: TrainJob, home: str | None = None) -> str:
    """Which one a run that stopped has left, and how to go on from it, in a sentence.

    home: where the results are, if the job of this rank does not say it."""
    try:
        checkpoint = newest_checkpoint(job.directory, job.mirror)
    except StoreError as error:  # what stopped the run is the worse trouble
        return f"Which checkpoint is the last cannot be told: {error}"
    return how_to_go_on(checkpoint, home or job.home) if checkpoint else "No checkpoint was saved."
