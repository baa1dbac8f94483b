"""The losses of a batch's rows, output by output, and what a backward pass begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from distcore_core.contracts import Batch, FeatureSet
from distcore_core.errors import PluginBroken, UserError

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
        self._features = {each.name: each for each in features.outputs}
        self._checked = False
        self.autocast = autocast_of(options, device)
        scaled = options.precision == "fp16"
        self.scaler = torch.amp.GradScaler(device.type, enabled=True) if scaled else None
        self._name = type(module).__qualname__
        self._buffers = [
            (part._buffers, name, buffer, f"{prefix}.{name}".lstrip("."))
            for prefix, part in module.named_modules()
            for name, buffer in part._buffers.items()
            if buffer is not None
        ]
        self._forward: Any = torch.compile(module) if options.compile else module
        self._outputs: list[tuple[str, Any, Any, float]] = [
            (each.name, each.network().loss, features.metadata[each.name], each.loss_weight)
            for each in features.outputs
        ]

    def rows(self, batch: Batch) -> list[torch.Tensor]:
        """Each output's losses of the rows: float32 [B]."""
        with nullcontext() if self.autocast is None else self.autocast():
            logits = self._forward(batch)
        found = [
            loss(logits[name].float(), batch[name], metadata)
            for name, loss, metadata, _ in self._outputs
        ]
        if not self._checked and batch.rows > 1:
            self._check(found, batch.rows)
        return found

    def _check(self, found: Sequence[object], rows: int) -> None:
        """Look at the first losses: a mean, or a number for every pair of rows, would train too."""
        for name, given in zip(self._features, found, strict=True):
            if not isinstance(given, torch.Tensor) or given.numel() != rows:
                what, feature = type(given).__name__, self._features[name]
                if hasattr(given, "shape"):
                    what += f" of the shape {tuple(given.shape)}"
                section = getattr(feature.options, "loss", None)
                kind = getattr(section, "type", type(feature).__qualname__)
                raise PluginBroken(
                    f"The loss of {name} ({kind}) gave a {what} for {rows} rows, in place of a "
                    "tensor with a number for each row. Report this to its authors."
                )
        self._checked = True

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
        self.put_buffers_back()
        return total.detach()

    @torch.no_grad()
    def put_buffers_back(self) -> None:
        """Where a forward pass has laid another tensor in a buffer's place (`self.mean = …`), take
        its values into the buffer, which is the one that ranks agree on.

        Raises:
            UserError: It has another shape.
        """
        for places, name, buffer, path in self._buffers:
            found = places.get(name)
            if found is buffer:
                continue
            if found is None or found.shape != buffer.shape:
                shape = None if found is None else tuple(found.shape)
                raise UserError(
                    f"forward of {self._name} gave its buffer {path} the shape {shape} instead of "
                    f"{tuple(buffer.shape)}. Register it with the shape that it is to keep."
                )
            buffer.copy_(found)
            places[name] = buffer
