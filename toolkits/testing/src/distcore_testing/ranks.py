"""What the suite of strategies lets every rank of a worker group do, importable by name there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from distcore_core.contracts import JSON, Rank
from distcore_core.errors import Stopped
from distcore_testing.loops import TinyRun, make_strategy, tiny_loop
from distcore_torch.training.strategy import Strategy


def exercise(rank: Rank, strategy: str, runs: Mapping[str, TinyRun], folder: str) -> JSON:
    """Each operation of a strategy ("module:function"), then some runs with it; what this rank was
    given."""
    made = make_strategy(strategy)
    made.setup(rank)
    try:
        module = _module(rank.index)
        mine = bits(module)
        made.prepare(module)
        return {
            "rank": (made.rank.index, made.rank.world),
            "before": mine,
            "prepared": bits(module),
            "reduced": _reduced(made, module),
            "stops": _stops(made, module),
            "sums": {name: made.sum(each).numpy() for name, each in summands(rank.index).items()},
            "gathered": made.gather(value(rank.index)),
            "barrier": _met(made, Path(folder)),
            "trained": {name: trained_by(made, run) for name, run in runs.items()},
            "gathered last": made.gather(rank.index),
        }
    finally:
        made.teardown()


def value(rank: int) -> JSON:
    """What a rank gives to be gathered: of another kind and size than the others'."""
    text = "é" * (90_000 if rank == 1 else rank)
    return {"rank": rank, "text": text, "more": [None, True, 0.1 * rank, [rank] * rank]}


def summands(rank: int) -> dict[str, torch.Tensor]:
    """What a rank gives to be summed."""
    dice = torch.Generator().manual_seed(rank)
    return {
        "float32": torch.randn(7, generator=dice),
        "float64": torch.randn(2, 3, generator=dice, dtype=torch.float64),
        "one": torch.tensor(10.0**rank, dtype=torch.float64),
        "int64": torch.tensor([[2**40 + rank], [-rank]]),
    }


def gradients(step: str, rank: int, world: int) -> list[torch.Tensor | None]:
    """The gradients that a rank has of each parameter: whole numbers, random ones, or, if the batch
    was too small for all ranks, none; the last parameter never has one."""
    shapes = [each.shape for each in _module(0).parameters() if each.requires_grad]
    dtypes = [each.dtype for each in _module(0).parameters() if each.requires_grad]
    dice = torch.Generator().manual_seed(100 + rank)
    found: list[torch.Tensor | None] = []
    for index, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        if step == "whole":
            found.append(torch.full(shape, (index + 1) * 10.0**rank, dtype=dtype))
        elif step == "random":
            found.append(torch.randn(shape, generator=dice, dtype=dtype))
        else:
            found.append(torch.ones(shape, dtype=dtype) if rank == world - 1 else None)
    if rank:
        found[1] = None
    found[-1] = None
    return found


def bits(module: torch.nn.Module) -> dict[str, bytes]:
    """The bytes of every weight and buffer."""
    return {name: each.numpy().tobytes() for name, each in module.state_dict().items()}


def _module(rank: int) -> torch.nn.Module:
    """Another one in each rank: weights of two types, a frozen one, and buffers of several."""
    dice = torch.Generator().manual_seed(rank)
    module = torch.nn.Sequential(
        torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 1, dtype=torch.float64)
    )
    for each in module.parameters():
        each.data = torch.randn(each.shape, generator=dice, dtype=each.dtype)
    frozen = torch.randn(5, generator=dice)
    module.register_parameter("frozen", torch.nn.Parameter(frozen, requires_grad=False))
    module.register_buffer("odd", torch.tensor([-0.0, float("nan"), 1e-45, float(rank)]))
    module.register_buffer("count", torch.tensor(2**40 + rank))
    module.register_buffer("mask", torch.tensor([rank % 2 == 0, True]))
    return module


def _reduced(strategy: Strategy, module: torch.nn.Module) -> dict[str, list[Any]]:
    """The gradients after each step, as arrays, since tensors do not travel between processes."""
    rank, found = strategy.rank, {}
    for step in ("whole", "random", "uneven", "whole again"):
        trained = [each for each in module.parameters() if each.requires_grad]
        for each, mine in zip(
            trained, gradients(step.split()[0], rank.index, rank.world), strict=True
        ):
            each.grad = mine
        strategy.reduce()
        found[step] = [None if each.grad is None else each.grad.numpy().copy() for each in trained]
    assert all(each.grad is None for each in module.parameters() if not each.requires_grad)
    return found


def _stops(strategy: Strategy, module: torch.nn.Module) -> list[bool]:
    """Nobody wants to stop, then each rank alone, with nobody in between, then all."""
    rank, asked = strategy.rank, [False]
    for each in range(rank.world):
        asked += [each == rank.index, False]
    found = []
    for mine in [*asked, True]:
        module.zero_grad()
        found.append(strategy.reduce(mine))
    return found


def _met(strategy: Strategy, folder: Path) -> list[str]:
    """Who was there when a gathering ended; the last rank comes late."""
    rank = strategy.rank
    if rank.index == rank.world - 1:
        time.sleep(0.3)
    (folder / f"{rank.world}-{rank.index}").touch()
    strategy.gather(None)
    return sorted(path.name for path in folder.glob(f"{rank.world}-*"))


def trained_by(strategy: Strategy, run: TinyRun) -> JSON:
    """What one rank of a run ends with: weights, their bits, the loop's state, rows of batches."""
    loop, loader, _ = tiny_loop(run, strategy)
    try:
        state = loop.run().state.as_json()
    except (KeyboardInterrupt, Stopped) as error:
        raise AssertionError("training was stopped, which nobody asked for") from error
    weights = {name: each.tolist() for name, each in loop.work.module.state_dict().items()}
    rows = [len(each) for each in loader.seen]
    return {"weights": weights, "bits": bits(loop.work.module), "state": state, "rows": rows}
