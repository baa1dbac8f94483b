"""Where Dask's graphs run: its own threads, a dask.distributed cluster, or Ray. One method each.

A graph is Dask's oldest contract: {key: (function, argument or key, …)}, keys being text.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait
from contextlib import suppress
from multiprocessing.pool import ThreadPool
from typing import Any, Protocol

from distcore_core.errors import CacheError, UserError
from distcore_dask.options import DaskOptions
from distcore_data.threads import processors
from distcore_data.waiting import in_thread, until

log = logging.getLogger("distcore")

CONNECT_SECONDS = 30
LOOK_SECONDS = 5
"""How often it is asked how the workers are."""

SILENT_SECONDS = 30
"""How long a worker may be silent, which tells the scheduler every half a second that it is there
(every few seconds on a large cluster)."""

SUBMITTERS = 4
"""Threads that hand tasks to Ray, about a millisecond each."""

Graph = Mapping[str, Any]


class Engine(Protocol):
    """name: for people. cpus: tasks that run at a time. remote: they run in other processes,
    maybe elsewhere."""

    name: str
    cpus: int
    remote: bool

    def run(self, graph: Graph, key: str, hold: Sequence[str] = ()) -> tuple[Any, list[Any]]:
        """The value of `key`, and a reference to the value of each key in `hold`, for later
        graphs."""
        ...

    def sees(self, folder: str) -> bool:
        """Whether tasks see this folder of ours, wherever they run."""
        ...

    def close(self) -> None: ...


def find_engine(options: DaskOptions) -> Engine:
    """The scheduler that the config names, else the Ray that this process is connected to, else
    threads."""
    if options.address is not None:
        return DistributedEngine(options.address)
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        return RayEngine()
    return ThreadEngine(options.parallelism)


class ThreadEngine:
    """Dask's threaded scheduler. threads: at most; never more than CPUs.

    Threads, because the work is Arrow's and numpy's, which release Python's lock; Dask's processes
    would pickle every result through the driver (docs/log.md has the figures)."""

    name, remote = "Dask's threads", False

    def __init__(self, threads: int | None = None) -> None:
        cpus = processors()
        self.cpus = min(threads or cpus, cpus)

    def run(self, graph: Graph, key: str, hold: Sequence[str] = ()) -> tuple[Any, list[Any]]:
        from dask.threaded import get

        with ThreadPoolExecutor(self.cpus, thread_name_prefix="distcore-dask") as pool:
            value, *held = get(graph, [key, *hold], pool=pool)
        return value, held

    def sees(self, folder: str) -> bool:
        return True

    def close(self) -> None:
        """Nothing was started."""


class DistributedEngine:
    """A dask.distributed cluster that is there. Raises UserError if nobody answers at the
    address."""

    remote = True

    def __init__(self, address: str) -> None:
        from distributed import Client

        self.name = f"the Dask cluster at {address}"
        try:
            self._client = Client(
                address, timeout=CONNECT_SECONDS, set_as_default=False, name="distcore"
            )
        except (OSError, ValueError, TimeoutError) as error:
            raise UserError(
                f"No Dask scheduler can be reached at {address!r} (backend.processor.address): "
                f"{error}. Start one there (`dask scheduler`, and `dask worker` on each node), or "
                "correct the address."
            ) from error
        self.cpus = sum(self._client.nthreads().values())
        if not self.cpus:
            log.warning(
                "%s has no worker yet. The work begins when one joins it (`dask worker`).",
                self.name,
            )
            self.cpus = 1

    def run(self, graph: Graph, key: str, hold: Sequence[str] = ()) -> tuple[Any, list[Any]]:
        future, *held = self._client.get(dict(graph), [key, *hold], sync=False)
        try:
            return self._result(future), held
        except CancelledError as error:
            raise CacheError(
                f"Preprocessing on {self.name} failed: the connection to its scheduler was lost. "
                "Look whether it runs and what it logged, and run again."
            ) from error

    def _result(self, future: Any) -> Any:
        """Wait for it. The scheduler itself says nothing of workers that it waits for."""
        workers = _Workers(self._client, self.name)
        while True:
            try:
                return future.result(timeout=LOOK_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
            workers.look()

    def sees(self, folder: str) -> bool:
        """False, too, where a worker is silent: who waits for it waits for minutes."""
        workers = _Workers(self._client, self.name)
        answer = in_thread(lambda: self._client.run(os.path.isdir, folder))
        while not wait([answer], LOOK_SECONDS).done:
            if workers.look():
                return False
        try:
            return all(answer.result().values())
        except OSError:  # a worker is gone since it was asked
            return False

    def close(self) -> None:
        """A client that connects again and again to a scheduler that is gone would log that it is
        stopped, as an error with its traceback."""
        logger, nothing = logging.getLogger("distributed.client"), logging.Filter("nothing")
        logger.addFilter(nothing)
        try:
            self._client.close()
        finally:
            logger.removeFilter(nothing)


class _Workers:
    """What is wrong with the workers of a cluster, looked at now and then while one waits."""

    def __init__(self, client: Any, name: str) -> None:
        self._client, self._name = client, name
        self._seen: dict[str, tuple[float, float]] = {}
        self._told: set[str] = set()
        self._alone = False

    def look(self) -> bool:
        """Whether a worker is silent. That one is, and that none is left, is told once."""
        with suppress(OSError):  # the scheduler is gone: the client will tell its futures so
            workers = self._client.scheduler_info()["workers"]
            if not workers and not self._alone:
                log.warning(
                    "No worker of %s is left. The work goes on when one joins it (`dask worker`).",
                    self._name,
                )
            self._alone = not workers
            silent = {name for name, each in workers.items() if self._is_silent(name, each)}
            for address in sorted(silent - self._told):
                log.warning(
                    "Nothing was heard of the worker %s of %s for %.0f s. Its work is done by "
                    "others once Dask gives it up (distributed.scheduler.worker-ttl, five minutes "
                    "if nobody set it), or at once if you end it.",
                    *(address, self._name, SILENT_SECONDS),
                )
            self._told = silent
        return bool(self._told)

    def _is_silent(self, address: str, worker: Mapping[str, Any]) -> bool:
        """By the clock of this machine; the scheduler's may be another."""
        now, heard = time.monotonic(), worker["last_seen"]
        before, since = self._seen.get(address, (None, now))
        if before != heard:
            since = now
        self._seen[address] = heard, since
        return now - since >= SILENT_SECONDS


