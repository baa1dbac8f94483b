"""Encoders of texts and sets: from a ragged column of codes to [B, output_size], float32.

Ludwig fills every text up to one length with <PAD> and lets the padding count like words. Here
padding counts nowhere: its vector is zero, convolutions see zeros beyond the ends, and reductions
run over a text's own tokens. What is computed for a text therefore does not depend on the batch it
is in.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from distcore_tabular import encoders
from distcore_tabular.encoders import CategoryEmbed, OneHot, even_cuts
from distcore_tabular.layers import FCStack, fc_stack, in_place, require_memory
from distcore_torch.bags import embedding_bag
from distcore_torch.batch import Ragged

DEFAULT_WIDTHS = (2, 3, 4, 5)
"""Filter sizes of parallel_cnn if the config gives no layers."""

PADDING_RATIO = 8
"""Places of a padded batch for each token in it, from which on one long text is what fills it."""


def padded(column: Ragged, length: int, left: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """A ragged column as a rectangle: codes [B, length] int64 (0 if nothing is) and which of them
    are tokens.

    Rows longer than `length` are cut behind it. left: fill short rows up on their left."""
    starts, lengths = column.offsets[:-1, None], column.offsets.diff()[:, None].clamp(max=length)
    steps = torch.arange(length, device=column.values.device)
    if left:
        steps = steps - (length - lengths)
    is_token = (steps >= 0) & (steps < lengths)
    # One more value at the end is what all padding reads, so that no place is out of range.
    values = F.pad(column.values, (0, 1))
    places = torch.where(is_token, starts + steps, column.values.shape[0])
    return values[places].long(), is_token


def longest(column: Ragged, limit: int) -> int:
    """Tokens of the longest row, at least 1 and at most `limit`.

    On a GPU, and if the graph is compiled, it is the limit: asking would wait for the device."""
    if (
        column.values.device.type != "cpu"
        or torch.compiler.is_compiling()
        or column.offsets.shape[0] < 2
    ):
        return limit
    return max(1, min(limit, int(column.offsets.diff().max())))


def in_slices(
    column: Ragged,
    limit: int,
    token_bytes: int,
    encode: Callable[[Ragged, int], torch.Tensor],
    *,
    whole: bool = False,
) -> torch.Tensor:
    """What `encode` gives for the rows of a column, padded to its longest: of all at once, or of as
    many as need no more than `encoders.AT_ONCE` bytes, if no gradient is wanted, which would keep
    every slice.

    Where one long text would fill all others up, rows are cut in halves, each padded to its own
    longest.

    limit: most tokens of a row. token_bytes: what one needs, padding as well. encode: of rows and
    the length that they are padded to. whole: always pad to the limit."""
    rows = column.offsets.shape[0] - 1
    length = limit if whole else longest(column, limit)
    values, offsets = column
    halves = not whole and _mostly_padding(column, length, token_bytes)
    bounds = [0, rows // 2, rows] if halves else even_cuts(rows, length * token_bytes)
    if len(bounds) < 3:
        return encode(column, length)
    encoded = None
    for start, stop in itertools.pairwise(bounds):
        some = offsets[start : stop + 1]
        part = Ragged(values[some[0] : some[-1]], some - some[0])
        found = in_slices(part, limit, token_bytes, encode) if halves else encode(part, length)
        if encoded is None:
            # One block: small results that stay would lie between the large blocks of one slice and
            # those of the next, and none would find room where one was.
            encoded = found.new_empty(rows, *found.shape[1:])
        encoded[start:stop] = found
    assert encoded is not None
    return encoded


def _mostly_padding(column: Ragged, length: int, token_bytes: int) -> bool:
    """Whether rows padded to that length are too much at once, and nearly nothing but padding.

    With gradients AT_ONCE counts eightfold: their sums have other bits if a batch is cut."""
    if column.values.device.type != "cpu" or torch.compiler.is_compiling():
        return False  # where `longest` does not look, either
    rows = column.offsets.shape[0] - 1
    most = encoders.AT_ONCE * (8 if torch.is_grad_enabled() else 1)
    return (
        rows > 1
        and rows * length * token_bytes > most
        and rows * length > PADDING_RATIO * column.values.shape[0]
    )


def reduce_sequence(
    hidden: torch.Tensor, is_token: torch.Tensor, how: str, *, own: bool = False
) -> torch.Tensor:
    """[B, L, D] and [B, L] → [B, D] (or [B, L·D] for concat) over a row's tokens; zeros if a row
    has none.

    how: sum, mean (avg), max, last, concat. own: hidden is nobody else's, nor a view: it may be
    changed in place, which saves the memory and time of a copy."""
    mask = is_token.unsqueeze(-1)
    if how == "max":
        lowest = hidden.masked_fill(~mask, float("-inf")).amax(1)
        return torch.where(mask.any(1), lowest, 0.0)
    hidden = hidden.mul_(mask) if own else hidden * mask
    if how == "concat":
        return hidden.flatten(1)
    if how == "last":
        place = (is_token * torch.arange(is_token.shape[1], device=hidden.device)).amax(1)
        return hidden[torch.arange(hidden.shape[0], device=hidden.device), place]
    total = hidden.sum(1)
    return total if how == "sum" else total / mask.sum(1).clamp(min=1)


class MultiHot(OneHot):
    """How often each code is in a row: ragged [B] → [B, num_classes]."""

    class_bytes = 4

    def forward(self, column: Ragged) -> torch.Tensor:  # type: ignore[override]
        rows = column.offsets.shape[0] - 1
        row_of = torch.repeat_interleave(
            torch.arange(rows, device=column.values.device),
            column.offsets.diff(),
            output_size=column.values.shape[0],
        )
        hot = torch.zeros(rows, self.output_size, device=column.values.device)
        hot.index_put_(
            (row_of, column.values.long()), torch.ones((), device=hot.device), accumulate=True
        )
        return F.dropout(hot, self.dropout, self.training) if self.dropout else hot


class BagEmbed(nn.Module):
    """The vectors of a row's codes reduced to one without an intermediate rectangle: sum, mean
    or max."""

    def __init__(self, table: CategoryEmbed, how: str) -> None:
        super().__init__()
        self.table = table
        self.mode = "mean" if how == "avg" else how
        self.output_size = table.output_size

    def forward(self, column: Ragged) -> torch.Tensor:
        hidden = embedding_bag(self.table.weight, column.values.long(), column.offsets, self.mode)
        return (
            F.dropout(hidden, self.table.dropout, self.training) if self.table.dropout else hidden
        )


class SequenceEmbed(nn.Module):
    """The vectors of a row's codes, reduced by place: last or concat."""

    def __init__(self, table: CategoryEmbed, how: str, length: int, left: bool) -> None:
        super().__init__()
        self.table, self.how, self.length, self.left = table, how, length, left
        self.output_size = table.output_size * (length if how == "concat" else 1)

    def forward(self, column: Ragged) -> torch.Tensor:
        def encode(rows: Ragged, length: int) -> torch.Tensor:
            codes, is_token = padded(rows, length, self.left)
            return reduce_sequence(self.table(codes), is_token, self.how)

        whole = self.how == "concat"
        return in_slices(column, self.length, 2 * 4 * self.table.output_size, encode, whole=whole)


