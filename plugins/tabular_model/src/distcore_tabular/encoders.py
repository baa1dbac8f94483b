"""Encoders of numbers, binaries and categories: from a column of a batch to [B, output_size],
float32.

Each is a module with `.output_size` that takes the batch's value: [B] (or [B, width]) float32, or
[B] int32 codes. Encoders of tokens and sets are in text_encoders.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from distcore_tabular.layers import fc_stack, initialize, require_memory

INITIAL = 0.05
"""Range of a trained embedding's first values. Ludwig starts in ±1: a value that few rows have then
stays noise to the layers above. On 200,000 rows with a column of 5,000 values, ±0.05 reached a
validation ROC AUC of 0.832 where ±1 reached 0.808 (docs/log.md)."""

INITIAL_FROZEN = 1.0
"""The same of an embedding that is not trained, whose scale nothing can change later."""

AT_ONCE = 256 << 20
"""Bytes of what encoders make of a batch that are held at once where no gradient is wanted: a
prediction's 4,096 texts of 256 tokens would take 11 GB."""


def even_cuts(rows: int, row_bytes: int) -> list[int]:
    """Where to cut so many rows for slices that need no more than AT_ONCE bytes each: [0, …, rows].
    One slice if a gradient is wanted, which would keep all of them.

    Even ones: a single row that is left may take another path, of other bits."""
    slices = min(rows, -(-rows * row_bytes // AT_ONCE))
    if slices < 2 or torch.is_grad_enabled() or torch.compiler.is_compiling():
        return [0, rows]
    return [rows * each // slices for each in range(slices + 1)]


def lookup(table: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Rows of a table, [rows, D]: codes of any shape → [*codes.shape, D]. The same bits as torch's
    embedding."""
    if codes.dim() == 1:
        return lookup_rows(table, codes.long())
    return lookup_rows(table, codes.long().reshape(-1)).view(*codes.shape, table.shape[1])


def lookup_rows(table: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Rows of a table, [rows, D]: codes int64 [n] → [n, D].

    On a CPU the gradient of index_select is a vectorised index_add, more than twice as fast as
    embedding's; on a GPU it would add in a random order, and embedding does not."""
    on_cpu = table.device.type == "cpu"
    return table.index_select(0, codes) if on_cpu else F.embedding(codes, table)


class Passthrough(nn.Module):
    """Encoder `passthrough` of numbers, binaries and categories (whose code then is read as a
    number): the value as it is, as float32, [B] → [B, 1]."""

    output_size = 1

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return value.float().reshape(-1, 1)


class Dense(nn.Module):
    """Encoder `dense` of numbers and binaries: fully connected layers over the value, [B] → [B,
    output_size].

    options: num_layers, fc_layers, output_size, use_bias, weights_initializer, bias_initializer,
    norm, norm_params, activation, dropout."""

    def __init__(self, options: Any) -> None:
        super().__init__()
        self.fc_stack = fc_stack(1, options, options.num_layers)
        self.output_size = self.fc_stack.output_size

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        return self.fc_stack(value.float().reshape(-1, 1))


class Ple(nn.Module):
    """Piecewise linear encoding (Gorishniy et al., 2022), then fully connected layers: [B] → [B,
    output_size].

    A value is one number for each bin: 0 below it, 1 above it, and within it the share of it that
    lies below the value; and the value itself beside them. So a layer over it is a broken line,
    bent most where most rows are, and straight beyond the outer edges.

    edges: of the bins, ascending, float32 [bins + 1]; a single one, of a constant column, has a bin
        of width 1 above it.
    options: as of `Dense`."""

    def __init__(self, edges: np.ndarray, options: Any) -> None:
        super().__init__()
        edge = torch.from_numpy(edges)
        # No buffers: they are no state, and DDP would broadcast them in every step.
        self.low = edge[:-1] if len(edge) > 1 else edge
        self.width = edge.diff() if len(edge) > 1 else torch.ones(1)
        self.fc_stack = fc_stack(len(self.low) + 1, options, options.num_layers)
        self.output_size = self.fc_stack.output_size

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Ple:
        super()._apply(fn, recurse)
        self.low, self.width = fn(self.low), fn(self.width)
        return self

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        column = value.float().reshape(-1, 1)
        place = ((column - self.low) / self.width).clamp(0.0, 1.0)
        return self.fc_stack(torch.cat([place, column], 1))


class CategoryEmbed(nn.Module):
    """A learned vector for each category: [B] int32 codes in [0, num_classes) → [B,
    embedding_size].

    The size is at most num_classes, as in Ludwig. Initialised uniformly in ±INITIAL
    (±INITIAL_FROZEN if it is not trained) unless told otherwise.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int = 50,
        initializer: str | dict[str, Any] | None = None,
        trainable: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.output_size = min(embedding_size, num_classes)
        require_memory(
            num_classes * self.output_size * torch.get_default_dtype().itemsize,
            f"the vectors of {num_classes} values (the vocabulary), each of {self.output_size} "
            "numbers (embedding_size, or one for each value if the representation is sparse),",
            "Lower embedding_size or most_common.",
        )
        self.dropout = dropout
        self.weight = nn.Parameter(
            torch.empty(num_classes, self.output_size), requires_grad=trainable
        )
        bound = INITIAL if trainable else INITIAL_FROZEN
        initialize(self.weight.data, initializer or {"type": "uniform", "a": -bound, "b": bound})

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        hidden = lookup(self.weight, codes)
        return F.dropout(hidden, self.dropout, self.training) if self.dropout else hidden


class OneHot(nn.Module):
    """A one for the category and zeros elsewhere: [B] int32 codes in [0, num_classes) → [B,
    num_classes].

    Attributes:
        class_bytes: What a row needs for each class.
    """

    class_bytes = 12  # int64 and then float32

    def __init__(self, num_classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.output_size = num_classes
        self.dropout = dropout

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        hidden = F.one_hot(codes.long(), self.output_size).float()
        return F.dropout(hidden, self.dropout, self.training) if self.dropout else hidden


def category_embed(num_classes: int, options: Any) -> nn.Module:
    """Encoder `dense` of categories. options: embedding_size, embedding_initializer,
    embeddings_trainable, dropout."""
    return CategoryEmbed(
        num_classes,
        options.embedding_size,
        options.embedding_initializer,
        options.embeddings_trainable,
        options.dropout,
    )


def category_sparse(num_classes: int, options: Any) -> nn.Module:
    """Encoder `sparse` of categories.

    options: embeddings_trainable (then a table that starts as the identity is learned), dropout."""
    if options.embeddings_trainable:
        return CategoryEmbed(num_classes, num_classes, "identity", True, options.dropout)
    return OneHot(num_classes, options.dropout)
