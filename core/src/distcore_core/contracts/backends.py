"""Where work runs: backends, and what they are told and tell."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from distcore_core.contracts.values import T

if TYPE_CHECKING:
    from pathlib import Path

    from distcore_core.progress import Progress

__all__ = [
    "Backend",
    "BackendBase",
    "Detection",
    "ProgressChannel",
    "Rank",
    "Resources",
    "WorkerGroup",
]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a backend can use now.

    workers: how many ranks it suggests for training on CPUs; 0: one a CPU."""

    cpus: int
    gpus: int = 0
    nodes: int = 1
    memory_bytes: int = 0
    workers: int = 0


@dataclass(frozen=True, kw_only=True)
class Detection:
    """What `distcore_detect` found: how strongly it speaks for the backend (higher wins) and one
    line saying why."""

    backend: str
    priority: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One process of a worker group. `index` in [0, world); `local_rank` counts the processes of
    this machine."""

    index: int = 0
    world: int = 1
    local_rank: int = 0


@dataclass(frozen=True, kw_only=True)
class WorkerGroup:
    """N ranks that start together, fail together and are retried together.

    function: importable at top level, called as function(rank, *arguments) in every rank.
    ranks: number of processes.
    max_retries: how often the whole group is started again after a rank died (the function resumes
        from checkpoints).
    threads: intra-op threads of a rank; 0 lets the backend share out the CPUs.
    use_gpu: give each rank its own GPU.
    min_ranks: fewest ranks to go on with if a backend can start the group smaller (or larger, up to
        `ranks`) after a loss; 0: always `ranks`.
    rendezvous: {backend: "module:function"}, how ranks find each other there if it is not the
        backend's own way. What the function is and gives is the backend's to say (its README does).
    hang_seconds: a rank that makes no progress for so long is ended as if it had
        died; None: it is only told of.
    grace_seconds: how long ranks may take to save where they are after SIGTERM (which the backend
        passes on to them).
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    ranks: int = 1
    max_retries: int = 0
    threads: int = 0
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] = field(default_factory=dict)
    min_ranks: int = 0
    rendezvous: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 30.0
    hang_seconds: float | None = None


class ProgressChannel(Protocol):
    """What carries rank 0's progress to the process that draws it; a context manager around a
    worker group.

    reporter: travels to the ranks; its `reporting()` gives a `Progress` there."""

    @property
    def reporter(self) -> Any: ...

    def __enter__(self) -> ProgressChannel: ...

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> Any: ...


@runtime_checkable
class Backend(Protocol):
    """Where work runs. Inherit from `BackendBase`, which has the members that most need not think
    of.

    defaults: {"processor" | "loader" | "trainer": name}, if the config names none.
    distributed: whether tasks run on other machines. distcore then hands them in pieces, through
        `map`, what it would else do in this process, such as predictions.
    """

    name: str
    defaults: Mapping[str, str]
    distributed: bool

    def resources(self) -> Resources:
        """What there is now."""
        ...

    def run_group(self, group: WorkerGroup) -> list[Any]:
        """Run the worker group to its end.

        Args:
            group: What runs in how many processes, and what a lost one means.

        Returns:
            What each rank returned, in rank order.

        Raises:
            TrainingError: A rank died; the message names it.
            DistcoreError: A rank raised one that another attempt would meet again (`recurs`): at
                once, as it is.
            Stopped: After a signal, once the ranks have saved where they are; a second signal does
                not wait.
        """
        ...

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """Run independent tasks. A task whose worker is lost runs again elsewhere.

        Args:
            function: Importable, or an object that pickles, which may hold megabytes: it travels
                once.
            items: One a task, with which it travels.

        Returns:
            The results in the order of the items; the first error is raised as it is. A few results
            at most wait to be taken, and nothing is begun any more once the iterator is closed.
        """
        ...

    def close(self) -> None:
        """End whatever was started; called once, whatever happened."""
        ...

    def follow(self) -> None:
        """Called once it is made, before any work. In a process that another one leads: do what it
        asks, and end; to come back is to lead."""
        ...

    def taken_over(self) -> Path | str | None:
        """Asked once by each `train` and `experiment`: the folder of the run that the call goes on
        with, if this process took over from one that led and is lost."""
        ...

    def progress_channel(self, progress: Progress) -> ProgressChannel | None:
        """The channel of the next worker group, for workers that share no file with this process.

        Args:
            progress: What draws it, in this process.

        Returns:
            None: a file, by which ranks of this machine tell.
        """
        ...

    def check_storage(self, read: Mapping[str, str], written: Mapping[str, str]) -> None:
        """Look, before any work, whether every node sees the places of a run.

        Args:
            read: {what it is, for people: path of a file or folder}.
            written: {what it is: path of a folder, which need not exist}.

        Raises:
            UserError: A node does not see one of them.
        """
        ...


class BackendBase:
    """A backend of this machine, of one process that leads itself: what one inherits that is no
    more."""

    distributed: bool = False

    def follow(self) -> None:
        """This process leads."""

    def taken_over(self) -> Path | str | None:
        """Nobody was lost."""
        return None

    def progress_channel(self, progress: Progress) -> ProgressChannel | None:
        """A file."""
        return None

    def check_storage(self, read: Mapping[str, str], written: Mapping[str, str]) -> None:
        """Whatever this process sees."""
