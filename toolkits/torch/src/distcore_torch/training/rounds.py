"""What an evaluation round finds: the scores of the splits, and the mean losses of the steps before
it."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING

import torch

from distcore_core.contracts import JSON, FeatureSet, Loader
from distcore_core.contracts.values import COMBINED
from distcore_torch.training.evaluating import evaluate, evaluate_parts
from distcore_torch.training.finite import of_loss
from distcore_torch.training.heartbeat import EVALUATING, Heartbeat
from distcore_torch.training.scores import Scores, compute

if TYPE_CHECKING:
    from distcore_torch.training.monitor import Monitor
    from distcore_torch.training.state import TrainState
    from distcore_torch.training.step import Stepper
    from distcore_torch.training.strategy import Strategy

log = logging.getLogger("distcore")


class Rounds:
    """Evaluates the module of one rank together with the other ranks'.

    Args:
        module: On the strategy's device.
        features: Fitted.
        loaders: {split: loader} of those that are evaluated in a pass of their own.
        stepper: Whose steps sum the losses.
        exact: Whether a batch is evaluated part by part.
        strategy: Of this rank, set up.
        monitor: Has the weights of the outputs' losses.
        beat: Says so while it evaluates.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        features: FeatureSet,
        loaders: dict[str, Loader],
        stepper: Stepper,
        strategy: Strategy,
        monitor: Monitor,
        *,
        exact: bool,
        beat: Heartbeat,
    ) -> None:
        self._module, self._features, self._loaders = module, features, loaders
        self._stepper, self._strategy, self._monitor = stepper, strategy, monitor
        self._exact, self._beat = exact, beat
        self._scores: dict[str, list[Scores]] = {}

    def scores(self, state: TrainState, since: int) -> JSON:
        """{split: {output feature: {metric: value}}} of this round; the same in every rank.

        since: the step of the round before."""
        scores = {"training": self._training_losses(state, since)}
        return scores | {split: self._evaluate(split) for split in self._loaders}

    def sums(self) -> list[list[float]]:
        """Losses summed over rows since the last round, [parts][outputs], in the order of the
        ranks."""
        ranks = self._strategy.gather(self._stepper.sums.tolist())
        return [part for rank in ranks for part in rank]

    def take_sums(self, parts: list[list[float]]) -> None:
        """Take this rank's of the `sums` of a run that is gone on with."""
        rank, own = self._strategy.rank, len(self._stepper.sums)
        counts = self._strategy.gather(own)
        first = sum(counts[: rank.index])
        if len(parts) != sum(counts):  # another number of ranks: rank 0 takes all
            parts, first = [[sum(column) for column in zip(*parts, strict=True)]], rank.index
        mine = parts[first : first + own]
        if mine:
            self._stepper.sums[: len(mine)] = torch.tensor(mine, dtype=torch.float64)

    def _evaluate(self, split: str) -> JSON:
        loader, autocast = self._loaders[split], self._stepper.losses.autocast
        if split not in self._scores:
            self._scores[split] = [Scores(self._features, split=split) for _ in self._stepper.sums]
        parts = self._scores[split]
        with self._beat.during(EVALUATING):
            batches = self._beat.each(iter(loader.batches(0)), EVALUATING, EVALUATING)
            if self._exact:
                evaluate_parts(self._module, batches, parts, autocast)
            else:
                evaluate(self._module, batches, parts[0], autocast)
            return compute(parts, self._strategy)

    def _training_losses(self, state: TrainState, since: int) -> JSON:
        """Mean losses of the steps since the last round, as the weights changed under them."""
        parts = self.sums()
        if not state.rows:
            return {}
        result: JSON = {}
        combined = 0.0
        for index, feature in enumerate(self._features.outputs):
            loss = sum(part[index] for part in parts) / state.rows
            if not math.isfinite(loss) and self._strategy.rank.index == 0:
                said = of_loss(feature.name, loss, since, state.step)
                log.warning("%s; the weights are finite, so training goes on.", said)
            result[feature.name] = {"loss": loss if math.isfinite(loss) else None}
            combined += self._monitor.weights[feature.name] * loss
        return {**result, COMBINED: {"loss": combined if math.isfinite(combined) else None}}
