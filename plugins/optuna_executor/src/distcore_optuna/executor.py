"""Trials as processes of this machine: asked of Optuna, watched round by round, stopped if they
are no good."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON, Backend, SearchJob
from distcore_core.errors import CheckpointError, UserError
from distcore_data.seals import damaged
from distcore_data.shares import ROUNDING, times
from distcore_optuna.process import TrialProcess, stop
from distcore_search.records import ENDED, ROUNDS, begin_record, end_record, read_record
from distcore_search.rounds import Follower, Round
from distcore_torch.training.interrupt import Interrupt

if TYPE_CHECKING:
    from optuna.trial import Trial

    from distcore_optuna.options import LocalOptions
    from distcore_optuna.study import Study

LOOK_SECONDS = 0.1
"""How often the trials' rounds and ends are looked for."""


@dataclass
class Running:
    """A trial under way. slot: which of the places beside each other it has."""

    trial: Trial
    name: str
    process: TrialProcess
    follower: Follower
    slot: int
    stopping: bool = False


class LocalExecutor:
    """The executor `local`, and `optuna`."""

    def __init__(self, name: str, options: LocalOptions) -> None:
        self.name = name
        self.options = options

    # -------------------------------------------------------------- contracts.Executor

    def plan(self, job: SearchJob, backend: Backend) -> JSON:
        """As many trials at once as there are GPUs, else CPUs, for; or as many as the section
        says."""
        from distcore_optuna.study import algorithm, sampler

        sampler(self.options, job, 0)  # refuses what is not installed
        at_once, notes = self._at_once(job, backend)
        chosen, asked = algorithm(self.options, job), self.options.sampler
        if asked not in ("auto", chosen.split()[0]):
            notes.append(
                f"hyperopt.executor.sampler: {asked} changes nothing here, since search_alg or a "
                f"grid_search has the trials chosen by {chosen}. Without those {asked} chooses."
            )
        return {"at_once": at_once, "algorithm": chosen, "notes": notes}

    def run(self, job: SearchJob, backend: Backend, told: Callable[[str], None]) -> None:
        """Run the trials. On a ctrl-C, or an error, every one is asked to save where it is.

        Raises CheckpointError if somebody else writes into the journal meanwhile."""
        from distcore_optuna.journal import JournalDamaged
        from distcore_optuna.study import Study, quiet

        at_once, gpus = self._at_once(job, backend)[0], backend.resources().gpus
        with quiet():
            study = Study(job, self.options)
            try:
                _Loop(self, job, study, at_once, gpus, told).run()
            except JournalDamaged as error:
                advice = (
                    f"Go on with the search (--model_resume_path {job.directory}): it is made anew "
                    "from the trials' records."
                )
                raise CheckpointError(damaged(study.path, error, advice)) from None

    # -------------------------------------------------------------- resources

    def _at_once(self, job: SearchJob, backend: Backend) -> tuple[int, list[str]]:
        from distcore_torch.training.trainer import refuse_shared_gpus

        found, options = backend.resources(), self.options
        if job.use_gpu and options.gpu_resources_per_trial != 0 and not backend.distributed:
            refuse_shared_gpus(job.workers, found.gpus)
        cpus, gpus = (amount * job.workers for amount in options.of_process(job, found.gpus))
        if (options.gpu_resources_per_trial or 0) > found.gpus:
            raise UserError(
                f"hyperopt.executor.gpu_resources_per_trial: one trial needs {gpus:g} GPUs, but "
                f"there are {found.gpus}. Lower it."
            )
        fit = max(1, times(found.gpus, gpus, whole=True) if gpus else times(found.cpus, cpus))
        wanted = options.max_concurrent_trials
        most = job.algorithm.get("max_concurrent") or job.trials
        at_once = min(fit if wanted in ("auto", None) else int(wanted), most, job.trials)
        notes = []
        if at_once * cpus > found.cpus:
            notes.append(
                f"{at_once} trials at once × {cpus:g} CPUs are more than the {found.cpus} of this "
                "machine: each is slower."
            )
        return at_once, notes

    def environment(self, job: SearchJob, slot: int, gpus: int) -> dict[str, str]:
        """Threads and GPUs of the trial in this slot."""
        import os

        cpus, share = self.options.of_process(job, gpus)
        found = {"OMP_NUM_THREADS": str(max(1, int(cpus)))}
        share *= job.workers
        if not gpus:
            return found
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else [str(each) for each in range(gpus)]
        # Trials share one GPU as long as each has a part of it.
        first = slot // times(1, share) if 0 < share < 1 else times(slot * share, 1)
        count = math.ceil(share - ROUNDING)
        chosen = [names[(first + each) % len(names)] for each in range(count)]
        return {**found, "CUDA_VISIBLE_DEVICES": ",".join(chosen)}


