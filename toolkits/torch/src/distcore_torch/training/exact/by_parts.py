"""All of a rank's rows at once, with the bits of one part after another.

Lookups and exact arithmetic (a rectifier, a sum of two tensors) give a row the same bits whatever
the rows beside it, so they run over many parts at once. So do matrix products whose kernels were
seen to do so (`kernels`), and functions such as an exponential, if each part fills whole vectors:
their kernels treat the last few numbers of a tensor otherwise than the others. Everything else that
a network computes runs part by part while `ByParts` is active, as does what sums over rows
(gradients of weights, batch norm). Whether the bits are those of the parts is not taken on trust
either: `PartGradients` compares them for every cut of a batch that it meets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from distcore_torch import bags, products
from distcore_torch.training.exact.cut import VECTOR, Cut, NotByParts
from distcore_torch.training.exact.kernels import in_rows
from distcore_torch.training.exact.layers import Bags, Linear, Lookup
from distcore_torch.training.exact.sink import Sink

Keys = Callable[[], Sequence[int]]
"""Of each part's random numbers, once they are needed: most networks draw none."""


class ByParts(TorchFunctionMode):
    """Within it, what the parts have in common is computed once and what sums over rows by part.

    Args:
        cut: Into parts, of the rows that go.
        parameters: The trainable ones.
        sink: Takes their gradients.
        keys: Of each part's random numbers.
        changed: (buffer, place of the part, what the part left in it): running statistics.
    """

    def __init__(
        self,
        cut: Cut,
        parameters: Mapping[int, torch.nn.Parameter],
        sink: Sink,
        keys: Keys,
        changed: Callable[[torch.Tensor, int, torch.Tensor], None],
    ) -> None:
        super().__init__()
        self._cut, self._sink = cut, sink
        self._parameters, self._keys, self._changed = parameters, keys, changed

    @cached_property
    def _generators(self) -> list[torch.Generator]:
        """Of each part."""
        return [torch.Generator().manual_seed(key) for key in self._keys()]

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        own = OWN.get(func)
        if own is not None:
            return own(self, *args, **kwargs)
        name = func.__name__
        if name in LOOKS:
            raise NotByParts(f"it looks at values by {name}")
        if name == "__get__":
            return func(*args, **kwargs)
        given = (*args, *kwargs.values())
        trained = self._trained(given)
        if name in AT_ONCE and not trained:
            return func(*args, **kwargs)
        if name in NUMBERS and not trained and self._fills(given):
            return self._of_rows(name, func(*args, **kwargs), self._cut.rows)
        if any(isinstance(each, list | tuple) and _tensors(each) for each in given):
            raise NotByParts(f"{name} of many tensors")
        if not trained and not any(each.is_floating_point() for each in _tensors(given)):
            return func(*args, **kwargs)
        if name.endswith("_") and not name.endswith("__"):
            raise NotByParts(f"{name} changes a tensor")
        return self.each(func, args, kwargs)

    def _fills(self, values: Sequence[Any]) -> bool:
        """Whether every part of these tensors fills whole vectors, which no other part shares.

        A kernel's vectors lie along the rows, along the columns, whose number is that of a part, or
        along all numbers of tensors in one piece."""
        if not self._cut.alike:
            return False
        return all(
            each.shape[:1] == (self._cut.rows,)
            and (
                self._cut.fills
                or (each.is_contiguous() and each.numel() // len(self._cut) % VECTOR == 0)
            )
            for each in _tensors(values)
        )

    def _trained(self, values: Sequence[Any]) -> bool:
        return not self._parameters.keys().isdisjoint(map(id, values))

    def each(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        """The function part by part: tensors are cut, and parameters are each part's own."""

        def by_part(value: Any) -> Sequence[Any]:
            if not isinstance(value, torch.Tensor):
                return [value] * len(self._cut)
            if id(value) in self._parameters:
                return self._sink.proxies(value, len(self._cut))
            if value.requires_grad or (value.dim() and value.shape[0] == self._cut.rows):
                return self._cut.apart(value)
            return [value] * len(self._cut)

        cut_args = [by_part(value) for value in args]
        cut_kwargs = {name: by_part(value) for name, value in kwargs.items()}
        found = [
            func(
                *(each[part] for each in cut_args),
                **{name: each[part] for name, each in cut_kwargs.items()},
            )
            for part in range(len(self._cut))
        ]
        for part, each in enumerate(found):
            self._of_rows(func.__name__, each, self._cut.sizes[part])
        return torch.cat(found)

    def _of_rows(self, name: str, found: Any, rows: int) -> torch.Tensor:
        """What was found, if it has so many rows; else raise NotByParts."""
        if not isinstance(found, torch.Tensor) or found.shape[:1] != (rows,):
            raise NotByParts(f"{name} does not keep the rows apart")
        return found

    # ------------------------------------------------------- functions that have a way of their own

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        return self._layer(F.linear, False, x, weight, bias)

    def layer(self, x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        return self._layer(products.linear, products.by_onednn(weight), x, weight, bias)

    def _layer(
        self,
        func: Callable[..., torch.Tensor],
        by_onednn: bool,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: Any,
    ) -> torch.Tensor:
        """func: the layer of rows that go by themselves."""
        if not self._trained((weight, bias)):
            return func(x, weight, bias)
        both = id(weight) in self._parameters and (bias is None or id(bias) in self._parameters)
        plain = x.dim() == 2 and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if not both or not plain or x.shape[0] != self._cut.rows or not in_rows(x):
            return self.each(func, (x, weight, bias), {})
        return Linear.apply(x, weight, bias, self._cut, self._sink, by_onednn)

    def index_select(self, table: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
        if id(table) not in self._parameters:
            return table.index_select(dim, index)
        if dim != 0 or index.shape[0] % self._cut.rows:
            raise NotByParts("index_select of a parameter")
        return Lookup.apply(table, index, self._cut, self._sink)

    def dropout(
        self, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        """As torch's own on a CPU, with each part's own random numbers."""
        if not training or p == 0.0:
            return x
        if p == 1.0:
            return x * 0.0
        noise = torch.empty_like(x, memory_format=torch.contiguous_format)
        if noise.dim() == 0 or noise.shape[0] != self._cut.rows:
            raise NotByParts("dropout of something that has not a row for each row")
        for part, generator in zip(noise.split(self._cut.sizes), self._generators, strict=True):
            part.bernoulli_(1 - p, generator=generator).div_(1 - p)
        return x.mul_(noise) if inplace else x * noise

    def batch_norm(
        self,
        x: torch.Tensor,
        running_mean: torch.Tensor | None,
        running_var: torch.Tensor | None,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        """Each part by its own mean and variance, all from the same running ones."""
        found = []
        for part, piece in enumerate(self._cut.apart(x)):
            mean, var = (
                None if each is None else each.clone() for each in (running_mean, running_var)
            )
            own: list[Any] = [
                self._sink.proxies(each, len(self._cut))[part]
                if each is not None and id(each) in self._parameters
                else each
                for each in (weight, bias)
            ]
            found.append(F.batch_norm(piece, mean, var, own[0], own[1], training, momentum, eps))
            for buffer, left in ((running_mean, mean), (running_var, var)):
                if buffer is not None and left is not None:
                    self._changed(buffer, part, left)
        return torch.cat(found)

    def bags(
        self, table: torch.Tensor, values: torch.Tensor, offsets: torch.Tensor, mode: str = "sum"
    ) -> torch.Tensor:
        if id(table) not in self._parameters or mode == "max":
            return self.embedding_bag(values, table, offsets, mode=mode, include_last_offset=True)
        return Bags.apply(table, values, offsets, mode, self._cut, self._sink)

    def embedding_bag(
        self,
        values: torch.Tensor,
        table: torch.Tensor,
        offsets: torch.Tensor | None = None,
        **options: Any,
    ) -> torch.Tensor:
        """Of ragged rows: each part's values, and its offsets from where they begin."""
        if id(table) not in self._parameters:
            return F.embedding_bag(values, table, offsets, **options)
        found, ends = [], self._cut.places(offsets)
        assert offsets is not None
        for part, proxy in enumerate(self._sink.proxies(table, len(self._cut))):
            own = offsets[self._cut.bounds[part] : self._cut.bounds[part + 1] + 1] - ends[part]
            found.append(
                F.embedding_bag(values[ends[part] : ends[part + 1]], proxy, own, **options)
            )
        return torch.cat(found)


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [each for each in values if isinstance(each, torch.Tensor)]


OWN: Mapping[Any, Callable[..., Any]] = {
    F.linear: ByParts.linear,
    products.linear: ByParts.layer,
    torch.Tensor.index_select: ByParts.index_select,
    torch.index_select: ByParts.index_select,
    F.dropout: ByParts.dropout,
    F.batch_norm: ByParts.batch_norm,
    bags.embedding_bag: ByParts.bags,
    F.embedding_bag: ByParts.embedding_bag,
}
"""What is computed otherwise than by torch."""

_AT_ONCE = """
view reshape flatten unflatten squeeze unsqueeze expand permute transpose contiguous detach split
chunk float double long int bool to type clone size dim numel is_floating_point __getitem__ __len__
cat concat relu relu_ threshold neg abs where masked_fill clamp clamp_ clamp_min clamp_max pad
one_hot add add_ sub sub_ mul mul_ div div_ __add__ __radd__ __iadd__ __sub__ __rsub__ __mul__
__rmul__ __truediv__ eq ne lt le gt ge __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __invert__ __and__
__or__
"""
AT_ONCE = frozenset(_AT_ONCE.split())
"""Names of functions that only move numbers or round once, so that no row can know its
neighbours."""

_NUMBERS = """
binary_cross_entropy_with_logits mse_loss l1_loss smooth_l1_loss huber_loss sigmoid tanh softplus
logsigmoid gelu silu mish elu selu exp expm1 log log1p sqrt rsqrt
"""
NUMBERS = frozenset(_NUMBERS.split())
"""Names of functions of each number by itself, whose kernels have another way for the last numbers,
which fill no vector."""

LOOKS = frozenset(
    (
        "item",
        "tolist",
        "numpy",
        "nonzero",
        "unique",
        "__int__",
        "__float__",
        "__bool__",
        "__index__",
    )
)
"""What a network decides by values with: it might decide otherwise for a part alone (how far
texts are filled up)."""
