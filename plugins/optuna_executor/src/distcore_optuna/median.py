"""The median stopping rule, by any clock: rounds, or seconds, at which no two trials report."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from optuna import Study
from optuna.pruners import BasePruner
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState


class MedianAtTime(BasePruner):
    """Stops a trial whose best value is worse than the median of what finished trials had at that
    time: the last that each had told by then. Optuna's own compares with those alone that told one
    at the same step, which by seconds hardly any did.

    Args:
        grace_period: No trial is stopped before this time.
        samples: Trials that a median is taken of, at least; one that had ended by then is none.

    Source: D. Golovin et al., Google Vizier, KDD 2017, section 3.2.2, which has means in place of
    the last values.
    """

    def __init__(self, grace_period: float, samples: int) -> None:
        self._grace_period, self._samples = grace_period, samples

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to stop it."""
        time = trial.last_step
        if time is None or time < self._grace_period:
            return False
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        told = [each.intermediate_values for each in finished if each.intermediate_values]
        values = [_last_by(time, each) for each in told if min(each) <= time <= max(each)]
        if len(values) < self._samples:
            return False
        if study.direction == StudyDirection.MAXIMIZE:
            return max(trial.intermediate_values.values()) < median(values)
        return min(trial.intermediate_values.values()) > median(values)


def _last_by(time: int, values: Mapping[int, float]) -> float:
    return values[max(each for each in values if each <= time)]
