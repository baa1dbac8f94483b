"""An exponential moving average of the weights: what is evaluated, picked as best, and saved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from distcore_torch import Callback


class Ema(Callback):
    """average = decay * average + (1 - decay) * weights after each step, from the first weights on.

    Running statistics of batch norm are evaluated as they are. module: what is trained.
    """

    def __init__(self, module: torch.nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {n: each for n, each in module.named_parameters() if each.requires_grad}
        self.averages = {name: each.detach().clone() for name, each in self.weights.items()}

    @torch.no_grad()
    def after_step(self, step: int) -> None:
        """Move the averages to the weights."""
        torch._foreach_lerp_(
            list(self.averages.values()), list(self.weights.values()), 1 - self.decay
        )

    @contextmanager
    def around_evaluation(self) -> Iterator[None]:
        """The module has the averages."""
        trained = {name: each.detach().clone() for name, each in self.weights.items()}
        self._set(self.averages)
        try:
            yield
        finally:
            self._set(trained)

    def state(self) -> Mapping[str, torch.Tensor]:
        """The averages."""
        return self.averages

    @torch.no_grad()
    def load_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Go on with these averages."""
        for name, each in self.averages.items():
            each.copy_(state[name])

    @torch.no_grad()
    def _set(self, values: Mapping[str, torch.Tensor]) -> None:
        for name, each in self.weights.items():
            each.copy_(values[name])
