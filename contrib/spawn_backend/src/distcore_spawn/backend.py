"""Tasks in a pool of concurrent.futures; ranks are processes that tell results through pipes."""

import os
import pickle
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.connection import wait
from typing import Any, TypeVar

from distcore_core.plugin import BackendBase, DistcoreError, Resources, WorkerGroup
from distcore_spawn.rank import Lost, main

T = TypeVar("T")
LOSSES, SPAWN = 3, get_context("spawn")


class SpawnBackend(BackendBase):
    """This machine's CPUs."""

    name = "spawn"
    defaults = {"processor": "local", "loader": "packed", "trainer": "local"}  # noqa: RUF012

    def resources(self) -> Resources:
        """CPUs that this process may use."""
        return Resources(cpus=len(os.sched_getaffinity(0)))

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """At most two tasks a CPU are begun before their results are taken."""
        left, begun, losses = deque(items), deque[tuple[Any, Future[T]]](), LOSSES
        cpus, pool = self.resources().cpus, None
        try:
            while left or begun:
                pool = pool or ProcessPoolExecutor(cpus, SPAWN)
                try:
                    while left and len(begun) < 2 * cpus:
                        begun.append((left[0], pool.submit(function, left[0])))
                        left.popleft()
                    yield begun[0][1].result()
                    begun.popleft()
                except BrokenProcessPool:
                    if not losses:
                        raise
                    left.extendleft(item for item, _ in reversed(begun))
                    begun.clear()
                    losses, pool = losses - 1, None
        finally:
            if pool is not None:
                pool.shutdown(cancel_futures=True)

    def run_group(self, group: WorkerGroup) -> list[Any]:
        """Start the ranks, and all of them again if one is lost."""
        for _ in range(group.max_retries):
            try:
                return self._attempt(group)
            except DistcoreError as error:
                if error.recurs:
                    raise
        return self._attempt(group)

    def close(self) -> None:
        """Nothing outlives a call."""

    def _attempt(self, group: WorkerGroup) -> list[Any]:
        threads = group.threads or max(1, self.resources().cpus // group.ranks)
        packed = pickle.dumps((group.function, group.arguments))
        ranks, pipes, results = list[Any](), dict[Any, int](), dict[int, Any]()
        with tempfile.TemporaryDirectory() as folder:
            try:
                for index in range(group.ranks):
                    mine, theirs = SPAWN.Pipe(duplex=False)
                    orders = (index, group.ranks, threads, f"{folder}/store", theirs, packed)
                    rank = SPAWN.Process(target=main, args=orders)
                    rank.start()
                    ranks.append(rank)
                    theirs.close()
                    pipes[mine] = index
                while len(results) < group.ranks:
                    for pipe in wait([each for each in pipes if pipes[each] not in results]):
                        results[pipes[pipe]] = _told(pipe, pipes[pipe])
            except KeyboardInterrupt:  # the ranks got it too, and save where they are
                for each in ranks:
                    each.join(group.grace_seconds)
                raise
            finally:
                for each in ranks:
                    if len(results) < group.ranks:
                        each.kill()
                    each.join()
        return [results[index] for index in range(group.ranks)]


def _told(pipe: Any, index: int) -> Any:
    try:
        well, value = pipe.recv()
    except EOFError:
        raise Lost(f"rank {index} died without a word. Look at its log.") from None
    if not well:
        raise value
    return value
