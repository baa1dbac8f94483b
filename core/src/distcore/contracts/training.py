"""From a cache to a model: loaders, models, trainers, predictors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from distcore.contracts.backends import Backend
from distcore.contracts.features import FeatureSet
from distcore.contracts.values import JSON, PluginRef

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch

    from distcore.batch import Batch
    from distcore.cache import Cache
    from distcore.mirror import Mirror
    from distcore.progress import Progress


@runtime_checkable
class Model(Protocol):
    """Makes the torch module. Its forward takes a `Batch` (a mapping of column names to tensors) and returns
    {output feature: logits}."""

    def build(self, features: FeatureSet) -> torch.nn.Module: ...


@runtime_checkable
class Loader(Protocol):
    """The way from cache to batches of tensors, for one split, one rank and one epoch after another."""

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """This rank's part of global batches start, start + 1, … of the epoch; always the same for (seed, epoch)."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class Predictor(Protocol):
    """A fitted model, whatever made it."""

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        """{output feature: output}, as `FeatureNetwork.output` describes: probabilities or encoded values."""
        ...


@dataclass(frozen=True)
class TrainJob:
    """All that a trainer is given; pickles (workers open the cache and resolve plugins by themselves).

    config: the resolved config as plain JSON.
    cache: folder and key of the encoded data; `distcore.cache.open_cache(cache)` reads it.
    loader: the loader to resolve in each worker.
    trainer: the `backend.trainer` reference with its validated options.
    directory: the experiment's folder; None where nothing is to be saved. Where results go to a bucket, a folder of
        this machine to work in.
    mirror: the bucket that what is written there is copied to, or None. `write_artifact` copies the model; a trainer
        that keeps checkpoints of its own copies them with `Mirror.put_folder` before it counts them as saved.
    seed: every random number of the run is keyed by it.
    resume: folder of the run to go on with, or None; where results go to a bucket, its checkpoints are in there.
    initial_weights: the model to start from (`--model_load_path`), or None.
    expected_rows: about how many rows the training split will have, for `Trainer.plan` before there is a cache.
    planned_workers: batch sizes and learning rate are those of this many workers, whatever number there really are
        (a gang that may shrink and grow); 0: of those there are.
    """

    config: JSON
    cache: Cache
    loader: PluginRef
    trainer: PluginRef
    directory: Path | None
    seed: int
    resume: Path | None = None
    initial_weights: Path | Mirror | None = None
    save_checkpoints: bool = True
    save_statistics: bool = True
    plugins_block: tuple[str, ...] = ()
    expected_rows: int | None = None
    planned_workers: int = 0
    mirror: Mirror | None = None

    @property
    def home(self) -> Path | str | None:
        """Where the results are, for people and for `--model_resume_path`."""
        return self.mirror.url if self.mirror is not None else self.directory


@dataclass(frozen=True)
class TrainResult:
    """What training gives back.

    model: folder that `Trainer.load` can read; written whole or not at all.
    statistics: {"train" | "validation" | "test": {output feature: {metric: [a value an evaluation]}}}, plus
        "combined" for the summed loss; JSON.
    best: {"epoch", "step", "value", "metric", "feature"} of the weights that were kept.
    """

    model: Path
    statistics: JSON
    best: JSON
    steps: int
    epochs: float


@runtime_checkable
class Trainer(Protocol):
    """How a model is fitted, over one or many workers. Not only torch."""

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """What `fit` would do, for people: workers, batch sizes, steps an epoch, notes. Changes nothing."""
        ...

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult: ...

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> Predictor:
        """Open the files that `fit` wrote beside model.json."""
        ...
