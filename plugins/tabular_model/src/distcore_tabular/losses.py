"""Losses row by row, [B]: Ludwig's names; the trainer sums rows and divides.

Everything is computed in float32, whatever the logits are in.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F

from distcore_core.contracts import JSON
from distcore_tabular.options_parts import NumberLossOptions
from distcore_tabular.units import own_of_standardised, own_targets_of_standardised

PERCENTAGES = ("mean_absolute_percentage_error", "root_mean_squared_percentage_error")
TINY = 1e-12
"""Keeps the square root of an error of zero differentiable."""


def number(
    prediction: torch.Tensor, target: torch.Tensor, options: Any, metadata: JSON
) -> torch.Tensor:
    """Losses of numbers, [B]. prediction, target: [B] in standard deviations from the mean.

    A root (root_mean_…) is of a batch, not of a row: a row's loss is then its squared error over
    the batch's root, so that the rows' mean, and its gradient, are those of the root.
    """
    rows = number_errors(prediction, target, options, metadata)
    if is_root(options):
        return rows / rows.mean().clamp_min(TINY).sqrt()
    return rows


def number_errors(
    prediction: torch.Tensor, target: torch.Tensor, options: Any, metadata: JSON
) -> torch.Tensor:
    """Errors of numbers, [B], before a root is taken; the mean over any rows is meaningful.

    Percentages are of the target's own values, and delta of huber is in encoded units, as in
    Ludwig.
    """
    prediction, target = prediction.float(), target.float()
    kind = options.type
    if kind == "huber":
        delta = options.delta / metadata["standard"]["std"]
        return F.huber_loss(prediction, target, reduction="none", delta=delta)
    if kind == "mean_absolute_error":
        return (prediction - target).abs()
    if kind in PERCENTAGES:
        said = own_of_standardised(prediction, metadata)
        true = own_targets_of_standardised(target, metadata)
        return _percentage_errors(said, true, kind).float()
    return (prediction - target).square()


def _percentage_errors(prediction: torch.Tensor, target: torch.Tensor, kind: str) -> torch.Tensor:
    """prediction, target: [B] in the target's own units."""
    if kind == "mean_absolute_percentage_error":
        # The smallest denominator is that of torchmetrics, which Ludwig calls.
        return (prediction - target).abs() / target.abs().clamp_min(1.17e-6)
    return ((prediction - target) / (target + 1e-4 * (target == 0))).square()


def is_root(options: Any) -> bool:
    """Whether the loss is the square root of a mean over rows: one of our own whose name says
    so."""
    return isinstance(options, NumberLossOptions) and options.type.startswith("root_")


def binary(
    logits: torch.Tensor, target: torch.Tensor, options: Any, metadata: JSON | None = None
) -> torch.Tensor:
    """Losses of a binary, [B]. logits: [B]; target: [B] of 0 and 1. metadata is not needed."""
    if options.type != "focal":
        return binary_weighted_cross_entropy(logits, target, options)
    target = target.float()
    rows = F.binary_cross_entropy_with_logits(logits.float(), target, reduction="none")
    return (options.alpha * target + (1.0 - options.alpha) * (1.0 - target)) * _focal(
        rows, options.gamma
    )


def category(
    logits: torch.Tensor, target: torch.Tensor, options: Any, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Losses of a category, [B]; 0 if the target is negative (no class).

    logits: [B, classes]; target: codes [B]; weights: of the classes, [classes]."""
    logits, target = logits.float(), target.long()
    rows = F.cross_entropy(logits, target.clamp_min(0), weight=weights, reduction="none")
    if options.type == "focal":
        rows = _focal(rows, options.gamma)
    elif options.type == "softmax_cross_entropy":
        rows = _unsure(logits, rows, options)
    else:
        rows = rows + options.epsilon * (1.0 - (-rows).exp())
    return rows * (target >= 0)


def binary_weighted_cross_entropy(
    logits: torch.Tensor, target: torch.Tensor, options: Any
) -> torch.Tensor:
    """Cross entropy of a binary, [B]. logits: [B]; target: [B] of 0 and 1.

    The confidence penalty is a row's own, a (log 2 - entropy) / log 2, as Ludwig documents it."""
    logits, target = logits.float(), target.float()
    rows = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    if options.positive_class_weight is not None:
        rows = rows * (1.0 + (options.positive_class_weight - 1.0) * target)
    rows = _robust(rows, options.robust_lambda, 2)
    if options.confidence_penalty:
        entropy = F.binary_cross_entropy_with_logits(logits, logits.sigmoid(), reduction="none")
        rows = rows + options.confidence_penalty * (1.0 - entropy / math.log(2.0))
    return rows


def _unsure(logits: torch.Tensor, rows: torch.Tensor, options: Any) -> torch.Tensor:
    """Cross entropies of a category, as labels that may be wrong and too much confidence change
    them."""
    classes = logits.shape[-1]
    rows = _robust(rows, options.robust_lambda, classes)
    if options.confidence_penalty:
        log_p = logits.log_softmax(-1)
        entropy = -(log_p.exp() * log_p).sum(-1)
        rows = rows + options.confidence_penalty * (1.0 - entropy / math.log(classes))
    return rows


def _focal(rows: torch.Tensor, gamma: float) -> torch.Tensor:
    """(1 - p)^gamma times the cross entropy -log p. The base is kept above 0, where a root has
    no gradient."""
    return (1.0 - (-rows).exp()).clamp_min(TINY) ** gamma * rows


def _robust(rows: torch.Tensor, robust_lambda: float, classes: int) -> torch.Tensor:
    """(1 - robust_lambda) loss + robust_lambda / classes: Ludwig's loss for noisy labels."""
    return (1.0 - robust_lambda) * rows + robust_lambda / classes if robust_lambda else rows


class CategoryLoss:
    """The losses of a category, (logits, target, metadata) → [B], with the metadata's weights of
    the classes."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self._weights: tuple[Any, torch.Tensor] | None = None

    def __call__(self, logits: torch.Tensor, target: torch.Tensor, metadata: Any) -> torch.Tensor:
        return category(logits, target, self.options, self._class_weights(metadata, logits))

    def _class_weights(self, metadata: Any, logits: torch.Tensor) -> torch.Tensor | None:
        """The weights on the logits' device, kept for the next batch."""
        if not metadata["class_weights"]:
            return None
        kept = self._weights
        if kept is None or kept[0] is not metadata or kept[1].device != logits.device:
            weights = torch.tensor(
                metadata["class_weights"], dtype=torch.float32, device=logits.device
            )
            kept = self._weights = (metadata, weights)
        return kept[1]
