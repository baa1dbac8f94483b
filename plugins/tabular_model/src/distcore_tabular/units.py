"""The three units of a number target: standard deviations (logits), codes (the cache), its own
(people).

All is elementwise, so a row's bits do not depend on the rows beside it, nor on the number of
workers. Whole values are moved in float64: in float32 a target far from 0 would lose its last
digits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from distcore_core.contracts import JSON


def standardised(codes: torch.Tensor, metadata: JSON) -> torch.Tensor:
    """Codes [B] as standard deviations from the mean, float32 [B]."""
    mean, std = metadata["standard"]["mean"], metadata["standard"]["std"]
    if mean == 0.0 and std == 1.0:
        return codes.float()
    return ((codes.double() - mean) / std).float()


def codes_of(logits: torch.Tensor, metadata: JSON) -> torch.Tensor:
    """Standard deviations from the mean [B] as codes, float32 [B]."""
    mean, std = metadata["standard"]["mean"], metadata["standard"]["std"]
    if mean == 0.0 and std == 1.0:
        return logits
    return (logits.double() * std + mean).float()


def own(codes: torch.Tensor, metadata: JSON) -> torch.Tensor:
    """Codes [B] in the target's own units, float64 [B]."""
    codes = codes.double()
    if metadata["normalization"] == "log1p":
        return codes.expm1()
    return codes * metadata["scale"] + metadata["shift"]


def own_of_standardised(values: torch.Tensor, metadata: JSON) -> torch.Tensor:
    """Standard deviations from the mean [B] in the target's own units, float64 [B]."""
    mean, std = metadata["standard"]["mean"], metadata["standard"]["std"]
    return own(values.double() * std + mean, metadata)


def own_targets(codes: torch.Tensor, metadata: JSON) -> torch.Tensor:
    """Targets' codes [B] in the target's own units, float64 [B]; a target of 0 is 0 there, and no
    remainder of rounding, by which a percentage would be divided."""
    return own(codes, metadata).masked_fill(codes == _code_of_zero(metadata), 0.0)


def own_targets_of_standardised(values: torch.Tensor, metadata: JSON) -> torch.Tensor:
    """As `own_targets`, of standard deviations from the mean [B]."""
    zero = standardised(torch.tensor(_code_of_zero(metadata)), metadata)
    return own_of_standardised(values, metadata).masked_fill(values == zero.item(), 0.0)


def in_own_units(metric: Any, metadata: JSON) -> Any:
    """The metric, which from now on is updated with values in the target's own units."""
    metric.update = _Decoded(metric.update, metadata)
    return metric


class _Decoded:
    """`Metric.update` behind the decoding of what it is given: codes [B], twice."""

    def __init__(self, update: Callable[..., None], metadata: JSON) -> None:
        self.update = update
        self.metadata = metadata

    def __call__(self, output: torch.Tensor, target: torch.Tensor) -> None:
        self.update(own(output, self.metadata), own_targets(target, self.metadata))


def _code_of_zero(metadata: JSON) -> float:
    """How a 0 of the column is encoded: a float32."""
    if metadata["normalization"] == "log1p":
        return 0.0
    return float(torch.tensor((0.0 - metadata["shift"]) / metadata["scale"]))
