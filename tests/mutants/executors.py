"""Executors with a fault each: one trial after another, each in a process of its own."""

from __future__ import annotations

import multiprocessing

from pydantic import BaseModel, ConfigDict
from tests.mutants.harness import Mutants

from distcore_core.errors import TrainingError
from distcore_core.hooks import hookimpl
from distcore_testing import ExecutorSuite

DISTCORE_API = (1, 0)
# It stops no trial early and runs one at a time, so the suite's tests of these are left out.
MUTANTS = Mutants(
    "executors",
    ExecutorSuite,
    {
        "test_a_bad_trial_is_stopped_early": None,
        "test_it_says_how_many_run_at_once_and_who_chooses": None,
    },
)


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


@MUTANTS.fault("test_trials_that_ended_are_not_repeated_and_one_that_was_begun_goes_on")
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


class Options(BaseModel):
    model_config = ConfigDict(extra="allow")


@hookimpl
def distcore_make_executor(name):
    made = MUTANTS.named(name)
    return made and made(name)


@hookimpl
def distcore_options_model(kind, name):
    return Options if kind == "executors" else None
