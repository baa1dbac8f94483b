"""Gradients and running statistics of a module side by side in one flat buffer, so that a step is
one exchange.

A rank lays its gradients into a slot, the slots are summed, and parameters get views of the sum as
their gradients: no bucket is copied back. Running statistics (batch norm's) travel along as
differences from what all ranks last agreed on, so buffers that never change are kept to the bit,
and ranks are at one after every step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch


class Exchange(Protocol):
    """One flat buffer's way to its sum over the ranks."""

    def slot(self) -> torch.Tensor:
        """Where this rank lays its numbers for the next sum: [numel]."""
        ...

    def sum(self) -> torch.Tensor:
        """The sum of every rank's slot, the same bits in every rank; this rank may change it."""
        ...

    def close(self) -> None: ...


class InPlace:
    """An exchange through a collective that sums one buffer in place."""

    def __init__(self, buffer: torch.Tensor, all_reduce: Callable[[torch.Tensor], None]) -> None:
        self._buffer = buffer
        self._all_reduce = all_reduce

    def slot(self) -> torch.Tensor:
        return self._buffer

    def sum(self) -> torch.Tensor:
        self._all_reduce(self._buffer)
        return self._buffer

    def close(self) -> None:
        """Nothing is held."""


class Agreed:
    """What all begin a step with in a buffer, as the buffer is now.

    Attributes:
        value: Changed in place.
    """

    def __init__(self, buffer: torch.Tensor) -> None:
        self.value = buffer.detach().clone()
        self._finite = bool(self.value.isfinite().all())

    @property
    def origin(self) -> torch.Tensor:
        """What changes are counted from: the value, and 0 where it is not finite. A difference from
        infinity is no number, and a mask of infinities is to keep them."""
        return self.value if self._finite else self.value.nan_to_num(0.0, 0.0, 0.0)


class FlatGroup:
    """Trainable parameters and floating-point buffers of one dtype; the last number of the
    buffer is the stop flag."""

    def __init__(
        self,
        dtype: torch.dtype,
        parameters: Sequence[torch.nn.Parameter],
        buffers: Sequence[torch.Tensor],
    ) -> None:
        self.dtype = dtype
        self._parameters = parameters
        self._buffers = buffers
        self._agreed = [Agreed(buffer) for buffer in buffers]
        self.numel = sum(each.numel() for each in (*parameters, *buffers)) + 1
        self._views: dict[int, list[torch.Tensor]] = {}

    def collect(self, slot: torch.Tensor, stop: bool) -> None:
        """Lay gradients, changes of the buffers and the stop flag into the slot."""
        lay(self._views_of(slot), self._parameters, self._buffers, self._agreed)
        slot[-1] = float(stop)

    def spread(self, total: torch.Tensor, world: int, look: bool) -> bool:
        """Give parameters their views of the sum, and buffers the mean of the ranks' changes.

        look: whether to look at the stop flag, which waits for a GPU. Returns whether a rank
            wants to stop."""
        views = self._views_of(total)
        for parameter, view in zip(self._parameters, views, strict=False):
            parameter.grad = view
        for buffer, agreed, view in zip(
            self._buffers, self._agreed, views[len(self._parameters) :], strict=True
        ):
            torch.add(agreed.origin, view, alpha=1 / world, out=agreed.value)
            buffer.copy_(agreed.value)
        return look and bool(total[-1] > 0)

    def _views_of(self, flat: torch.Tensor) -> list[torch.Tensor]:
        views = self._views.get(flat.data_ptr())
        if views is None:
            views, start = [], 0
            for each in (*self._parameters, *self._buffers):
                views.append(flat[start : start + each.numel()].view(each.shape))
                start += each.numel()
            self._views[flat.data_ptr()] = views
        return views


def lay(
    views: Sequence[torch.Tensor],
    parameters: Sequence[torch.nn.Parameter],
    buffers: Sequence[torch.Tensor],
    agreed: Sequence[Agreed],
) -> None:
    """Lay gradients, zeros where there are none, and behind them the changes of the buffers.

    Args:
        views: Where, of the shapes of parameters and buffers.
        parameters: With their gradients.
        buffers: As they are now.
        agreed: What all began with in them.
    """
    targets, sources = [], []
    for parameter, view in zip(parameters, views, strict=False):
        if parameter.grad is None:
            view.zero_()
        else:
            targets.append(view)
            sources.append(parameter.grad)
    if targets:
        torch._foreach_copy_(targets, sources)
    for buffer, begun, view in zip(buffers, agreed, views[len(parameters) :], strict=True):
        torch.sub(buffer, begun.origin, out=view)


def flat_groups(module: torch.nn.Module) -> list[FlatGroup]:
    """One group a dtype; the same groups in every rank, for the same module."""
    return [FlatGroup(*each) for each in by_dtype(module)]


def by_dtype(
    module: torch.nn.Module,
) -> list[tuple[torch.dtype, list[torch.nn.Parameter], list[torch.Tensor]]]:
    """Each dtype, with the parameters that are trained and the buffers of floats that have it; in
    the same order in every rank."""
    parameters = [each for each in module.parameters() if each.requires_grad]
    buffers = [each for each in module.buffers() if each.is_floating_point()]
    return [
        (
            dtype,
            [each for each in parameters if each.dtype == dtype],
            [each for each in buffers if each.dtype == dtype],
        )
        for dtype in sorted({each.dtype for each in (*parameters, *buffers)}, key=str)
    ]
