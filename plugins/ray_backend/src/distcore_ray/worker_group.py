"""A worker group on the cluster: Ray Train starts its ranks together, ends them together and
starts them again."""

from __future__ import annotations

import logging
import signal
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

import ray
import ray.train
from ray.exceptions import RayError

from distcore_core.contracts import WorkerGroup
from distcore_core.errors import TrainingError, UserError
from distcore_data.figures import several
from distcore_data.shares import times
from distcore_data.temporaries import temporary_folder
from distcore_data.waiting import in_thread
from distcore_ray import worker
from distcore_ray.coordinator import News
from distcore_ray.failures import cause_of, first_cause, last_line
from distcore_ray.pulse import Lost, Pulse
from distcore_ray.rendezvous import rendezvous_of
from distcore_ray.shipping import Place, Sealed, packed, unpacked
from distcore_ray.tune_places import FREE_SECONDS, free_places_of_the_dead
from distcore_ray.watch import runs_work
from distcore_torch.training.interrupt import Interrupt

LOOK_SECONDS = 0.25
"""How often the driver looks at its worker group."""

ANSWER_SECONDS = 120.0
"""How long the cluster may take to answer the driver (on a very busy machine) before it is given
up for dead."""

NODES_SECONDS = 3.0
"""How often it asks whether the nodes of its ranks are alive."""

ROOM_TOLD_SECONDS, START_TOLD_SECONDS = 20.0, 90.0
"""How long ranks may wait before that is said: for nodes that are not there, and to be started
if there is room."""

log = logging.getLogger("distcore")


def run(group: WorkerGroup, coordinator: Any, patience: float) -> list[Any]:
    """Run the worker group to its end; results in rank order.

    patience: seconds without room for the ranks after which to give up.
    Raises what a rank raised if that is one of distcore's errors, else TrainingError naming rank,
    node and exit; Stopped after a ctrl-C or SIGTERM, once the ranks have saved a checkpoint (a
    second signal does not wait)."""
    refuse_impossible(group, ray.nodes())
    with temporary_folder("ray") as folder:
        # `fit` blocks; in the main thread Ray Train would take ctrl-C for itself.
        fit = in_thread(_trainer(group, coordinator, str(folder)).fit)
        try:
            return _Watch(group, coordinator, patience).until(fit)
        except Lost:
            raise
        except BaseException:
            coordinator.abandon.remote()
            raise


def _trainer(group: WorkerGroup, coordinator: Any, folder: str) -> Any:
    # By its own module: `ray.train.torch` would bring torch into a driver that may have no use for
    # it.
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

    class Trainer(DataParallelTrainer):
        """Without Ray's cleaner, `free_places_of_the_dead` does its work: a process of 200 MB a
        training that asks a dashboard whether its controller is alive, and where there is none
        outlives a stopped trial, its search and its job."""

        def _create_default_callbacks(self) -> list[Any]:
            return [
                each
                for each in super()._create_default_callbacks()
                if type(each).__name__ != "PlacementGroupCleanerCallback"
            ]

    train: Any = ray.train  # to type checkers its names are those of Train V1
    config = {
        "coordinator": coordinator,
        "place": Place.here(),
        "payload": Sealed(packed((group.function, group.arguments))),
        "threads": group.threads,
        "hang_seconds": group.hang_seconds,
        "level": log.getEffectiveLevel(),
    }
    return Trainer(
        worker.run,
        train_loop_config=config,
        backend_config=rendezvous_of(group),
        scaling_config=train.ScalingConfig(
            num_workers=(group.min_ranks, group.ranks) if group.min_ranks else group.ranks,
            use_gpu=group.use_gpu,
            resources_per_worker=resources_of_rank(group),
            # CPUs are where the nodes are; ranks with GPUs are better off near each other.
            placement_strategy="PACK" if group.use_gpu else "SPREAD",
        ),
        run_config=train.RunConfig(
            storage_path=folder,
            failure_config=train.FailureConfig(
                max_failures=group.max_retries,
                # A node that is taken away (spot) is no fault of the run, unless the user wants no
                # retry at all.
                max_preemption_failures=-1 if group.max_retries else 0,
            ),
        ),
    )


