"""How a rank's rows are cut into parts, and what is computed for each of them apart."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from distcore_torch import products
from distcore_torch.training.exact.tree import tree_sum

ALIGNED = 64
"""Where torch lets memory begin on a CPU: multiples of so many bytes."""

VECTOR = 64
"""Numbers that the kernels of every processor take at once, or a multiple of them: two registers
of 512 bits hold 32."""

LINE = 16
"""Numbers of a processor's cache line, or of its longest vector."""


class NotByParts(Exception):
    """The network does something that has to be computed part by part as a whole."""


class Cut:
    """The rows of a rank's parts, one part after another; all parts have rows.

    Args:
        sizes: Rows of each part.
        batched: Whether kernels for batches take what sums over rows; parts are of one size then.

    Attributes:
        rows: Of all parts.
        alike: Whether all parts are of one size.
        fills: Whether the rows of each part fill whole vectors, which no other part shares.
        bounds: Where each part begins among them, and the end.
    """

    def __init__(self, sizes: Sequence[int], batched: bool) -> None:
        self.sizes, self._batched = list(sizes), batched
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
        # As the part alone would have it: in memory that begins where torch lets memory begin.
        return [
            each.clone() if each.is_contiguous() and each.data_ptr() % ALIGNED else each
            for each in tensor.split(self.sizes)
        ]

    def places(self, offsets: torch.Tensor | None) -> list[int]:
        """Where each part's values begin in a ragged column, and the end. Raises NotByParts if
        these are not the offsets of all rows."""
        if offsets is None or offsets.shape[0] != self.rows + 1:
            raise NotByParts("a ragged column without the offsets of all rows")
        found: list[int] = offsets[torch.tensor(self.bounds)].tolist()
        return found

    def products(self, left: torch.Tensor, right: torch.Tensor, span: range) -> torch.Tensor:
        """Of each part in the span, its rows of `left`, transposed, times those of `right`: [n, k]
        and [n, m] give [parts, k, m]."""
        if self._batched:
            one, other = self._batch(left, span), self._batch(right, span)
            wide = right.shape[1] > 2 * LINE  # narrow ones have kernels of their own: other bits
            if wide and right.shape[1] % LINE and not left.shape[1] % LINE:
                # The other way round their columns fill vectors: a fifth faster.
                return other.mT.bmm(one).mT
            return one.mT.bmm(other)
        found = left.new_empty(len(span), left.shape[1], right.shape[1])
        for part, out in zip(span, found, strict=True):
            rows = slice(self.bounds[part], self.bounds[part + 1])
            torch.mm(left[rows].t(), right[rows], out=out)
        return found

    def lay_weight_gradient(
        self, out: torch.Tensor, gradient: torch.Tensor, x: torch.Tensor, span: range
    ) -> None:
        """Lay the sum of the span's parts of a layer's weight's gradient: [outputs, inputs]."""
        bounds = self.bounds[span.start : span.stop + 1]
        if products.has_kernel():
            if len(span) < len(self):
                gradient, x = gradient[bounds[0] : bounds[-1]], x[bounds[0] : bounds[-1]]
            ends = [bound - bounds[0] for bound in bounds[1:]]
            products.lay_weight_gradients(out, gradient, x, ends)
            return
        parts = (slice(start, stop) for start, stop in itertools.pairwise(bounds))
        leaves = [products.weight_gradient(gradient[rows], x[rows]) for rows in parts]
        torch.add(tree_sum(leaves), 0.0, out=out)

    def sums(self, tensor: torch.Tensor, span: range) -> torch.Tensor:
        """Of each part in the span, the sum over its rows: [n, ...] gives [parts, ...]."""
        if self._batched:
            return self._batch(tensor, span).sum(1)
        bounds = self.bounds[span.start : span.stop + 1]
        return torch.stack(
            [tensor[start:stop].sum(0) for start, stop in itertools.pairwise(bounds)]
        )

    def _batch(self, tensor: torch.Tensor, span: range) -> torch.Tensor:
        """The span's parts, which are of one size, as a batch: [parts, n, …]."""
        # Not `unflatten`: it is Python, and this is called ten times a step.
        found = tensor.view(len(self), -1, *tensor.shape[1:])
        return found if len(span) == len(self) else found[span.start : span.stop]
