"""All of a rank's rows at once, with the bits of one part after another.

Matrix products, lookups and exact arithmetic (a rectifier, a sum of two tensors) give a row the
same bits whatever the rows beside it, so they run over many parts at once. Everything else that a
network computes runs part by part while `ByParts` is active: what sums over rows (gradients of
weights, batch norm), and functions such as an exponential, whose kernels treat the last few numbers
of a tensor otherwise than the others. Whether the bits are those of the parts is not taken on trust
either: `PartGradients` compares them for every cut of a batch that it meets.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from distcore_torch.training.exact.tables import add_rows
from distcore_torch.training.exact.tree import lay_tree_sum

NARROW = 8
"""Columns of a layer's output below which kernels for vectors, not for matrices, may be used: other
bits for other numbers of rows. Its forward pass goes by part."""


ALIGNED = 64
"""Where torch lets memory begin on a CPU: multiples of so many bytes."""


class NotByParts(Exception):
    """The network does something that has to be computed part by part as a whole."""


Slot = Callable[[torch.Tensor, int], torch.Tensor]
"""(parameter, number of the branch) → where its sum is to be laid."""


class Sink:
    """Lays gradients of parts down, as sums of branches.

    Args:
        slot: Where each of them goes.
        spans: Which of the rank's parts make up each of its branches.
    """

    def __init__(self, slot: Slot, spans: Sequence[range]) -> None:
        self.slot, self.spans = slot, spans
        self._proxies: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self.written: set[int] = set()

    def begin(self, parameter: torch.Tensor) -> None:
        """A parameter's gradient comes.

        Raises NotByParts if it came before: a part's uses of it must be added before parts are."""
        if id(parameter) in self.written:
            raise NotByParts("a parameter is used twice")
        self.written.add(id(parameter))

    def leaves(self, parameter: torch.Tensor, make: Callable[[range], torch.Tensor]) -> None:
        """Add up the gradients that `make` gives for the places of parts, [parts, ...]."""
        self.begin(parameter)
        for number, span in enumerate(self.spans):
            lay_tree_sum(self.slot(parameter, number), make(span))

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


class _Linear(torch.autograd.Function):
    """A fully connected layer over all rows; the gradients of weight and bias by part."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, bias: Any, mode: ByParts) -> Any:
        ctx.save_for_backward(x)
        ctx.mode, ctx.weight, ctx.bias = mode, weight, bias
        if weight.shape[0] < NARROW:
            return torch.cat([F.linear(part, weight, bias) for part in mode.cut(x)])
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        (x,) = ctx.saved_tensors
        mode, weight = ctx.mode, ctx.weight
        gradient = gradient.contiguous()
        mode.sink.leaves(weight, lambda span: mode.products(gradient, x, span))
        if ctx.bias is not None:
            mode.sink.leaves(ctx.bias, lambda span: mode.sums(gradient, span))
        before = gradient.mm(weight) if ctx.needs_input_grad[0] else None
        return before, None, None, None


class _Lookup(torch.autograd.Function):
    """Rows of a table; the table's gradient by part."""

    @staticmethod
    def forward(ctx: Any, table: Any, index: Any, mode: ByParts) -> Any:
        ctx.save_for_backward(index)
        ctx.mode, ctx.table = mode, table
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        (index,) = ctx.saved_tensors
        mode, table = ctx.mode, ctx.table
        each = index.shape[0] // mode.rows
        mode.sink.begin(table)
        for number, span in enumerate(mode.sink.spans):
            bounds = [mode.bounds[part] * each for part in (*span, span.stop)]
            own = slice(bounds[0], bounds[-1])
            ends = [bound - bounds[0] for bound in bounds[1:]]
            add_rows(mode.sink.slot(table, number), index[own], gradient[own], ends)
        return None, None, None


