"""Optuna's study in the search's folder: what is asked next, which trial is stopped, and what a killed driver left."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import Trial, TrialState

from distcore.contracts import Axis, SearchJob
from distcore.errors import UserError

if TYPE_CHECKING:
    from distcore_optuna.options import LocalOptions

JOURNAL = "study.journal"
NAME = "distcore"
STARTUP = 10
"""Trials that TPE draws at random before it models anything; Optuna's default."""


class Study:
    """The trials so far. Numbers are Optuna's: 0, 1, …; the journal survives a killed driver."""

    def __init__(self, job: SearchJob, options: LocalOptions) -> None:
        # Optuna tells every trial on the terminal, and so do we.
        logging.getLogger("optuna").setLevel(logging.WARNING)
        self.job, self.options = job, options
        self.axes = {name: distribution(axis) for name, axis in job.axes.items()}
        path = job.directory / JOURNAL
        _drop_torn_line(path)
        self.study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path), _Held(str(path)))),
            study_name=NAME,
            direction=job.goal,
            pruner=pruner(options),
            load_if_exists=True,
        )

    def begun(self) -> list[Trial]:
        """Trials that a killed driver left under way."""
        return [
            Trial(self.study, each._trial_id)
            for each in self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        ]

    def count(self) -> int:
        """How many trials were ever begun."""
        return len(self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING, *_ENDED)))

    def ask(self) -> Trial:
        """The next trial, with its parameters."""
        number = self.count()
        given: Mapping[str, Any] = {}
        if self.job.variants is not None:
            given = self.job.variants[number]
        elif number < len(self.job.points):
            given = self.job.points[number]
        waiting = self.study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        if given and not waiting:  # a driver killed right here had queued it already
            self.study.enqueue_trial(dict(given))
        # Seeded by the trial's number, so that a resumed search does not draw the first numbers again.
        self.study.sampler = sampler(self.options, self.job, self.job.seed + number)
        return self.study.ask(dict(self.axes))

    def report(self, trial: Trial, value: float, time: int) -> bool:
        """Tell a round's value at a time; True: the trial should be stopped."""
        known = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if time not in known:  # the first of two rounds in a second: Optuna takes no other
            trial.report(value, time)
        return bool(trial.should_prune())

    def tell(self, trial: Trial, state: str, score: float | None) -> None:
        """A trial ended. A stopped one counts with its best value, as does a finished one."""
        if state == "failed" or score is None:
            self.study.tell(trial.number, state=TrialState.FAIL)
        elif state == "stopped":
            self.study.tell(trial.number, state=TrialState.PRUNED)
        else:
            self.study.tell(trial.number, score)


class _Held(JournalFileOpenLock):
    """No lock of the journal's own: the search holds its folder, and one thread writes. A ctrl-C within Optuna's lock
    ends in another error, and one that a killed driver left behind keeps the next waiting for half a minute."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None: ...


_ENDED = (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL)


def distribution(axis: Axis) -> BaseDistribution:
    """An axis as Optuna has it."""
    if axis.kind == "choice":
        return CategoricalDistribution(list(range(int(axis.high) + 1)))
    if axis.kind == "int":
        step = 1 if axis.step is None else int(axis.step)
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log, step=step)
    return FloatDistribution(axis.low, axis.high, log=axis.log, step=axis.step)


def algorithm(options: LocalOptions, job: SearchJob) -> str:
    """Name of what chooses the trials."""
    if job.variants is not None:
        return "grid search" if any(axis.grid for axis in job.axes.values()) else "random search"
    return "tpe" if job.algorithm.get("type") == "optuna" or options.sampler == "auto" else options.sampler


def sampler(options: LocalOptions, job: SearchJob, seed: int) -> optuna.samplers.BaseSampler:
    """Raises UserError where the sampler needs a package that is not there."""
    name, seed = algorithm(options, job), seed % (1 << 32)
    try:
        if name == "gp":
            return optuna.samplers.GPSampler(seed=seed)
        if name == "cmaes":
            importlib.import_module("cmaes")  # Optuna itself would fail only at a later trial

            return optuna.samplers.CmaEsSampler(seed=seed)
    except ImportError as error:
        raise UserError(f"hyperopt.executor.sampler: {name} needs {error.name}: pip install {error.name}") from error
    if name == "tpe":
        # Liars keep trials that run beside each other from all asking the same.
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, constant_liar=True)
    return optuna.samplers.RandomSampler(seed=seed)


def pruner(options: LocalOptions) -> optuna.pruners.BasePruner:
    """The scheduler as Optuna has it."""
    scheduler: Any = options.scheduler
    if options.pruner == "median":
        return optuna.pruners.MedianPruner()
    if options.pruner == "hyperband":
        return optuna.pruners.HyperbandPruner()
    if scheduler.type == "fifo":
        return optuna.pruners.NopPruner()
    if scheduler.type == "hyperband":
        return optuna.pruners.HyperbandPruner(1, scheduler.max_t, int(scheduler.reduction_factor))
    if scheduler.type.startswith("median"):
        return optuna.pruners.MedianPruner(
            n_startup_trials=scheduler.min_samples_required, n_warmup_steps=int(scheduler.grace_period)
        )
    factor = int(scheduler.reduction_factor)
    if scheduler.brackets > 1:
        return optuna.pruners.HyperbandPruner(scheduler.grace_period, scheduler.max_t, factor)
    return optuna.pruners.SuccessiveHalvingPruner(scheduler.grace_period, factor)


def _drop_torn_line(path: Path) -> None:
    """A line that a kill cut short would make the whole journal unreadable once another one follows it."""
    if not path.exists():
        return
    text = path.read_bytes()
    whole = text.rfind(b"\n") + 1
    if whole != len(text):
        with open(path, "r+b") as file:
            file.truncate(whole)
