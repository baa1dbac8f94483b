"""The roles that plugins play, and the values that cross between them.

Each role is a Protocol of at most six methods; a plugin need not inherit from anything here. The values are frozen
dataclasses that pickle and compare by content, because they travel to other processes. Nothing here imports an engine,
torch or Arrow: the annotations are for readers and type checkers.

Shapes: n is rows of a dataset, B rows of a batch, W 32-bit words of one encoded row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pyarrow as pa
    import torch

    from distcore.batch import Batch
    from distcore.cache import Cache
    from distcore.progress import Progress

API_VERSION = (1, 0)
"""Version of these contracts. A plugin written for (1, x) works with every core (1, y >= x)."""

T = TypeVar("T")
JSON = dict[str, Any]
Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")


# ------------------------------------------------------------------ values


@dataclass(frozen=True)
class PluginRef:
    """What a worker needs to resolve a plugin again: no plugin object is ever pickled."""

    kind: str
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """One encoded column as it lies in the cache and in a batch.

    dtype: "float32" or "int32"; every fixed-width value is one or more 32-bit words.
    width: values in a row (1 for a number or a code), or None for a ragged column (tokens, set members), whose
        dtype is int32.
    """

    name: str
    dtype: Literal["float32", "int32"]
    width: int | None = 1


@dataclass(frozen=True)
class Block:
    """A piece of the raw dataset, in row order.

    index: position among the blocks of this scan (0, 1, …), in row order.
    start: global number of its first row, or None while blocks are still being read out of order.
    table: the declared columns, typed as the features asked (`Feature.raw`).
    """

    index: int
    start: int | None
    table: pa.RecordBatch


@dataclass(frozen=True)
class ShardPlan:
    """The global rows [start, stop) of shard `index`; cut at fixed row numbers, never at an engine's partitions."""

    index: int
    start: int
    stop: int


@dataclass(frozen=True)
class Resources:
    """What a backend can use now.

    workers: how many ranks it suggests for training on CPUs; 0: one a CPU."""

    cpus: int
    gpus: int = 0
    nodes: int = 1
    memory_bytes: int = 0
    workers: int = 0


@dataclass(frozen=True)
class Detection:
    """What `distcore_detect` found: how strongly it speaks for the backend (higher wins) and one line saying why."""

    backend: str
    priority: int
    reason: str


