"""One update of the weights: forward and backward of this rank's rows, gradients of the global batch, optimizer.

The gradient is that of the mean loss over the rows of the global batch, whatever each rank's share of them is: every
rank divides its sum of losses by the global number of rows, and gradients are summed. A rank without rows takes part
with zeros. Nothing here looks at a value, logs, or calls a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from distcore_core.contracts import Batch, FeatureSet
from distcore_torch.training.optim import Clipper, Regularizer, make_optimizer

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.strategy import Strategy

MASK = (1 << 64) - 1
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}


def random_key(seed: int, step: int, lane: int) -> int:
    """32 bits for the random numbers of a step: SplitMix64 (Steele et al., 2014) over seed, step and first lane."""
    value = 0
    for part in (seed, step, lane):
        value = (value + part + 0x9E3779B97F4A7C15) & MASK
        value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
        value ^= value >> 31
    return value & 0xFFFFFFFF


def autocast_of(options: TrainerOptions, device: torch.device) -> Callable[[], Any] | None:
    """Makes the context of a forward pass in mixed precision; None: there is none."""
    dtype = PRECISIONS.get(options.precision)
    if dtype is None:
        return None
    return lambda: torch.autocast(device.type, dtype)


def slices(batch: Batch, rows: int) -> Iterator[Batch]:
    """The batch in pieces of at most `rows` rows, as views."""
    for start in range(0, batch.rows, rows):
        yield batch.part(start, min(start + rows, batch.rows))


class Stepper:
    """Makes steps. module: on the strategy's device, prepared by it. sums: float64 [outputs], losses summed over rows.

    micro_rows: most rows of one forward pass. seed, lane: random numbers (dropout) of a step are keyed by them.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        features: FeatureSet,
        options: TrainerOptions,
        strategy: Strategy,
        *,
        learning_rate: float,
        micro_rows: int,
        seed: int,
        lane: int,
    ) -> None:
        self.module, self.strategy, self.micro_rows = module, strategy, micro_rows
        self.parameters = [each for each in module.parameters() if each.requires_grad]
        self.optimizer = make_optimizer(options.optimizer, self.parameters, learning_rate)
        self.autocast = autocast_of(options, strategy.device)
        scaled = options.precision == "fp16"
        self.scaler = torch.amp.GradScaler(strategy.device.type, enabled=True) if scaled else None
        self.last_loss: torch.Tensor | float | None = None
        self.sums = torch.zeros(len(features.outputs), dtype=torch.float64, device=strategy.device)
        self._forward: Any = torch.compile(module) if options.compile else module
        self._clip = Clipper(options.gradient_clipping)
        self._regularize = Regularizer(options.regularization_type, options.regularization_lambda)
        self._outputs: list[tuple[str, Any, Any, float]] = [
            (each.name, each.network().loss, features.metadata[each.name], each.loss_weight)
            for each in features.outputs
        ]
        self._seed, self._lane, self._world = seed, lane, strategy.rank.world
        self._generators = [torch.default_generator]
        if strategy.device.type == "cuda":
            self._generators.append(torch.cuda.default_generators[strategy.device.index])
        self._line_search = isinstance(self.optimizer, torch.optim.LBFGS)

    def step(self, batch: Batch, global_rows: int, step: int, stop: bool) -> bool:
        """Update the weights by one global batch, of which this rank has `batch`; True: some rank wants to stop."""
        key = random_key(self._seed, step, self._lane)
        if self._line_search:
            return self._search(batch, global_rows, key, stop)
        self._reseed(key)
        loss = self._backward(batch, 1.0 / global_rows, self.sums)
        # For people: about the mean over the rows of all ranks.
        self.last_loss = loss if self._world == 1 else loss * self._world
        asked = self.strategy.reduce(stop)
        if self.scaler is not None:
            self.scaler.unscale_(self.optimizer)
        if self._regularize.active:
            self._regularize(self.parameters)
        if self._clip.active:
            self._clip(self.parameters)
        if self.scaler is not None:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()
        self._forget_gradients()
        return asked

    def _forget_gradients(self) -> None:
        # The backward pass then hands its own tensors over instead of adding to ours.
        for parameter in self.parameters:
            parameter.grad = None

    def _reseed(self, key: int) -> None:
        for generator in self._generators:
            generator.manual_seed(key)

    def _backward(self, batch: Batch, scale: float, sums: torch.Tensor) -> torch.Tensor | float:
        """Gradients of `scale` times this rank's sum of losses; adds the sums of each output to `sums`."""
        if not batch.rows:
            return 0.0
        if batch.rows <= self.micro_rows:
            return self._backward_piece(batch, scale, sums)
        total: torch.Tensor | float = 0.0
        for piece in slices(batch, self.micro_rows):
            total = total + self._backward_piece(piece, scale, sums)
        return total

    def _backward_piece(self, batch: Batch, scale: float, sums: torch.Tensor) -> torch.Tensor:
        with nullcontext() if self.autocast is None else self.autocast():
            logits = self._forward(batch)
        parts = [loss(logits[name].float(), batch[name], metadata).sum() for name, loss, metadata, _ in self._outputs]
        total = parts[0] * (self._outputs[0][3] * scale)
        for part, output in zip(parts[1:], self._outputs[1:], strict=True):
            total = total + part * (output[3] * scale)
        (total if self.scaler is None else self.scaler.scale(total)).backward()
        sums += (parts[0] if len(parts) == 1 else torch.stack(parts)).detach()
        return total.detach()

    def _search(self, batch: Batch, global_rows: int, key: int, stop: bool) -> bool:
        """L-BFGS: each evaluation of the loss is a whole backward pass over the same rows and random numbers.

        As in Ludwig, gradients are not clipped: a line search needs those of the loss it sees."""
        asked, first = False, True

        def closure() -> torch.Tensor:
            nonlocal asked, first
            self._forget_gradients()
            self._reseed(key)
            sums = self.sums if first else torch.zeros_like(self.sums)
            loss = self._backward(batch, 1.0 / global_rows, sums)
            asked |= self.strategy.reduce(stop and first)
            first, self.last_loss = False, loss
            self._regularize(self.parameters)
            mine = torch.as_tensor(loss, dtype=torch.float64, device=self.strategy.device)
            return self.strategy.sum(mine.reshape(1))[0] + self._regularize.penalty(self.parameters)

        self.optimizer.step(closure)  # type: ignore[arg-type]  # L-BFGS takes a tensor as well as a float
        self._forget_gradients()
        return asked