def resources_of_rank(group: WorkerGroup) -> dict[str, float]:
    """What each rank reserves: a CPU, and a GPU if they are used, unless the config says
    otherwise."""
    base: dict[str, float] = {"CPU": 1}
    if group.use_gpu:
        base["GPU"] = 1
    return {
        name: amount for name, amount in {**base, **group.resources_per_worker}.items() if amount
    }


def refuse_impossible(group: WorkerGroup, nodes: list[dict[str, Any]]) -> None:
    """Raise UserError, with the arithmetic, for a worker group that will never find room on these
    nodes.

    A cluster that can grow (an autoscaler, recognised by what it says it can have) is asked all
    the same, and so is one without a node that runs anything: its nodes are starting, or lost."""
    from ray._private.state import state

    if state.get_max_resources_from_cluster_config():
        return
    fits, needed = _fitting(group, nodes), group.min_ranks or group.ranks
    if fits >= needed or not runs_work(nodes):
        return
    each = resources_of_rank(group)
    has = "; ".join(
        f"{node['NodeManagerAddress']} has "
        + ", ".join(f"{name}: {node['Resources'].get(name, 0):g}" for name in each)
        for node in nodes
        if node["Alive"]
    )
    raise UserError(
        f"{needed} workers of {_in_words(each)} each do not fit on the Ray cluster, where {fits} "
        f"do ({has}). Lower backend.trainer.num_workers or resources_per_worker, or add nodes."
    )


def _fitting(group: WorkerGroup, nodes: list[dict[str, Any]]) -> int:
    """How many ranks the living nodes could hold, if nothing else ran there."""
    each = resources_of_rank(group)
    return sum(_times(each, node["Resources"]) for node in nodes if node["Alive"])


def _in_words(resources: dict[str, float]) -> str:
    """`{CPU: 1, GPU: 0.5}`."""
    return f"{{{', '.join(f'{name}: {amount:g}' for name, amount in resources.items())}}}"


def _times(each: dict[str, float], has: dict[str, float]) -> int:
    fits = (times(has.get(name, 0), amount, whole=name == "GPU") for name, amount in each.items())
    return min(fits, default=1 << 30)


