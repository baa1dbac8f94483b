"""The toolkit's own decays of the learning rate: step since the warm-up → learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

Decay = Callable[[int], float]


def builtin_schedule(
    name: str, options: Any, *, learning_rate: float, steps: float, steps_per_round: int
) -> Decay | None:
    """The toolkit's own schedule of a name, or None.

    Args:
        options: Those of the name (see `schedule_options.DECAYS`).
        learning_rate: Of step 0.
        steps: Of the whole run after the warm-up.
        steps_per_round: Between two evaluations.
    """
    if name == "linear":
        return _linear(learning_rate, steps)
    if name == "exponential":
        return _exponential(options, learning_rate)
    if name == "cosine":
        return _cosine(options, learning_rate, options.t_0 or max(1, steps_per_round))
    return None


def _linear(base: float, steps: float) -> Decay:
    return lambda step: base * max(0.0, (steps - step) / max(1.0, steps))


def _exponential(options: Any, base: float) -> Decay:
    """Ludwig's exponent starts at 1, so the first step is already decayed once."""

    def decay(step: int) -> float:
        exponent = 1 + step / options.decay_steps
        if options.staircase:
            exponent = math.ceil(exponent)
        return float(base * options.decay_rate**exponent)

    return decay


def _cosine(options: Any, base: float, first: int) -> Decay:
    """Annealing with warm restarts (Loshchilov and Hutter, 2017): period i has first · t_mult^i
    steps."""
    low = options.eta_min

    def decay(step: int) -> float:
        within, period = step, first
        if options.t_mult == 1:
            within = step % period
        else:
            while within >= period:
                within -= period
                period *= options.t_mult
        return float(low + (base - low) * (1 + math.cos(math.pi * within / period)) / 2)

    return decay
