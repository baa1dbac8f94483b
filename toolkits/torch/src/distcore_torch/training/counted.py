"""What a step of a network is made of (calls of torch, numbers multiplied, bytes moved), and how
long it takes.

A step of some rows is made once, on the CPU, while each operator that runs is counted. Nothing is
kept: the module and its optimizer are thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from distcore_core.contracts import Rank
from distcore_torch.batch import Batch, Layout
from distcore_torch.packing import pack
from distcore_torch.products import ONEDNN
from distcore_torch.training.job import model_of, train_options
from distcore_torch.training.scores import Scores
from distcore_torch.training.step import Stepper
from distcore_torch.training.strategy import SingleProcess
from distcore_torch.training.torch_model import build_module

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.contracts import FeatureSet, TrainJob
    from distcore_core.registry.manager import Plugins

TABLE_READERS = ("index_select", "embedding", "index", "gather", "_embedding_bag")
"""Operators that read some rows of their first tensor, so its size says nothing."""

TABLE_ADDERS = ("index_add", "index_put", "scatter_add")
"""Operators that add to some rows of their first tensor. While operators are counted, autograd has
each return a table of its own; in training it adds in place."""

FAR_BYTES = 16 << 20
"""Bytes of one operator from which on they are far."""


def _layer_flops(x: torch.Tensor, weight: torch.Tensor, *rest: Any, out_val: Any) -> int:
    """x [B, inputs], weight [outputs, inputs]."""
    return 2 * x.numel() * weight.shape[0]


FLOPS = {ONEDNN: _layer_flops}
"""Of operators that torch's own registry does not know."""


@dataclass(frozen=True)
class Work:
    """calls: of operators. flops: multiplications and additions of matrix products. bytes: of
    tensors that operators read and wrote. far: the same of operators that go through so many bytes
    at once that these come from memory, not from a processor's caches."""

    calls: int = 0
    flops: int = 0
    bytes: int = 0
    far: int = 0


@dataclass(frozen=True)
class StepWork:
    """A network's work for `rows` rows. train: a whole step. forward: a forward pass alone.

    parameters: how many numbers are learned. made: bytes of the tensors that a forward pass
    makes."""

    rows: int
    parameters: int
    train: Work
    forward: Work
    made: int


class Trial:
    """A module that may be stepped and thrown away.

    Args:
        job: Its config says what is built.
        features: Fitted.
        encoded: At least one row, encoded; repeated as often as is needed.
        rows: Of a step.
        plugins: Those that make the model.
    """

    def __init__(
        self,
        job: TrainJob,
        features: FeatureSet,
        encoded: pa.RecordBatch,
        rows: int,
        plugins: Plugins,
    ) -> None:
        options = train_options(job).model_copy(update={"exact": False})
        self.features, self.rows = features, rows
        self.module = build_module(model_of(job), features, plugins, job.seed)
        layout = Layout.of(features.columns[name] for name in encoded.schema.names)
        chosen = np.arange(rows) % encoded.num_rows
        self.batch: Batch = pack(encoded.take(chosen), layout)
        strategy = SingleProcess()
        strategy.setup(Rank())
        self.module.train()
        self._scores = Scores(features, split="validation")
        self._stepper = Stepper(
            *(self.module, features, options, strategy),
            learning_rate=1e-6,
            micro_rows=rows,
            seed=job.seed,
        )

    def step(self) -> None:
        """Update the weights once."""
        self._stepper.step(self.batch, self.rows, 0, False)

    # In inference mode a layer is one operator, whose matrix product nobody sees.
    @torch.no_grad()
    def forward(self) -> Any:
        """One forward pass."""
        return self.module(self.batch)

    @torch.no_grad()
    def score(self) -> None:
        """A forward pass, and every metric's update with its outputs."""
        self._scores.update_logits(self.forward(), self.batch)

    def work(self) -> StepWork:
        """What a step is made of, from the second one on."""
        self.step()
        with _Counting() as train:
            self.step()
        with _Counting() as forward:
            self.forward()
        parameters = sum(each.numel() for each in self._stepper.parameters)
        return StepWork(self.rows, parameters, train.work, forward.work, forward.made)


def median_seconds(function: Callable[[], object], seconds: float) -> float:
    """What a call takes, over so many seconds of calls, five at least. Not the least: of training's
    steps none but the luckiest is that fast."""
    found: list[float] = []
    until = time.perf_counter() + seconds
    while len(found) < 5 or time.perf_counter() < until:
        started = time.perf_counter()
        function()
        found.append(time.perf_counter() - started)
    return float(np.median(found))


class _Counting(TorchDispatchMode):
    """Counts what runs inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.work, self.made = Work(), 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        found = list(_tensors([out]))
        given = list(_tensors([*args, *(kwargs or {}).values()]))
        memory = {each.untyped_storage().data_ptr() for each in given}
        fresh = [each for each in found if each.untyped_storage().data_ptr() not in memory]
        moved = 0
        name = func._overloadpacket.__name__
        if name in TABLE_ADDERS:
            moved = sum(map(_bytes, given[1:]))
        elif fresh or func._schema.is_mutable:
            read = given[1:] if name in TABLE_READERS else given
            moved = sum(map(_bytes, (*read, *fresh)))
        self.made += sum(map(_bytes, fresh))
        count = FLOPS.get(func._overloadpacket) or flop_registry.get(func._overloadpacket)
        flops = count(*args, **(kwargs or {}), out_val=out) if count is not None else 0
        work, near = self.work, moved if moved < FAR_BYTES else 0
        self.work = Work(
            *(work.calls + 1, work.flops + int(flops)),
            *(work.bytes + near, work.far + moved - near),
        )
        return out


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
