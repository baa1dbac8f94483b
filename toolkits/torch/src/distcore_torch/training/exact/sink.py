"""Where the gradients of parts are added up while a backward pass goes over all of their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from distcore_torch.training.exact.cut import NotByParts
from distcore_torch.training.exact.tree import lay_tree_sum

Slot = Callable[[torch.Tensor, int], torch.Tensor]
"""(parameter, number of the branch) → where its sum is to be laid."""


class Sink:
    """Lays gradients of parts down, as sums of branches.

    Args:
        slot: Where each of them goes.
        spans: Which of the rank's parts make up each of its branches.
    """

    def __init__(self, slot: Slot, spans: Sequence[range]) -> None:
        self._slot, self._spans = slot, spans
        self._proxies: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self.written: set[int] = set()

    def lay(self, parameter: torch.Tensor, lay: Callable[[torch.Tensor, range], None]) -> None:
        """Take a parameter's gradient. `lay` lays the sum over the places of parts down.

        Raises NotByParts if it came before: a part's uses of it must be added before parts are."""
        if id(parameter) in self.written:
            raise NotByParts("a parameter is used twice")
        self.written.add(id(parameter))
        for number, span in enumerate(self._spans):
            lay(self._slot(parameter, number), span)

    def leaves(self, parameter: torch.Tensor, make: Callable[[range], torch.Tensor]) -> None:
        """Add up the gradients that `make` gives for the places of parts, [parts, ...]."""
        self.lay(parameter, lambda out, span: lay_tree_sum(out, make(span)))

    def proxies(self, parameter: torch.Tensor, count: int) -> list[torch.Tensor]:
        """The parameter once for each part, so that each part's gradient is kept apart."""
        known = self._proxies.get(id(parameter))
        if known is None:
            made = [parameter.detach().requires_grad_() for _ in range(count)]
            known = self._proxies[id(parameter)] = (parameter, made)
        return known[1]

    def finish(self) -> None:
        """Add up what the proxies were given."""
        for parameter, proxies in self._proxies.values():
            found = torch.stack(
                [torch.zeros_like(each) if each.grad is None else each.grad for each in proxies]
            )
            self.leaves(parameter, lambda span, found=found: found[span.start : span.stop])  # type: ignore[misc]
