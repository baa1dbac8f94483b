"""Sharpness-aware minimisation (Foret et al., 2021, arXiv:2010.01412)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from distcore_torch import Callback


class Sam(Callback):
    """Each step takes the gradients at the point that is `radius` from the weights, up the gradient
    of the global batch: two backward passes a step. module: what is trained."""

    def __init__(self, module: torch.nn.Module, radius: float) -> None:
        self.radius = radius
        self.weights = [each for each in module.parameters() if each.requires_grad]

    def around_gradients(self, compute: Callable[[], None]) -> None:
        """Gradients of the shifted weights; the weights are as before, to the bit."""
        compute()
        pairs = [(each, each.grad) for each in self.weights if each.grad is not None]
        before = [each.detach().clone() for each, _ in pairs]
        norm = torch.nn.utils.get_total_norm([gradient for _, gradient in pairs])
        with torch.no_grad():
            for each, gradient in pairs:
                each.add_(gradient * (self.radius / (norm + 1e-12)))
        compute()
        with torch.no_grad():
            for (each, _), old in zip(pairs, before, strict=True):
                each.copy_(old)
