"""Executors with a fault each: one trial after another, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import random
from dataclasses import replace

from tests.mutants.harness import Around, Mutants

from distcore_core.contracts import EXECUTOR
from distcore_core.errors import TrainingError
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins
from distcore_testing import ExecutorSuite

DISTCORE_API = (1, 0)
# It stops no trial early and runs one at a time, so the suite's tests of these are left out.
LEFT_OUT = (
    "test_a_bad_trial_is_stopped_early",
    "test_it_says_how_many_run_at_once_and_who_chooses",
    "test_as_many_run_at_once_as_it_says",
    "test_an_unknown_option_and_a_scheduler_that_nobody_carries_out_are_refused",
)
MUTANTS = Mutants("executors", ExecutorSuite, {"asked": False, **dict.fromkeys(LEFT_OUT)})


@MUTANTS.sound
class Sound:
    """One trial after another, each in a process of its own."""

    repeats, fragile, mixes = False, False, False

    def __init__(self, name):
        self.name = name

    def plan(self, job, backend):
        return {"at_once": 1, "algorithm": "as given", "notes": []}

    def run(self, job, backend, told):
        from distcore_search.records import ENDED, end_record, read_record

        for number, raw in enumerate(job.variants):
            name = f"{number:04d}"
            folder = job.work.folder(name)
            if read_record(folder).get("state") in ENDED and not self.repeats:
                continue
            given = dict(job.variants[0]) if self.mixes else dict(raw)
            process = multiprocessing.get_context("spawn").Process(
                target=job.function, args=(job.work, name, given)
            )
            process.start()
            process.join()
            if process.exitcode and self.fragile:
                raise TrainingError("a trial died")
            end_record(folder, "failed", job.work.objective, "its process died")
            told(name)


@MUTANTS.fault("test_trials_that_ended_are_not_repeated")
class Repeating(Sound):
    """Tells of trials that ended long ago."""

    repeats = True


@MUTANTS.fault("test_a_trial_that_fails_or_dies_does_not_stop_the_others", quick=True)
class Fragile(Sound):
    """Ends with the first trial that dies."""

    fragile = True


@MUTANTS.fault("test_every_trial_runs_once_with_its_own_parameters")
class Mixing(Sound):
    """Gives every trial the parameters of the first."""

    mixes = True


class AroundLocal(Around):
    """The one of this machine. goal, seed: what it takes for the job's; at_once: how many more."""

    def plan(self, job, backend):
        return self.inner.plan(self.seen(job), backend)

    def run(self, job, backend, told):
        self.inner.run(self.seen(job), backend, told)

    def seen(self, job):
        return job


ALL = {name: getattr(ExecutorSuite, name) for name in LEFT_OUT} | {"asked": True}
"""The whole suite again."""


@MUTANTS.sound
class Whole(AroundLocal):
    """The one of this machine."""


@MUTANTS.fault("test_what_it_chooses_goes_for_the_goal", **ALL)
class Downwards(AroundLocal):
    """Minimises, whatever the goal is."""

    def seen(self, job):
        return replace(job, goal="minimize")


@MUTANTS.fault("test_a_bad_trial_is_stopped_early", **ALL)
class Favouring(AroundLocal):
    """Stops the best trials of a goal that is to be maximised."""

    def seen(self, job):
        return replace(job, goal="minimize") if job.goal == "maximize" else job


@MUTANTS.fault("test_the_seed_decides_what_it_chooses", **ALL)
class Seedless(AroundLocal):
    """Draws by a seed of its own."""

    def seen(self, job):
        return replace(job, seed=random.randrange(1 << 30))


@MUTANTS.fault("test_the_seed_decides_what_it_chooses", **ALL)
class Eager(AroundLocal):
    """Runs one trial more than was asked for."""

    def seen(self, job):
        return replace(job, trials=job.trials + 1) if job.variants is None else job


@MUTANTS.fault("test_every_trial_runs_once_with_its_own_parameters")
class Hasty(AroundLocal):
    """Tells of a trial when it begins."""

    def run(self, job, backend, told):
        from distcore_search.records import read_record, write_record

        def first(name):
            folder = job.work.folder(name)
            found = read_record(folder)
            write_record(folder, {**found, "state": "running"})
            told(name)
            write_record(folder, found)

        self.inner.run(job, backend, first)


@MUTANTS.fault("test_as_many_run_at_once_as_it_says", **ALL)
class Alone(AroundLocal):
    """Runs one trial at a time, whatever it says."""

    def run(self, job, backend, told):
        self.inner.options = self.inner.options.model_copy(update={"max_concurrent_trials": 1})
        self.inner.run(job, backend, told)


@MUTANTS.fault("test_a_trial_that_was_under_way_when_its_search_was_killed_goes_on")
class Fresh(Sound):
    """A trial that was under way when the search was killed is passed over."""

    def run(self, job, backend, told):
        from distcore_search.records import end_record

        for folder in (job.directory / "trials").glob("*"):
            end_record(folder, "failed", job.work.objective, "it was under way")
        super().run(job, backend, told)


@hookimpl
def distcore_make_executor(name, options):
    made = MUTANTS.named(name)
    if made and issubclass(made, AroundLocal):
        return made(Plugins().make(EXECUTOR, "local", options.model_dump()))
    return made and made(name)


@hookimpl
def distcore_options_model(kind, name):
    return Plugins().options_model(kind, "local") if kind == "executors" else None