@dataclass
class _Watch:
    """The driver's eyes on a worker group under way."""

    group: WorkerGroup
    coordinator: Any
    patience: float
    pulse: Pulse = field(default_factory=Pulse.of_this_process)
    groups: list[str] = field(default_factory=list)
    waiting_since: float = field(default_factory=time.monotonic)
    freed: float = field(default_factory=time.monotonic)
    looked_at_nodes: float = 0.0
    told_of_room: bool = False
    asked_to_stop: bool = False

    def until(self, fit: Future[Any]) -> list[Any]:
        """Wait for the end. Raises as `run`."""
        with Interrupt(self.group.grace_seconds) as interrupt:
            while not fit.done():
                wait([fit], LOOK_SECONDS)
                self.pulse.feel()
                if interrupt.asked and not self.asked_to_stop:
                    self._ask_to_stop(interrupt)
                self._look(self._news())
            error = fit.exception()
            if error is not None:
                self.pulse.feel()  # what was lost took the ranks along
            news = self._news()
            self._look(news)
            refused = next((each for each in news.failures if each.error is not None), None)
            if refused is not None and refused.error is not None:
                raise unpacked(refused.error) from refused.cause
            if news.stopped:
                raise interrupt.stopped()
        if error is not None or news.results is None:
            system = cause_of(self.groups[-1], news.failures) if self.groups else None
            raise TrainingError(self._explained(error, news)) from system or error
        return [unpacked(each) for each in news.results]

    def _news(self) -> News:
        try:
            news: News = self.pulse.during(
                lambda: ray.get(self.coordinator.news.remote(), timeout=ANSWER_SECONDS)
            )
        except RayError as error:
            raise TrainingError(
                f"The Ray cluster does not answer any more ({last_line(error)}). Look at its "
                "head and at this node's manager (raylet)."
            ) from error
        return news

    def _nodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.pulse.during(ray.nodes)
        return found

    def _ask_to_stop(self, interrupt: Interrupt) -> None:
        """After the first signal, if there are ranks; raises Stopped if there are none yet."""
        if not self.groups:
            raise interrupt.stopped()
        self.asked_to_stop = True
        self.coordinator.stop.remote()
        if interrupt.signal == signal.SIGINT:
            log.warning(
                "Stopping: the workers save a checkpoint first. Press ctrl-C again not to wait for "
                "it."
            )
        else:
            log.warning(
                "Stopping after %s: the workers save a checkpoint first, within %g s "
                "(trainer.grace_seconds).",
                *(signal.Signals(interrupt.signal).name, self.group.grace_seconds),
            )

    def _look(self, news: News) -> None:
        """Tell of new groups and what they logged, and give up if none finds room."""
        news.pass_on()
        now = time.monotonic()
        for seat in news.seats:
            if seat.group not in self.groups:
                if self.groups:
                    self._tell_of_restart(news, seat.world)
                self.groups.append(seat.group)
        failed = {each.seat.group for each in news.failures}
        if self.groups and self.groups[-1] not in failed and not self._lost_a_node(news, now):
            self.waiting_since, self.told_of_room = now, False
            return
        if now - self.freed > FREE_SECONDS:  # of the last trials of a search, whose model is next
            self.pulse.during(free_places_of_the_dead)
            self.freed = now
        waited = now - self.waiting_since
        if waited > self.patience:
            raise TrainingError(
                f"The Ray cluster had no room for {self._asked()} within {self.patience:.0f} s. "
                f"{self._room()} Add nodes, lower num_workers or resources_per_worker, or raise "
                "backend.patience."
            )
        if not self.told_of_room and waited > (
            START_TOLD_SECONDS if self._fits() else ROOM_TOLD_SECONDS
        ):
            self.told_of_room = True
            log.warning("Waiting for %s on the Ray cluster. %s", self._asked(), self._room())

    def _lost_a_node(self, news: News, now: float) -> bool:
        """Whether a node of the last group is gone, so that another group is waited for although
        no rank said so."""
        if news.results is not None or now - self.looked_at_nodes < NODES_SECONDS:
            return False
        used = {each.node for each in news.seats if each.group == self.groups[-1]}
        lost = not used <= {node["NodeID"] for node in self._nodes() if node["Alive"]}
        self.looked_at_nodes = 0.0 if lost else now
        return lost

    def _asked(self) -> str:
        ranks = (
            f"{self.group.min_ranks} to {self.group.ranks}"
            if self.group.min_ranks
            else f"{self.group.ranks}"
        )
        return f"{ranks} workers of {_in_words(resources_of_rank(self.group))} each"

    def _room(self) -> str:
        alive = [node for node in self._nodes() if node["Alive"]]
        fits = _fitting(self.group, alive)
        return f"Its {len(alive)} nodes could hold {fits}, if nothing else ran there."

    def _fits(self) -> bool:
        return _fitting(self.group, self._nodes()) >= (self.group.min_ranks or self.group.ranks)

    def _tell_of_restart(self, news: News, world: int) -> None:
        cause = first_cause(self.groups[-1], news.seats, news.failures, self._nodes())
        log.warning(
            "%s%s. All ranks were started again (%d of at most %d times%s); they go on from the "
            "last checkpoint.",
            *(cause[0].upper(), cause[1:], len(self.groups), self.group.max_retries),
            f", now {world} of them" if self.group.min_ranks else "",
        )

    def _explained(self, error: BaseException | None, news: News) -> str:
        restarts = len(self.groups) - 1
        often = f" after {several(restarts, 'restart')}" if restarts > 0 else ""
        if not self.groups:
            return (
                f"Training did not start on the Ray cluster: {last_line(error)}. Look at its "
                "state with `ray status`."
            )
        cause = first_cause(self.groups[-1], news.seats, news.failures, self._nodes())
        return f"Training stopped{often}: {cause}."
