"""Trials on a Ray cluster, run by Ray Tune: how many fit, which are stopped, and what became of
them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON, Backend, SearchJob
from distcore_data.waiting import LOOK_SECONDS, in_thread, until
from distcore_ray.cluster import is_connected
from distcore_ray.tune_places import FREE_SECONDS, free_places_of_the_dead
from distcore_ray.tune_resources import Need, Node, at_once, need_of
from distcore_ray.tune_scheduler import scheduler_of, told_of
from distcore_ray.tune_search import algorithm, optuna_search, searcher
from distcore_ray.tune_trial import chosen
from distcore_search.records import ENDED, TRIALS, begin_record, end_record, read_record
from distcore_torch.training.interrupt import Interrupt

if TYPE_CHECKING:
    from distcore_ray.backend import RayBackend
    from distcore_ray.tune_options import TuneOptions

QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_MAX_PENDING_TRIALS_PG": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
}
"""Tune's settings if the user has none: no files of its own beside ours, no tables on the
terminal, and signals are ours."""

END_SECONDS = 5.0
"""How long Tune may take to end when nobody waits for it any more."""

MOST_NODES = 256
"""Nodes of a kind that a growing cluster is taken to have at most, if it names no bound."""

UNSEEN = (
    "it trained on a node that does not see the results' folder, and what it wrote there is not "
    "here. Give --output_directory a folder that every node mounts at the same path (docs/ray.md, "
    "Storage)."
)
"""Why such a trial failed."""

SEEN_SECONDS = 60.0
"""How long a mount such as NFS may go on to say that a file is not there which another machine has
written meanwhile."""

STATE = "tune"
"""Folder, in the search's, of what Tune itself keeps."""


class TuneExecutor:
    """The executor `ray`."""

    name = "ray"

    def __init__(self, options: TuneOptions) -> None:
        self.options = options

    # -------------------------------------------------------------- contracts.Executor

    def plan(self, job: SearchJob, backend: Backend) -> JSON:
        """Raises UserError, with the arithmetic, if trials would wait for each other's resources
        for ever, or if a node does not see what they read and write."""
        with _on_ray(backend) as asked:
            nodes = _nodes(asked)
            found = at_once(self.options, job, nodes, need_of(self.options, job, backend, nodes))
            if job.variants is None:
                optuna_search()
            if asked is not backend:  # which was asked before
                asked.check_storage(*job.work.places)
        return {"at_once": found, "algorithm": algorithm(job), "notes": []}

    def run(self, job: SearchJob, backend: Backend, told: Callable[[str], None]) -> None:
        """Run what has not ended yet: the trials' records say that, Tune's own state is of this
        run alone."""
        with _connected(backend):
            nodes = _nodes(backend)
            need = need_of(self.options, job, backend, nodes)
            beside = at_once(self.options, job, nodes, need)
            _Run(job, self.options, need, beside, told).run()


