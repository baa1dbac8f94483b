"""What a trial needs of the cluster, and how many fit beside each other: the arithmetic that keeps
trials from waiting for each other for ever. A worker lies on one node, so it is done node by
node."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import Backend, SearchJob
from distcore_core.errors import UserError
from distcore_data.shares import ROUNDING, times

if TYPE_CHECKING:
    from distcore_ray.tune_options import TuneOptions

Node = tuple[float, float]
"""CPUs and GPUs of a node, or of what lies on one."""

UNITS = ("CPUs", "GPUs")
NOWHERE = 1 << 30
"""More workers than any cluster holds: stands for a way of lying that there is not."""


@dataclass(frozen=True)
class Need:
    """driver: what the trial itself holds. workers × each: what it asks for besides, while it holds
    that; 0 if it trains in its own process."""

    driver: Node
    workers: int
    each: Node

    def total(self, kind: int) -> float:
        """CPUs (0) or GPUs (1) of one trial."""
        return self.driver[kind] + self.workers * self.each[kind]

    def of_tune(self) -> dict[str, float]:
        """What Tune reserves. With nothing at all a trial would count as needing a whole CPU."""
        found = {"cpu": self.driver[0], "gpu": self.driver[1]}
        return found if any(self.driver) else {"cpu": 0, "memory": 1}

    def sum(self, kind: int) -> str:
        """`0 for itself + 2 workers × 1`."""
        if not self.workers:
            return f"{self.driver[kind]:g}"
        return f"{self.driver[kind]:g} for itself + {self.workers} workers × {self.each[kind]:g}"


def need_of(options: TuneOptions, job: SearchJob, backend: Backend, nodes: Sequence[Node]) -> Need:
    """Of one trial. Raises UserError if the section and `backend.trainer` say two things."""
    if not backend.distributed:
        cpus, gpus = options.of_process(job, max((node[1] for node in nodes), default=0.0))
        return Need((cpus * job.workers, gpus * job.workers), 0, (0.0, 0.0))
    each = options.of_worker(job)
    for name, amount, kind in (
        ("cpu", options.cpu_resources_per_trial, 0),
        ("gpu", options.gpu_resources_per_trial, 1),
    ):
        if amount is not None and amount != job.workers * each[kind]:
            raise UserError(
                f"hyperopt.executor.{name}_resources_per_trial is {amount:g}, but backend.trainer "
                f"gives a trial {job.workers} workers × {each[kind]:g} {name.upper()}s. Leave it "
                "out, or make backend.trainer.num_workers and resources_per_worker say the same."
            )
    driver = options.trial_driver_resources or {}
    return Need((float(driver.get("CPU", 0.0)), float(driver.get("GPU", 0.0))), job.workers, each)


def at_once(options: TuneOptions, job: SearchJob, nodes: Sequence[Node], need: Need) -> int:
    """How many trials run beside each other on these nodes, wherever Ray puts what they hold.

    Raises UserError if one does not fit, or fewer than are asked for."""
    most = min(job.algorithm.get("max_concurrent") or job.trials, job.trials)
    fit = _fit(nodes, need, most)
    if fit < 1:
        raise UserError(
            f"A trial needs {_too_much(nodes, need, 1)}: it would wait for ever. Lower "
            "backend.trainer.num_workers, resources_per_worker or num_threads, or the resources "
            "per trial, or add nodes."
        )
    wanted: Any = options.max_concurrent_trials
    if wanted in ("auto", None):
        return fit
    wanted = min(int(wanted), most)
    if wanted > fit and need.workers:
        raise UserError(
            f"{_too_much(nodes, need, wanted)}: trials that have begun would wait for workers that "
            f"others hold. Set hyperopt.executor.max_concurrent_trials to {fit} or auto, or add "
            "nodes."
        )
    return min(wanted, fit)


def _fit(nodes: Sequence[Node], need: Need, most: int) -> int:
    """The most trials, up to `most`, that have room at once."""
    if not need.workers:
        return min(most, sum(_times(node, need.driver, most) for node in nodes))
    crowd = bisect_left(
        range(1, most + 1), True, key=lambda count: _room(nodes, need, count) < count * need.workers
    )
    return crowd  # one less than the first number of trials that have not


def _room(nodes: Sequence[Node], need: Need, trials: int) -> int:
    """Workers that the nodes hold once so many trials hold what they do for themselves, where that
    lies worst; -1 if the nodes do not hold even that."""
    many = trials * need.workers
    if not any(need.driver):
        return sum(_times(node, need.each, many) for node in nodes)
    worst = [0] + [NOWHERE] * trials  # by how many trials lie on the nodes so far
    for node in nodes:
        most = _times(node, need.driver, trials)
        here = [
            _times(_less(node, need.driver, count), need.each, many) for count in range(most + 1)
        ]
        worst = [
            min(worst[lie - count] + here[count] for count in range(min(lie, most) + 1))
            for lie in range(trials + 1)
        ]
    return worst[trials] if worst[trials] < NOWHERE else -1


def _times(node: Node, each: Node, most: int) -> int:
    """How often `each` fits on the node; `most` if it is nothing."""
    fits = (
        times(has, amount, whole=unit == "GPUs")
        for has, amount, unit in zip(node, each, UNITS, strict=True)
        if amount
    )
    return min(fits, default=most)


def _less(node: Node, each: Node, count: int) -> Node:
    return node[0] - count * each[0], node[1] - count * each[1]


def _too_much(nodes: Sequence[Node], need: Need, trials: int) -> str:
    """The arithmetic: of the whole cluster if that is too small, else of its nodes."""
    for kind, unit in enumerate(UNITS):
        asked, has = trials * need.total(kind), sum(node[kind] for node in nodes)
        if asked > has + ROUNDING:
            return (
                f"{_together(need.sum(kind), kind, need, trials)}{asked:g} {unit}, but the Ray "
                f"cluster has {has:g}"
            )
    kind = 1 if need.each[1] or need.driver[1] else 0
    shapes = ", ".join(f"{node[kind]:g}" for node in nodes)
    if not need.workers:
        return (
            f"{need.driver[kind]:g} {UNITS[kind]} on one node, but the Ray cluster's nodes have "
            f"{shapes}"
        )
    held = (
        f", beside {trials} × {need.driver[kind]:g} for the trials themselves,"
        if any(need.driver)
        else ""
    )
    return (
        f"{trials * need.workers} workers with {need.each[kind]:g} {UNITS[kind]} on one node "
        f"each{held} but the Ray cluster's nodes have {shapes}: room for "
        f"{max(0, _room(nodes, need, trials))} such workers"
    )


def _together(each: str, kind: int, need: Need, trials: int) -> str:
    """`3 trials at once × (0 for itself + 2 workers × 1 CPUs) = `; nothing if the sum says it
    all."""
    if trials > 1:
        return f"{trials} trials at once × ({each} {UNITS[kind]}) = "
    return f"{each} = " if need.workers else ""
