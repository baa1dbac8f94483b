"""Forests of one run, grown in lockstep: rounds of all of them, judged, told and kept as
checkpoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from distcore_core.contracts import JSON, Batch, Feature
from distcore_core.contracts.values import COMBINED
from distcore_core.progress import Progress, Round

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from distcore_torch.training.open_job import Opened
    from distcore_trees.forest import Forest, Part
    from distcore_trees.options import TreeOptions
    from distcore_trees.rows import Rows

UNIT = "round"
log = logging.getLogger("distcore")


@dataclass
class Standing:
    """How the forest of an output feature stands.

    rounds: grown. best, value: the round with the best value of the watched metric on the
        validation split, or the last one if there is no such split. grown_out: no split improves
        anything any more."""

    rounds: int = 0
    best: int = 0
    value: float | None = None
    grown_out: bool = False

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Standing:
        """One that a checkpoint keeps, of any version: an older one kept in place of grown_out
        whether the forest was over, which is found again."""
        return cls(**{each.name: saved[each.name] for each in fields(cls) if each.name in saved})


@dataclass(frozen=True)
class Growing:
    """One output feature's forest with its rows.

    metrics: the feature's, as a report has them. clip: of outputs, what a prediction has of them.
    watched: the metric that picks the best round. asked_for: whether the config names its feature
    or its metric as what decides."""

    feature: Feature
    forest: Forest
    rows: Mapping[Part, Rows]
    standing: Standing
    metrics: Mapping[str, Any]
    clip: Callable[[NDArray[np.float32]], NDArray[np.float32]]
    watched: str = "loss"
    asked_for: bool = False

    def value(self, name: str, part: Part, outputs: NDArray[np.float32]) -> float | None:
        """A metric of what some trees make of the part's rows."""
        rows, metric = self.rows[part], self.metrics[name]
        if not len(rows.target):
            return None
        metric.reset()
        with torch.inference_mode():
            metric.update(torch.as_tensor(self.clip(outputs)), torch.as_tensor(rows.target))
            found = float(metric.compute())
        return found if np.isfinite(found) else None

    def better(self, value: float | None) -> bool:
        """Than the best of the rounds before."""
        best = self.standing.value
        if value is None or best is None:
            return value is not None
        higher = self.watched != "loss" and self.metrics[self.watched].higher_is_better
        return value > best if higher else value < best

    def whole(self, part: Part, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Outputs of every row of the split; zeros for those without a target."""
        kept = self.rows[part].kept
        if kept.all():
            return outputs
        found = np.zeros((len(kept), *outputs.shape[1:]), np.float32)
        found[kept] = outputs
        return found


class Boosting:
    """Grows the forests of a run to their end.

    Args:
        job: Open; its listeners hear of every evaluation.
        options: Of the trainer.
        forests: In the order of the output features.
        statistics: Curves so far, to which every evaluation adds.
        keep: Called with the number of rounds after each evaluation; saves a checkpoint.
        progress: Whose stage is the training.
    """

    def __init__(
        self,
        job: Opened,
        options: TreeOptions,
        forests: list[Growing],
        statistics: JSON,
        keep: Callable[[int], None],
        progress: Progress,
    ) -> None:
        self.job, self.options, self.forests = job, options, forests
        self.statistics, self.keep, self.progress = statistics, keep, progress
        self.validates = "validation" in forests[0].rows
        self.rounds = max(each.standing.rounds for each in forests)
        self.stopped = ""

    def run(self) -> None:
        """Grow until every forest is over, or an extension asks to end (`stopped`: why)."""
        last, period = self.options.num_boost_round, self.options.period
        while self.rounds < last and not self._over() and not self.stopped:
            self.rounds += 1
            for each in self.forests:
                # More than one where a forest that was over goes on with more patience.
                while each.standing.rounds < self.rounds and not self._is_over(each):
                    self._grow(each)
            self.progress.done = self.rounds
            self.progress.note = self._note()
            if self.rounds % period == 0 and self.rounds < last and not self._over():
                self._evaluate()
        self.keep(self.rounds)

    def kept(self, each: Growing) -> int:
        """How many rounds of a forest the model has: up to the best one on the validation split, or
        all without any."""
        return each.standing.best or each.standing.rounds

    def tell(self, metrics: Mapping[str, JSON], of: int | None = None) -> str:
        """Add an evaluation to the curves, and tell of it. Why a listener asks to end, or "".

        of: the round that the metrics are of, if not the last."""
        for split, outputs in metrics.items():
            for output, found in outputs.items():
                curves = self.statistics.setdefault(split, {}).setdefault(output, {})
                for name, value in found.items():
                    curves.setdefault(name, []).append(value)
        self.progress.tell(self._round(metrics, of))
        return self.job.tell_epoch(epoch=self.rounds, step=self.rounds, metrics=metrics)

    def metrics(self, outputs: Callable[[Growing, Part], NDArray[np.float32]]) -> dict[str, JSON]:
        """{split: {output feature: {metric: value}}}: losses of the training split, every metric
        of the validation split.

        Args:
            outputs: Of a forest, for the rows of a part.
        """
        losses = {
            each.feature.name: each.value("loss", "train", outputs(each, "train"))
            for each in self.forests
        }
        found: dict[str, JSON] = {"training": {name: {"loss": it} for name, it in losses.items()}}
        weights = {each.feature.name: each.feature.loss_weight for each in self.forests}
        known = {name: value for name, value in losses.items() if value is not None}
        whole = len(known) == len(losses)
        combined = sum(weights[name] * value for name, value in known.items()) if whole else None
        found["training"][COMBINED] = {"loss": combined}
        if self.validates:
            held = {
                each.feature.name: each.whole("validation", outputs(each, "validation"))
                for each in self.forests
            }
            found["validation"] = self.job.scores(_Held(held), "validation")
        return found

    @property
    def lead(self) -> Growing:
        """The forest that is told of: the first that is asked for, or else the one whose best round
        is the latest."""
        asked_for = (each for each in self.forests if each.asked_for)
        return next(asked_for, None) or max(self.forests, key=lambda each: each.standing.best)

    # ---------------------------------------------------------- a round

    def _over(self) -> bool:
        return all(map(self._is_over, self.forests))

    def _is_over(self, each: Growing) -> bool:
        """Whether it grows no more. Not kept: a run may go on with another patience."""
        standing, patience = each.standing, self.options.early_stopping_rounds
        return standing.grown_out or 0 < patience <= standing.rounds - standing.best

    def _grow(self, each: Growing) -> None:
        """One round of one forest, and its value on the validation split."""
        standing = each.standing
        if not each.forest.grow():
            standing.grown_out = True
            return
        standing.rounds += 1
        if not self.validates:
            standing.best = standing.rounds
            return
        value = each.value(each.watched, "validation", each.forest.outputs("validation"))
        if each.better(value):
            standing.best, standing.value = standing.rounds, value

    def _evaluate(self) -> None:
        self.stopped = self.tell(self.metrics(lambda each, part: each.forest.outputs(part)))
        if self.stopped:
            log.warning(
                "%s Boosting ends after round %d of %d.",
                self.stopped,
                self.rounds,
                self.options.num_boost_round,
            )
        else:
            self.keep(self.rounds)

    def _note(self) -> str:
        lead = self.lead
        if lead.standing.value is None:
            return ""
        return f"best validation {lead.watched} {lead.standing.value:.4f} at {lead.standing.best}"

    def _round(self, metrics: Mapping[str, JSON], of: int | None) -> Round:
        standing, name, watched = self.lead.standing, self.lead.feature.name, self.lead.watched
        split = "validation" if self.validates else "training"
        value = metrics[split].get(name, {}).get(watched)
        patience = self.options.early_stopping_rounds if self.validates else 0
        if self._is_over(self.lead) and not self._over():  # others grow on
            patience = 0
        return Round(
            evaluation=self.rounds,
            epoch=self.rounds,
            epochs=self.options.num_boost_round,
            step=self.rounds,
            metrics=dict(metrics),
            split=split,
            feature=name,
            metric=watched,
            value=value,
            best=standing.value,
            best_evaluation=standing.best if standing.value is not None else None,
            patience_left=max(0, patience - (self.rounds - standing.best)) if patience else None,
            seconds=round(time.monotonic() - self.progress.started, 3),
            unit=UNIT,
            scored=of,
        )


class _Held:
    """A `contracts.Predictor` of outputs that are there, for batches in the order of the rows."""

    def __init__(self, outputs: Mapping[str, NDArray[np.float32]]) -> None:
        self._outputs, self._start = outputs, 0

    def predict(self, batch: Batch) -> dict[str, NDArray[np.float32]]:
        start, self._start = self._start, self._start + batch.rows
        return {name: each[start : self._start] for name, each in self._outputs.items()}
