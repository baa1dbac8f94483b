"""The backend `horovod`: a launcher's processes as one, or, if there is no launcher, groups on
this machine."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from distcore_core.contracts import BACKEND, Backend, BackendBase, Resources, WorkerGroup
from distcore_core.errors import UserError
from distcore_core.registry.manager import Plugins
from distcore_horovod.failure import Failed, failed
from distcore_horovod.launcher import Launched

if TYPE_CHECKING:
    from distcore_horovod.options import BackendOptions
    from distcore_horovod.process_group import ProcessGroup

T = TypeVar("T")

TASKS = 4
"""Tasks of a rank in one order of `map`."""


class Alone(BackendBase):
    """No launcher: worker groups and tasks are the local backend's, with the trainer `horovod`
    if none is named."""

    name = "horovod"
    defaults: Mapping[str, str] = {"processor": "local", "loader": "packed", "trainer": "horovod"}

    def __init__(self, options: BackendOptions) -> None:
        self.options = options
        self._machine: Backend = Plugins().make(BACKEND, "local")

    def resources(self) -> Resources:
        """This machine's."""
        return self._machine.resources()

    def run_group(self, group: WorkerGroup) -> list[Any]:
        """As the local backend: processes of this machine, all started again when one dies."""
        return self._machine.run_group(group)

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """As the local backend."""
        return self._machine.map(function, items)

    def close(self) -> None:
        """Nothing outlives a call."""
        self._machine.close()


class Joined(BackendBase):
    """The processes of horovodrun or mpirun. Rank 0 runs the command; the others do their part
    of what it asks."""

    name = "horovod"
    defaults: Mapping[str, str] = {"processor": "horovod", "loader": "packed", "trainer": "horovod"}
    distributed = True

    def __init__(self, process_group: ProcessGroup) -> None:
        self.process_group = process_group
        self._resources: Resources | None = None

    @property
    def launched(self) -> Launched:
        """This process among the launcher's."""
        return self.process_group.launched

    def follow(self) -> None:
        """In every rank but 0: do what rank 0 asks until its process ends, then end too
        (SystemExit 0)."""
        if self.process_group.rank:
            self.process_group.follow()

    def resources(self) -> Resources:
        """Of all machines, as their ranks see them. workers: the ranks."""
        if self._resources is None:
            found = self.process_group.everywhere(_resources)
            first = [
                found[self.process_group.hosts.index(host)]
                for host in dict.fromkeys(self.process_group.hosts)
            ]
            cpus, gpus = sum(each.cpus for each in first), sum(each.gpus for each in first)
            self._resources = Resources(
                cpus=cpus,
                gpus=gpus,
                nodes=len(first),
                memory_bytes=sum(each.memory_bytes for each in first),
                workers=self.process_group.size,
            )
        return self._resources

    def run_group(self, group: WorkerGroup) -> list[Any]:
        """Run the function in the processes of the first `group.ranks` ranks; results in rank
        order.

        The launcher ends all ranks when one dies, so nothing is retried here. Raises
        TrainingError naming the rank."""
        from distcore_horovod.worker_group import meeting_point, run_part

        if group.ranks > self.process_group.size:
            raise UserError(
                f"{self.launched.by} started {self.process_group.size} ranks, but {group.ranks} "
                f"are asked for. Start with -np {group.ranks}, or leave out "
                "backend.trainer.num_workers."
            )
        return self.process_group.everywhere(run_part, group, meeting_point(self.process_group))[
            : group.ranks
        ]

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """Run function(item), shared out over the ranks; results in the order of the items, the
        first error raised."""
        items = list(items)
        wave = self.process_group.size * TASKS
        for start in range(0, len(items), wave):
            found = self.process_group.everywhere(_tasks, function, items[start : start + wave])
            for part in itertools.zip_longest(*found):
                for each in part:
                    if isinstance(each, Failed):
                        each.raised()
                    if each is not None:
                        yield each[0]

    def close(self) -> None:
        """The ranks stay together until the leader's process ends: a script may call again."""


def _resources(process_group: ProcessGroup) -> Resources:
    backend: Backend = Plugins().make(BACKEND, "local")
    return backend.resources()


def _tasks(
    process_group: ProcessGroup, function: Callable[[Any], T], items: list[Any]
) -> list[Failed | tuple[T]]:
    """This rank's share, every size-th item: (result,) of each, up to the first that failed."""
    found: list[Failed | tuple[T]] = []
    for item in items[process_group.rank :: process_group.size]:
        try:
            found.append((function(item),))
        except Exception as error:  # noqa: BLE001 - raised in the leader, in its turn
            found.append(failed(process_group.rank, error))
            break
    return found