class _Run:
    """One call of Tune."""

    def __init__(
        self,
        job: SearchJob,
        options: TuneOptions,
        need: Need,
        beside: int,
        told: Callable[[str], None],
    ) -> None:
        self.job, self.options, self.need, self.beside, self.told = job, options, need, beside, told
        self.objective = job.work.objective
        self.settled: set[str] = set()
        self.patience = SEEN_SECONDS
        self.failed: Exception | None = None
        self.over = threading.Event()

    def run(self) -> None:
        """Raises KeyboardInterrupt if the search was stopped before its end."""
        numbers = self._numbers()
        if not numbers:
            return
        started = time.monotonic()
        from ray import tune

        from distcore_ray.tune_trial import trainable

        config: Any = tune.TuneConfig(
            metric="score",
            mode="max" if self.job.goal == "maximize" else "min",
            scheduler=scheduler_of(self.options.scheduler, self._ended),
            search_alg=None if self.job.variants is not None else searcher(self.job, self._begun()),
            num_samples=1 if self.job.variants is not None else len(numbers),
            max_concurrent_trials=self.beside,
            time_budget_s=self.options.time_budget_s,
        )
        # Between Tune's steps only: raised within one, a request to end got lost in Tune, and came
        # again when the results were written.
        with Interrupt() as interrupt, _quiet():
            parameters = tune.with_parameters(
                trainable, job=self.job, scheduler=self.options.scheduler, place=_here()
            )
            tuner = tune.Tuner(
                tune.with_resources(parameters, self.need.of_tune()),
                # Optuna has the space itself.
                param_space={"number": tune.grid_search(numbers)}
                if self.job.variants is not None
                else {},
                tune_config=config,
                run_config=tune.RunConfig(
                    name=time.strftime("%Y%m%d-%H%M%S"),
                    storage_path=str(self.job.directory / STATE),
                    callbacks=[_callback(self._settle, interrupt, self.over), _silent()],
                    failure_config=tune.FailureConfig(max_failures=self.options.max_retries),
                    verbose=0,
                ),
            )
            try:
                _fitted(tuner, self.over)
            except (Exception, SystemExit):
                if self.failed is not None:  # in Tune's words it is a traceback
                    raise self.failed from None
                raise
        budget = self.options.time_budget_s
        self._conclude(out_of_time=budget is not None and time.monotonic() - started >= budget)

    def _numbers(self) -> list[int]:
        """The trials that have not ended: by number if their parameters are known, else as many
        as are missing."""
        ended = set(filter(self._has_ended, self._there()))
        if self.job.variants is not None:
            return [each for each in range(self.job.trials) if f"{each:04d}" not in ended]
        return list(range(max(0, self.job.trials - len(ended))))

    def _there(self) -> list[str]:
        """The names of the trials that have a folder, in order."""
        folder = self.job.directory / TRIALS
        return sorted(each.name for each in folder.iterdir()) if folder.is_dir() else []

    def _has_ended(self, name: str) -> bool:
        return read_record(self.job.work.folder(name)).get("state") in ENDED

    def _begun(self) -> list[Mapping[str, Any]]:
        """Raw parameters of every trial there is a record of."""
        records = (read_record(self.job.work.folder(name)) for name in self._there())
        return [record for record in records if record]

    def _ended(self) -> dict[str, list[JSON]]:
        """{name: what it told Tune, round by round} of every trial that has ended."""
        return {
            name: found
            for name in self._there()
            if self._has_ended(name)
            and (found := list(told_of(self.job.work.folder(name), self.objective)))
        }

    # -------------------------------------------------------------- what became of a trial

    def _settle(
        self, config: Mapping[str, Any], failed: str | None, unseen: str | None = None
    ) -> None:
        """An error ends the search: Tune takes it for the trial's, and would start that again."""
        if self.failed is not None:
            raise self.failed
        try:
            self.settle(config, failed, unseen)
        except Exception as error:
            self.failed = error
            self.over.set()
            raise

    def settle(
        self, config: Mapping[str, Any], failed: str | None, unseen: str | None = None
    ) -> None:
        """Tune is done with a trial. What the trial did not say itself is said here: it was
        stopped, its process was lost once too often, or it wrote its folder where this process sees
        nothing of it.

        unseen: what is said if so; None: it need not have written anything."""
        name, raw = chosen(self.job, config)
        if name in self.settled:
            return
        folder = self.job.work.folder(name)
        if unseen is not None and not self._is_seen(folder):
            failed = unseen
        begin_record(self.job.work, name, raw)  # it may have died before it could say anything
        state = "stopped" if failed is None else "failed"
        end_record(folder, state, self.objective, failed)
        self.settled.add(name)
        self.told(name)

    def _is_seen(self, folder: Path) -> bool:
        """Whether a trial's record is there, at last. All trials of a node that writes elsewhere
        together are waited for no longer than one: Tune waits meanwhile."""
        while not read_record(folder):
            if self.patience <= 0 or self.over.wait(LOOK_SECONDS):
                return False
            self.patience -= LOOK_SECONDS
            for each in (folder.parent, folder):  # has NFS ask anew
                with suppress(OSError):
                    os.listdir(each)
        return True

    def _conclude(self, out_of_time: bool) -> None:
        """Trials that Tune left: stopped with the time, else it was a ctrl-C."""
        left = [name for name in self._there() if not self._has_ended(name)]
        if out_of_time:
            for name in (each for each in left if read_record(self.job.work.folder(each))):
                end_record(self.job.work.folder(name), "stopped", self.objective)
                self.told(name)
        elif self._numbers():
            raise KeyboardInterrupt


