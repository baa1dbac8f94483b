"""Backends with a fault each, over processes of their own."""

from __future__ import annotations

import multiprocessing

from tests.mutants import ranks
from tests.mutants.harness import Mutants

from distcore_core.contracts import BackendBase, Resources
from distcore_core.errors import TrainingError
from distcore_core.hooks import hookimpl
from distcore_testing import BackendSuite

DISTCORE_API = (1, 0)
MUTANTS = Mutants("backends", BackendSuite)


@MUTANTS.sound
class Sound(BackendBase):
    defaults = {"processor": "local", "loader": "packed", "trainer": "local"}  # noqa: RUF012
    retries, reverse, names_rank = True, False, True

    def __init__(self, name):
        self.name = name

    def resources(self):
        return Resources(cpus=1)

    def map(self, function, items):
        return map(function, items)

    def run_group(self, group):
        for _ in range(1 + (group.max_retries if self.retries else 0)):
            results = self._attempt(group)
            failed = [(rank, found) for rank, found in enumerate(results) if isinstance(found, str)]
            if not failed:
                return results[::-1] if self.reverse else results
        rank, found = failed[0]
        raise TrainingError(f"rank {rank} failed: {found}" if self.names_rank else found)

    def _attempt(self, group):
        context = multiprocessing.get_context("spawn")
        pipes, processes = [], []
        for rank in range(group.ranks):
            mine, theirs = context.Pipe()
            processes.append(
                context.Process(
                    target=ranks.run,
                    args=(theirs, group.function, rank, group.ranks, group.arguments),
                )
            )
            processes[-1].start()
            theirs.close()
            pipes.append(mine)
        results = []
        for pipe, process in zip(pipes, processes, strict=True):
            try:
                results.append(pipe.recv())
            except EOFError:
                results.append("it was killed")
            process.join()
        return results

    def close(self):
        pass


@MUTANTS.fault(
    "test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order", quick=True
)
class Backward(Sound):
    """Results in any order."""

    reverse = True


@MUTANTS.fault("test_a_killed_rank_is_retried_with_all_the_others_and_results_come_in_rank_order")
class Timid(Sound):
    """Never tries again."""

    retries = False


@MUTANTS.fault("test_without_retries_a_killed_rank_is_an_error_that_names_it")
class Silent(Sound):
    """Does not say which rank failed."""

    names_rank = False


@MUTANTS.fault("test_tasks_keep_their_order_and_none_is_fine")
class Unordered(Sound):
    """Tasks come back as they please."""

    def map(self, function, items):
        return map(function, reversed(list(items)))


@hookimpl
def distcore_make_backend(name):
    made = MUTANTS.named(name)
    return made and made(name)
