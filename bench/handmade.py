"""What the floors and hand-written peers share: the packed matrix, the network, and the loop."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from make_data import CARDINALITIES, COLUMNS, NUMBERS

BATCH = 1024
WORDS = len(COLUMNS)
EMBEDDING = 16


def pack(cache: str, path: Path, columns: Sequence[str] = COLUMNS) -> Path:
    """The training split of a cache as one row-major file of [n, len(columns)] 32-bit words, what
    floors gather from: as it comes numbers, codes, target.

    cache: `directory:key`."""
    if path.exists():
        return path
    part = path.with_name(f"{path.name}.part")
    with open_cache(cache) as reader, open(part, "wb") as file:
        for start in range(0, reader.rows("train"), 262_144):
            stop = min(start + 262_144, reader.rows("train"))
            batch = reader.read("train", start, stop, columns)
            matrix = np.empty((batch.num_rows, len(columns)), np.int32)
            for place, name in enumerate(columns):
                matrix[:, place] = batch.column(name).to_numpy().view(np.int32)
            matrix.tofile(file)
    os.rename(part, path)
    return path


def open_cache(cache: str) -> Any:
    """A cache reader. cache: `directory:key`."""
    from distcore_data.cache import Cache
    from distcore_data.cache import open_cache as open_

    directory, _, key = cache.rpartition(":")
    return open_(Cache(directory=directory, key=key))


def load(path: str | Path, words: int = WORDS) -> Any:
    """The packed file in memory: int32 [n, words]."""
    import torch

    return torch.from_numpy(np.fromfile(path, np.int32).reshape(-1, words))


def views(batch: Any) -> tuple[Any, Any, Any]:
    """Numbers [B, 10] float32, codes [B, 6] int32 and target [B] float32 of a packed batch."""
    import torch

    count = len(NUMBERS)
    return (
        batch[:, :count].view(torch.float32),
        batch[:, count:-1],
        batch[:, -1].view(torch.float32),
    )


def network(sizes: Sequence[int] = tuple(each + 1 for each in CARDINALITIES)) -> Any:
    """Six embeddings and ten numbers, concatenated, two layers of 256, one logit. sizes: rows of
    each embedding."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embeddings = nn.ModuleList(
                nn.Embedding(size, min(EMBEDDING, size)) for size in sizes
            )
            width = len(NUMBERS) + sum(each.embedding_dim for each in self.embeddings)
            self.layers = nn.Sequential(
                nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)
            )

        def forward(self, numbers: Any, codes: Any) -> Any:
            parts = [embedding(codes[:, i]) for i, embedding in enumerate(self.embeddings)]
            return self.layers(torch.cat([*parts, numbers], 1)).squeeze(1)

    torch.manual_seed(0)
    net = Net()
    for each in net.embeddings:  # as distcore starts them, so that losses can be compared
        nn.init.uniform_(each.weight, -0.05, 0.05)
    return net


class Feed:
    """Shuffled batches of a packed matrix; notes the time of each hand-over, so that every loop
    is timed alike."""

    def __init__(
        self, matrix: Any, steps: int, batch: int = BATCH, rank: int = 0, world: int = 1
    ) -> None:
        self.matrix, self.steps, self.batch, self.rank, self.world = (
            matrix,
            steps,
            batch,
            rank,
            world,
        )
        self.stamps: list[float] = []

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        import torch

        generator = torch.Generator().manual_seed(0)
        need, rows = self.steps * self.batch * self.world, len(self.matrix)
        order = torch.cat(
            [torch.randperm(rows, generator=generator) for _ in range(-(-need // rows))]
        )
        order = order[self.rank : need : self.world]
        for start in range(0, len(order), self.batch):
            batch = self.take(order[start : start + self.batch])
            self.stamps.append(time.time())
            yield batch

    def take(self, rows: Any) -> tuple[Any, ...]:
        """The batch of these rows."""
        return views(self.matrix.index_select(0, rows))


def fit(
    net: Any,
    feed: Iterable[tuple[Any, ...]],
    loss_of: Callable[[Any, Any], Any],
    *,
    fused: bool = True,
    bf16: bool = False,
    clip: float = 0.0,
) -> float:
    """The loop a careful user writes; returns the mean of the batches' losses.

    feed: batches, each what the network takes, and the target behind. loss_of: of logits and
    target. clip: bound of the norm of all gradients together; 0: none."""
    import torch

    optimizer = torch.optim.Adam(net.parameters(), lr=0.001, fused=fused or None)
    total, steps = torch.zeros(()), 0
    for *inputs, target in feed:
        with torch.autocast("cpu", torch.bfloat16) if bf16 else nullcontext():
            logits = net(*inputs)
        loss = loss_of(logits, target)
        optimizer.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        total += loss.detach()
        steps += 1
    return float(total) / steps


def rate(stamps: Sequence[float], batch: int, warm: int = 50) -> float:
    """Rows a second between the hand-over of batch `warm` and that of the last one."""
    return batch * (len(stamps) - 1 - warm) / (stamps[-1] - stamps[warm])


def parameters(net: Any) -> int:
    """Numbers that are learned."""
    return sum(each.numel() for each in net.parameters())