class ByParts(TorchFunctionMode):
    """Within it, what the parts have in common is computed once and what sums over rows by part.

    Args:
        bounds: Where each part begins among the rows, and the end: all parts have rows.
        parameters: The trainable ones.
        sink: Takes their gradients.
        keys: Of each part's random numbers.
        changed: (buffer, place of the part, what the part left in it): running statistics.
        batched: Whether kernels for batches take what sums over rows; parts are of one size then.
    """

    def __init__(
        self,
        bounds: Sequence[int],
        parameters: Mapping[int, torch.nn.Parameter],
        sink: Sink,
        keys: Sequence[int],
        changed: Callable[[torch.Tensor, int, torch.Tensor], None],
        batched: bool,
    ) -> None:
        super().__init__()
        self.bounds, self.rows, self.sink = list(bounds), bounds[-1], sink
        self._sizes = [stop - start for start, stop in itertools.pairwise(bounds)]
        self._batched = batched
        self._parameters, self._keys, self._changed = parameters, keys, changed
        self._count = len(bounds) - 1

    @cached_property
    def _generators(self) -> list[torch.Generator]:
        """Of each part; most networks draw nothing."""
        return [torch.Generator().manual_seed(key) for key in self._keys]

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
        if any(isinstance(each, list | tuple) and _tensors(each) for each in given):
            raise NotByParts(f"{name} of many tensors")
        if not trained and not any(each.is_floating_point() for each in _tensors(given)):
            return func(*args, **kwargs)
        if name.endswith("_") and not name.endswith("__"):
            raise NotByParts(f"{name} changes a tensor")
        return self.each(func, args, kwargs)

    def _trained(self, values: Sequence[Any]) -> bool:
        return not self._parameters.keys().isdisjoint(map(id, values))

    def cut(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """A tensor's rows by part. Raises NotByParts if its first dimension is not that of the
        rows."""
        if tensor.dim() == 0 or tensor.shape[0] != self.rows:
            raise NotByParts(f"a tensor of shape {tuple(tensor.shape)}, not of {self.rows} rows")
        # As the part alone would have it: in memory that begins where torch lets memory begin.
        return [
            each.clone() if each.is_contiguous() and each.data_ptr() % ALIGNED else each
            for each in tensor.split(self._sizes)
        ]

    def products(self, left: torch.Tensor, right: torch.Tensor, span: range) -> torch.Tensor:
        """Of each part in the span, its rows of `left`, transposed, times those of `right`: [n, k]
        and [n, m] give [parts, k, m]."""
        if self._batched:
            return self._apart(left, span).transpose(1, 2).bmm(self._apart(right, span))
        found = left.new_empty(len(span), left.shape[1], right.shape[1])
        for part, out in zip(span, found, strict=True):
            rows = slice(self.bounds[part], self.bounds[part + 1])
            torch.mm(left[rows].t(), right[rows], out=out)
        return found

    def sums(self, tensor: torch.Tensor, span: range) -> torch.Tensor:
        """Of each part in the span, the sum over its rows: [n, ...] gives [parts, ...]."""
        if self._batched:
            return self._apart(tensor, span).sum(1)
        bounds = self.bounds[span.start : span.stop + 1]
        return torch.stack(
            [tensor[start:stop].sum(0) for start, stop in itertools.pairwise(bounds)]
        )

    def _apart(self, tensor: torch.Tensor, span: range) -> torch.Tensor:
        """The span's parts, which are of one size, as a batch: [parts, n, …]."""
        return tensor.unflatten(0, (self._count, -1))[span.start : span.stop]

    def each(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.Tensor:
        """The function part by part: tensors are cut, and parameters are each part's own."""

        def by_part(value: Any) -> Sequence[Any]:
            if not isinstance(value, torch.Tensor):
                return [value] * self._count
            if id(value) in self._parameters:
                return self.sink.proxies(value, self._count)
            if value.requires_grad or (value.dim() and value.shape[0] == self.rows):
                return self.cut(value)
            return [value] * self._count

        cut_args = [by_part(value) for value in args]
        cut_kwargs = {name: by_part(value) for name, value in kwargs.items()}
        found = [
            func(
                *(each[part] for each in cut_args),
                **{name: each[part] for name, each in cut_kwargs.items()},
            )
            for part in range(self._count)
        ]
        for part, each in enumerate(found):
            rows = self.bounds[part + 1] - self.bounds[part]
            if not isinstance(each, torch.Tensor) or each.dim() == 0 or each.shape[0] != rows:
                raise NotByParts(f"{func.__name__} does not keep the rows apart")
        return torch.cat(found)

    # ------------------------------------------------------- functions that have a way of their own

    def linear(self, x: torch.Tensor, weight: torch.Tensor, bias: Any = None) -> torch.Tensor:
        if not self._trained((weight, bias)):
            return F.linear(x, weight, bias)
        both = id(weight) in self._parameters and (bias is None or id(bias) in self._parameters)
        plain = x.dim() == 2 and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        if not both or not plain or x.shape[0] != self.rows:
            return self.each(F.linear, (x, weight, bias), {})
        return _Linear.apply(x, weight, bias, self)

    def index_select(self, table: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
        if id(table) not in self._parameters:
            return table.index_select(dim, index)
        if dim != 0 or index.shape[0] % self.rows:
            raise NotByParts("index_select of a parameter")
        return _Lookup.apply(table, index, self)

    def dropout(
        self, x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        """As torch's own on a CPU, with each part's own random numbers."""
        if not training or p == 0.0:
            return x
        if p == 1.0:
            return x * 0.0
        noise = torch.empty_like(x, memory_format=torch.contiguous_format)
        if noise.dim() == 0 or noise.shape[0] != self.rows:
            raise NotByParts("dropout of something that has not a row for each row")
        for part, generator in zip(noise.split(self._sizes), self._generators, strict=True):
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
        for part, piece in enumerate(self.cut(x)):
            mean, var = (
                None if each is None else each.clone() for each in (running_mean, running_var)
            )
            own: list[Any] = [
                self.sink.proxies(each, self._count)[part]
                if each is not None and id(each) in self._parameters
                else each
                for each in (weight, bias)
            ]
            found.append(F.batch_norm(piece, mean, var, own[0], own[1], training, momentum, eps))
            for buffer, left in ((running_mean, mean), (running_var, var)):
                if buffer is not None and left is not None:
                    self._changed(buffer, part, left)
        return torch.cat(found)

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
        if offsets is None or offsets.shape[0] != self.rows + 1:
            raise NotByParts("embedding_bag without the offsets of all rows")
        found, ends = [], offsets[torch.tensor(self.bounds)].tolist()
        for part, proxy in enumerate(self.sink.proxies(table, self._count)):
            own = offsets[self.bounds[part] : self.bounds[part + 1] + 1] - ends[part]
            found.append(
                F.embedding_bag(values[ends[part] : ends[part + 1]], proxy, own, **options)
            )
        return torch.cat(found)


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    return [each for each in values if isinstance(each, torch.Tensor)]


OWN: Mapping[Any, Callable[..., Any]] = {
    F.linear: ByParts.linear,
    torch.Tensor.index_select: ByParts.index_select,
    torch.index_select: ByParts.index_select,
    F.dropout: ByParts.dropout,
    F.batch_norm: ByParts.batch_norm,
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
