"""Which of torch's kernels give many parts at once the bits that they give each part alone.

A library of matrix products chooses among its kernels by the shapes of the factors, by how they lie
in memory and by the processor, and some of them add in another order. On an Intel processor with
vectors of 512 bits MKL's product of 8 rows of 100 numbers has other bits than these rows have among
64, on one with vectors of 256 bits it has the same. So nothing is taken for granted: each kernel is
tried on random numbers for every shape, once a training. A few sums of a training's own numbers
would not do, for many bits of their parts are lost in them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import cache, partial
from typing import NamedTuple

import torch
from torch.nn import functional as F

from distcore_torch import products

ALIGNED = 64
"""Where torch lets memory begin on a CPU: multiples of so many bytes."""

LINE = 16
"""Numbers of a processor's cache line, or of its longest vector."""

ENOUGH = 64
"""Numbers that are compared at least of each row and column of a result: a kernel may treat the
last ones otherwise, and some of their numbers have the same bits all the same."""

POOL = 1 << 20
"""Random numbers that are drawn from; with more of them some lie in two places."""

Sizes = tuple[int, ...]
"""Rows of each part, one part after another."""


class Place(NamedTuple):
    """How rows lie in memory: numbers from one row to the next, and from an aligned address to the
    first."""

    stride: int
    offset: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Place:
        """tensor: [n] or [n, k], each row in one piece."""
        return cls(tensor.stride(0), tensor.data_ptr() % ALIGNED // tensor.element_size())

    def copy(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows, lying so."""
        room = rows.new_empty(self.offset + len(rows) * self.stride)
        strides = (self.stride, 1)[: rows.dim()]
        return room.as_strided(rows.shape, strides, self.offset).copy_(rows)


def in_rows(tensor: torch.Tensor) -> bool:
    """Whether a tensor is numbers or rows of them, [n] or [n, k], that a `Place` describes."""
    shape = tensor.shape
    if tensor.dim() == 1:
        return tensor.stride(0) >= 1
    whole = tensor.dim() == 2 and (tensor.stride(1) == 1 or shape[1] == 1)
    return whole and tensor.stride(0) >= shape[1]


@cache
def forward_goes_at_once(
    sizes: Sizes, inputs: int, outputs: int, place: Place, by_onednn: bool
) -> bool:
    """Whether a layer of all rows has the bits of a layer of each part's.

    Args:
        sizes: Of the parts.
        inputs, outputs: Of the layer.
        place: Of its input.
        by_onednn: Whether it goes by oneDNN (`products`).
    """
    layer = products.forward if by_onednn else F.linear
    x = place.copy(_random(sum(sizes), inputs))
    parts = [place.copy(part) for part in x.split(sizes)]
    for _ in _draws(min(len(x), outputs)):
        weight, bias = _random(outputs, inputs), _random(outputs)
        alone = [layer(part, weight, bias) for part in parts]
        if not torch.equal(layer(x, weight, bias), torch.cat(alone)):
            return False
    return True


@cache
def input_gradient_goes_at_once(sizes: Sizes, inputs: int, outputs: int, by_onednn: bool) -> bool:
    """As `forward_goes_at_once`, of the gradient of the layer's input."""
    back = products.input_gradient if by_onednn else torch.mm
    gradient = _random(sum(sizes), outputs)
    parts = [part.clone() for part in gradient.split(sizes)]
    for _ in _draws(min(len(gradient), inputs)):
        weight = _random(outputs, inputs)
        alone = [back(part, weight) for part in parts]
        if not torch.equal(back(gradient, weight), torch.cat(alone)):
            return False
    return True


Products = Callable[[torch.Tensor, torch.Tensor, Sizes], torch.Tensor]
"""Of each part, its rows of one factor, [n, k], transposed, times those of the other, [n, m]:
[parts, k, m]."""


@cache
def products_by_part(
    sizes: Sizes, shape: tuple[int, int], left: Place, right: Place, home: Place
) -> Products:
    """The fastest way to `Products` that has the bits of each part's product by itself.

    Args:
        sizes: Of the parts.
        shape: k and m.
        left, right: Places of the factors' rows of these parts.
        home: Place of the right factor's rows of a part by itself; the left one's is aligned.
    """
    apart = partial(_apart, home=home)
    ways: list[Products] = [_sliced]
    like = 1  # parts whose products a kernel treats alike
    if len(set(sizes)) == 1:
        like = len(sizes)
        ways.insert(0, _batched)
        if shape[1] % LINE and not shape[0] % LINE:
            # The other way round their columns fill vectors: a fifth faster.
            ways.insert(0, _turned)
    for way in ways:
        for _ in _draws(like * min(shape)):
            one = left.copy(_random(sum(sizes), shape[0]))
            other = right.copy(_random(sum(sizes), shape[1]))
            if not torch.equal(way(one, other, sizes), apart(one, other, sizes)):
                break
        else:
            return way
    return apart


@cache
def chains_are_products(
    sizes: Sizes, shape: tuple[int, int], left: Place, right: Place, home: Place
) -> bool:
    """Whether compiled code (`products.lay_weight_gradients`) gives each part's product the bits
    that torch gives it by itself, as it does where MKL too adds one row after another.

    It adds a part's product to those before it at once, and so is faster than `products_by_part`,
    whose arguments this takes. Of more rows than `CHUNK` it is not tried: MKL's chains are longer.
    """
    if not products.has_kernel() or max(sizes) > products.CHUNK or 0 in shape:
        return False
    found = torch.empty(shape)
    for _ in _draws(min(shape)):
        one = left.copy(_random(sum(sizes), shape[0]))
        other = right.copy(_random(sum(sizes), shape[1]))
        alone = _apart(one, other, sizes, home=home)
        for rows, others, expected in zip(one.split(sizes), other.split(sizes), alone, strict=True):
            products.lay_weight_gradients(found, rows, others, [len(rows)])
            if not torch.equal(found, expected):
                return False
    return True


@cache
def sums_go_at_once(
    sizes: Sizes, shape: tuple[int, ...], place: Place, home: Place, dtype: torch.dtype
) -> bool:
    """Whether the sums over each part's rows, as those of a batch, have the bits of each part's
    sum by itself.

    Args:
        sizes: Of the parts.
        shape: Of a row: () or (k,).
        place: Of the rows of these parts.
        home: Of the rows of a part by itself.
        dtype: Of the rows.
    """
    if len(set(sizes)) > 1:
        return False
    for _ in _draws(len(sizes)):
        rows = place.copy(_random(sum(sizes), *shape).to(dtype))
        alone = [home.copy(part).sum(0) for part in rows.split(sizes)]
        if not torch.equal(as_batch(rows, sizes).sum(1), torch.stack(alone)):
            return False
    return True


def as_batch(rows: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """The rows of parts of one size, [parts * n, ...], as a batch: [parts, n, ...]."""
    # Not `unflatten`: it is Python, and this is called ten times a step.
    return rows.view(len(sizes), sizes[0], *rows.shape[1:])


def forget() -> None:
    """Try kernels anew: torch's settings (precision of products, oneDNN) may be others by now."""
    for trial in (
        forward_goes_at_once,
        input_gradient_goes_at_once,
        products_by_part,
        chains_are_products,
        sums_go_at_once,
    ):
        trial.cache_clear()


# -------------------------------------------------------------- inside


def _batched(left: torch.Tensor, right: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    return as_batch(left, sizes).mT.bmm(as_batch(right, sizes))


def _turned(left: torch.Tensor, right: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    return as_batch(right, sizes).mT.bmm(as_batch(left, sizes)).mT


def _sliced(left: torch.Tensor, right: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    found = left.new_empty(len(sizes), left.shape[1], right.shape[1])
    for one, other, out in zip(left.split(sizes), right.split(sizes), found, strict=True):
        torch.mm(one.t(), other, out=out)
    return found


def _apart(left: torch.Tensor, right: torch.Tensor, sizes: Sizes, *, home: Place) -> torch.Tensor:
    pairs = zip(left.split(sizes), right.split(sizes), strict=True)
    return torch.stack([one.clone().t().mm(home.copy(other)) for one, other in pairs])


def _draws(numbers: int) -> range:
    """How often a result is to be compared in whose rows and columns are so many numbers."""
    return range(-(-ENOUGH // max(1, numbers)))


def _random(*shape: int) -> torch.Tensor:
    """Normally distributed numbers, in memory that is aligned."""
    pool, numbers = _pool(), math.prod(shape)
    if numbers >= POOL:
        pool = pool.repeat(numbers // POOL + 2)
    start = _starts.randrange(len(pool) - numbers)
    return pool[start : start + numbers].clone().view(shape)


@cache
def _pool() -> torch.Tensor:
    return torch.randn(POOL, generator=torch.Generator().manual_seed(0))


_starts = random.Random(0)
"""Where in the pool the next numbers begin."""
