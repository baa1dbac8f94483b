"""Sums of tables that are zero but for rows that were looked up."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from distcore_torch.training.compiled import sums
from distcore_torch.training.exact.tree import lay_tree_sum


def add_rows(
    out: torch.Tensor, index: torch.Tensor, values: torch.Tensor, ends: Sequence[int]
) -> None:
    """Lay the tree's sum of the parts' tables, each the sum of the rows that its part looked up, in
    their order.

    Args:
        out: Takes the sum: [rows, ...], contiguous, not cleared.
        index: Which row of the table each value belongs to: int64 [n], part after part.
        values: [n, ...].
        ends: Where each part ends among them; as many as a power of two.
    """
    plain = values.dtype == torch.float32 and index.dtype == torch.int64
    if sums is not None and plain:
        given = (index.contiguous().numpy(), values.contiguous().numpy(), array("q", ends))
        sums.add_rows(out.numpy(), *given, len(out))
    else:
        add_rows_by_torch(out, index, values, ends)


def add_rows_by_torch(
    out: torch.Tensor, index: torch.Tensor, values: torch.Tensor, ends: Sequence[int]
) -> None:
    """`add_rows`, if there is no compiled code. Only rows that some part looked up are added."""
    looked_up = torch.zeros(len(out), dtype=torch.bool).index_fill_(0, index, True)
    rows = looked_up.nonzero().view(-1)
    count = len(rows)
    place = index.new_empty(len(out)).index_copy_(0, rows, torch.arange(count, dtype=index.dtype))
    place = place.index_select(0, index)
    for part, start in enumerate(ends[:-1], 1):
        place[start : ends[part]].add_(part * count)
    leaves = values.new_zeros((len(ends) * count, *values.shape[1:])).index_add_(0, place, values)
    leaves = leaves.view(len(ends), count, *values.shape[1:])
    total = torch.empty_like(leaves[0])
    lay_tree_sum(total, leaves)
    out.zero_().index_copy_(0, rows, total)