class RayEngine:
    """Dask on Ray, in the cluster that this process is connected to. Ray keeps what a reference
    is held to."""

    name, remote = "the Ray cluster", True

    def __init__(self) -> None:
        import ray

        self.cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def run(self, graph: Graph, key: str, hold: Sequence[str] = ()) -> tuple[Any, list[Any]]:
        import dask
        import ray
        from ray.util.dask import ray_dask_get

        # A shuffle through a local disk would be wrong on several nodes; enable_dask_on_ray() sets
        # another, dead key.
        settings = {"scheduler": ray_dask_get, "dataframe.shuffle.method": "tasks"}
        with dask.config.set(settings), ThreadPool(SUBMITTERS) as pool:
            reference, *held = ray_dask_get(dict(graph), [key, *hold], ray_persist=True, pool=pool)
        until(lambda: bool(ray.wait([reference], timeout=1.0)[0]))
        return ray.get(reference), held

    def sees(self, folder: str) -> bool:
        import ray
        from ray.exceptions import RayError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

        look = ray.remote(num_cpus=0)(os.path.isdir)
        nodes = [node["NodeID"] for node in ray.nodes() if node["Alive"]]
        found = [
            look.options(scheduling_strategy=On(node, soft=False)).remote(folder) for node in nodes
        ]
        until(lambda: not ray.wait(found, num_returns=len(found), timeout=1.0)[1])
        try:
            return all(ray.get(found))
        except RayError:  # a node is gone since it was asked
            return False

    def close(self) -> None:
        """The cluster is not ours."""
