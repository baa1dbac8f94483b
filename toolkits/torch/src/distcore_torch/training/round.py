"""What a finished evaluation round tells people: a `distcore_core.progress.Round` of the loop's
state."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from distcore_core.contracts import JSON
from distcore_core.progress import Progress, Round

if TYPE_CHECKING:
    from distcore_torch.training.monitor import Monitor
    from distcore_torch.training.plan import TrainPlan
    from distcore_torch.training.state import TrainState


def round_of(
    plan: TrainPlan,
    patience: int,
    monitor: Monitor,
    state: TrainState,
    scores: JSON,
    progress: Progress,
) -> Round:
    """The round that has just been recorded, and judged where there are validation rows.

    Args:
        patience: `trainer.early_stop`: rounds without a better one; 0 or less means never to stop
            early.
        scores: {split: {output feature: {metric: value or None}}} of this round.
        progress: whose stage is the training.
    """
    recorded = state.statistics.get(monitor.split, {}).get(monitor.field, {})
    evaluation = max((len(values) for values in recorded.values()), default=1)
    since = state.rounds_without_improvement
    judged = monitor.split == "validation"
    best = state.best if judged else {}
    return Round(
        evaluation=evaluation,
        epoch=state.step / plan.steps_per_epoch,
        epochs=plan.total_steps / plan.steps_per_epoch,
        step=state.step,
        metrics=scores,
        split=monitor.split,
        feature=monitor.field,
        metric=monitor.metric,
        value=monitor.value(scores),
        best=best.get("value"),
        best_evaluation=evaluation - since if best else None,
        patience_left=max(0, patience - since) if patience > 0 and judged else None,
        seconds=round(time.monotonic() - progress.started, 3),
    )
