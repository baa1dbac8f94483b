"""One update of the weights: gradients of the global batch, then the optimizer.

The gradient is that of the mean loss over the rows of the global batch, whatever each rank's share
of them is. Nothing here looks at a value, logs, or calls a hook.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from distcore_core.contracts import Batch, FeatureSet
from distcore_core.errors import UserError
from distcore_torch.training.exact.gradients import PartGradients
from distcore_torch.training.gradients import Gradients, RankGradients
from distcore_torch.training.losses import Losses
from distcore_torch.training.optim import Clipper, Regularizer, make_optimizer, on_device
from distcore_torch.training.replay import Replay

if TYPE_CHECKING:
    from distcore_torch.train_options import TrainerOptions
    from distcore_torch.training.strategy import Strategy


class Stepper:
    """Makes steps.

    Args:
        module: On the strategy's device, prepared by it.
        features: Fitted.
        options: Of the `trainer` section.
        strategy: Of this rank, set up.
        learning_rate: Of the first step.
        micro_rows: Most rows of one forward pass.
        seed: Of the run; random numbers (dropout) of a step are keyed by it.
        around: What is around the gradients of a step (`Callback.around_gradients`), or None.

    Attributes:
        sums: float64 [parts, outputs]: losses summed over rows, for each part of the global batch
            that this rank computes by itself (one, unless training is exact).
        before_update: Called right before weights and optimizer state change.
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
        around: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.module, self.strategy = module, strategy
        self.parameters = [each for each in module.parameters() if each.requires_grad]
        self.optimizer = make_optimizer(options.optimizer, self.parameters, learning_rate)
        self.losses = Losses(module, features, options, strategy.device)
        kind = PartGradients if options.exact else RankGradients
        self.gradients: Gradients = kind(
            module, self.losses, options, strategy, micro_rows=micro_rows, seed=seed
        )
        self.sums = self.gradients.sums
        self.last_loss: torch.Tensor | float | None = None
        self._clip = Clipper(options.gradient_clipping)
        self._regularize = Regularizer(options.regularization_type, options.regularization_lambda)
        self._world = strategy.rank.world
        self._line_search = isinstance(self.optimizer, torch.optim.LBFGS)
        self._around = around
        self.before_update: Callable[[], None] = _nothing
        self._replay = self._replayed(options)
        if around is not None and self._line_search:
            raise UserError(
                "trainer.callbacks has one that computes gradients otherwise, and "
                "trainer.optimizer lbfgs computes them as often as its line search needs. "
                "Leave out the callback, or choose another optimizer."
            )

    def step(self, batch: Batch, global_rows: int, step: int, stop: bool) -> bool:
        """Update the weights by one global batch, of which this rank has `batch`; True: some
        rank wants to stop."""
        if self._line_search:
            return self._search(batch, global_rows, step, stop)
        if self._replay is not None:
            if self._replay.ready(batch, global_rows):
                self.before_update()
                self.last_loss = self._replay.step(batch, global_rows, step)
                return stop
            with self._replay.watching(batch, global_rows):
                return self._launched(batch, global_rows, step, stop)
        return self._launched(batch, global_rows, step, stop)

    def _launched(self, batch: Batch, global_rows: int, step: int, stop: bool) -> bool:
        """The step as it is written."""
        if self._around is None:
            loss = self.gradients.backward(batch, 1.0 / global_rows, step)
            # For people: about the mean over the rows of all ranks.
            self.last_loss = loss if self._world == 1 else loss * self._world
            asked = self.gradients.reduce(stop)
        else:
            passes = _Passes(self, batch, global_rows, step, stop)
            self._around(passes)
            self.unscale(back=True)
            asked = passes.asked
        self.before_update()
        self._update()
        return asked

    def _update(self) -> None:
        """Change the weights by their gradients, and forget these."""
        scaler = self.losses.scaler
        if scaler is not None:
            scaler.unscale_(self.optimizer)
        if self._regularize.active:
            self._regularize(self.parameters)
        if self._clip.active:
            self._clip(self.parameters)
        if scaler is not None:
            scaler.step(self.optimizer)
            scaler.update()
        else:
            self.optimizer.step()
        self.forget_gradients()

    def _replayed(self, options: TrainerOptions) -> Replay | None:
        """What replays the steps; None: they are launched kernel by kernel."""
        gradients = self.gradients
        if (
            not options.replay
            or self.strategy.device.type != "cuda"
            or self._world > 1
            or options.callbacks  # they may lay other weights in place of these
            or self.losses.scaler is not None  # it waits for the GPU in each step
            or options.compile
            or not getattr(self.module, "replayable", False)
            or not on_device(self.optimizer)
            or not isinstance(gradients, RankGradients)
        ):
            return None

        def compute(batch: Batch, scale: float) -> torch.Tensor | float:
            loss = gradients.compute(batch, scale)
            self._update()
            return loss

        return Replay(compute, gradients.seed, self.optimizer)

    def check_parameters(self) -> None:
        """Raise UserError if others are to be trained by now than when training began: optimizer
        and ranks do not know of it."""
        known = {id(each) for each in self.parameters}
        for name, each in self.module.named_parameters():
            if each.requires_grad != (id(each) in known):
                raise UserError(
                    f"{name} was {'un' * each.requires_grad}frozen during training, which does not "
                    "reach the optimizer: requires_grad counts as it is when training begins. "
                    "Leave it True, and let a callback set grad to None after compute() in "
                    "around_gradients for as long as the weights are to stay (docs/plugins.md)."
                )

    def forget_gradients(self) -> None:
        """Before another backward pass."""
        # The backward pass then hands its own tensors over instead of adding to ours.
        for parameter in self.parameters:
            parameter.grad = None

    def unscale(self, back: bool = False) -> None:
        """Take the factor of a float16 loss out of the gradients, or put it back: it is a power of
        two."""
        scaler = self.losses.scaler
        given = [each.grad for each in self.parameters if each.grad is not None]
        if scaler is not None and given:
            scale = scaler.get_scale()
            torch._foreach_mul_(given, scale if back else 1 / scale)

    def _search(self, batch: Batch, global_rows: int, step: int, stop: bool) -> bool:
        """L-BFGS: each evaluation of the loss is a whole backward pass over the same rows and
        random numbers.

        As in Ludwig, gradients are not clipped: a line search needs those of the loss it sees."""
        passes = _Passes(self, batch, global_rows, step, stop)

        def closure() -> torch.Tensor:
            passes()
            self._regularize(self.parameters)
            return self.gradients.global_loss() + self._regularize.penalty(self.parameters)

        self.before_update()
        self.optimizer.step(closure)  # type: ignore[arg-type]  # L-BFGS takes a tensor as well as a float
        self.forget_gradients()
        return passes.asked


def _nothing() -> None:
    pass


class _Passes:
    """Backward passes over one global batch, one a call, each at the weights of its moment.

    asked: whether some rank wants to stop."""

    def __init__(
        self, stepper: Stepper, batch: Batch, global_rows: int, step: int, stop: bool
    ) -> None:
        self._stepper, self._batch, self._scale = stepper, batch, 1.0 / global_rows
        self._step, self._stop, self._first = step, stop, True
        self.asked = False

    def __call__(self) -> None:
        stepper, first = self._stepper, self._first
        stepper.forget_gradients()
        loss = stepper.gradients.backward(self._batch, self._scale, self._step, counts=first)
        if first:
            world = stepper.strategy.rank.world
            stepper.last_loss = loss if world == 1 else loss * world
        self.asked |= stepper.gradients.reduce(self._stop and first)
        stepper.unscale()
        self._first = False
