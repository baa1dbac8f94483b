"""Optuna's study in the search's folder: what is asked next, which trial is stopped, and what a
killed driver left."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial, Trial, TrialState

from distcore_core.contracts import JSON, Axis, SearchJob
from distcore_core.errors import UserError
from distcore_optuna.journal import JournalDamaged, SealedJournal
from distcore_optuna.median import MedianAtTime
from distcore_search.records import ENDED, ROUNDS, TRIALS, read_record
from distcore_search.rounds import rounds_of
from distcore_search.variants import draw

if TYPE_CHECKING:
    from distcore_optuna.options import LocalOptions

JOURNAL = "study.journal"
NAME = "distcore"
log = logging.getLogger("distcore")
STARTUP = 10
"""Trials that TPE draws at random before it models anything; Optuna's default."""


@contextmanager
def quiet() -> Iterator[None]:
    """Optuna tells every trial on the terminal, and so do we: until the block ends, it does not."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


class Study:
    """The trials so far. Numbers are Optuna's: 0, 1, …; the journal survives a killed driver.

    The trials' own records are the truth: a journal that is damaged, or tells otherwise, is made
    anew from them."""

    def __init__(self, job: SearchJob, options: LocalOptions) -> None:
        self.job, self.options = job, options
        self.axes = {name: distribution(axis) for name, axis in job.axes.items()}
        self.path = job.directory / JOURNAL
        records = self._records()
        try:
            self.study = self._opened()
            trouble = self._disagreement(records)
        except JournalDamaged as error:
            trouble = str(error)
        if trouble:
            log.warning("%s is made anew from the trials' records: %s.", self.path, trouble)
            self.path.unlink()
            self.study = self._opened()
            self._restore(records)

    def _opened(self) -> optuna.Study:
        """Optuna's study of the journal. Raises JournalDamaged."""
        self.journal = SealedJournal(self.path)
        return optuna.create_study(
            storage=JournalStorage(self.journal),
            study_name=NAME,
            direction=self.job.goal,
            pruner=pruner(self.options),
            load_if_exists=True,
        )

    def _records(self) -> dict[int, JSON]:
        """The trials' records by their numbers. Raises UserError for one that is damaged."""
        folder = self.job.directory / TRIALS
        found = sorted(folder.iterdir()) if folder.is_dir() else []
        records = {int(each.name): read_record(each) for each in found if each.name.isdecimal()}
        return {number: record for number, record in records.items() if record}

    def _disagreement(self, records: Mapping[int, JSON]) -> str:
        """What the journal tells otherwise than the records; "" if they agree."""
        trials = {each.number: each for each in self.study.get_trials(deepcopy=False)}
        for number, record in records.items():
            if number not in trials or trials[number].params != record["raw"]:
                return f"it does not know trial {number:04d}"
        for number, trial in trials.items():
            if trial.state != TrialState.WAITING and trial.params.keys() != self.axes.keys():
                return f"trial {number:04d} has only some of its parameters there"
            if trial.state in _ENDED and number not in records:
                return f"trial {number:04d}, which has ended there, has no record"
            if trial.state in _ENDED and records[number]["state"] not in ENDED:
                return f"trial {number:04d}, which has ended there, is to be gone on with"
        return ""

    def _restore(self, records: Mapping[int, JSON]) -> None:
        """Tell an empty study of every trial, in order; one without a record is begun again."""
        for number in range(max(records, default=-1) + 1):
            if number in records:
                self.study.add_trial(self._as_it_was(records[number]))
            else:
                self.ask()

    def _as_it_was(self, record: JSON) -> FrozenTrial:
        found: tuple[TrialState, float | None] = TrialState.RUNNING, None
        if record["state"] in ENDED:
            found = self._outcome(record["state"], record.get("score"))
        rounds = rounds_of(self.job.work.folder(record["name"]) / ROUNDS)
        values: dict[int, float] = {}
        for each in rounds:
            value = self.job.work.objective.of_round(each.metrics)
            if value is not None:
                values.setdefault(self.options.scheduler.time(each), value)
        return optuna.trial.create_trial(
            state=found[0],
            value=found[1],
            params=record["raw"],
            distributions={name: self.axes[name] for name in record["raw"]},
            intermediate_values=values,
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
        # Seeded by the trial's number, so that a resumed search does not draw the first numbers
        # again; not by its sum with the seed, by which a search of the next seed has the same ones.
        seed = int(draw(self.job.seed, number, "sampler") * (1 << 32))
        self.study.sampler = sampler(self.options, self.job, seed)
        # A trial with some of its parameters would be gone on with as if those were all.
        with self.journal.whole():
            if given and not waiting:
                self.study.enqueue_trial(dict(given))
            return self.study.ask(dict(self.axes))

    def report(self, trial: Trial, value: float, time: int) -> bool:
        """Tell a round's value at a time by the scheduler's clock; True: the trial should be
        stopped. What was told before changes nothing."""
        known = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        if (
            time in known
        ):  # by a driver that was killed since; or the first of two rounds in a second
            return False
        trial.report(value, time)
        return bool(trial.should_prune())

    def tell(self, trial: Trial, state: str, score: float | None) -> None:
        """A trial ended. A stopped one counts with its best value, as does a finished one."""
        found, value = self._outcome(state, score)
        self.study.tell(trial.number, value, state=found)

    def _outcome(self, state: str, score: float | None) -> tuple[TrialState, float | None]:
        """What Optuna calls a trial that ended, and the value that it takes of it. Its samplers
        think less of a pruned one than of any other, or nothing: so a stopped one, which may be
        the best, is pruned only where the pruner compares with the finished ones alone."""
        if state == "failed" or score is None:
            return TrialState.FAIL, None
        if state == "stopped" and isinstance(self.study.pruner, MedianAtTime):
            return TrialState.PRUNED, None
        return TrialState.COMPLETE, score


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
    return (
        "tpe"
        if job.algorithm.get("type") == "optuna" or options.sampler == "auto"
        else options.sampler
    )


def sampler(options: LocalOptions, job: SearchJob, seed: int) -> optuna.samplers.BaseSampler:
    """Raises UserError if the sampler needs a package that is not there."""
    name = algorithm(options, job)
    try:
        if name == "gp":
            return optuna.samplers.GPSampler(seed=seed)
        if name == "cmaes":
            importlib.import_module("cmaes")  # Optuna itself would fail only at a later trial

            return optuna.samplers.CmaEsSampler(seed=seed)
    except ImportError as error:
        raise UserError(
            f"hyperopt.executor.sampler: {name} needs {error.name}: pip install {error.name}"
        ) from error
    if name == "tpe":
        # Liars keep trials that run beside each other from all asking the same.
        return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, constant_liar=True)
    return optuna.samplers.RandomSampler(seed=seed)


def pruner(options: LocalOptions) -> optuna.pruners.BasePruner:
    """The scheduler as Optuna has it."""
    scheduler: Any = options.scheduler
    if scheduler.type == "fifo":
        return optuna.pruners.NopPruner()
    if scheduler.type == "hyperband":
        return optuna.pruners.HyperbandPruner(1, scheduler.max_t, int(scheduler.reduction_factor))
    if scheduler.type.startswith("median"):
        return MedianAtTime(scheduler.grace_period, scheduler.min_samples_required)
    factor = int(scheduler.reduction_factor)
    if scheduler.brackets > 1:
        # Optuna asks for no number: it counts the levels up to a last one, here halfway (half of
        # a factor of 2) beyond the one that makes so many.
        last = scheduler.grace_period * factor ** (scheduler.brackets - 1) * 3 // 2
        return optuna.pruners.HyperbandPruner(scheduler.grace_period, last, factor)
    return optuna.pruners.SuccessiveHalvingPruner(scheduler.grace_period, factor)
