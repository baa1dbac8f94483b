"""The functions of the Python interface; the command line calls the same ones.

A dataset is a path, a glob of Parquet files, an fsspec URL, or any object with Arrow's
PyCapsule interface (pandas, polars, pyarrow, DuckDB).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.workflow.arguments import told
from distcore.workflow.requests import AnswerRequest, ConfigLike, Location, TrainRequest
from distcore_core.contracts import JSON
from distcore_data.dataset import Data

if TYPE_CHECKING:
    from distcore.cost.scale import Scale
    from distcore.workflow.loaded import LoadedModel
    from distcore.workflow.outcome import Outcome
    from distcore_data.cache import Cache


@told
def experiment(
    config: ConfigLike = None,
    dataset: Any = None,
    *,
    training_set: Any = None,
    validation_set: Any = None,
    test_set: Any = None,
    data_format: str | None = None,
    backend: str | None = None,
    random_seed: int | None = None,
    gpus: int | str | Sequence[int] | None = None,
    output_directory: Location = "results",
    experiment_name: str = "experiment",
    model_name: str = "run",
    model_load_path: Location | None = None,
    model_resume_path: Location | None = None,
    model: Any = None,
    skip: Collection[str] = frozenset(),
    view: str = "interactive",
) -> Outcome:
    """Train, then evaluate and predict the test split; everything lies in one folder.

    Args:
        config, dataset, …: As those of `train`.

    Returns:
        Where everything lies, and its scores.

    Raises:
        DistcoreError: As `train`.
    """
    return _run(TrainRequest(command="experiment", **locals()))


@told
def train(
    config: ConfigLike = None,
    dataset: Any = None,
    *,
    training_set: Any = None,
    validation_set: Any = None,
    test_set: Any = None,
    data_format: str | None = None,
    backend: str | None = None,
    random_seed: int | None = None,
    gpus: int | str | Sequence[int] | None = None,
    output_directory: Location = "results",
    experiment_name: str = "experiment",
    model_name: str = "run",
    model_load_path: Location | None = None,
    model_resume_path: Location | None = None,
    model: Any = None,
    skip: Collection[str] = frozenset(),
    view: str = "interactive",
) -> Outcome:
    """Preprocess (or find the cache) and fit a model.

    Args:
        config: Path of a YAML file, YAML text of several lines, or a mapping; None to go on with a
            run as it began.
        dataset: What is split: a path, a glob, a URL or a frame.
        training_set: Given with `validation_set` and `test_set` in place of `dataset`.
        validation_set: See `training_set`.
        test_set: See `training_set`.
        data_format: Of the dataset; None finds it.
        backend: Overrides the config's.
        random_seed: Overrides the config's.
        gpus: Numbers of those to use, such as "0,1"; -1 for none, None for all.
        output_directory: Folder or address of experiments.
        experiment_name: With `model_name` the name of the folder in there.
        model_name: See `experiment_name`.
        model_load_path: Start from the weights of this model.
        model_resume_path: Go on with the run in this folder.
        model: A torch.nn.Module (an instance, whose weights are started from, or a class) in place
            of the config's.
        skip: Names of what not to save (`skip_save_…`).
        view: How to draw progress: "interactive" (bars on a terminal and in Jupyter), "auto" (there
            bars, else lines), "bars", "lines" or "none".

    Returns:
        Where the model and what belongs to it lie, and its scores.

    Raises:
        DistcoreError: What is wrong, where, and what to do; nothing is left then but the
            checkpoints of a run.
    """
    return _run(TrainRequest(command="train", **locals()))


@told
def preprocess(
    config: ConfigLike,
    dataset: Any = None,
    *,
    training_set: Any = None,
    validation_set: Any = None,
    test_set: Any = None,
    data_format: str | None = None,
    backend: str | None = None,
    random_seed: int | None = None,
    view: str = "interactive",
) -> Cache:
    """Build the cache of a dataset, or find it, and stop.

    Args:
        config, dataset, …: As those of `train`.

    Returns:
        Where the cache lies, and its key.

    Raises:
        DistcoreError: As `train`; a cache that was there is as it was.
    """
    from distcore.workflow.run import build_cache

    data = Data(dataset, training_set, validation_set, test_set, data_format)
    return build_cache(config, data, backend=backend, random_seed=random_seed, view=view)


@told
def predict(
    model_path: Location,
    dataset: Any,
    *,
    data_format: str | None = None,
    batch_size: int | None = None,
    backend: str | Mapping[str, Any] | None = None,
    gpus: int | str | Sequence[int] | None = None,
    trust: bool = False,
    output_directory: Location = "results",
    skip: Collection[str] = frozenset(),
    view: str = "interactive",
    credentials: Any = None,
    output_file: Location | None = None,
    keep: Sequence[str] = (),
    overwrite: bool = False,
) -> Path | str | None:
    """Predict every row of a dataset, in its order, into `<output_directory>/predictions.parquet`.

    Args: as for `evaluate`, and:
        output_file: Written in place of that; its ending, .csv or .parquet, says how.
        keep: Columns of the dataset that come before the predictions, such as a key.
        overwrite: Replace a file that is there, but not the predictions of a run.

    Returns:
        The file, or its address in a bucket; None if predictions are not to be saved.

    Raises:
        UserError: The file is there, and is not to be replaced.
    """
    return _answer(AnswerRequest(command="predict", **locals()))[0]


@told
def evaluate(
    model_path: Location,
    dataset: Any,
    *,
    data_format: str | None = None,
    batch_size: int | None = None,
    backend: str | Mapping[str, Any] | None = None,
    gpus: int | str | Sequence[int] | None = None,
    trust: bool = False,
    output_directory: Location = "results",
    skip: Collection[str] = frozenset(),
    view: str = "interactive",
    credentials: Any = None,
    overwrite: bool = False,
) -> JSON:
    """Metrics of a model on a dataset that holds its targets.

    Args:
        model_path: The model's folder, or the experiment's around it; or the address of one.
        dataset: A path, a glob, a URL or a frame.
        data_format: Of the dataset; None finds it.
        batch_size: Rows of a forward pass.
        backend: A name, or {"type": name, option: value}; one whose tasks run on other machines
            gets the dataset in pieces.
        gpus: See `train`.
        trust: See `load`; also make the extensions that the model was trained with.
        output_directory: Where `test_statistics.json` and `predictions.parquet` go; beside the
            file of `predict` the latter is `test_predictions.parquet`. Its column `row` says of
            which row each prediction is, from 0: rows that lack a target are left out.
        skip: See `train`.
        view: See `train`.
        credentials: See `load`.
        overwrite: Replace files that are there, but never those of a run.

    Returns:
        {output feature: {metric: number}}.

    Raises:
        UserError: A file is there, and is not to be replaced.
    """
    return _answer(AnswerRequest(command="evaluate", **locals()))[1]


@told
def load(model_path: str | Path, *, trust: bool = False, credentials: Any = None) -> LoadedModel:
    """Open a model folder (or the experiment's folder around it); `.predict(frame)` gives a table.

    Args:
        model_path: The folder, or its address in a bucket.
        trust: Allow a model that names a class from outside the installed plugins; opening it
            imports that class.
        credentials: Of the bucket that it lies in, a mapping or the path of a JSON file; None: what
            the environment gives.

    Returns:
        The model: `predict`, `evaluate`, and the `columns` that it needs.

    Raises:
        ArtifactError: It is damaged, foreign or not trusted.
        PluginError: A plugin that it needs is not there, or encodes otherwise.
    """
    from distcore.workflow.loaded import LoadedModel
    from distcore_data.stores import given_credentials

    return LoadedModel.open(model_path, trust=trust, credentials=given_credentials(credentials))


@told
def plan(
    config: ConfigLike,
    dataset: Any = None,
    *,
    training_set: Any = None,
    validation_set: Any = None,
    test_set: Any = None,
    data_format: str | None = None,
    backend: str | None = None,
    random_seed: int | None = None,
    gpus: Any = None,
    scale: Scale | None = None,
) -> JSON:
    """What `train` would run, where, through which plugins and why, and how long each stage takes.
    Changes nothing.

    Args:
        config, dataset, …: As those of `train`.
        scale: Numbers of workers to say the cost of a step for; None: none.

    Returns:
        What `distcore plan --json` prints.

    Raises:
        DistcoreError: What `train` would raise before any work.
    """
    from distcore.workflow.planning import plan as make_plan

    data = Data(dataset, training_set, validation_set, test_set, data_format).held()
    return make_plan(config, data, backend=backend, random_seed=random_seed, gpus=gpus, scale=scale)


def _run(asked: TrainRequest) -> Outcome:
    from distcore.workflow.run import run

    return run(asked)


def _answer(asked: AnswerRequest) -> tuple[Path | str | None, JSON]:
    from distcore.workflow.answers import answer

    return answer(asked)
