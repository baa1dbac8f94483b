"""Layers over the rows of all parts whose gradients are added up by part."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from distcore_torch import bags, products
from distcore_torch.training.exact import kernels
from distcore_torch.training.exact.cut import Cut
from distcore_torch.training.exact.kernels import Place
from distcore_torch.training.exact.sink import Sink
from distcore_torch.training.exact.tables import add_rows


class Linear(torch.autograd.Function):
    """A fully connected layer over all rows, by oneDNN (`products`) or by torch's own product, if
    that has the bits of the parts' (`kernels`); the gradients of weight and bias by part."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, cut: Cut, sink: Sink, by_onednn: bool
    ) -> Any:
        ctx.save_for_backward(x)
        ctx.cut, ctx.sink, ctx.weight, ctx.bias = cut, sink, weight, bias
        ctx.by_onednn = by_onednn
        layer = products.forward if by_onednn else F.linear
        outputs, inputs = weight.shape
        if kernels.forward_goes_at_once(cut.sizes, inputs, outputs, Place.of(x), by_onednn):
            return layer(x, weight, bias)
        return torch.cat([layer(part, weight, bias) for part in cut.apart(x)])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        (x,) = ctx.saved_tensors
        cut, sink, weight, before = ctx.cut, ctx.sink, ctx.weight, None
        gradient = gradient.contiguous()
        sink.lay(
            weight,
            lambda out, span: cut.lay_weight_gradient(out, gradient, x, span, ctx.by_onednn),
        )
        if ctx.bias is not None:
            sink.leaves(ctx.bias, lambda span: cut.sums(gradient, span))
        if ctx.needs_input_grad[0]:
            back = products.input_gradient if ctx.by_onednn else torch.mm
            outputs, inputs = weight.shape
            if kernels.input_gradient_goes_at_once(cut.sizes, inputs, outputs, ctx.by_onednn):
                before = back(gradient, weight)
            else:
                before = torch.cat([back(part, weight) for part in cut.apart(gradient)])
        return before, None, None, None, None, None


class Lookup(torch.autograd.Function):
    """Rows of a table; the table's gradient by part."""

    @staticmethod
    def forward(ctx: Any, table: Any, index: Any, cut: Cut, sink: Sink) -> Any:
        ctx.index, ctx.cut, ctx.sink, ctx.table = index, cut, sink, table
        return table.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        index, cut, sink, table = ctx.index, ctx.cut, ctx.sink, ctx.table
        each = index.shape[0] // cut.rows

        def lay(out: torch.Tensor, span: range) -> None:
            bounds = [cut.bounds[part] * each for part in (*span, span.stop)]
            own = slice(bounds[0], bounds[-1])
            ends = [bound - bounds[0] for bound in bounds[1:]]
            add_rows(out, index[own], gradient[own], ends)

        sink.lay(table, lay)
        return None, None, None, None


class Bags(torch.autograd.Function):
    """Sums or means of a table's rows (`bags.embedding_bag`); the table's gradient by part."""

    @staticmethod
    def forward(
        ctx: Any, table: Any, values: Any, offsets: Any, mode: str, cut: Cut, sink: Sink
    ) -> Any:
        ctx.values, ctx.offsets, ctx.mode = values, offsets, mode
        ctx.cut, ctx.sink, ctx.table, ctx.places = cut, sink, table, cut.places(offsets)
        return bags.forward(table, values, offsets, mode)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (gradient,) = gradients
        values, offsets, cut, sink = ctx.values, ctx.offsets, ctx.cut, ctx.sink
        places = ctx.places
        each = bags.given(gradient, offsets, ctx.mode)

        def lay(out: torch.Tensor, span: range) -> None:
            start, stop = cut.bounds[span.start], cut.bounds[span.stop]
            first, *ends = places[span.start : span.stop + 1]
            add_rows(
                out,
                values[first : ends[-1]],
                each[start:stop],
                [end - first for end in ends],
                offsets[start : stop + 1] - first,
            )

        sink.lay(ctx.table, lay)
        return None, None, None, None, None, None
