"""What a trial needs of the cluster, and how many fit beside each other: the arithmetic that keeps trials from waiting
for each other for ever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from distcore.contracts import Backend, Resources, SearchJob
from distcore.errors import UserError

if TYPE_CHECKING:
    from distcore_ray.tune_options import TuneOptions


@dataclass(frozen=True)
class Need:
    """driver: what the trial itself holds. workers × each: what it asks for besides, while it holds that; 0 where it
    trains in its own process."""

    driver: tuple[float, float]
    workers: int
    each: tuple[float, float]

    def total(self, kind: int) -> float:
        """CPUs (0) or GPUs (1) of one trial."""
        return self.driver[kind] + self.workers * self.each[kind]

    def of_tune(self) -> dict[str, float]:
        """What Tune reserves. With nothing at all a trial would count as needing a whole CPU."""
        found = {"cpu": self.driver[0], "gpu": self.driver[1]}
        return found if any(self.driver) else {"cpu": 0, "memory": 1}

    def sum(self, kind: int) -> str:
        """`0 + 2 workers × 1`."""
        if not self.workers:
            return f"{self.driver[kind]:g}"
        return f"{self.driver[kind]:g} for itself + {self.workers} workers × {self.each[kind]:g}"


def need_of(options: TuneOptions, job: SearchJob, backend: Backend) -> Need:
    """Of one trial. Raises UserError where the section and `backend.trainer` say two things."""
    stated = options.cpu_resources_per_trial
    if not getattr(backend, "distributed", False):
        gpus = options.gpu_resources_per_trial or 0.0
        return Need(((stated or 1.0) * job.workers, gpus * job.workers), 0, (0.0, 0.0))
    given = dict(job.resources_per_worker)
    each = (float(given.get("CPU", 1.0)), float(given.get("GPU", 1.0 if job.use_gpu else 0.0)))
    for name, amount, kind in (("cpu", stated, 0), ("gpu", options.gpu_resources_per_trial, 1)):
        if amount is not None and amount != job.workers * each[kind]:
            raise UserError(
                f"hyperopt.executor.{name}_resources_per_trial is {amount:g}, but backend.trainer gives a trial "
                f"{job.workers} workers × {each[kind]:g} {name.upper()}s. Leave it out, or make "
                "backend.trainer.num_workers and resources_per_worker say the same."
            )
    driver = options.trial_driver_resources or {}
    return Need((float(driver.get("CPU", 0.0)), float(driver.get("GPU", 0.0))), job.workers, each)


def at_once(options: TuneOptions, job: SearchJob, cluster: Resources, need: Need) -> int:
    """How many trials run beside each other. Raises UserError where one does not fit, or fewer than are asked for."""
    has = (cluster.cpus, cluster.gpus)
    fit = min((int(has[kind] / need.total(kind) + 1e-9) for kind in (0, 1) if need.total(kind)), default=job.trials)
    if fit < 1:
        kind = 0 if need.total(0) > has[0] else 1
        raise UserError(
            f"A trial needs {_words(need, kind)}, but the Ray cluster has {has[kind]}: it would wait for ever. "
            "Lower backend.trainer.num_workers, resources_per_worker or the resources per trial, or add nodes."
        )
    most = min(job.algorithm.get("max_concurrent") or job.trials, job.trials)
    wanted: Any = options.max_concurrent_trials
    if wanted in ("auto", None):
        return min(fit, most)
    wanted = min(int(wanted), most)
    if wanted > fit and need.workers:
        kind = 0 if wanted * need.total(0) > has[0] else 1
        unit = ("CPUs", "GPUs")[kind]
        raise UserError(
            f"{wanted} trials at once × ({need.sum(kind)} {unit}) = {wanted * need.total(kind):g} {unit}, but the Ray "
            f"cluster has {has[kind]}: trials that have begun would wait for workers that others hold. "
            f"Set hyperopt.executor.max_concurrent_trials to {fit} or auto, or add nodes."
        )
    return min(wanted, fit)


def _words(need: Need, kind: int) -> str:
    unit = ("CPUs", "GPUs")[kind]
    return f"{need.sum(kind)} = {need.total(kind):g} {unit}" if need.workers else f"{need.total(kind):g} {unit}"