def _fitted(tuner: Any, over: threading.Event) -> None:
    """Tune's loop, which waits for a node for ever, and in which Ray ends the process where a part
    of it is gone; the backend's watch sees both meanwhile. over: ends it, between two steps."""
    found = in_thread(tuner.fit)
    try:
        until(lambda: bool(wait([found], LOOK_SECONDS).done))
        found.result()
    except BaseException:
        over.set()
        wait([found], END_SECONDS)
        raise


def _callback(
    settle: Callable[..., None],
    interrupt: Interrupt,
    over: threading.Event,
) -> Any:
    from ray.tune import Callback

    class Settled(Callback):
        """Hears from Tune of every trial that ended. Tune saves its callbacks to go on with them,
        which is not how a search goes on here, and whoever is told holds what no pickle takes."""

        freed = 0.0

        def __reduce__(self) -> Any:
            return Callback, ()

        def on_step_begin(self, iteration: int, trials: Any, **info: Any) -> None:
            if interrupt.asked:
                raise interrupt.stopped()
            if over.is_set():
                raise SystemExit("nobody waits for Tune any more")
            if is_connected() and time.monotonic() - self.freed > FREE_SECONDS:
                free_places_of_the_dead()
                self.freed = time.monotonic()

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            settle(trial.config, None, UNSEEN if "score" in trial.last_result else None)

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            settle(trial.config, _why(trial))

    return Settled()


def _silent() -> Any:
    from ray.tune.progress_reporter import TrialProgressCallback

    class Silent(TrialProgressCallback):
        """In the place of Tune's own, which says of a trial that failed before its first round that
        it completed."""

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
            pass

    return Silent()


def _why(trial: Any) -> str:
    """The first line of what Tune knows of a failure."""
    error = None
    with suppress(Exception):  # Tune wrote it to a disk that may be full
        error = trial.get_pickled_error()
    lines = str(error or "").strip().splitlines()
    return f"its process on the cluster ended: {lines[0] if lines else 'Ray gives no reason'}"


def _here() -> Any:
    from distcore_ray.shipping import Place

    return Place.here()


def _nodes(backend: Backend) -> list[Node]:
    """CPUs and GPUs of each node that trials may run on. Nothing is started to know it."""
    with _on_ray(backend) as asked:
        found = asked.resources()
        if not is_connected():
            return [(float(found.cpus), float(found.gpus))]
        import ray

        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        return [
            (float(each.get("CPU", 0)), float(each.get("GPU", 0))) for each in _may_come() or alive
        ]


def _may_come() -> list[Mapping[str, float]]:
    """The resources of every node of a cluster that grows, once it has grown; of another one,
    nothing."""
    from ray._private.state import state

    config = state.get_cluster_config()
    groups = config.node_group_configs if config is not None else ()
    return [
        dict(group.resources)
        for group in groups
        for _ in range(MOST_NODES if group.max_count < 0 else min(group.max_count, MOST_NODES))
    ]


@contextmanager
def _connected(backend: Backend) -> Iterator[None]:
    """The cluster is joined, or started."""
    with _on_ray(backend) as joining:
        joining.connect()
        yield


@contextmanager
def _on_ray(backend: Backend) -> Iterator[RayBackend]:
    """A Ray backend: the run's own, or one beside another backend, which is closed again."""
    from distcore_ray import backend as own
    from distcore_ray.options import BackendOptions

    if isinstance(backend, own.RayBackend):
        yield backend
        return
    made = own.RayBackend(BackendOptions.model_validate({}))
    try:
        yield made
    finally:
        made.close()


@contextmanager
def _quiet() -> Iterator[None]:
    before = dict(os.environ)
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    logger = logging.getLogger("ray.tune")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
        for name in QUIET:
            if name not in before:
                os.environ.pop(name, None)
