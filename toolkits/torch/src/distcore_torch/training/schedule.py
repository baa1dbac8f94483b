"""The learning rate of every step: warm-up, decay, and reductions on a plateau on top of both, as
in Ludwig.

A schedule is a pure function of the step and of how often it was reduced, so a resumed run needs
two numbers and a count. Ludwig builds it of torch's LambdaLR, SequentialLR and
CosineAnnealingWarmRestarts; the values are the same. The decay is a member of the role `schedules`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from distcore_core.contracts import JSON
from distcore_core.errors import PluginBroken
from distcore_core.registry.manager import environment_plugins
from distcore_data.members import make_named
from distcore_torch.roles import SCHEDULE

log = logging.getLogger("distcore")


def scaled(learning_rate: float, scaling: str, workers: int) -> float:
    """The base learning rate for a number of workers (`learning_rate_scaling`).

    constant: unchanged; sqrt: times √workers; linear: times workers."""
    factors: dict[str, Callable[[int], float]] = {
        "constant": lambda _: 1.0,
        "sqrt": math.sqrt,
        "linear": float,
    }
    return learning_rate * factors[scaling](workers)


@dataclass(frozen=True)
class Shape:
    """What a schedule depends on beside its options.

    base: learning rate before any change. total_steps: of the whole run. steps_per_round: between
        two evaluations.
    """

    base: float
    total_steps: int
    steps_per_round: int


class Schedule:
    """The learning rate at each step.

    options: the `learning_rate_scheduler` section (see `schedule_options`).
    """

    def __init__(self, options: Any, shape: Shape) -> None:
        self.options = options
        self.shape = shape
        self.warmup = max(
            options.warmup_fraction * shape.total_steps,
            options.warmup_evaluations * shape.steps_per_round,
        )
        self._decay = make_decay(options, shape, self.warmup)
        self.reductions = 0
        self.constant = options.decay is None and self.warmup == 0
        """True: between evaluations the learning rate never changes, so the loop need not ask."""

    def as_begun(self, base: float | None) -> Schedule:
        """The schedule of a run that is gone on with, whatever number of workers there is now.

        base: the rate that it was begun with, before any change; None: an older version did not
            note it."""
        if base is None or base == self.shape.base:
            return self
        log.info(
            "The learning rate stays that of the workers that the run was begun with: %g, and not "
            "%g.",
            *(base, self.shape.base),
        )
        return Schedule(self.options, replace(self.shape, base=base))

    def rate(self, step: int) -> float:
        """Learning rate of step 0, 1, …: base · step / warm-up first, then the decay, times
        rate^reductions."""
        if step < self.warmup:
            rate = self.shape.base * step / max(1.0, self.warmup)
        else:
            # torch's SequentialLR goes over at the first whole step that is not below its
            # milestone.
            since = step - math.ceil(self.warmup)
            rate = self._decay(since)
            if not _right(rate):
                raise PluginBroken(
                    f"trainer.learning_rate_scheduler.decay: {self.options.decay} gave {rate!r} as "
                    f"the learning rate of step {since}, which is no number from 0 on. Report this "
                    "to its authors."
                )
        return float(rate * self.options.reduce_on_plateau_rate**self.reductions)


def _right(rate: Any) -> bool:
    try:
        return bool(0 <= rate < math.inf)
    except (TypeError, ValueError, RuntimeError):
        return False


def make_decay(options: Any, shape: Shape, warmup: float) -> Callable[[int], float]:
    """The learning rate of each step after the warm-up, by the member that `decay` names.

    Args:
        options: The `learning_rate_scheduler` section.
        warmup: Steps of warm-up, perhaps a fraction.
    """
    if options.decay is None:
        return lambda step: shape.base
    made: Callable[[int], float] = make_named(
        environment_plugins(),
        SCHEDULE,
        options.decay,
        options,
        learning_rate=shape.base,
        steps=shape.total_steps - warmup,
        steps_per_round=shape.steps_per_round,
    )
    return made


class Plateau:
    """Counts evaluations without improvement and says when to reduce: torch's ReduceLROnPlateau, at
    most `limit` times.

    An improvement is a change by more than 1e-4 of the best value, as torch's default threshold has
    it.
    """

    THRESHOLD = 1e-4

    def __init__(self, limit: int, patience: int, direction: Literal["min", "max"]) -> None:
        self.limit, self.patience, self.direction = limit, patience, direction
        self.best: float | None = None
        self.bad_rounds = 0
        self.reductions = 0

    def observe(self, value: float) -> bool:
        """Take an evaluation's value; True: reduce the learning rate now."""
        if self.reductions >= self.limit:
            return False
        if self._improves(value):
            self.best, self.bad_rounds = value, 0
        else:
            self.bad_rounds += 1
        if self.bad_rounds <= self.patience:
            return False
        self.bad_rounds = 0
        self.reductions += 1
        return True

    def _improves(self, value: float) -> bool:
        if self.best is None:
            return not math.isnan(value)
        # torch scales the best value itself, whatever its sign.
        if self.direction == "min":
            return value < self.best * (1 - self.THRESHOLD)
        return value > self.best * (1 + self.THRESHOLD)

    def state(self) -> JSON:
        return {"best": self.best, "bad_rounds": self.bad_rounds, "reductions": self.reductions}

    def restore(self, state: JSON) -> None:
        """Continue where `state()` stood."""
        self.best, self.bad_rounds, self.reductions = (
            state["best"],
            state["bad_rounds"],
            state["reductions"],
        )
