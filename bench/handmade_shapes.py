"""Hand-written networks of the shapes, what feeds them, and the names of their weights in ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import handmade
from learnt_shapes import columns_of, described

PAD = 2
"""The vocabulary's place of the padding."""

WIDTHS = (2, 3, 4, 5)
LAYERS = (512, 256)
HIDDEN = 256


class Bags(nn.Module):
    """The sums of each ragged column's vectors, side by side."""

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(size, width, mode="sum", include_last_offset=True) for size in sizes)  # fmt: skip
        self.width = width * len(sizes)

    def forward(self, columns: Sequence[tuple[Any, Any]]) -> Any:
        found = [table(*column) for table, column in zip(self.tables, columns, strict=True)]
        return found[0] if len(found) == 1 else torch.cat(found, 1)


class Words(nn.Module):
    """Convolutions of four widths over a rectangle of words [B, L], their sum, two layers."""

    def __init__(self, size: int, width: int, filters: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, width, padding_idx=PAD)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, filters, each, padding="same") for each in WIDTHS)  # fmt: skip
        wide, narrow = LAYERS
        self.layers = nn.Sequential(
            nn.Linear(filters * len(WIDTHS), wide), nn.ReLU(), nn.Linear(wide, narrow), nn.ReLU()
        )
        self.width = narrow

    def forward(self, codes: Any) -> Any:
        hidden = self.table(codes).transpose(1, 2)
        found = torch.cat([F.relu(each(hidden)) for each in self.convolutions], 1)
        return self.layers((found * (codes != PAD).unsqueeze(1)).sum(2))


class Network(nn.Module):
    """Numbers, embeddings and what reads the ragged columns, side by side; two layers of 256, and
    a linear one for each output."""

    def __init__(
        self, numbers: int, tables: Sequence[int], reader: Any, outputs: Sequence[int]
    ) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding(size, min(handmade.EMBEDDING, size)) for size in tables
        )
        self.reader = reader
        width = numbers + sum(each.embedding_dim for each in self.tables)
        width += reader.width if reader is not None else 0
        self.layers = nn.Sequential(
            nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()
        )
        self.heads = nn.ModuleList(nn.Linear(HIDDEN, size) for size in outputs)

    def forward(self, numbers: Any, codes: Any, ragged: Any) -> list[Any]:
        parts = [numbers] if numbers.shape[1] else []
        parts += [table(codes[:, place]) for place, table in enumerate(self.tables)]
        if self.reader is not None:
            parts.append(self.reader(ragged))
        hidden = self.layers(parts[0] if len(parts) == 1 else torch.cat(parts, 1))
        return [head(hidden) for head in self.heads]


def network(known: dict[str, Any]) -> Network:
    """Of a described shape."""
    torch.manual_seed(0)
    names = columns_of(known)
    sizes = {name: len(each.get("idx2str", ())) for name, each in known["metadata"].items()}
    ragged = [each for each in known["input_features"] if each["name"] in names["ragged"]]
    reader: Any = None
    if padded(known):
        encoder, size = ragged[0]["encoder"], sizes[ragged[0]["name"]]
        reader = Words(size, encoder["embedding_size"], encoder["num_filters"])
    elif ragged:
        reader = Bags(
            [sizes[name] for name in names["ragged"]], ragged[0]["encoder"]["embedding_size"]
        )
    net = Network(
        len(names["numbers"]),
        [sizes[name] for name in names["categories"]],
        reader,
        [max(1, sizes[name]) for name in names["outputs"]],
    )
    for name, each in net.named_parameters():  # as distcore starts them, so that losses agree
        if "table" in name:
            nn.init.uniform_(each, -0.05, 0.05)
    return net


def padded(known: dict[str, Any]) -> bool:
    """Whether the network reads its ragged column as a rectangle."""
    return known["input_features"][0].get("encoder", {}).get("type") == "parallel_cnn"


