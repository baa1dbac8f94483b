"""The job of a search: which trials there are, who runs them, and what each asks for."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distcore.config.mistakes import validated
from distcore.search.section import Section
from distcore.search.trial import TrialWork, run_trial
from distcore_core.contracts import EXECUTOR, JSON, TRAINER, SearchJob
from distcore_core.errors import ConfigError, PluginNotFound
from distcore_core.registry.index import DEFAULTS
from distcore_search.variants import variants

if TYPE_CHECKING:
    from distcore.workflow.session import Session
    from distcore_core.contracts import Backend, Executor, Trainer
    from distcore_search.options import ExecutorOptions

log = logging.getLogger("distcore")

SAMPLES = 10
"""Trials if neither `num_samples` nor a grid says how many; Ludwig's."""

MOST_TRIALS = 1_000_000
"""Whose values are made before the first begins: a grid of a few parameters too many would take
all memory."""


def executor_of(section: Section, session: Session) -> tuple[Executor, ExecutorOptions]:
    """The executor that the section names, else the one that is called like the backend, else
    the local one."""
    reference = section.options.executor
    named, plugins = reference.type, session.plugins
    name = named or session.backend_name
    if named is None and name not in plugins.names("executors"):
        name = DEFAULTS["executors"]
    try:
        plugins.find("executors", name)
    except PluginNotFound as error:
        other = (
            " Or write hyperopt.executor.type: local, which runs the trials on this machine."
            if named
            else ""
        )
        raise section.refuse(("executor", "type"), f"{error}{other}") from error
    given = reference.model_extra or {}
    model: Any = plugins.options_model("executors", name, given=given)
    options, problems = validated(model, given)
    if problems or options is None:
        issues = [section.issue(("executor", *path), message) for path, message in problems]
        raise ConfigError(issues, section.source)
    return plugins.make(EXECUTOR, name, options), options


def workers_of(session: Session) -> tuple[int, Mapping[str, float], bool]:
    """How many processes a trial's trainer starts, and what each asks for."""
    return asked_for(session.make(TRAINER), session.backend)


def asked_for(trainer: Trainer, backend: Backend) -> tuple[int, Mapping[str, float], bool]:
    """As `workers_of`."""
    return trainer.workers(backend), trainer.resources_per_worker, trainer.uses_gpu(backend)


def job_of(
    section: Section, options: ExecutorOptions, session: Session, work: TrialWork, resume: bool
) -> SearchJob:
    """What an executor is asked to run. Raises ConfigError for values that cannot be tried so.

    Args:
        section: What is searched.
        options: The executor's.
        session: Of the search.
        work: What a trial is given.
        resume: Whether the search is gone on with.
    """
    seed = session.config.random_seed
    axes = {name: space.axis() for name, space in section.spaces.items()}
    grid = any(axis.grid for axis in axes.values())
    samples = options.num_samples or (1 if grid else SAMPLES)
    algorithm = section.options.search_alg
    chosen = algorithm.model_dump(exclude={"points_to_evaluate"}) if algorithm is not None else {}
    if not chosen and grid:
        chosen = {"type": "variant_generator"}
    if chosen.get("type") == "optuna" and grid:
        message = (
            "optuna chooses the values itself; use choice instead of grid_search, or "
            "variant_generator"
        )
        raise section.refuse(("search_alg", "type"), message)
    points = points_of(section, samples)
    known = None
    if chosen.get("type") in ("variant_generator", "random"):
        stated = chosen.get("random_state")
        constant = bool(chosen.get("constant_grid_search"))
        trials = samples * math.prod(int(axis.high) + 1 for axis in axes.values() if axis.grid)
        if trials > MOST_TRIALS:
            message = (
                f"make {trials:,} trials, and {MOST_TRIALS:,} are the most: give fewer values, "
                "or `choice` instead of `grid_search` and num_samples"
            )
            raise section.refuse(("parameters",), message)
        known = variants(axes, samples, seed if stated is None else stated, points, constant)
    workers, resources, use_gpu = workers_of(session)
    return SearchJob(
        function=run_trial,
        work=work,
        axes=axes,
        variants=known,
        trials=len(known) if known is not None else samples,
        goal=work.objective.goal,
        directory=work.directory,
        algorithm=chosen,
        points=points,
        seed=chosen["seed"] if chosen.get("seed") is not None else seed,
        workers=workers,
        resources_per_worker=resources,
        use_gpu=use_gpu,
        resume=resume,
    )


def given_by(scheduler: Any, trainers: Sequence[Any]) -> JSON:
    """Options of `trainer` that each trial has under a scheduler, as in Ludwig: it alone stops it,
    once it has trained up to `max_t`.

    Args:
        scheduler: The executor's option.
        trainers: The section of each config that could be tried; what one of them says itself is
            given to none, so that those with epochs end after these.
    """
    if scheduler.type == "fifo":
        return {}
    written = set[str]().union(*(each.model_fields_set for each in trainers))
    found = {} if "early_stop" in written else {"early_stop": -1}
    rounds = scheduler.limit
    if scheduler.time_attr != "training_iteration" or any(
        each.steps_per_checkpoint or each.checkpoints_per_epoch for each in trainers
    ):  # no round is an epoch
        rounds = None
    if rounds is not None and not {"epochs", "train_steps"} & written:
        found["epochs"] = rounds
    return found


def points_of(section: Section, samples: int) -> tuple[Mapping[str, Any], ...]:
    """`points_to_evaluate` as raw values. As in Ray Tune each takes the place of a sample."""
    algorithm, spaces = section.options.search_alg, section.spaces
    points: list[Mapping[str, Any]] = []
    for index, point in enumerate(
        (algorithm.points_to_evaluate or []) if algorithm is not None else []
    ):
        raw = {}
        for name, value in point.items():
            path = ("search_alg", "points_to_evaluate", index, name)
            if name not in spaces:
                raise section.refuse(path, f"is not searched; there are {', '.join(spaces)}")
            try:
                raw[name] = spaces[name].raw(value)
            except ValueError as error:
                raise section.refuse(path, str(error)) from error
            tried = spaces[name].value(raw[name])
            if tried != value and not math.isclose(
                tried, value, rel_tol=1e-6, abs_tol=1e-12
            ):  # a normal's quantile has not every bit of it
                message = f"is none of its values; the nearest is {tried!r}, not {value!r}"
                raise section.refuse(path, message)
        points.append(raw)
    if len(points) > samples:
        log.warning(
            "hyperopt.search_alg.points_to_evaluate has %d points, and num_samples is %d: those "
            "after that are not tried. Raise hyperopt.executor.num_samples.",
            len(points),
            samples,
        )
    return tuple(points)
