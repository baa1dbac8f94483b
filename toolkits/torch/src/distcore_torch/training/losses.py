"""The losses of a batch's rows, output by output, and what a backward pass begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from distcore_core.contracts import Batch, FeatureSet

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast_of(options: TrainerOptions, device: torch.device) -> Callable[[], Any] | None:
    """Makes the context of a forward pass in mixed precision; None: there is none."""
    dtype = PRECISIONS.get(options.precision)
    if dtype is None:
        return None
    return lambda: torch.autocast(device.type, dtype)


class Losses:
    """The forward pass and the losses of a module.

    Args:
        module: Takes a batch, gives {output feature: logits}.
        features: Fitted; their outputs have losses.
        options: For compiling and mixed precision.
        device: Where the module is.

    Attributes:
        scaler: Scales losses against underflow in float16; None in other precisions.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        features: FeatureSet,
        options: TrainerOptions,
        device: torch.device,
    ) -> None:
        self.count = len(features.outputs)
        self.autocast = autocast_of(options, device)
        scaled = options.precision == "fp16"
        self.scaler = torch.amp.GradScaler(device.type, enabled=True) if scaled else None
        self._forward: Any = torch.compile(module) if options.compile else module
        self._outputs: list[tuple[str, Any, Any, float]] = [
            (each.name, each.network().loss, features.metadata[each.name], each.loss_weight)
            for each in features.outputs
        ]

    def rows(self, batch: Batch) -> list[torch.Tensor]:
        """Each output's losses of the rows: float32 [B]."""
        with nullcontext() if self.autocast is None else self.autocast():
            logits = self._forward(batch)
        return [
            loss(logits[name].float(), batch[name], metadata)
            for name, loss, metadata, _ in self._outputs
        ]

    def total(self, sums: Sequence[torch.Tensor], scale: float) -> torch.Tensor:
        """`scale` times the weighted sum over outputs of their sums of losses."""
        total = sums[0] * (self._outputs[0][3] * scale)
        for part, output in zip(sums[1:], self._outputs[1:], strict=True):
            total = total + part * (output[3] * scale)
        return total

    def backward(self, sums: Sequence[torch.Tensor], scale: float) -> torch.Tensor:
        """Gradients of `total`; returns it."""
        total = self.total(sums, scale)
        (total if self.scaler is None else self.scaler.scale(total)).backward()
        return total.detach()