class Convolution(nn.Module):
    """One convolution over positions: [B, L, in] → [B, L', out], and which positions stand for
    tokens.

    `same` padding, then activation, dropout and, if pool_size is given, pooling of neighbouring
    tokens.
    """

    def __init__(self, input_size: int, layer: Mapping[str, Any]) -> None:
        super().__init__()
        width, filters = layer["filter_size"], layer["num_filters"]
        require_memory(
            filters * input_size * width * torch.get_default_dtype().itemsize,
            f"num_filters: {filters} is too large for this machine: the weights of a convolution "
            f"of {width} tokens (filter_size) over {input_size} numbers each",
            "Lower num_filters, filter_size or embedding_size.",
        )
        self.conv = nn.Conv1d(input_size, filters, width)
        self.reach = ((width - 1) // 2, width - 1 - (width - 1) // 2)
        self.activation = in_place(layer["activation"])
        self.dropout = nn.Dropout(layer["dropout"])
        self.pool_size, self.average = layer["pool_size"], layer["pool_function"] != "max"
        self.output_size: int = filters

    def forward(
        self, hidden: torch.Tensor, is_token: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.conv(F.pad(hidden.transpose(1, 2), self.reach))
        if isinstance(self.activation, nn.ReLU):  # in place, so not of a view
            hidden = self.dropout(self.activation(hidden))
        else:
            hidden = self.dropout(self.activation(hidden.transpose(1, 2)).transpose(1, 2))
        if self.pool_size is None:
            return hidden.transpose(1, 2), is_token
        return self._pooled(hidden, is_token)

    def _pooled(
        self, hidden: torch.Tensor, is_token: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        size = self.pool_size
        mask = is_token.unsqueeze(1)
        short = -hidden.shape[2] % size
        hidden, mask = F.pad(hidden, (0, short)), F.pad(mask, (0, short))
        kept = F.max_pool1d(mask.to(hidden.dtype), size) > 0
        if self.average:
            share = F.avg_pool1d(mask.to(hidden.dtype), size)
            hidden = F.avg_pool1d(hidden * mask, size) / share.clamp(min=1 / (2 * size))
        else:
            hidden = torch.where(
                kept, F.max_pool1d(hidden.masked_fill(~mask, float("-inf")), size), 0.0
            )
        return hidden.transpose(1, 2), kept.squeeze(1)


class ParallelCNN(nn.Module):
    """Token vectors → convolutions of several widths side by side → one vector → fully connected
    layers.

    Kim (2014), https://arxiv.org/abs/1408.5882, with Ludwig's layers and defaults.
    """

    def __init__(
        self,
        table: CategoryEmbed,
        layers: Sequence[Mapping[str, Any]],
        how: str,
        length: int,
        left: bool,
        stack: Any,
    ) -> None:
        super().__init__()
        self.table, self.how, self.length, self.left = table, how, length, left
        self.convolutions = nn.ModuleList(Convolution(table.output_size, layer) for layer in layers)
        size = self.filters = sum(layer["num_filters"] for layer in layers)
        self.pool_size: int = layers[0]["pool_size"] or 1
        if how == "concat":
            size *= -(-length // self.pool_size)
        self.fc_stack: FCStack = stack(size)
        self.output_size = self.fc_stack.output_size

    def forward(self, column: Ragged) -> torch.Tensor:
        def encode(rows: Ragged, length: int) -> torch.Tensor:
            if self.left:  # pooled are the same neighbours, however long the longest text is
                length += (self.length - length) % self.pool_size
            codes, is_token = padded(rows, length, self.left)
            hidden = self.table(codes) * is_token.unsqueeze(-1)
            parts = [convolution(hidden, is_token) for convolution in self.convolutions]
            hidden = torch.cat([part for part, _ in parts], 2)
            return reduce_sequence(hidden, parts[0][1], self.how, own=True)

        # The vectors twice, as they are looked up and without padding; likewise what the
        # convolutions make of them, by itself and side by side.
        width = self.table.output_size + self.filters
        whole = self.how == "concat"
        return self.fc_stack(in_slices(column, self.length, 2 * 4 * width, encode, whole=whole))


def embed(vocab_size: int, options: Any, length: int, left: bool = False) -> nn.Module:
    """Encoder `embed` of texts. length: most tokens of a text; left: where padding goes (for
    `concat`)."""
    how = options.reduce_output
    if options.representation == "sparse" and how == "sum":
        return MultiHot(vocab_size, options.dropout)
    table = _table(vocab_size, options)
    return (
        BagEmbed(table, how)
        if how in ("sum", "mean", "avg", "max")
        else SequenceEmbed(table, how, length, left)
    )


def parallel_cnn(vocab_size: int, options: Any, length: int, left: bool = False) -> nn.Module:
    """Encoder `parallel_cnn` of texts."""
    names = ("num_filters", "filter_size", "activation", "dropout", "pool_function", "pool_size")
    defaults = {name: getattr(options, name) for name in names}
    if options.conv_layers is not None:
        layers = [
            {**defaults, **layer.model_dump(exclude_unset=True)} for layer in options.conv_layers
        ]
    elif options.num_conv_layers is not None:
        layers = [defaults] * options.num_conv_layers
    else:
        layers = [{**defaults, "filter_size": width} for width in DEFAULT_WIDTHS]
    table = _table(vocab_size, options)

    def stack(size: int) -> FCStack:
        if options.fc_layers is None and options.num_fc_layers is None:
            options_of_two = options.model_copy(
                update={"fc_layers": [{"output_size": 512}, {"output_size": 256}]}
            )
            return fc_stack(size, options_of_two, 2)
        return fc_stack(size, options, options.num_fc_layers or 0)

    return ParallelCNN(table, layers, options.reduce_output, length, left, stack)


class SetEmbed(nn.Module):
    """The sum of a set's vectors, then fully connected layers: ragged [B] → [B, output_size]."""

    def __init__(self, bag: nn.Module, stack: FCStack) -> None:
        super().__init__()
        self.bag, self.fc_stack, self.output_size = bag, stack, stack.output_size

    def forward(self, column: Ragged) -> torch.Tensor:
        return self.fc_stack(self.bag(column))


def set_embed(vocab_size: int, options: Any) -> nn.Module:
    """Encoder `embed` of sets."""
    if options.representation == "sparse":
        return SetEmbed(
            MultiHot(vocab_size, options.dropout),
            fc_stack(vocab_size, options, options.num_fc_layers),
        )
    bag = BagEmbed(_table(vocab_size, options), "sum")
    return SetEmbed(bag, fc_stack(bag.output_size, options, options.num_fc_layers))


def _table(vocab_size: int, options: Any) -> CategoryEmbed:
    """The codes' vectors; one-hot and fixed if the representation is sparse."""
    if options.representation == "sparse":
        return CategoryEmbed(vocab_size, vocab_size, "identity", False, options.dropout)
    return CategoryEmbed(
        vocab_size,
        options.embedding_size,
        options.weights_initializer,
        options.embeddings_trainable,
        options.dropout,
    )
