"""Tune's schedulers, for a search that goes on after a kill, and whose trials do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON
from distcore_search.records import ROUNDS
from distcore_search.rounds import rounds_of

if TYPE_CHECKING:
    from distcore_search.objective import Objective

Told = Mapping[str, Sequence[JSON]]
"""{name of a trial: what it told Tune of each of its rounds}."""

NOBODY: Any = None
"""In the place of Tune's controller, which these schedulers do not ask."""


def scheduler_of(stated: Any, ended: Callable[[], Told]) -> Any:
    """The scheduler of an executor's options.

    Args:
        stated: The option `scheduler`.
        ended: Gives the trials that ended before this call of Tune, which knows nothing of them:
            the others are held against them all the same.
    """
    from ray.tune.schedulers import FIFOScheduler

    given = stated.model_dump(exclude={"type"})
    if stated.type == "fifo":
        return FIFOScheduler()
    return (_median if stated.type.startswith("median") else _halving)(given, ended())


def told_of(folder: Path, objective: Objective) -> Iterator[JSON]:
    """What a trial told Tune of its rounds, by their file in its folder."""
    for each in rounds_of(folder / ROUNDS):
        score = objective.of_round(each.metrics)
        if score is not None:
            times = {"training_iteration": each.number, "time_total_s": each.seconds}
            yield {"score": score, **times}


@dataclass(frozen=True)
class _Ended:
    """What stands for a trial of Tune's that ended in an earlier call."""

    trial_id: str


def _halving(options: Mapping[str, Any], ended: Told) -> Any:
    from ray.tune.schedulers import AsyncHyperBandScheduler

    class Halving(AsyncHyperBandScheduler):
        """Tune's, with the levels of the trials that ended before."""

        def set_search_properties(self, *properties: Any, **spec: Any) -> bool:
            known = super().set_search_properties(*properties, **spec)
            for name, rounds in ended.items():
                trial: Any = _Ended(name)
                self.on_trial_add(NOBODY, trial)
                for each in rounds:
                    self.on_trial_result(NOBODY, trial, dict(each))
            return bool(known)

    return Halving(**options)


def _median(options: Mapping[str, Any], ended: Told) -> Any:
    from ray.tune.schedulers import MedianStoppingRule, TrialScheduler

    class Median(MedianStoppingRule):
        """Tune's, which hears of each round once: not again of those that a trial told before its
        process was lost, nor of the last one as a trial ends, of which there is none where it
        failed before. With too few to compare with, no trial is paused for others that wait: its
        process would be started again for each round."""

        def __init__(self) -> None:
            super().__init__(**options)
            self.heard: dict[Any, float] = {}

        def set_search_properties(self, *properties: Any, **spec: Any) -> bool:
            for name, rounds in ended.items():
                trial: Any = _Ended(name)
                for each in rounds:  # kept, and not judged
                    super().on_trial_complete(NOBODY, trial, dict(each))
            return bool(super().set_search_properties(*properties, **spec))

        def on_trial_result(self, tune_controller: Any, trial: Any, result: Any) -> str:
            time = result.get(options["time_attr"], 0.0)
            if time <= self.heard.get(trial, 0.0):
                return str(TrialScheduler.CONTINUE)
            self.heard[trial] = time
            found = super().on_trial_result(tune_controller, trial, result)
            return str(TrialScheduler.CONTINUE if found == TrialScheduler.PAUSE else found)

        def on_trial_complete(self, *trial: Any) -> None:
            pass

    return Median()
