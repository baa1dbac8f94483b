"""Sums of tables that are zero but for rows that were looked up."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import torch

from distcore_torch.training.compiled import sums
from distcore_torch.training.exact.tree import lay_tree_sum


def add_rows(
    out: torch.Tensor,
    index: torch.Tensor,
    values: torch.Tensor,
    ends: Sequence[int],
    offsets: torch.Tensor | None = None,
) -> None:
    """Lay the tree's sum of the parts' tables, each the sum of what its part gives to rows of the
    table, in the order of the lookups.

    Args:
        out: Takes the sum: [rows, ...], contiguous, not cleared.
        index: Which row of the table each lookup is of: int64 [n], part after part.
        values: What each lookup gives: [n, ...].
        ends: Where each part ends among the lookups; as many as a power of two.
        offsets: Where lookups of one value begin, from 0 to n: int64 [B + 1]; values are [B, ...]
            then. None: each has its own.
    """
    plain = values.dtype == torch.float32 and index.dtype == torch.int64
    if sums is not None and plain:
        begins = None if offsets is None else offsets.contiguous().numpy()
        given = (index.contiguous().numpy(), values.contiguous().numpy(), array("q", ends))
        sums.add_rows(out.numpy(), *given, len(out), begins)
    else:
        add_rows_by_torch(out, index, values, ends, offsets)


def add_rows_by_torch(
    out: torch.Tensor,
    index: torch.Tensor,
    values: torch.Tensor,
    ends: Sequence[int],
    offsets: torch.Tensor | None = None,
) -> None:
    """`add_rows`, if there is no compiled code. Only rows that some part looked up are added."""
    if offsets is not None:
        values = values.repeat_interleave(offsets.diff(), 0, output_size=len(index))
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
