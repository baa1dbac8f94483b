"""The search for better parameters: what is searched, and the executors that run the trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from distcore_core.contracts.backends import Backend
from distcore_core.contracts.values import JSON

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Axis", "Executor", "SearchJob"]


@dataclass(frozen=True, kw_only=True)
class Axis:
    """What an engine samples for one parameter of a search; `distcore_search.space` turns it into
    the config's value.

    kind: "float" or "int" between low and high, both included; "choice": a position from 0 to high.
    log: uniform in the logarithm. step: only low, low + step, …. grid: every position is to be
        tried.
    """

    kind: Literal["float", "int", "choice"]
    low: float
    high: float
    log: bool = False
    step: float | None = None
    grid: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchJob:
    """All that an executor is given; pickles.

    function: importable at top level; function(work, name, raw) runs one trial to its end in
        `directory/trials/<name>` and leaves its record there (`distcore_search.records`), whatever
        happens. It goes on with one it finds begun.
    work: what the function needs besides. axes: {parameter: what may be asked}.
    variants: the raw parameters of every trial, if they are known from the start (grid and random
        search); None if the engine's algorithm asks one after another. trials: how many.
    algorithm: the validated `search_alg` section, {"type": …}; {} if the config names none. points:
        raw parameters to begin with, as far as they are given. seed: every random number of the
        search is keyed by it.
    workers: processes of one trial, and resources_per_worker what each of them asks of the backend.
    directory: the search's folder. resume: it holds a search that was begun.
    """

    function: Callable[[Any, str, Mapping[str, Any]], None]
    work: Any
    axes: Mapping[str, Axis]
    variants: tuple[Mapping[str, Any], ...] | None
    trials: int
    goal: Literal["minimize", "maximize"]
    directory: Path
    algorithm: JSON = field(default_factory=dict)
    points: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0
    workers: int = 1
    resources_per_worker: Mapping[str, float] = field(default_factory=dict)
    use_gpu: bool = False
    resume: bool = False


@runtime_checkable
class Executor(Protocol):
    """How the trials of a search are chosen, run beside each other, and stopped early."""

    name: str

    def plan(self, job: SearchJob, backend: Backend) -> JSON:
        """What `run` would do. Changes nothing, starts no trial.

        Args:
            job: The search.
            backend: Where its trials would run.

        Returns:
            {"at_once": trials beside each other, "algorithm": its name, "notes": […]}.

        Raises:
            UserError: It cannot be carried out, or the trials could wait for each other for ever.
        """
        ...

    def run(self, job: SearchJob, backend: Backend, told: Callable[[str], None]) -> None:
        """Run every trial that has not ended yet. A trial that fails is its own affair.

        Args:
            job: The search.
            backend: Where its trials run.
            told: Called with a trial's name once its record is final.

        Raises:
            KeyboardInterrupt: After a ctrl-C, once every trial has stopped.
        """
        ...
