"""Metrics of many classes, in memory that does not grow with their square, nor, beyond some
classes, with the rows. Imported with `metrics.py`."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torchmetrics import Metric
from torchmetrics.classification import MulticlassAccuracy, MulticlassAUROC
from torchmetrics.utilities.data import dim_zero_cat

from distcore_tabular.vocabulary import NO_CLASS

BINS = 1024
PART_VALUES = 1 << 20
"""Probabilities that are counted at once."""


class Gathered:
    """A metric that keeps every row: a worker without rows still brings states of the right
    shape to the others."""

    no_rows: torch.Tensor
    preds: Any
    target: Any

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        super().update(output.float(), target.long())  # type: ignore[misc]

    def _sync_dist(self, *arguments: Any, **options: Any) -> None:
        if not self.preds:
            self.preds = [self.no_rows.to(self.device)]  # type: ignore[attr-defined]
            self.target = [torch.zeros(0, dtype=torch.long, device=self.device)]  # type: ignore[attr-defined]
        super()._sync_dist(*arguments, **options)  # type: ignore[misc]


class ClassRocAuc(Gathered, MulticlassAUROC):
    """Mean over classes of the area under the ROC curve of one against the rest, exact.

    A class that no row is of, or every one, has no area, and none of its own is counted;
    torchmetrics takes it for 0. NaN if that leaves none."""

    def __init__(self, classes: int) -> None:
        super().__init__(
            num_classes=classes, average=None, ignore_index=NO_CLASS, validate_args=False
        )
        self.no_rows = torch.zeros(0, classes)

    def compute(self) -> torch.Tensor:  # type: ignore[override]  # torchmetrics tells its parent's
        rows = dim_zero_cat(self.target).bincount(minlength=self.num_classes)
        counts = (rows > 0) & (rows < rows.sum())
        if not counts.any():
            return torch.tensor(float("nan"))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No (posi|nega)tive samples")
            return super().compute()[counts].mean()


class ClassAccuracy(MulticlassAccuracy):
    """torchmetrics' mean over classes of their accuracy, whose counts are taken from a confusion
    matrix of [classes, classes] that it makes at every update: here in memory that grows with the
    classes, not with their square. The same counts."""

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        known = target >= 0
        target = target.long()
        predicted, target = self._predicted(output, target)[known], target[known]
        told, truth, right = (
            each.bincount(minlength=len(self.tp))
            for each in (predicted, target, target[predicted == target])
        )
        wrong = told + truth - 2 * right
        self._update_state(right, told - right, len(target) - wrong - right, truth - right)

    def _predicted(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The class that each row counts as predicted: [n]."""
        return output.argmax(1)


class HitsAtK(ClassAccuracy):
    """The mean over classes of the share of rows whose class is among the k most likely.

    torchmetrics counts it from tensors of [n, classes] of whole numbers, four of them at once."""

    def _predicted(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        if self.top_k == 1:
            return super()._predicted(output, target)
        likely = output.topk(self.top_k, dim=1).indices
        return torch.where((likely == target[:, None]).any(1), target, likely[:, 0])


class BinnedRocAuc(Metric):
    """As ClassRocAuc for many classes, in memory that does not grow with the rows: [classes, BINS]
    counts. There are none before the first rows: torchmetrics keeps a copy of what a metric begins
    with, and of 20,000 classes that is 330 MB.

    Probabilities in one of BINS intervals of equal width in log-odds (0.04, from -20 to 20)
    count as equal."""

    full_state_update = False
    higher_is_better = True
    positive: torch.Tensor
    all: torch.Tensor

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.classes = classes
        for name in ("positive", "all"):
            self.add_state(name, torch.zeros(0, BINS, dtype=torch.long), dist_reduce_fx="sum")

    def _begin(self) -> None:
        if not len(self.all):
            shape = self.classes, BINS
            self.positive, self.all = (self.all.new_zeros(shape) for _ in range(2))

    def _sync_dist(self, *arguments: Any, **options: Any) -> None:
        self._begin()  # a worker without rows has counts of the others' shape, too
        super()._sync_dist(*arguments, **options)

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        self._begin()
        known = target >= 0
        if not known.all():
            output, target = output[known], target[known]
        target = target.long()
        # Some classes of all rows after others: what is made of a value on the way is more than the
        # value, so a batch of many classes would take gigabytes; and their counts lie in the cache.
        together = max(1, PART_VALUES // max(1, len(output)))
        for first, some in enumerate(output.split(together, dim=1)):
            start = first * together
            counted = slice(start, start + some.shape[1])
            # Of values that lie apart torch's logit has other last bits.
            odds = some.float().contiguous().logit(1e-9)
            place = (odds.clamp(-20.0, 20.0) + 20.0) * ((BINS - 1) / 40.0)
            cell = place.long() + torch.arange(some.shape[1], device=output.device) * BINS
            own = ((target >= counted.start) & (target < counted.stop)).nonzero()[:, 0]
            _count(self.all[counted], cell.flatten())
            _count(self.positive[counted], cell[own, target[own] - start])

    def compute(self) -> torch.Tensor:
        seen = self.positive.sum(1)
        pairs = seen.double() * (self.all.sum(1) - seen).double()
        some = pairs > 0  # of many classes most are in no row of a small split
        positive = self.positive[some].double()
        negative = self.all[some].double() - positive
        below = negative.cumsum(1) - negative
        area = (positive * (below + negative / 2)).sum(1)
        return (area / pairs[some]).mean().float()


def _count(counts: torch.Tensor, met: torch.Tensor) -> None:
    """Add 1 to each cell that was met, in place: bincount makes the counts anew, which of many
    classes are more than the values of an update.

    counts: [classes, BINS], contiguous. met: cells of them, [n], one as often as it was met."""
    one = torch.ones((), dtype=torch.long, device=met.device)
    counts.view(-1).scatter_add_(0, met, one.expand(met.numel()))