def loss_of(known: dict[str, Any]) -> Any:
    """(the outputs' logits, their targets) → the sum of their mean losses."""
    kinds = [each["type"] for each in known["output_features"]]

    def one(kind: str, logits: Any, target: Any) -> Any:
        if kind == "category":
            return F.cross_entropy(logits, target.view(torch.int32).long())
        loss = F.mse_loss if kind == "number" else F.binary_cross_entropy_with_logits
        return loss(logits.squeeze(1), target.view(torch.float32))

    return lambda logits, targets: sum(
        one(kind, each, targets[:, place])
        for place, (kind, each) in enumerate(zip(kinds, logits, strict=True))
    )


# ------------------------------------------------------------------ batches


class Feed(handmade.Feed):
    """Shuffled batches of a prepared shape, all of it in memory: numbers, codes, what is ragged,
    and targets."""

    def __init__(self, folder: Path, steps: int, batch: int) -> None:
        known = described(folder)
        names = columns_of(known)
        self.cuts = np.cumsum([len(names[each]) for each in ("numbers", "categories", "outputs")])
        super().__init__(handmade.load(folder / "packed.i32", int(self.cuts[-1])), steps, batch)
        self.lists = [Lists(folder / f"{name}.npz") for name in names["ragged"]]
        first = self.lists[0] if padded(known) else None
        self.rectangle = None if first is None else rectangle(first.values, first.offsets)

    def take(self, rows: Any) -> tuple[Any, ...]:
        chosen, (numbers, codes, _) = self.matrix.index_select(0, rows), self.cuts
        if self.rectangle is not None:
            found = self.rectangle.index_select(0, rows)
            ragged: Any = found[:, : int((found != PAD).sum(1).max())]
        else:
            ragged = [each.take(rows) for each in self.lists]
        return (
            chosen[:, :numbers].view(torch.float32),
            chosen[:, numbers:codes],
            ragged,
            chosen[:, codes:],
        )


class Lists:
    """A ragged column in memory."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as found:
            self.values = torch.from_numpy(found["values"].astype(np.int64))
            self.offsets = torch.from_numpy(found["offsets"].astype(np.int64))

    def take(self, rows: Any) -> tuple[Any, Any]:
        """Values and offsets of some rows, as an EmbeddingBag takes them."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        places = torch.repeat_interleave(starts - offsets[:-1], lengths)
        return self.values[places + torch.arange(len(places))], offsets


def rectangle(values: Any, offsets: Any) -> Any:
    """Rows of codes, padded behind: [n, longest]."""
    lengths = offsets.diff()
    found = torch.full((len(lengths), int(lengths.max())), PAD)
    found[torch.arange(found.shape[1]) < lengths[:, None]] = values
    return found


# ------------------------------------------------------------------ weights


def weights_of(ours: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Our weights under the names of `network`."""
    names = columns_of(known)
    places = {f"tables.{i}": f"encoders.feature_{each}" for i, each in enumerate(names["categories"])}  # fmt: skip
    places |= {f"layers.{2 * i}": f"combiner.layers.{i}.linear" for i in range(2)}
    places |= {f"heads.{i}": f"decoders.feature_{each}.linear" for i, each in enumerate(names["outputs"])}  # fmt: skip
    if padded(known):
        (name,) = names["ragged"]
        text = f"encoders.feature_{name}"
        places["reader.table"] = f"{text}.table"
        places |= {f"reader.convolutions.{i}": f"{text}.convolutions.{i}.conv" for i in range(4)}
        places |= {f"reader.layers.{2 * i}": f"{text}.fc_stack.layers.{i}.linear" for i in range(2)}
    else:
        for i, name in enumerate(names["ragged"]):
            table = f"encoders.feature_{name}.table.weight"
            inner = "table" if table in ours else "bag.table"
            places[f"reader.tables.{i}"] = f"encoders.feature_{name}.{inner}"
    found = {
        f"{mine}.{kind}": ours[f"{theirs}.{kind}"]
        for mine, theirs in places.items()
        for kind in ("weight", "bias")
        if f"{theirs}.{kind}" in ours
    }
    if padded(known):
        found["reader.table.weight"][PAD] = 0
    return found
