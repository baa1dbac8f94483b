"""This machine as a backend: what it has, worker groups of ranks, independent tasks over
processes."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from distcore_core.contracts import BackendBase, Resources, WorkerGroup
from distcore_data.gpus import gpus
from distcore_data.memory import free_bytes
from distcore_data.threads import processors
from distcore_torch.training import parents
from distcore_torch.training.launched import launched_apart, launched_rank
from distcore_torch.training.trainer import refuse_shared_gpus

if TYPE_CHECKING:
    from distcore_local.options import BackendOptions

T = TypeVar("T")

TORCHRUN = "TORCHELASTIC_RUN_ID"
"""A variable that torchrun sets."""

log = logging.getLogger("distcore")


class LocalBackend(BackendBase):
    """The backend `local`. Among torchrun's processes a config that names no trainer has
    `data_parallel`."""

    name = "local"

    def __init__(self, options: BackendOptions) -> None:
        self.options = options
        trainer = "local" if launched_rank() is None else "data_parallel"
        self.defaults: Mapping[str, str] = {
            "processor": "local",
            "loader": "packed",
            "trainer": trainer,
        }

    def follow(self) -> None:
        """End with torchrun, which may be killed. Warn a process that another launcher started
        among others, which know nothing of each other here."""
        if TORCHRUN in os.environ and launched_rank() is not None:
            parents.follow(os.getppid(), signal.SIGTERM)
        if (apart := launched_apart()) is not None:
            log.warning(
                "%s started %d processes, and the backend `local` makes a run of its own of each. "
                "For one run, name no backend or `horovod`, with distcore-horovod installed.",
                *apart,
            )

    def resources(self) -> Resources:
        """CPUs this process may use, GPUs (without importing torch), and free memory within a
        cgroup's limit."""
        return Resources(cpus=processors(), gpus=gpus(), nodes=1, memory_bytes=free_bytes())

    def run_group(self, group: WorkerGroup) -> list[Any]:
        """Start the ranks, restart all of them when one is lost, and give their results in rank
        order.

        function must be importable and the arguments must pickle: ranks are fresh processes.
        Raises as `worker_group.run`, and UserError if a rank would have no GPU of its own."""
        from distcore_local.worker_group import run

        if group.use_gpu:
            refuse_shared_gpus(group.ranks, gpus())
        return run(group, group.threads or max(1, processors() // group.ranks))

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """Run function(item) in processes, one a CPU; results in the order of the items, the
        first error raised."""
        items = list(items)
        workers = min(processors(), len(items))
        if workers <= 1:
            yield from map(function, items)
            return
        from distcore_local.tasks import run

        yield from run(function, items, workers)

    def close(self) -> None:
        """Nothing outlives a call."""
