"""A search's axes in Tune's words, and Optuna as Tune runs it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

from distcore_core.contracts import Axis, SearchJob
from distcore_core.errors import UserError
from distcore_ray.tune_scheduler import told_of
from distcore_search.records import ENDED, read_record
from distcore_search.variants import draw, value_at


def algorithm(job: SearchJob) -> str:
    """How trials are chosen, for people."""
    if job.variants is not None:
        return "grid search" if any(axis.grid for axis in job.axes.values()) else "random search"
    return "tpe"


def _space(job: SearchJob) -> dict[str, Any]:
    return _by_position(job, {name: _domain(axis) for name, axis in job.axes.items()})


def _by_position(job: SearchJob, values: Mapping[str, Any]) -> dict[str, Any]:
    """{"0": the first parameter's value, …}: Tune takes names with a / for paths."""
    return {str(at): values[name] for at, name in enumerate(job.axes)}


def _domain(axis: Axis) -> Any:
    """An axis as Tune has it. Its upper ends are outside for whole numbers, unless there are
    steps."""
    from ray import tune

    if axis.kind == "choice":
        return tune.choice(list(range(int(axis.high) + 1)))
    if axis.kind == "int":
        low, high = int(axis.low), int(axis.high)
        if axis.step is not None:
            return tune.qrandint(low, high, int(axis.step))
        return tune.lograndint(low, high + 1) if axis.log else tune.randint(low, high + 1)
    if axis.step is not None:
        return tune.quniform(axis.low, axis.high, axis.step)
    return tune.loguniform(axis.low, axis.high) if axis.log else tune.uniform(axis.low, axis.high)


def optuna_search() -> Any:
    """Tune's OptunaSearch. Raises UserError if Optuna is not installed."""
    try:
        import optuna
        from ray.tune.search.optuna import OptunaSearch
    except ImportError as error:
        raise UserError(
            f"hyperopt.search_alg: optuna is not installed ({error}): pip install optuna, or use "
            "variant_generator."
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return OptunaSearch


def searcher(job: SearchJob, begun: list[Mapping[str, Any]]) -> Any:
    """Optuna, or chance; asked first for the trials that were begun before, and told of those
    that ended."""
    going_on = [dict(each["raw"]) for each in begun if each["state"] not in ENDED]
    points = [
        *going_on,
        *(
            _whole(job, each, number)
            for number, each in enumerate(job.points)
            if number >= len(begun)
        ),
    ]
    kind, seed = optuna_search(), (job.seed + len(begun)) % (1 << 32)
    names, given = Names(begun), dict[str, str]()

    class Named(kind):  # type: ignore[valid-type,misc]
        """Gives each trial its name as it is chosen: two that have the same values are two."""

        def suggest(self, trial_id: str) -> dict[str, Any]:
            found = super().suggest(trial_id)
            raw = {name: found[str(at)] for at, name in enumerate(job.axes)}
            given[trial_id] = names.of(raw)
            return {"name": given[trial_id], "raw": raw}

        def on_trial_complete(
            self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
        ) -> None:
            folder = job.work.folder(given[trial_id])
            record = read_record(folder)  # Tune knows its last round alone
            if record.get("state") in ENDED:
                result, error = {"score": record["score"]}, record["state"] == "failed"
            elif not error:  # its scheduler stopped it
                told = [each["score"] for each in told_of(folder, job.work.objective)]
                result = {"score": job.work.objective.best_of(told)[0]}
            super().on_trial_complete(trial_id, result, error)

    search = Named(
        space=kind.convert_search_space(_space(job)),
        seed=seed,
        metric="score",
        mode="max" if job.goal == "maximize" else "min",
        points_to_evaluate=[_by_position(job, each) for each in points] or None,
    )
    for each in begun:
        if each["state"] in ENDED and each.get("score") is not None:
            search.add_evaluated_point(_by_position(job, each["raw"]), each["score"])
    return search


class Names:
    """What names trials as they are chosen: one that was begun before keeps its name, another one
    gets the next number that is free. Pickles, as Tune asks of what a searcher holds."""

    def __init__(self, begun: list[Mapping[str, Any]]) -> None:
        self.going_on = [each for each in begun if each["state"] not in ENDED]
        self.taken = {each["name"] for each in begun}

    def of(self, raw: Mapping[str, Any]) -> str:
        for each in self.going_on:
            if each["raw"] == raw:
                self.going_on.remove(each)
                return str(each["name"])
        name = next(name for n in itertools.count() if (name := f"{n:04d}") not in self.taken)
        self.taken.add(name)
        return name


def _whole(job: SearchJob, point: Mapping[str, Any], number: int) -> dict[str, Any]:
    """A point with the parameters that it leaves out drawn: Tune's Optuna takes whole ones only."""
    return {
        name: point.get(name, value_at(axis, draw(job.seed, number, name)))
        for name, axis in job.axes.items()
    }
