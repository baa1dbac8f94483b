"""The backend `ray`: what the cluster has, tasks and worker groups on it, and what its nodes can
see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from distcore_core.contracts import BackendBase, Resources, WorkerGroup
from distcore_core.errors import UserError
from distcore_data import waiting
from distcore_ray import cluster

if TYPE_CHECKING:
    from distcore_core.progress import Progress
    from distcore_ray.options import BackendOptions
    from distcore_ray.progress_channel import RayProgressChannel
    from distcore_ray.session import Session

T = TypeVar("T")


class RayBackend(BackendBase):
    """Joins or starts its cluster when there is work, or when the one to join is asked what it
    has."""

    name = "ray"
    defaults: Mapping[str, str] = {
        "processor": "dask",
        "loader": "packed",
        "trainer": "data_parallel",
    }
    distributed = True

    def __init__(self, options: BackendOptions) -> None:
        self.options = options
        self._connected = False
        self._session: Session | None = None
        self._progress_channel: RayProgressChannel | None = None
        self._failed = False

    def resources(self) -> Resources:
        """What the living nodes have. Nothing is started for it: if no cluster is to be joined,
        what this machine would give one."""
        if not self._is_elsewhere():
            return cluster.resources_here(self.options)
        self.connect()
        import ray

        return cluster.resources_of(ray.nodes())

    def run_group(self, group: WorkerGroup) -> list[Any]:
        """As `worker_group.run`."""
        self.connect()
        from distcore_ray import worker_group
        from distcore_ray.coordinator import open_coordinator

        channel = self._progress_channel
        known = channel.coordinator if channel is not None else None
        made = nullcontext(known) if known is not None else open_coordinator()
        with self._seeing_failures(), made as coordinator:
            return worker_group.run(group, coordinator, self.options.patience)

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """As `tasks.run`: results in the order of the items; a task that raised raises here."""
        items = list(items)
        if not items:
            return
        self.connect()
        from distcore_ray import tasks

        with self._seeing_failures():
            yield from tasks.run(function, items, lambda: self.resources().cpus)

    def progress_channel(self, progress: Progress) -> RayProgressChannel:
        """Shows what the next worker group reports."""
        self.connect()
        from distcore_ray.progress_channel import RayProgressChannel

        self._progress_channel = RayProgressChannel(progress)
        return self._progress_channel

    def check_storage(self, read: Mapping[str, str], written: Mapping[str, str]) -> None:
        """As `storage.check`. What a cluster of this machine alone would do before training is
        done without one."""
        if not self._is_elsewhere():
            return
        self.connect()
        from distcore_ray import storage

        storage.check(read, written)

    def _is_elsewhere(self) -> bool:
        """Whether there is a cluster already: joined, or to be joined."""
        return self._connected or cluster.is_connected() or cluster.target(self.options) is not None

    def connect(self) -> None:
        """Join or start the cluster, once."""
        if not self._connected:
            self._session = cluster.connect(self.options)
            self._connected = True
            waiting.watches.append(self._watch)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._connected:
            waiting.watches.remove(self._watch)
        if self._session is not None:
            self._session.end(keep=self._failed)
        self._session, self._connected = None, False

    def _watch(self) -> Callable[[], None]:
        """What looks at the cluster while tasks are waited for, a processor's too."""
        from distcore_ray import watch

        return watch.of_this_process(self.options.patience)

    @contextmanager
    def _seeing_failures(self) -> Iterator[None]:
        """Remember whether the block failed for another reason than the user's, so that Ray's
        logs are kept."""
        try:
            yield
        except UserError:
            raise
        except Exception:
            self._failed = True
            raise
