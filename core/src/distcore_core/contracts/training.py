"""From batches to a model: models, trainers, predictors, and what these are given and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

from distcore_core.contracts.backends import Backend
from distcore_core.contracts.features import FeatureSet
from distcore_core.contracts.loading import Batch
from distcore_core.contracts.values import JSON, CacheRef, PluginRef, Split

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import torch

    from distcore_core.progress import Progress

__all__ = [
    "Model",
    "ModelBase",
    "OpenJob",
    "Predictor",
    "ResultsStore",
    "TrainJob",
    "TrainResult",
    "Trainer",
    "TrainerBase",
]


@runtime_checkable
class ResultsStore(Protocol):
    """The bucket that a run's results are copied to. url: its address, for people. Pickles, credentials included.

    Raises StoreError, naming the object and the cause, if the store cannot be asked."""

    url: str

    def where(self, name: str) -> str:
        """The whole address of what has the name, for messages."""
        ...

    def put_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy a folder of plain files, of which `last` says what belongs to it, in place of what had the name."""
        ...

    def get_folder(self, name: str, folder: Path, last: str) -> None:
        """Copy it to this machine. Raises FileNotFoundError."""
        ...

    def folders(self, name: str, last: str = "") -> list[str]:
        """Names of the folders in a folder, in order; with `last`, of those that have that file."""
        ...

    def remove_folder(self, name: str, last: str) -> None:
        """Delete a folder, the file that makes it one first."""
        ...

    def put_file(self, name: str, path: Path) -> None:
        """Copy a file, in place of what had the name."""
        ...

    def put_files(self, folder: Path) -> None:
        """Copy the files of a run's folder that were not put yet, but for checkpoints and models."""
        ...

    def get_file(self, name: str, path: Path) -> None:
        """Copy a file to this machine. Raises FileNotFoundError."""
        ...


@runtime_checkable
class Model(Protocol):
    """Makes the torch module. Its forward takes a `Batch` (a mapping of column names to tensors) and returns
    {output feature: logits}."""

    def build(self, features: FeatureSet) -> torch.nn.Module: ...

    def check_trust(self, trust: bool) -> None:
        """Raise ArtifactError, before a saved model is built, if that would run code that nobody vouched for.

        trust: the user vouches for it."""
        ...


class ModelBase:
    """A model of this plugin's own code."""

    def check_trust(self, trust: bool) -> None:
        """It runs no other."""


@runtime_checkable
class Predictor(Protocol):
    """A fitted model, whatever made it."""

    def predict(self, batch: Batch) -> dict[str, np.ndarray]:
        """{output feature: output}, as `FeatureNetwork.output` describes: probabilities or encoded values."""
        ...


@runtime_checkable
class OpenJob(Protocol):
    """What a trainer works with: features, encoded rows, scores, listeners, and where the model goes.

    Everything but `features` may be called until the block ends."""

    @property
    def features(self) -> FeatureSet:
        """The config's features, with what preprocessing found in the data."""
        ...

    def rows(self, split: Split) -> int: ...

    def batches(self, split: Split, columns: Sequence[str] | None = None, rows: int = 65_536) -> Iterator[Batch]:
        """The split in row order, `rows` at a time.

        columns: those encoded columns alone; None: every one."""
        ...

    def scores(self, predictor: Predictor, split: Split) -> JSON:
        """{output feature: {metric: number}} of what it predicts for the split; {} if that has no rows."""
        ...

    def tell_epoch(self, epoch: int, step: int, metrics: Mapping[str, JSON]) -> None:
        """Tell the run's listeners; arguments as those of the event `epoch_finished`."""
        ...

    def write_model(self, files: Mapping[str, bytes | Callable[[BinaryIO], None]], extra: JSON | None = None) -> Path:
        """Write the model's folder, whole or not at all, to the run's bucket too, if it has one; returns its path.

        files: what `Trainer.load` will read, by file name. extra: JSON that is kept in model.json beside them.
        Raises TrainingError if the disk is full; a model that was there is then as it was."""
        ...


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """All that a trainer is given; pickles (workers open the cache and resolve plugins by themselves).

    config: the resolved config as plain JSON.
    cache: folder and key of the encoded data.
    opener: "module:function" that `open` calls with the job, so that whoever makes the job says what opens it.
    loader: the loader to resolve in each worker.
    trainer: the `backend.trainer` reference with its validated options.
    directory: the experiment's folder; None if nothing is to be saved. If results go to a bucket, a folder of
        this machine to work in.
    mirror: the bucket that what is written there is copied to, or None. `write_artifact` copies the model; a trainer
        that keeps checkpoints of its own copies them with `ResultsStore.put_folder` before it counts them as saved.
    seed: every random number of the run is keyed by it.
    resume: folder of the run to go on with, or None; if results go to a bucket, its checkpoints are in there.
    initial_weights: the model to start from (`--model_load_path`), or None.
    expected_rows: about how many rows the training split will have, for `Trainer.plan` before there is a cache.
    plugins: distributions and versions of what the run uses, for model.json: {"kind", "name", "distribution", …} each.
    planned_workers: batch sizes and learning rate are those of this many workers, whatever number there really are
        (a worker group that may shrink and grow); 0: of those there are.
    """

    config: JSON
    cache: CacheRef
    loader: PluginRef
    trainer: PluginRef
    directory: Path | None
    seed: int
    opener: str
    resume: Path | None = None
    initial_weights: Path | ResultsStore | None = None
    save_checkpoints: bool = True
    save_statistics: bool = True
    plugins_block: tuple[str, ...] = ()
    expected_rows: int | None = None
    planned_workers: int = 0
    mirror: ResultsStore | None = None
    plugins: Sequence[JSON] = ()

    def open(self) -> AbstractContextManager[OpenJob]:
        """Open the cache, make the features and let the run's extensions listen, in any process, for a `with` block.

        Raises CacheError if the cache cannot be read, ArtifactError or PluginError if a feature cannot be made."""
        module, _, function = self.opener.partition(":")
        made: AbstractContextManager[OpenJob] = getattr(import_module(module), function)(self)
        return made

    @property
    def home(self) -> Path | str | None:
        """Where the results are, for people and for `--model_resume_path`."""
        return self.mirror.url if self.mirror is not None else self.directory


@dataclass(frozen=True, kw_only=True)
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
    """How a model is fitted, over one or many workers. Not only torch.

    resources_per_worker: what each worker asks of the backend, such as {"CPU": 2}.
    Inherit from `TrainerBase`, which has the members of one that fits in this process.
    """

    @property
    def resources_per_worker(self) -> Mapping[str, float]: ...

    def workers(self, backend: Backend) -> int:
        """How many processes `fit` starts there."""
        ...

    def uses_gpu(self, backend: Backend) -> bool:
        """Whether each of them is to have a GPU."""
        ...

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """What `fit` would do, for people: workers, batch sizes, steps an epoch, notes. Changes nothing."""
        ...

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult: ...

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> Predictor:
        """Open the files that `fit` wrote beside model.json."""
        ...


class TrainerBase:
    """A trainer that fits in this process, on its CPUs."""

    @property
    def resources_per_worker(self) -> Mapping[str, float]:
        """Nothing in particular."""
        return {}

    def workers(self, backend: Backend) -> int:
        """This one."""
        return 1

    def uses_gpu(self, backend: Backend) -> bool:
        """No."""
        return False
