"""Backends with a fault each, around the one of this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from tests.mutants import ranks
from tests.mutants.harness import Mutants

from distcore_core.contracts import BACKEND, BackendBase, Rank
from distcore_core.errors import DataError, TrainingError
from distcore_core.hooks import hookimpl
from distcore_core.registry.manager import Plugins
from distcore_testing import BackendSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("backends", BackendSuite)


@MUTANTS.sound
class Sound(BackendBase):
    def __init__(self, name):
        self.name, self.inner = name, Plugins().make(BACKEND, "local")
        self.defaults = self.inner.defaults

    def resources(self):
        return self.inner.resources()

    def map(self, function, items):
        return self.inner.map(function, items)

    def run_group(self, group):
        return self.inner.run_group(group)

    def close(self):
        self.inner.close()


@MUTANTS.fault(
    "test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order", quick=True
)
class Backward(Sound):
    """Results in the order in which ranks end."""

    def run_group(self, group):
        return super().run_group(group)[::-1]


@MUTANTS.fault("test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order")
class Timid(Sound):
    """Starts a worker group again once at most, however often it may."""

    def run_group(self, group):
        return super().run_group(replace(group, max_retries=min(1, group.max_retries)))


@MUTANTS.fault("test_without_retries_a_killed_rank_is_an_error_that_names_it")
class Stubborn(Sound):
    """Starts a worker group again that may not be."""

    def run_group(self, group):
        return super().run_group(replace(group, max_retries=group.max_retries + 1))


@MUTANTS.fault("test_without_retries_a_killed_rank_is_an_error_that_names_it")
class Silent(Sound):
    """Does not say which rank failed."""

    def run_group(self, group):
        try:
            return super().run_group(group)
        except TrainingError:
            raise TrainingError("The worker group failed.") from None


@MUTANTS.fault("test_an_error_that_another_attempt_would_meet_is_raised_at_once_as_it_is")
class Hopeful(Sound):
    """Tries again whatever a rank raised."""

    def run_group(self, group):
        for _ in range(group.max_retries):
            try:
                return super().run_group(group)
            except DataError:
                continue
        return super().run_group(group)


@MUTANTS.fault("test_each_rank_is_a_process_with_a_local_rank_of_its_own")
class Crowded(Sound):
    """Every rank takes itself for the first one of its machine."""

    def run_group(self, group):
        return super().run_group(replace(group, function=ranks.FirstHere(group.function)))


@MUTANTS.fault("test_ranks_meet_and_add_up")
class Lonely(Sound):
    """Every rank meets nobody but itself."""

    def run_group(self, group):
        return super().run_group(replace(group, function=ranks.Alone(group.function)))


@MUTANTS.fault("test_the_environment_says_which_rank_it_is")
class Untold(Sound):
    """The environment of a rank does not say how many there are on its machine."""

    def run_group(self, group):
        return super().run_group(replace(group, function=ranks.Untold(group.function)))


@MUTANTS.fault("test_a_rank_has_the_threads_that_were_asked_for")
class Greedy(Sound):
    """Shares the CPUs out by itself, whatever was asked for."""

    def run_group(self, group):
        return super().run_group(replace(group, threads=1))


@MUTANTS.fault("test_tasks_keep_their_order_and_none_is_fine", quick=True)
class Unordered(Sound):
    """Tasks come back as they please."""

    def map(self, function, items):
        return super().map(function, list(reversed(list(items))))


@MUTANTS.fault("test_few_tasks_are_begun_before_results_are_taken_and_none_once_it_is_closed")
class Eager(Sound):
    """Runs all tasks before it gives the first result."""

    def map(self, function, items):
        return iter(list(super().map(function, items)))


@MUTANTS.fault("test_a_task_whose_process_is_lost_runs_again")
class Losing(Sound):
    """A pool of processes, which breaks with the first of them."""

    def map(self, function, items):
        with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
            yield from pool.map(function, items)


@MUTANTS.fault("test_what_a_task_raises_is_raised_as_it_is_after_the_results_before_it")
class Wrapping(Sound):
    """Raises what a task raised as an error of its own."""

    def map(self, function, items):
        try:
            yield from super().map(function, items)
        except DataError as error:
            raise TrainingError(f"A task failed: {error}") from error


@MUTANTS.fault("test_nothing_is_started_before_it_is_used_and_nothing_is_left")
class Hasty(Sound):
    """Starts a process when it is made."""

    def __init__(self, name):
        super().__init__(name)
        words = [sys.executable, "-c", "import time; time.sleep(300)"]
        self.server = subprocess.Popen(words)

    def close(self):
        self.server.kill()
        self.server.wait()


@MUTANTS.fault("test_nothing_is_started_before_it_is_used_and_nothing_is_left")
class Watching(Sound):
    """A process that watches the ranks of a worker group outlives them."""

    def run_group(self, group):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(40)"])
        return super().run_group(group)


@MUTANTS.fault("test_an_interrupt_leaves_no_rank")
class Abandoning(Sound):
    """A worker group that is interrupted is left to itself."""

    def run_group(self, group):
        found, run = Future(), super().run_group

        def work():
            try:
                found.set_result(run(group))
            except BaseException as error:
                found.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return found.result()


@MUTANTS.fault("test_ranks_end_with_the_process_that_leads_them")
class Orphaned(Sound):
    """Its ranks look after nobody: they outlive a process that is killed."""

    def run_group(self, group):
        started = []
        for each in range(group.ranks):
            rank = Rank(index=each, world=group.ranks, local_rank=each)
            process = get_context("spawn").Process(
                target=group.function, args=(rank, *group.arguments)
            )
            process.start()
            started.append(process)
        for each in started:
            each.join()
        return []


@MUTANTS.fault("test_nothing_is_started_before_it_is_used_and_nothing_is_left")
class Setting(Sound):
    """Leaves the environment of the driver as that of a rank."""

    def run_group(self, group):
        os.environ["WORLD_SIZE"] = str(group.ranks)
        return super().run_group(group)


@hookimpl
def distcore_make_backend(name):
    made = MUTANTS.named(name)
    return made and made(name)
