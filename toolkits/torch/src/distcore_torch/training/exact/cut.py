"""How a rank's rows are cut into parts, and what is computed for each of them apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from distcore_torch import products
from distcore_torch.training.exact import kernels
from distcore_torch.training.exact.kernels import ALIGNED, Place
from distcore_torch.training.exact.tree import lay_tree_sum, tree_sum

VECTOR = 64
"""Numbers that the kernels of every processor take at once, or a multiple of them: two registers
of 512 bits hold 32."""


class NotByParts(Exception):
    """The network does something that has to be computed part by part as a whole."""


class Cut:
    """The rows of a rank's parts, one part after another; all parts have rows.

    Args:
        sizes: Rows of each part.

    Attributes:
        sizes: Rows of each part.
        rows: Of all parts.
        alike: Whether all parts are of one size.
        fills: Whether the rows of each part fill whole vectors, which no other part shares.
        bounds: Where each part begins among them, and the end.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)
        self.bounds = [0, *itertools.accumulate(sizes)]
        self.rows = self.bounds[-1]
        self.alike = len(set(sizes)) == 1
        self.fills = self.alike and self.sizes[0] % VECTOR == 0

    def __len__(self) -> int:
        """How many parts there are."""
        return len(self.sizes)

    def apart(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """A tensor's rows by part. Raises NotByParts if its first dimension is not that of the
        rows."""
        if tensor.dim() == 0 or tensor.shape[0] != self.rows:
            raise NotByParts(f"a tensor of shape {tuple(tensor.shape)}, not of {self.rows} rows")
        return [self._alone(each, tensor) for each in tensor.split(self.sizes)]

    def places(self, offsets: torch.Tensor | None) -> list[int]:
        """Where each part's values begin in a ragged column, and the end. Raises NotByParts if
        these are not the offsets of all rows."""
        if offsets is None or offsets.shape[0] != self.rows + 1:
            raise NotByParts("a ragged column without the offsets of all rows")
        found: list[int] = offsets[torch.tensor(self.bounds)].tolist()
        return found

    def lay_weight_gradient(
        self,
        out: torch.Tensor,
        gradient: torch.Tensor,
        x: torch.Tensor,
        span: range,
        by_onednn: bool,
    ) -> None:
        """Lay the tree's sum of the span's parts of a layer's weight's gradient, [outputs, inputs],
        from that of its output, [B, outputs], and its input, [B, inputs]."""
        sizes, whole = self.sizes, x
        if len(span) < len(self):
            sizes = sizes[span.start : span.stop]
            gradient, x = self._of(gradient, span), self._of(x, span)
        if by_onednn:
            in_one_pass = products.has_kernel()
        else:
            places = (Place.of(gradient), Place.of(x), Place.of(whole))
            kind = (sizes, tuple(out.shape), *places)
            in_one_pass = kernels.chains_are_products(*kind)
        if in_one_pass:
            products.lay_weight_gradients(out, gradient, x, [*itertools.accumulate(sizes)])
        elif by_onednn:
            parts = zip(gradient.split(sizes), x.split(sizes), strict=True)
            leaves = [products.weight_gradient(*part) for part in parts]
            torch.add(tree_sum(leaves), 0.0, out=out)
        else:
            lay_tree_sum(out, kernels.products_by_part(*kind)(gradient, x, sizes))

    def sums(self, tensor: torch.Tensor, span: range) -> torch.Tensor:
        """Of each part in the span, the sum over its rows: [n] or [n, k] gives [parts] or
        [parts, k]."""
        sizes, rows = self.sizes, tensor
        if len(span) < len(self):
            sizes, rows = sizes[span.start : span.stop], self._of(tensor, span)
        if kernels.in_rows(rows):
            shape, places = tuple(rows.shape[1:]), (Place.of(rows), Place.of(tensor))
            if kernels.sums_go_at_once(sizes, shape, *places, rows.dtype):
                return kernels.as_batch(rows, sizes).sum(1)
        return torch.stack([self._alone(part, tensor).sum(0) for part in rows.split(sizes)])

    def _of(self, tensor: torch.Tensor, span: range) -> torch.Tensor:
        """The span's rows."""
        return tensor[self.bounds[span.start] : self.bounds[span.stop]]

    @staticmethod
    def _alone(part: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        """A part's rows as the part by itself would have them, whose memory begins as that of all
        rows does."""
        if (part.data_ptr() - whole.data_ptr()) % ALIGNED == 0:
            return part
        aligned = whole.data_ptr() % ALIGNED == 0
        if (aligned and part.is_contiguous()) or not kernels.in_rows(whole):
            return part.clone()
        return Place.of(whole).copy(part)
