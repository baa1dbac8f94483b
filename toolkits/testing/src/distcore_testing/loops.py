"""A tiny training run without cache or plugins: what tests of the loop, of strategies and of
backends start and stop.

Everything is importable by name, so any backend can run `train_tiny` as a group. The problem: five
numbers in, a number and a binary out, through a layer with dropout and batch norm.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from distcore_core.contracts import JSON, Column, FeatureBase, Rank
from distcore_core.progress import Progress
from distcore_core.registry.manager import environment_plugins
from distcore_torch.batch import Batch, Layout
from distcore_torch.sampler import share
from distcore_torch.train_options import options_model
from distcore_torch.training.checkpoint import list_checkpoints
from distcore_torch.training.determinism import weights_digest
from distcore_torch.training.ledger import LEDGER
from distcore_torch.training.loop import TrainLoop, Work
from distcore_torch.training.plan import TrainPlan
from distcore_torch.training.strategy import SingleProcess, Strategy

INPUTS = ("a", "b", "c", "d", "e")


class TinyFeature(FeatureBase):
    """An output: `number` (squared error) or `binary` (log loss)."""

    raw = "number"
    options: Any = None

    def __init__(self, name: str, kind: str = "number") -> None:
        self.name = name
        self.kind = kind

    def network(self) -> TinyFeature:
        return self

    def loss(self, logits: torch.Tensor, target: torch.Tensor, metadata: JSON) -> torch.Tensor:
        if self.kind == "binary":
            return F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return (logits - target).square()

    def metrics(self, metadata: JSON) -> Mapping[str, Any]:
        from torchmetrics import MeanAbsoluteError
        from torchmetrics.classification import BinaryAccuracy, BinaryAUROC

        if self.kind == "binary":
            return {"accuracy": BinaryAccuracy(), "roc_auc": _Whole(BinaryAUROC)}
        return {"mean_absolute_error": MeanAbsoluteError()}

    def output(self, logits: torch.Tensor, metadata: JSON) -> torch.Tensor:
        return logits.sigmoid() if self.kind == "binary" else logits


def _Whole(kind: Any) -> Any:
    class Whole(kind):
        def update(self, output: torch.Tensor, target: torch.Tensor) -> None:
            super().update(output, target.long())

    return Whole()


class TinyFeatures:
    """A `contracts.FeatureSet` of two outputs."""

    def __init__(self) -> None:
        self.inputs: Sequence[Any] = [TinyFeature(name) for name in INPUTS]
        self.outputs: Sequence[Any] = [TinyFeature("y"), TinyFeature("z", "binary")]
        self.metadata: Mapping[str, JSON] = {name: {} for name in (*INPUTS, "y", "z")}
        self.types: Mapping[str, str] = {**dict.fromkeys((*INPUTS, "y"), "number"), "z": "binary"}
        self.columns = {name: Column(name=name, dtype="float32") for name in (*INPUTS, "y", "z")}


class TinyNet(torch.nn.Module):
    """Two linear layers. dropout and norm make it depend on random numbers and on running
    statistics."""

    def __init__(self, dropout: float = 0.2, norm: bool = False, hidden: int = 8) -> None:
        super().__init__()
        self.first = torch.nn.Linear(len(INPUTS), hidden)
        self.norm = torch.nn.BatchNorm1d(hidden) if norm else torch.nn.Identity()
        self.dropout = torch.nn.Dropout(dropout)
        self.last = torch.nn.Linear(hidden, 2)

    def forward(self, batch: Batch) -> dict[str, torch.Tensor]:
        found = self.last(self.dropout(self.norm(self.first(batch.block(INPUTS)).tanh())))
        return {"y": found[:, 0], "z": found[:, 1]}


def tiny_batch(rows: int, seed: int = 0) -> Batch:
    """All rows as one batch; `y` and `z` depend on the inputs, and `a` is the row's number if
    seed is negative."""
    layout = Layout.of(TinyFeatures().columns.values())
    random = np.random.default_rng(abs(seed))
    x = random.normal(size=(rows, len(INPUTS))).astype(np.float32)
    y = x @ np.linspace(-1, 1, len(INPUTS), dtype=np.float32) + 0.3 * x[:, 0] * x[:, 1]
    z = (y + 0.5 * random.normal(size=rows) > 0).astype(np.float32)
    packed = np.concatenate([x, y[:, None], z[:, None]], 1).astype(np.float32).view(np.int32)
    return Batch(torch.from_numpy(packed), layout)


class TinyLoader:
    """Global batches of a permutation for each epoch, cut over the ranks in unequal parts if they
    do not divide.

    parts: into how many a global batch is cut, each of which one rank has whole; 0: it is cut over
        the ranks.
    actions: {global step: what to call before its batch is given}. seen: rows given, batch by
        batch.
    """

    def __init__(
        self,
        data: Batch,
        batch_rows: int,
        rank: Rank,
        shuffle: bool = True,
        seed: int = 0,
        parts: int = 0,
    ) -> None:
        self.parts = parts
        self.data, self.batch_rows, self.rank, self.shuffle, self.seed = (
            data,
            batch_rows,
            rank,
            shuffle,
            seed,
        )
        self.actions: dict[int, Any] = {}
        self.seen: list[list[int]] = []

    @property
    def _share(self) -> range:
        """Which parts are this rank's."""
        return share(self.rank, self.parts or self.rank.world)

    @property
    def steps(self) -> int:
        return -(-self.data.rows // self.batch_rows)

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        order = np.arange(self.data.rows)
        if self.shuffle:
            order = np.random.default_rng([self.seed, epoch]).permutation(order)
        world = self.rank.world
        for step in range(start, self.steps):
            action = self.actions.get(epoch * self.steps + step)
            if action is not None:
                action()
            rows = order[step * self.batch_rows : (step + 1) * self.batch_rows]
            cuts = np.arange(len(self._share) + 1) + self._share.start
            cuts = len(rows) * cuts // (self.parts or world)
            mine = rows[cuts[0] : cuts[-1]]
            self.seen.append(mine.tolist())
            part_rows = np.diff(cuts).tolist() if self.parts else []
            yield Batch(
                self.data.packed[torch.from_numpy(mine)], self.data.layout, part_rows=part_rows
            )

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class TinyRun:
    """A run for `train_tiny`.

    strategy: "module:function" that makes the strategy, or "" for one process. checkpoints: folder,
        or None.
    kill: {rank: global step} at which that process gets `signal` (once: a file beside the
        checkpoints remembers).
    perturb: (rank, global step) at which that rank's weights are changed.
    """

    options: JSON = field(default_factory=dict)
    strategy: str = ""
    rows: int = 150
    validation_rows: int = 40
    checkpoints: str | None = None
    resume: bool = False
    kill: Mapping[int, int] = field(default_factory=dict)
    signal: int = int(signal.SIGKILL)
    perturb: tuple[int, int] | None = None
    dropout: float = 0.2
    norm: bool = False


def train_tiny(rank: Rank, run: TinyRun) -> JSON:
    """Train; returns the digests of best and last weights, statistics, steps, and the rows this
    rank was given."""
    strategy = make_strategy(run.strategy)
    strategy.setup(rank)
    try:
        loop, loader, events = tiny_loop(run, strategy)
        if run.checkpoints is not None:
            folder = Path(run.checkpoints)
            # As in a run: what rank 0 sees counts. Another may look while one is being written.
            if strategy.gather(run.resume or bool(list_checkpoints(folder)))[0]:
                loop.resume(folder)
        finished = loop.run()
    finally:
        strategy.teardown()
    return {
        "rank": rank.index,
        "digest": weights_digest(loop.work.module),
        "best": sorted(
            (name, each.double().sum().item()) for name, each in finished.best_weights.items()
        ),
        "state": finished.state.as_json(),
        "seen": loader.seen,
        "events": events,
    }


def tiny_loop(run: TinyRun, strategy: Strategy) -> tuple[TrainLoop, TinyLoader, list[Any]]:
    """The loop of one rank, its loader, and the list that its events go to."""
    given = {"epochs": 3, "batch_size": 16, "learning_rate": 0.01, **run.options}
    options = options_model(given, environment_plugins()).model_validate(given)
    rank, events = strategy.rank, list[Any]()
    plan = TrainPlan.of(options, rank.world, run.rows)
    with torch.random.fork_rng():
        torch.manual_seed(1 + rank.index)  # rank 0's weights are what all get
        module = TinyNet(run.dropout, run.norm)
    parts = options.parts if options.exact else 0
    loader = TinyLoader(
        tiny_batch(run.rows), plan.batch_rows, rank, options.should_shuffle, parts=parts
    )
    if run.perturb is not None and run.perturb[0] == rank.index:
        loader.actions[run.perturb[1]] = lambda: module.last.bias.data.add_(0.01)
    validation = tiny_batch(run.validation_rows, seed=1)
    work = Work(
        module,
        TinyFeatures(),
        loader,
        TinyLoader(validation, plan.evaluation_rows, rank, False, parts=parts)
        if run.validation_rows
        else None,
        TinyLoader(loader.data, plan.evaluation_rows, rank, False, parts=parts)
        if options.evaluate_training_set
        else None,
        plan,
        seed=3,
        checkpoints=Path(run.checkpoints) if run.checkpoints else None,
        ledger=Path(run.checkpoints) / LEDGER if run.checkpoints else None,
        identity={
            "config": {},
            "cache": "",
            "seed": 3,
            "global_batch_rows": plan.batch_rows,
            "loader": {},
        },
        on_round=lambda epoch, step, scores: events.append(("round", epoch, step, sorted(scores))),
        on_checkpoint=lambda step, path: events.append(("checkpoint", step, path.name)),
    )
    loop = TrainLoop(work, options, strategy, Progress())
    if rank.index in run.kill:
        loader.actions[run.kill[rank.index]] = lambda: _die_once(run, loop)
    return loop, loader, events


def make_strategy(name: str) -> Strategy:
    """From "module:function"; "" is one process."""
    if not name:
        return SingleProcess()
    import importlib

    module, _, function = name.partition(":")
    made: Strategy = getattr(importlib.import_module(module), function)()
    return made


def _die_once(run: TinyRun, loop: TrainLoop) -> None:
    """What was saved until now is whole: where a run goes on must not depend on how fast a disk
    is."""
    if loop.saver is not None:
        loop.saver.wait()
    assert run.checkpoints is not None
    marker = Path(run.checkpoints) / "died"
    if not marker.exists():
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        os.kill(os.getpid(), run.signal)
