"""Gradients and changes of buffers side by side in flat leaves, one group a dtype.

Beside the gradients of its parameters a leaf holds how the part changed the buffers (batch norm's
running statistics), from what all parts began with. After a step every buffer has moved by the mean
of the parts' changes.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch

from distcore_torch.training.exact.exchange import TreeExchange
from distcore_torch.training.exact.tree import Adder
from distcore_torch.training.flat import Agreed, by_dtype, lay


class PartGroup:
    """Trainable parameters and buffers that travel as numbers of one dtype; the last number is the
    stop flag.

    Args:
        dtype: Of the parameters.
        parameters: Trainable ones.
        buffers: Floating-point ones of this dtype.
        counters: Buffers of whole numbers, which travel as this dtype.
    """

    def __init__(
        self,
        dtype: torch.dtype,
        parameters: Sequence[torch.nn.Parameter],
        buffers: Sequence[torch.Tensor],
        counters: Sequence[torch.Tensor],
    ) -> None:
        self.dtype = dtype
        self.parameters = list(parameters)
        self.buffers, self.counters = list(buffers), list(counters)
        self._agreed = [Agreed(each) for each in (*buffers, *counters)]
        named = (*parameters, *buffers, *counters)
        self._shapes = [each.shape for each in named]
        self._sizes = [each.numel() for each in named]
        self.numel = sum(self._sizes) + 1
        self.exactly = self.numel - 1 - sum(each.numel() for each in counters)
        self.place = {id(each): place for place, each in enumerate(named)}

    def prepare(self, exchange: TreeExchange) -> None:
        """Take the way to the other ranks; nothing is sent yet."""
        self.exchange = exchange
        self._of_slots: dict[int, list[torch.Tensor]] = {}
        self._summed: weakref.ref[torch.Tensor] | None = None
        self.adder = Adder(self.numel, exchange.slots()[0])

    def close(self) -> None:
        """Let go of the exchange and of its memory."""
        self._of_slots.clear()
        self.exchange.close()

    def restore(self) -> None:
        """Give the buffers back what all parts begin with, and forget gradients."""
        for buffer, agreed in zip((*self.buffers, *self.counters), self._agreed, strict=True):
            buffer.copy_(agreed.value)
        for parameter in self.parameters:
            parameter.grad = None

    def agreed(self, buffer: torch.Tensor) -> Agreed:
        """What all parts began with in this buffer."""
        return self._agreed[self.place[id(buffer)] - len(self.parameters)]

    def settle(self) -> None:
        """Take the buffers as they are now as what all parts begin with."""
        for buffer, agreed in zip((*self.buffers, *self.counters), self._agreed, strict=True):
            agreed.value.copy_(buffer)

    def views(self, flat: torch.Tensor) -> list[torch.Tensor]:
        """A flat leaf as tensors of the shapes of parameters, buffers and counters."""
        parts = flat[:-1].split(self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def slots(self) -> list[list[torch.Tensor]]:
        """The exchange's slots as `views` of them, which are made once: slots stay where they are,
        and making them takes some fifty microseconds."""
        found = []
        for slot in self.exchange.slots():
            place = slot.data_ptr()
            if place not in self._of_slots:
                self._of_slots[place] = self.views(slot)
            found.append(self._of_slots[place])
        return found

    def _views_of(self, total: torch.Tensor) -> list[torch.Tensor]:
        """As `views`, made once if the exchange lays every sum into the same tensor."""
        known = self._of_slots.get(total.data_ptr())
        if known is None:
            known = self.views(total)
            if self._summed is not None and self._summed() is total:
                self._of_slots[total.data_ptr()] = known
            self._summed = weakref.ref(total)
        return known

    def collect(self, leaf: torch.Tensor) -> None:
        """Lay what a part's backward pass left into the leaf (of a part without rows, nothing), and
        make parameters and buffers ready for the next."""
        leaf[-1] = 0.0
        moving = (*self.buffers, *self.counters)
        lay(self.views(leaf), self.parameters, moving, self._agreed)
        self.restore()

    def spread(self, parts: int) -> torch.Tensor:
        """Give parameters the sum as their gradients and buffers the mean change; returns the sum
        of all parts."""
        total = self.exchange.sum()
        views = self._views_of(total)
        for parameter, view in zip(self.parameters, views, strict=False):
            parameter.grad = view
        count = len(self.parameters)
        for place, buffer in enumerate((*self.buffers, *self.counters)):
            change, agreed = views[count + place] / parts, self._agreed[place]
            if place >= len(self.buffers):
                change = change.ceil().to(buffer.dtype)
            torch.add(agreed.origin, change, out=agreed.value)
            buffer.copy_(agreed.value)
        return total


def part_groups(module: torch.nn.Module) -> list[PartGroup]:
    """One group a dtype, the same in every rank for the same module; whole numbers travel with
    the first."""
    counters = [
        each
        for each in module.buffers()
        if not each.is_floating_point() and not each.is_complex() and each.dtype != torch.bool
    ]
    return [
        PartGroup(*each, counters if place == 0 else [])
        for place, each in enumerate(by_dtype(module))
    ]
