"""Gradients of the mean loss over a global batch: this rank's share of the rows at once, summed
over the ranks.

Every rank divides its sum of losses by the global number of rows, and gradients are summed. A rank
without rows takes part with zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import torch

from distcore_core.contracts import Batch
from distcore_torch.training.determinism import drawing
from distcore_torch.training.random_numbers import random_key

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.losses import Losses
    from distcore_torch.training.strategy import Strategy


class Gradients(Protocol):
    """How a step comes to the gradients of a global batch.

    Attributes:
        sums: float64 [parts, outputs]: losses summed over rows, for each part that this rank
            computes by itself.
    """

    sums: torch.Tensor

    def backward(
        self, batch: Batch, scale: float, step: int, *, counts: bool = True
    ) -> torch.Tensor | float:
        """Compute this rank's share of the gradients of `scale` times the sum of losses.

        Args:
            batch: This rank's rows.
            scale: Usually one over the rows of the global batch.
            step: Of the run; random numbers are keyed by it.
            counts: Add the losses to `sums`.

        Returns:
            That loss of these rows.
        """
        ...

    def reduce(self, stop: bool) -> bool:
        """Give parameters the gradients of the global batch, the same bits in every rank.

        Args:
            stop: This rank wants to stop.

        Returns:
            Whether any rank does.
        """
        ...

    def global_loss(self) -> torch.Tensor:
        """The loss of the last backward pass over all ranks: float64, the same bits in every
        rank."""
        ...

    def settle(self) -> None:
        """The module's buffers were changed from outside: take them as what all ranks begin
        with."""
        ...

    def close(self) -> None:
        """Let go of memory that is shared with other ranks."""
        ...


def slices(batch: Batch, rows: int) -> Iterator[Batch]:
    """The batch in pieces of at most `rows` rows, as views."""
    for start in range(0, batch.rows, rows):
        yield batch.part(start, min(start + rows, batch.rows))


class RankGradients:
    """`Gradients` of each rank's rows at once.

    Args:
        module: On the strategy's device, prepared by it.
        losses: Of the module.
        options: Of the `trainer` section.
        strategy: Of this rank, set up.
        micro_rows: Most rows of one forward pass.
        seed: Of the run; random numbers of a step are keyed by it, the step and the rank.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        losses: Losses,
        options: TrainerOptions,
        strategy: Strategy,
        *,
        micro_rows: int,
        seed: int,
    ) -> None:
        self._losses, self._strategy, self._micro_rows = losses, strategy, micro_rows
        self.sums = torch.zeros(1, losses.count, dtype=torch.float64, device=strategy.device)
        self._own_sums = self.sums[0]
        self._seed = seed
        self._loss: torch.Tensor | float = 0.0
        self._generators = [torch.default_generator]
        if strategy.device.type == "cuda":
            self._generators.append(torch.cuda.default_generators[strategy.device.index])

    def backward(
        self, batch: Batch, scale: float, step: int, *, counts: bool = True
    ) -> torch.Tensor | float:
        with drawing:
            self.seed(step)
            return self.compute(batch, scale, counts)

    def seed(self, step: int) -> None:
        """Set the random numbers of a step."""
        key = random_key(self._seed, step, self._strategy.rank.index)
        for generator in self._generators:
            generator.manual_seed(key)

    def compute(self, batch: Batch, scale: float, counts: bool = True) -> torch.Tensor | float:
        """`backward`, with the random numbers as they are."""
        sums = self._own_sums if counts else torch.zeros_like(self._own_sums)
        loss: torch.Tensor | float | None = None
        if batch.rows:
            for piece in (
                (batch,) if batch.rows <= self._micro_rows else slices(batch, self._micro_rows)
            ):
                parts = [rows.sum() for rows in self._losses.rows(piece)]
                own = self._losses.backward(parts, scale)
                loss = own if loss is None else loss + own
                sums += (parts[0] if len(parts) == 1 else torch.stack(parts)).detach()
        self._loss = 0.0 if loss is None else loss
        return self._loss

    def reduce(self, stop: bool) -> bool:
        return self._strategy.reduce(stop)

    def global_loss(self) -> torch.Tensor:
        mine = torch.as_tensor(self._loss, dtype=torch.float64, device=self._strategy.device)
        return self._strategy.sum(mine.reshape(1))[0]

    def settle(self) -> None:
        """`Strategy.prepare` has done it."""

    def close(self) -> None:
        """Nothing is held."""
