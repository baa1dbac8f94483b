"""Weights and the optimizer's state are finite, or nothing of them counts: no checkpoint, no
model, no best round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch

from distcore_core.errors import Diverged
from distcore_data.printable import listed
from distcore_torch.training.optim import state_tensors

if TYPE_CHECKING:
    from distcore_torch.training.checkpoint import Checkpoint
    from distcore_torch.training.strategy import Strategy

ADVICE = "Lower trainer.learning_rate, or set trainer.gradient_clipping."
"""What to do about weights that grew beyond all bounds."""


class Watch:
    """Looks at what a run would save. module, optimizer: of this rank. outputs: the output
    features' names.

    A buffer that is not finite from the beginning (a mask of infinities) may stay so."""

    def __init__(
        self,
        module: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        strategy: Strategy,
        outputs: Sequence[str],
    ) -> None:
        self._module, self._optimizer, self._strategy, self._outputs = (
            module,
            optimizer,
            strategy,
            outputs,
        )
        self._masks = frozenset(not_finite(module.named_buffers()))

    def check(self, since: int, step: int, sums: Sequence[float]) -> None:
        """Raise Diverged, in every rank, where something of one is not finite.

        since, step: the steps whose losses were summed; sums: this rank's sum of losses for each
            output feature."""
        tensors = (*self._module.state_dict().items(), *state_tensors(self._optimizer))
        ranks = self._strategy.gather(
            ([name for name in not_finite(tensors) if name not in self._masks], list(sums))
        )
        where = next((rank for rank, (names, _) in enumerate(ranks) if names), None)
        if where is None:
            return
        totals = [sum(column) for column in zip(*(each for _, each in ranks), strict=True)]
        lost = [
            f"{of_loss(name, total, since, step)}. "
            for name, total in zip(self._outputs, totals, strict=True)
            if not math.isfinite(total)
        ]
        bad = listed(ranks[where][0], 1) + (f" of rank {where}" if len(ranks) > 1 else "")
        raise Diverged(
            f"{lost[0] if lost else ''}After step {step} the weights are not finite ({bad}), and "
            f"they are not saved. {ADVICE}"
        )

    def flaw(self, found: Checkpoint) -> str:
        """What speaks against a whole checkpoint: NaN in it, from a time when nobody looked;
        else "". What callbacks keep is theirs: the best value so far begins as infinity."""
        named = (
            (name.removeprefix("weights/").removeprefix("best/"), each)
            for name, each in found.tensors.items()
            if not name.startswith("callbacks/")
        )
        names = [name for name in not_finite(named) if name not in self._masks]
        return f"{listed(names, 1)} in it holds NaN or infinity" if names else ""


@torch.no_grad()
def not_finite(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[str]:
    """The names of floating-point tensors that hold NaN or infinity, in their order on each device.

    A sum of each tells nearly always that there are none: a pass at the speed of memory, for which
    a GPU is waited for once. A sum of large numbers may overflow, so whatever it accuses is
    looked at number by number."""
    parts: dict[torch.device, list[tuple[str, torch.Tensor]]] = {}
    for name, each in tensors:
        if each.is_floating_point() and each.numel():
            parts.setdefault(each.device, []).append((name, each))
    found = []
    for part in parts.values():
        fine = torch.stack([each.sum().double() for _, each in part]).isfinite().tolist()
        accused = [pair for pair, clean in zip(part, fine, strict=True) if not clean]
        found += [name for name, each in accused if not bool(each.isfinite().all())]
    return found


def of_loss(name: str, loss: float, since: int, step: int) -> str:
    """The beginning of a sentence about a loss that is not finite."""
    return f"The loss of {name} became {loss} between steps {since} and {step}"
