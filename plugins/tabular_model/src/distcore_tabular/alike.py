"""Neighbouring encoders of numbers that are of one shape, computed as one.

Each has a small layer of its own. A step over a thousand of them is a thousand products, and what
surrounds each takes five times as long as the product; as one product of many matrices they are a
handful of operators. Weights stay the parameters of each encoder: what is saved, trained, clipped
or looked at is as before.

So is every bit. Kernels are chosen by shape, so both ways are compared once for each shape that is
met, and where they differ (few bins, few rows) the encoders go one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from distcore_tabular.encoders import Ple
from distcore_tabular.layers import HOOKS
from distcore_torch import products

if TYPE_CHECKING:
    from distcore_tabular.layers import FCLayer

MOST = 64
"""Encoders at once: what they make of a batch stays in a cache."""

MOST_ROWS = 512
"""Of more the products take the time, and one after another they stay in a cache."""


class Alike:
    """Encoders `ple` of one `shape_of`: [B, C] → [B, C * outputs]."""

    def __init__(self, encoders: Sequence[Ple]) -> None:
        self._encoders = list(encoders)
        self._layers = [cast("FCLayer", each.fc_stack.layers[0]).linear for each in encoders]
        self._low = torch.stack([each.low for each in encoders]).unsqueeze(1)
        self._width = torch.stack([each.width for each in encoders]).unsqueeze(1)

    def moved(self, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Do to the edges of bins what was done to the module."""
        self._low, self._width = fn(self._low), fn(self._width)

    def can(self, rows: int) -> bool:
        """Whether so many rows may go through all at once now: it costs no bit, and nobody looks at
        one of the encoders by itself."""
        if rows > MOST_ROWS:
            return False
        weights = [each.weight for each in self._layers]
        if not products.are_plain(weights):
            return False
        if any(map(_is_watched, self._encoders)) or any(map(_is_watched, self._layers)):
            return False
        if torch._C._len_torch_dispatch_stack():  # who counts operators must not count a trial
            return True
        biased, trained = self._layers[0].bias is not None, torch.is_grad_enabled()
        shape = len(weights), rows, *weights[0].shape
        return _same_bits(*shape, biased, trained, torch.get_num_threads())

    def __call__(self, columns: torch.Tensor) -> torch.Tensor:
        values = columns.float().t().unsqueeze(2)
        place = ((values - self._low) / self._width).clamp(0.0, 1.0)
        weights = [each.weight for each in self._layers]
        biases = [each.bias for each in self._layers if each.bias is not None]
        return _at_once(torch.cat([place, values], 2), weights, biases)


def shape_of(encoder: nn.Module) -> Hashable:
    """What encoders have in common that can be computed as one; None: this one cannot.

    A layer with a rectifier, which gives a number the same bits wherever it lies, and with nothing
    that draws random numbers or looks at other rows."""
    if type(encoder) is not Ple:
        return None
    stack = encoder.fc_stack
    if len(stack.before) or len(stack.layers) != 1 or stack.residual:
        return None
    layer = cast("FCLayer", stack.layers[0])
    if [type(each) for each in layer.after] != [nn.ReLU]:
        return None
    return tuple(layer.linear.weight.shape), layer.linear.bias is not None


def stretches(shapes: Sequence[Hashable]) -> list[tuple[int, int]]:
    """[start, stop) of each stretch of neighbours of one shape, two to MOST of them."""
    found, start = [], 0
    for stop in range(1, len(shapes) + 1):
        whole = stop - start == MOST
        if whole or stop == len(shapes) or shapes[stop] != shapes[start]:
            if stop - start > 1 and shapes[start] is not None:
                found.append((start, stop))
            start = stop
    return found


def _is_watched(part: nn.Module) -> bool:
    return any(map(vars(part).get, HOOKS))


def _at_once(
    given: torch.Tensor, weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor]
) -> torch.Tensor:
    """[C, B, inputs], C weights [outputs, inputs], C biases [outputs] or none → [B, C * outputs]"""
    factors = torch.stack(list(weights)).mT
    if biases:
        found = torch.baddbmm(torch.stack(list(biases)).unsqueeze(1), given, factors)
    else:
        found = given.bmm(factors)
    return found.relu_().transpose(0, 1).flatten(1)


def _one_by_one(
    given: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], biases: Sequence[torch.Tensor]
) -> torch.Tensor:
    layers = zip(given, weights, biases or repeat(None), strict=bool(biases))
    return torch.cat([products.linear(*layer).relu_() for layer in layers], 1)


@cache
def _same_bits(
    count: int, rows: int, outputs: int, inputs: int, biased: bool, trained: bool, threads: int
) -> bool:
    """Whether so many layers give the same bits at once as one by one, and their gradients have
    them, if they are trained. threads: torch's; other kernels are taken for others."""
    dice = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=dice)

    with torch.inference_mode(False), torch.set_grad_enabled(trained):
        given, slope = drawn(count, rows, inputs), drawn(rows, count * outputs)
        weights = [drawn(outputs, inputs).requires_grad_(trained) for _ in range(count)]
        biases = [drawn(outputs).requires_grad_(trained) for _ in range(count * biased)]
        # By itself each has its columns in memory of its own: some kernels go by the address.
        columns = [each.clone() for each in given]
        ways: list[list[torch.Tensor]] = []
        for found in (_at_once(given, weights, biases), _one_by_one(columns, weights, biases)):
            ways.append([found])
            if trained:
                ways[-1] += torch.autograd.grad(found, [*weights, *biases], slope)
    return all(map(torch.equal, *ways))
