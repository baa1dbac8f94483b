"""Sums and means of a table's rows: those that each row of a ragged column names.

torch's own gradient of the table adds in the order of a sort that is not stable: another one for
other rows beside them. This one adds in the order of the values, so it has the same bits whatever
else is in the batch, and needs no sort.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function

from distcore_torch.training.exact.tables import add_rows


def embedding_bag(
    table: torch.Tensor, values: torch.Tensor, offsets: torch.Tensor, mode: str = "sum"
) -> torch.Tensor:
    """As `torch.nn.functional.embedding_bag` with `include_last_offset`.

    Args:
        table: [rows, D].
        values: Rows of the table: int64 [n].
        offsets: Row i of the batch has values[offsets[i]:offsets[i + 1]]: int64 [B + 1].
        mode: "sum", "mean" or "max".

    Returns:
        [B, D]; zeros where there are no values.
    """
    if torch.compiler.is_compiling():  # which has kernels of its own
        return forward(table, values, offsets, mode)
    if has_torch_function((table, values, offsets)):
        return handle_torch_function(
            embedding_bag, (table, values, offsets), table, values, offsets, mode
        )
    learns = mode != "max" and table.requires_grad and torch.is_grad_enabled()
    counted = torch._C._len_torch_dispatch_stack() > 0  # who counts operators sees no others
    if not (learns and table.is_cpu) or counted:
        return forward(table, values, offsets, mode)
    found: torch.Tensor = _Bags.apply(table, values, offsets, mode)
    return found


def forward(
    table: torch.Tensor, values: torch.Tensor, offsets: torch.Tensor, mode: str
) -> torch.Tensor:
    """`embedding_bag` by torch."""
    return F.embedding_bag(values, table, offsets, mode=mode, include_last_offset=True)


def given(gradient: torch.Tensor, offsets: torch.Tensor, mode: str) -> torch.Tensor:
    """What each of a row's values gives to its row of the table: [B, D].

    Args:
        gradient: Of the sums or means: [B, D].
        offsets: As `embedding_bag` takes them.
        mode: "sum" or "mean".
    """
    return gradient if mode == "sum" else gradient / offsets.diff().clamp(min=1)[:, None]


class _Bags(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Any, values: Any, offsets: Any, mode: str) -> Any:
        ctx.save_for_backward(values, offsets)
        ctx.shape, ctx.mode = table.shape, mode
        return forward(table, values, offsets, mode)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Any) -> Any:
        values, offsets = ctx.saved_tensors
        found = gradient.new_empty(ctx.shape)
        add_rows(found, values, given(gradient, offsets, ctx.mode), [len(values)], offsets)
        return found, None, None, None