class _Loop:
    """Asking, watching, telling, until all trials have ended or time is up."""

    def __init__(
        self,
        executor: LocalExecutor,
        job: SearchJob,
        study: Study,
        at_once: int,
        gpus: int,
        told: Callable[[str], None],
    ) -> None:
        self.executor, self.job, self.study = executor, job, study
        self.gpus, self.told, self.at_once = gpus, told, at_once
        self.objective = job.work.objective
        self.running: list[Running] = []
        self.idle: dict[int, TrialProcess] = {}
        budget = executor.options.time_budget_s
        self.deadline = None if budget is None else time.monotonic() + budget

    def run(self) -> None:
        # Between two looks only: an exception at any moment could come between a trial's begin and
        # our knowing of it.
        with Interrupt() as interrupt:
            self._until_ended(interrupt)

    def _until_ended(self, interrupt: Interrupt) -> None:
        begun: Iterator[Trial] = iter(self.study.begun())
        try:
            while not self._out_of_time():
                if interrupt.asked:
                    raise interrupt.stopped()
                self._fill(begun)
                if not self.running:
                    return
                time.sleep(LOOK_SECONDS)
                for each in list(self.running):
                    self._look(each)
        finally:
            # Those under way are so after a ctrl-C or an error only.
            stop([each.process for each in self.running])
            for idle in self.idle.values():
                idle.close()

    def _fill(self, begun: Iterator[Trial]) -> None:
        """Start trials until no place is free: those that were begun before, then new ones."""
        while len(self.running) < self.at_once:
            trial = next(begun, None)
            if trial is None:
                if self.study.count() >= self.job.trials:
                    return
                trial = self.study.ask()
            name = f"{trial.number:04d}"
            if self._ended_already(trial, name):
                continue
            slot = min(set(range(self.at_once)) - {each.slot for each in self.running})
            folder = self.job.work.folder(name)
            follower = Follower(folder / ROUNDS)
            if any(self._report(trial, found) for found in follower.new()):
                # Rounds of an attempt before, whose driver was killed when it had not seen the last
                # of them.
                end_record(folder, "stopped", self.objective)
                self._ended_already(trial, name)
                self.told(name)
                continue
            begin_record(self.job.work, name, trial.params)
            process = self._process(slot)
            process.start(self.job.function, self.job.work, name, trial.params, folder)
            self.running.append(Running(trial, name, process, follower, slot))

    def _process(self, slot: int) -> TrialProcess:
        """The process that served this place before, or a new one."""
        idle = self.idle.pop(slot, None)
        if idle is not None and idle.alive():
            return idle
        return TrialProcess(self.executor.environment(self.job, slot, self.gpus))

    def _ended_already(self, trial: Trial, name: str) -> bool:
        """A trial that ended just before its driver was killed: told now, not repeated."""
        record = read_record(self.job.work.folder(name))
        if record.get("state") not in ENDED:
            return False
        self.study.tell(trial, record["state"], record.get("score"))
        return True

    def _look(self, each: Running) -> None:
        alive = each.process.running()  # before the rounds: none can come after its end
        for found in each.follower.new():
            if not each.stopping and self._report(each.trial, found) and alive:
                self._note_stop(each)
                each.process.ask_to_stop()
        if not alive:
            self._end(each)

    def _report(self, trial: Trial, found: Round) -> bool:
        """Tell the study of a round; True: the trial should be stopped."""
        value, scheduler = self.objective.of_round(found.metrics), self.executor.options.scheduler
        bad = value is not None and self.study.report(trial, value, scheduler.time(found))
        if not scheduler.is_over(found):
            return bad
        return "epochs" not in (self.job.work.given or {})  # else it ends there by itself

    def _note_stop(self, each: Running) -> None:
        """A trial is to be stopped for good. Its record says so first: a driver that is killed
        now does not go on with it."""
        each.stopping = True
        end_record(
            self.job.work.folder(each.name), "stopped", self.objective, seconds=each.process.seconds
        )

    def _end(self, each: Running) -> None:
        """The trial is over: tell what became of it. Its process serves again only if all went
        well."""
        self.running.remove(each)
        if each.stopping or not each.process.alive():
            each.process.close()
        why = f"{each.process.how_it_ended()}; see log.txt in the trial's folder"
        folder = self.job.work.folder(each.name)
        record: Mapping[str, Any] = end_record(
            *(folder, "failed", self.objective, why, each.process.seconds),
            by_the_system=each.process.was_refused(),
        )
        if record["state"] == "finished" and not each.stopping:
            self.idle[each.slot] = each.process
        else:
            each.process.close()
        self.study.tell(each.trial, record["state"], record.get("score"))
        self.told(each.name)

    def _out_of_time(self) -> bool:
        """Past the time budget every trial under way is stopped, and counts with its best round."""
        if self.deadline is None or time.monotonic() < self.deadline:
            return False
        for each in self.running:
            if not each.stopping:
                self._note_stop(each)
        stop([each.process for each in self.running])
        for each in list(self.running):
            self._end(each)
        return True
