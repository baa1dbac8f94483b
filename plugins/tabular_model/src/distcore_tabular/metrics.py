"""Metrics by Ludwig's names: torchmetrics, right across workers, whatever share of the rows each
worker had.

Each takes (output, target): what `FeatureNetwork.output` gives, and the encoded target. Importing
this module imports torchmetrics (some tenths of a second), so it is imported when metrics are asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torchmetrics import (
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    Metric,
    R2Score,
)
from torchmetrics.classification import (
    BinaryAccuracy,
    BinaryAUROC,
    BinaryPrecision,
    BinaryRecall,
    BinarySpecificity,
    MulticlassAccuracy,
)

from distcore_tabular.class_metrics import (
    BinnedRocAuc,
    ClassAccuracy,
    ClassRocAuc,
    Gathered,
    HitsAtK,
)
from distcore_tabular.vocabulary import NO_CLASS

EXACT_CLASSES = 64
"""Up to this many classes roc_auc keeps every probability; beyond, it counts them in intervals."""

RowLoss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


class MeanLoss(Metric):
    """Mean over rows of a loss of (output, target), or the root of it. Rows whose target is
    NO_CLASS do not count.

    root: read by distcore_torch's scores, too, which take a mean from the logits, batch by batch.
    """

    full_state_update = False
    higher_is_better = False
    total: torch.Tensor
    count: torch.Tensor

    def __init__(self, rows: RowLoss, root: bool = False, skip_negative: bool = False) -> None:
        super().__init__()
        self.rows = rows
        self.root = root
        self.skip_negative = skip_negative
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        self.total += self.rows(output, target).double().sum()
        self.count += (target >= 0).sum() if self.skip_negative else target.shape[0]

    def compute(self) -> torch.Tensor:
        mean = self.total / self.count
        return (mean.sqrt() if self.root else mean).float()


class _Doubles:
    """Sums in float64: float32 sums of squares of a million rows far from zero say nothing about
    their spread."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.set_dtype(torch.float64)  # type: ignore[attr-defined]

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        super().update(output.double(), target.double())  # type: ignore[misc]


class MeanSquared(_Doubles, MeanSquaredError):
    """Mean squared error, or its root."""


class MeanAbsolute(_Doubles, MeanAbsoluteError):
    """Mean absolute error."""


class MeanAbsolutePercentage(_Doubles, MeanAbsolutePercentageError):
    """Mean absolute percentage error."""


class R2(_Doubles, R2Score):
    """Coefficient of determination; NaN of fewer than two rows, as in Ludwig. Of targets that are
    all alike 1 if they are predicted exactly, else 0, as in scikit-learn.

    mean, std: of the target. Sums of squares of values far from 0 say nothing about their spread.
    torchmetrics' own `compute` takes a spread or an error below 1e-4 for none, and the rows that
    are scored may spread less than that beside the column, which had an outlier elsewhere."""

    updates: torch.Tensor

    def __init__(self, mean: float = 0.0, std: float = 1.0) -> None:
        super().__init__()
        self.mean, self.std = mean, std
        self.add_state("updates", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        self.updates = self.updates + 1
        super().update(*((each.double() - self.mean) / self.std for each in (output, target)))

    def compute(self) -> torch.Tensor:
        if self.total < 2:
            return torch.tensor(float("nan"))
        squares, errors = self.sum_squared_error, self.residual
        spread = squares - self.sum_error * (self.sum_error / self.total)
        # Within an update torch adds pairwise, across updates one by one.
        rounding = (64 + 2 * self.updates) * torch.finfo(squares.dtype).eps * squares
        return (errors == 0).to(errors) if spread <= rounding else 1 - errors / spread


class _Thresholded:
    """A metric of predictions that are true from the threshold on (torchmetrics: above it). In
    Ludwig accuracy alone is, and the others go by 0.5."""

    def __init__(self, threshold: float) -> None:
        super().__init__(validate_args=False)  # type: ignore[call-arg]
        self.at = threshold

    def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
        super().update((output >= self.at).int(), target.int())  # type: ignore[misc]


class Accuracy(_Thresholded, BinaryAccuracy):
    """Share of rows that are predicted right."""


class Precision(_Thresholded, BinaryPrecision):
    """Share of rows predicted true that are true."""


class Recall(_Thresholded, BinaryRecall):
    """Share of true rows that are predicted true."""


class Specificity(_Thresholded, BinarySpecificity):
    """Share of false rows that are predicted false."""

    higher_is_better = True


class BinaryRocAuc(Gathered, BinaryAUROC):
    """Area under the ROC curve, exact."""

    no_rows = torch.zeros(0)


Makers = Mapping[str, Callable[[], Metric]]
"""{name: makes a fresh one}"""


def number(loss: RowLoss, root: bool, mean: float = 0.0, std: float = 1.0) -> Makers:
    """Metrics of a number, in the units of what they are given.

    loss: errors of rows; root: take the root of their mean. mean, std: of the target."""
    return {
        "loss": partial(MeanLoss, loss, root),
        "mean_squared_error": MeanSquared,
        "mean_absolute_error": MeanAbsolute,
        "root_mean_squared_error": partial(MeanSquared, squared=False),
        "root_mean_squared_percentage_error": partial(MeanLoss, _squared_percentages, root=True),
        "mean_absolute_percentage_error": MeanAbsolutePercentage,
        "r2": partial(R2, mean, std or 1.0),
    }


def binary(threshold: float, loss: RowLoss) -> Makers:
    """Metrics of a binary. loss: of rows, from probabilities."""
    return {
        "loss": partial(MeanLoss, loss),
        "accuracy": partial(Accuracy, threshold),
        "precision": partial(Precision, threshold),
        "recall": partial(Recall, threshold),
        "specificity": partial(Specificity, threshold),
        "roc_auc": partial(BinaryRocAuc, validate_args=False),
    }


def category(classes: int, top_k: int, loss: RowLoss) -> Makers:
    """Metrics of a category; hits_at_k of more than k classes only. loss: of rows, from
    probabilities.

    accuracy and hits_at_k are means over classes, as in Ludwig; accuracy_micro is the share of
    rows."""
    common: dict[str, Any] = {
        "num_classes": classes,
        "ignore_index": NO_CLASS,
        "validate_args": False,
    }
    return {
        "loss": partial(MeanLoss, loss, skip_negative=True),
        "accuracy": partial(ClassAccuracy, **common),
        "accuracy_micro": partial(MulticlassAccuracy, average="micro", **common),
        "roc_auc": partial(ClassRocAuc if classes <= EXACT_CLASSES else BinnedRocAuc, classes),
        "hits_at_k": partial(HitsAtK, top_k=top_k, **common),
    }


def _squared_percentages(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Ludwig's: a target of zero counts as 1e-4."""
    output, target = output.double(), target.double()
    return ((output - target) / (target + 1e-4 * (target == 0))).square()
