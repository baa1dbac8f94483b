"""From batches to a model: trainers, and what these are given and give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, Protocol, runtime_checkable

from distcore_core.contracts.backends import Backend
from distcore_core.contracts.features import FeatureSet
from distcore_core.contracts.loading import Batch
from distcore_core.contracts.models import Predictor
from distcore_core.contracts.results import ResultsStore
from distcore_core.contracts.values import JSON, CacheRef, PluginRef, Split

if TYPE_CHECKING:
    from pathlib import Path

    from distcore_core.progress import Progress

__all__ = [
    "OpenJob",
    "TrainJob",
    "TrainResult",
    "Trainer",
    "TrainerBase",
]


@runtime_checkable
class OpenJob(Protocol):
    """What a trainer works with: features, encoded rows, scores, listeners, and where the model
    goes.

    Everything but `features` may be called until the block ends."""

    @property
    def features(self) -> FeatureSet:
        """The config's features, with what preprocessing found in the data."""
        ...

    def rows(self, split: Split) -> int:
        """How many rows a split has."""
        ...

    def batches(
        self, split: Split, columns: Sequence[str] | None = None, rows: int = 65_536
    ) -> Iterator[Batch]:
        """A split in row order.

        Args:
            columns: Those encoded columns alone; None: every one.
            rows: Of a batch, but for the last.
        """
        ...

    def scores(self, predictor: Predictor, split: Split) -> JSON:
        """Judge a model.

        Args:
            predictor: The fitted model.
            split: The rows it is asked for.

        Returns:
            {output feature: {metric: number}}; {} if the split has no rows.
        """
        ...

    def tell_epoch(self, epoch: int, step: int, metrics: Mapping[str, JSON]) -> str:
        """Tell the run's listeners: the event `epoch_finished`.

        Args:
            epoch: How many have begun.
            step: Updates of the weights so far.
            metrics: {"training" | "validation": {output feature: {metric: number or None}}}.

        Returns:
            Why one of them asks to end training here, which it then must; "": nobody does.
        """
        ...

    def write_model(
        self, files: Mapping[str, bytes | Callable[[BinaryIO], None]], extra: JSON | None = None
    ) -> Path:
        """Write the model's folder, whole or not at all, to the run's bucket too, if it has one.

        Args:
            files: What `Trainer.load` will read, by file name: bytes, or a function that writes
                them.
            extra: JSON that is kept in model.json beside them.

        Returns:
            The folder's path.

        Raises:
            TrainingError: The disk is full; a model that was there is as it was.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """All that a trainer is given; pickles (workers open the cache and resolve plugins by
    themselves).

    config: the resolved config as plain JSON.
    cache: folder and key of the encoded data.
    opener: "module:function" that `open` calls with the job, so that whoever makes the job says
        what opens it.
    loader: the loader to resolve in each worker.
    trainer: the `backend.trainer` reference with its validated options.
    directory: the experiment's folder; None if nothing is to be saved. If results go to a bucket, a
        folder of this machine to work in.
    mirror: the bucket that what is written there is copied to, or None. `write_artifact` copies the
        model; a trainer that keeps checkpoints of its own copies them with
        `ResultsStore.put_folder` before it counts them as saved.
    save_checkpoints: whether folders of checkpoints are kept in directory/checkpoints.
    seed: every random number of the run is keyed by it.
    resume: folder of the run to go on with, or None; if results go to a bucket, its checkpoints are
        in there.
    initial_weights: the model to start from (`--model_load_path`), or None.
    expected_rows: about how many rows the training split will have, for `Trainer.plan` before there
        is a cache.
    plugins: distributions and versions of what the run uses, for model.json: {"kind", "name",
        "distribution", …} each.
    planned_workers: batch sizes and learning rate are those of this many workers, whatever number
        there really are (a worker group that may shrink and grow); 0: of those there are.
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
        """Open the cache, make the features and let the run's extensions listen, in any process,
        for a `with` block.

        Raises:
            CacheError: The cache cannot be read.
            ArtifactError, PluginError: A feature cannot be made.
        """
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
    statistics: {"training" | "validation" | "test": {output feature: {metric: [a value an
        evaluation]}}}, plus "combined" for the summed loss; JSON.
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
    def resources_per_worker(self) -> Mapping[str, float]:
        """{resource: how much}; {}: nothing in particular."""
        ...

    def workers(self, backend: Backend) -> int:
        """How many processes `fit` starts there."""
        ...

    def uses_gpu(self, backend: Backend) -> bool:
        """Whether each of them is to have a GPU."""
        ...

    def plan(self, job: TrainJob, backend: Backend) -> JSON:
        """What `fit` would do. Changes nothing.

        Args:
            job: What it would be given.
            backend: Where it would run.

        Returns:
            For people: workers, batch sizes, steps an epoch, notes.
        """
        ...

    def fit(self, job: TrainJob, backend: Backend, progress: Progress) -> TrainResult:
        """Fit a model to rows of the training split alone and write it (`OpenJob.write_model`).
        It leaves the config and the process's random numbers, threads and the like unchanged, and
        forks from the thread that called it, or spawns: a fork of another has the caller's dtype.

        Args:
            job: Config, data, and where the model goes.
            backend: Where to run.
            progress: Told of every step, and by `tell` of every evaluation.

        Raises:
            TrainingError: It cannot go on.
            Stopped: After a signal; what is kept is said.
        """
        ...

    def load(self, directory: Path, features: FeatureSet, *, trust: bool = False) -> Predictor:
        """Open the files that `fit` wrote beside model.json.

        Args:
            directory: The model's folder.
            features: As they were fitted.
            trust: The user vouches for its code.

        Raises:
            ArtifactError: They are not as they were written, or name code that is not trusted.
        """
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