@dataclass(frozen=True)
class Member:
    """One process of a gang. `rank` in [0, world); `local_rank` counts the processes of this machine."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0


@dataclass(frozen=True)
class Gang:
    """N ranks that start together, fail together and are retried together.

    function: importable at top level, called as function(member, *arguments) in every rank.
    ranks: number of processes.
    max_retries: how often the whole gang is started again after a rank died (the function resumes from checkpoints).
    threads: intra-op threads of a rank; 0 lets the backend share out the CPUs.
    use_gpu: give each rank its own GPU.
    min_ranks: fewest ranks to go on with where a backend can start the gang smaller (or larger, up to `ranks`) after
        a loss; 0: always `ranks`.
    rendezvous: {backend: "module:function"}, how ranks find each other there where it is not the backend's own way.
        What the function is and gives is the backend's to say (its README does).
    """

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    ranks: int = 1
    max_retries: int = 0
    threads: int = 0
    use_gpu: bool = False
    resources_per_worker: Mapping[str, float] = field(default_factory=dict)
    min_ranks: int = 0
    rendezvous: Mapping[str, str] = field(default_factory=dict)


# ------------------------------------------------------------------ roles: where


@runtime_checkable
class Backend(Protocol):
    """Where work runs. `defaults` names the processor, loader and trainer used where the config names none.

    One whose tasks run on other machines has `distributed = True` (without it: False): core then hands it work in
    pieces, through `map`, that it would else do in this process, such as predictions.

    One whose ranks are on other machines may also have
    - `relay(progress)`: in place of `training.relay.Relay`, for workers that share no file with this process;
    - `check_storage(read, written)`: raises UserError where a node cannot see one of {what it is: path of a file or
      folder that is read, or of a folder that is written to}; called before work.
    """

    name: str
    defaults: Mapping[str, str]

    def resources(self) -> Resources: ...

    def run_gang(self, gang: Gang) -> list[Any]:
        """Run the gang to its end; results in rank order. Raises TrainingError naming the rank that died."""
        ...

    def map(self, function: Callable[[Any], T], items: Sequence[Any]) -> Iterator[T]:
        """Independent tasks; results in the order of the items, the first error raised as it is.

        function: importable, or an object that pickles, which may hold megabytes: it travels once, only items travel
        with every task. A task whose worker is lost runs again elsewhere. A few results at most wait to be taken, and
        nothing is begun any more once the iterator is closed."""
        ...

    def close(self) -> None: ...


# ------------------------------------------------------------------ roles: rows to cache


@runtime_checkable
class Partition(Protocol):
    """A piece of a source that one task reads by itself. Small and picklable: a description, not the rows."""

    def read(self) -> pa.RecordBatch: ...


@runtime_checkable
class Source(Protocol):
    """A dataset: the declared columns, typed as asked, as partitions in row order.

    One that knows how many rows it has without reading them also has `rows() -> int`."""

    def digest(self) -> str:
        """Digest of the content (never of path or time)."""
        ...

    def partitions(self, target_bytes: int) -> Sequence[Partition]: ...

    def close(self) -> None:
        """Remove what was unpacked or downloaded for reading."""
        ...


@runtime_checkable
class Processor(Protocol):
    """The engine that turns raw rows into encoded shards.

    The pure functions it runs come from core, so every engine gives the same answer; only where they run differs.
    One pass of `fold` reads each partition exactly once and keeps the rows (typed, compact) for `write_shards`.
    """

    def scan(self, source: Source, scratch: Path | None = None) -> int:
        """Cut the source into partitions in row order; returns how many there are.

        scratch: a folder on this machine for rows that are kept; its owner deletes it in the end."""
        ...

    def fold(self, partial: Callable[[Block], T], merge: Callable[[T, T], T]) -> tuple[T, list[int]]:
        """Read every partition once, give it to `partial` and merge the results in any order.

        Returns the merged value and the rows of each block in block order."""
        ...

    def write_shards(self, plans: Sequence[ShardPlan], write: Callable[[ShardPlan, list[Block]], T]) -> list[T]:
        """Call write(plan, blocks) for each plan with the slices that make up its rows; results in plan order."""
        ...

    def close(self) -> None:
        """Drop what was kept."""
        ...


@runtime_checkable
class ShardReader(Protocol):
    """An open shard: its length and ranges of its rows."""

    rows: int

    def read(self, start: int = 0, stop: int | None = None, columns: Sequence[str] | None = None) -> pa.RecordBatch: ...

    def close(self) -> None: ...


@runtime_checkable
class CacheFormat(Protocol):
    """How encoded columns lie in one file. Equal tables give equal bytes."""

    suffix: str

    def write(self, target: BinaryIO, table: pa.Table) -> None: ...

    def open(self, source: BinaryIO) -> ShardReader: ...


# ------------------------------------------------------------------ roles: features


@runtime_checkable
class Feature(Protocol):
    """One column's type, the half that needs no torch: statistics, encoding, decoding.

    raw: how a source reads the column: "number" (float64), "category" (dictionary of strings) or "string".
    name, options: the column's name and its validated options.

    `partial`, `merge` and `finish` must give the same bits for any partition of the rows and any order of merging.
    """

    name: str
    raw: Literal["number", "category", "string"]
    options: Any

    def partial(self, values: pa.Array) -> Any:
        """Mergeable statistics of some rows; picklable."""
        ...

    def merge(self, left: Any, right: Any) -> Any: ...

    def finish(self, state: Any) -> JSON:
        """The metadata that `encode`, `decode` and the network need; JSON, the same bits for the same rows."""
        ...

    def column(self, metadata: JSON) -> Column: ...

    def encode(self, values: pa.Array, metadata: JSON) -> pa.Array:
        """Encode some rows: float32 or int32, FixedSizeList of them, or List<int32> for a ragged column.

        Row-wise: the code of a row depends on that row and the metadata alone. Missing values that are filled from
        neighbours (bfill, ffill) were filled before; rows to be dropped were dropped before."""
        ...

    def network(self) -> FeatureNetwork:
        """The half that needs torch, imported when it is asked for."""
        ...


@runtime_checkable
class FeatureNetwork(Protocol):
    """One column's type, the half that needs torch. `metadata` is what `Feature.finish` returned."""

    def encoder(self, metadata: JSON) -> torch.nn.Module:
        """Maps the column's batch value to [B, encoder.output_size]. Inputs only."""
        ...

    def decoder(self, metadata: JSON, input_size: int) -> torch.nn.Module:
        """Maps [B, input_size] to logits, [B] or [B, classes]. Outputs only."""
        ...

    def loss(self, logits: torch.Tensor, target: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """Loss of each row, [B], already weighted by class weights; the trainer sums and divides."""
        ...

    def metrics(self, metadata: JSON) -> Mapping[str, Any]:
        """Fresh torchmetrics metrics by Ludwig's names; each takes (output, target) where output is `output()`'s."""
        ...

    def output(self, logits: torch.Tensor, metadata: JSON) -> torch.Tensor:
        """What metrics and `predictions` read: probabilities [B] or [B, classes], or values [B] in encoded units."""
        ...

    def predictions(self, output: np.ndarray, metadata: JSON) -> pa.RecordBatch:
        """Decoded columns for people: `<name>_predictions`, `<name>_probabilities_<class>`, `<name>_probability`."""
        ...


# ------------------------------------------------------------------ roles: model, loader, trainer


@runtime_checkable
class Model(Protocol):
    """Makes the torch module. Its forward takes a `Batch` (a mapping of column names to tensors) and returns
    {output feature: logits}."""

    def build(self, features: FeatureSet) -> torch.nn.Module: ...


@runtime_checkable
class FeatureSet(Protocol):
    """The fitted features of a run, as models and trainers see them."""

    @property
    def inputs(self) -> Sequence[Feature]: ...

    @property
    def outputs(self) -> Sequence[Feature]: ...

    @property
    def metadata(self) -> Mapping[str, JSON]:
        """{feature: what `Feature.finish` returned}."""
        ...

    @property
    def columns(self) -> Mapping[str, Column]: ...


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
    directory: the experiment's folder; None where nothing is to be saved.
    seed: every random number of the run is keyed by it.
    resume: folder of the checkpoints to go on from, or None.
    initial_weights: model folder to start from (`--model_load_path`), or None.
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
    initial_weights: Path | None = None
    save_checkpoints: bool = True
    save_statistics: bool = True
    plugins_block: tuple[str, ...] = ()
    expected_rows: int | None = None
    planned_workers: int = 0


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


# ------------------------------------------------------------------ roles: search


@dataclass(frozen=True)
class Axis:
    """What an engine samples for one parameter of a search; `distcore.search.space` turns it into the config's value.

    kind: "float" or "int" between low and high, both included; "choice": a position from 0 to high.
    log: uniform in the logarithm. step: only low, low + step, …. grid: every position is to be tried.
    """

    kind: Literal["float", "int", "choice"]
    low: float
    high: float
    log: bool = False
    step: float | None = None
    grid: bool = False

    def at(self, u: float) -> Any:
        """The value at u in [0, 1): the same for the same u on every machine."""
        whole = self.kind != "float"
        span = self.high - self.low + (1 if whole else 0)
        if self.log:
            low = self.low - 0.5 if whole else self.low
            value = low * ((self.high + 0.5 if whole else self.high) / low) ** u
            return min(max(round(value), self.low), self.high) if whole else min(value, self.high)
        if self.step is not None:
            steps = int((self.high - self.low) / self.step + 1e-9) + 1
            value = self.low + int(u * steps) * self.step
            return int(value) if whole else min(value, self.high)
        return int(self.low + int(u * span)) if whole else self.low + u * span


@dataclass(frozen=True)
class SearchJob:
    """All that an executor is given; pickles.

    function: importable at top level; function(work, name, raw) runs one trial to its end in `directory/trials/<name>`
        and leaves its record there, whatever happens (`distcore.search.trial`). It goes on with a trial it finds begun.
    work: what the function needs besides. axes: {parameter: what may be asked}.
    variants: the raw parameters of every trial, where they are known from the start (grid and random search); None
        where the engine's algorithm asks one after another. trials: how many.
    algorithm: the validated `search_alg` section, {"type": …}; {} where the config names none. points: raw parameters
        to begin with, as far as they are given. seed: every random number of the search is keyed by it.
    workers: processes of one trial, and resources_per_worker what each of them asks of the backend.
    directory: the search's folder. resume: it holds a search that was begun.
    """

    function: Callable[[Any, str, Mapping[str, Any]], None]
    work: Any
    axes: Mapping[str, Axis]
    variants: tuple[Mapping[str, Any], ...] | None
    trials: int
    goal: Literal["minimize", "maximize"]
    directory: Path
    algorithm: JSON = field(default_factory=dict)
    points: tuple[Mapping[str, Any], ...] = ()
    seed: int = 0
    workers: int = 1
    resources_per_worker: Mapping[str, float] = field(default_factory=dict)
    use_gpu: bool = False
    resume: bool = False


@runtime_checkable
class Executor(Protocol):
    """How the trials of a search are chosen, run beside each other, and stopped early."""

    name: str

    def plan(self, job: SearchJob, backend: Backend) -> JSON:
        """{"at_once": trials beside each other, "algorithm": its name, "notes": […]}. Changes nothing, starts no trial.

        Raises UserError for what it cannot carry out, and where the trials could wait for each other for ever."""
        ...

    def run(self, job: SearchJob, backend: Backend, told: Callable[[str], None]) -> None:
        """Run every trial that has not ended yet. told(name): its record is final.

        A trial that fails is its own affair. Raises KeyboardInterrupt after a ctrl-C, once every trial has stopped."""
        ...
