"""The story, top to bottom: config → preprocess → cache → load → train → evaluate → predict →
report.

These are the functions of the Python interface; the command line calls the same ones. A dataset is
a path, a glob, an fsspec URL, or any object with Arrow's PyCapsule interface (pandas, polars,
pyarrow, DuckDB).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.workflow import folders, receipt, results
from distcore.workflow.arguments import told
from distcore.workflow.description import describe
from distcore.workflow.prepare import check_storage, prepare
from distcore.workflow.requests import (
    AnswerRequest,
    ConfigLike,
    Location,
    TrainRequest,
    own_extensions,
)
from distcore.workflow.session import Session, open_session
from distcore.workflow.summary import NAME as SUMMARY
from distcore.workflow.summary import of_test_split, summary_of
from distcore.workflow.training_log import training_log
from distcore_core.contracts import JSON, LOADER, TRAINER, ResultsStore, TrainJob, TrainResult
from distcore_core.errors import TrainingError
from distcore_data.dataset import Data
from distcore_torch.signals import Stoppable
from distcore_torch.training.job import OPENER

if TYPE_CHECKING:
    from distcore.cost.scale import Scale
    from distcore.workflow.loaded import LoadedModel
    from distcore.workflow.shown import Figure
    from distcore_data.cache import Cache
    from distcore_data.stores.run_sync import Mirror


@dataclass(frozen=True)
class Outcome:
    """What `train` and `experiment` give back.

    directory: the experiment's folder. model: its model folder, or None if it was not saved. If
    results go to a bucket, these and `predictions` are addresses.
    training_statistics: {split: {output feature: {metric: [a value an evaluation]}}}.
    test_statistics: {output feature: {metric: number}}, None for `train`.
    predictions: the file, or None. report: the page that the extension `report` wrote, or None.
    """

    directory: Path | str
    model: Path | str | None
    training_statistics: JSON = field(repr=False)
    test_statistics: JSON | None = None
    predictions: Path | str | None = None
    report: Path | str | None = None

    def plot(self, kind: str = "curves", metric: str | None = None) -> Figure:
        """A figure that a notebook shows; its `spec` is Vega-Lite.

        Args:
            kind: "curves", "confusion", "importance" or "residuals".
            metric: Of the curves; None for the one that picked the best evaluation.

        Raises:
            UserError: There is no such figure, or this run has nothing for it.
        """
        from distcore.workflow.shown import figure

        return figure(self, kind, metric)

    def _repr_html_(self) -> str:
        from distcore.workflow.shown import html_of

        return html_of(self)

    def in_bucket(self, mirror: Mirror) -> Outcome:
        """The same, with the addresses of what lies in the mirror."""
        model = mirror.store.where(results.MODEL) if self.model is not None else None
        predictions = (
            mirror.store.where(results.PREDICTIONS) if self.predictions is not None else None
        )
        report = mirror.store.where(results.REPORT) if self.report is not None else None
        return replace(
            self, directory=mirror.url, model=model, predictions=predictions, report=report
        )


@told
def experiment(
    config: ConfigLike,
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

    Raises:
        DistcoreError: As `train`.
    """
    return _train(TrainRequest(command="experiment", **locals()))


@told
def train(
    config: ConfigLike,
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

    Raises:
        DistcoreError: What is wrong, where, and what to do; nothing is left then but the
            checkpoints of a run.
    """
    return _train(TrainRequest(command="train", **locals()))


def _train(asked: TrainRequest) -> Outcome:
    data = asked.data
    config, weights = asked.to_run()
    start = asked.start(config)
    folders.check_place(asked.going_on or asked.output, config.backend.credentials)
    with Stoppable(), ExitStack() as stack:
        stack.enter_context(folders.as_before(asked.output))
        session = stack.enter_context(
            open_session(
                asked.command,
                config,
                backend=asked.backend,
                random_seed=asked.random_seed,
                gpus=asked.gpus,
                view=asked.view,
                own=own_extensions(asked.skip),
            )
        )
        check_storage(session, data, asked.going_on or asked.output)
        cache = prepare(session, data)
        if "skip_save_processed_input" in asked.skip and session.built_cache:
            stack.callback(results.remove_cache, cache)
        stack.enter_context(folders.run_folder(session, asked, session.backend.taken_over()))
        if weights is not None:
            start = results.write_weights(session, weights)
        return _train_and_save(session, cache, asked, start)


def _train_and_save(
    session: Session, cache: Cache, asked: TrainRequest, start: Path | ResultsStore | None
) -> Outcome:
    """Fit, and fill the experiment's folder; for an experiment, also score and predict the test
    split."""
    assert session.directory is not None
    skip, resuming = asked.skip, asked.going_on is not None
    description = describe(session, asked.data, cache)
    session.started()
    if not resuming:
        results.write(
            session, results.DESCRIPTION, description, skip, "skip_save_training_description"
        )
        receipt.write(session, description, cache, skip)
    trained = fit(session, cache, start, resuming, skip, description["plugins"])
    if resuming:  # not before it is known that this is the run of that folder
        results.write(
            session, results.DESCRIPTION, description, skip, "skip_save_training_description"
        )
    results.write(
        session,
        "training_statistics.json",
        trained.statistics,
        skip,
        "skip_save_training_statistics",
    )
    trained = replace(trained, model=results.brought_model(session, trained.model))
    test, path, summary = None, None, summary_of(session, trained)
    if session.command == "experiment":
        test, path = _evaluate_test_split(session, cache, trained.model, skip, summary)
    results.write(session, SUMMARY, summary, skip, "skip_save_report")
    session.results_written()
    if "skip_save_model" in skip:
        results.remove_model(session, trained.model)
    receipt.finish(session, description, cache, skip)
    report = results.written_report(session, skip)
    found = Outcome(session.directory, trained.model, trained.statistics, test, path, report)
    return found if session.mirror is None else found.in_bucket(session.mirror)


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

    Raises:
        DistcoreError: As `train`; a cache that was there is as it was.
    """
    data = Data(dataset, training_set, validation_set, test_set, data_format)
    with (
        Stoppable(),
        open_session(
            "preprocess", config, backend=backend, random_seed=random_seed, view=view
        ) as session,
    ):
        session.started()
        check_storage(session, data)
        return prepare(session, data)


def fit(
    session: Session,
    cache: Cache,
    load: Path | ResultsStore | None,
    resume: bool,
    skip: Any = (),
    plugins: Sequence[JSON] = (),
) -> TrainResult:
    """Fit a model on the cache's training split with the config's trainer.

    load: the model to start from. resume: go on from the checkpoints in the session's folder.
    plugins: what the run uses, for model.json."""
    job = train_job(session, cache, load, resume, skip, plugins)
    logged = None if "skip_save_training_statistics" in skip else session.directory
    with training_log(session.progress, logged, session.mirror if resume else None):
        result = session.make(TRAINER).fit(job, session.backend, session.progress)
    try:
        results.refuse_without_scores(result)
    except TrainingError:
        results.remove_model(session, result.model)
        raise
    return result


def train_job(
    session: Session,
    cache: Cache,
    load: Path | ResultsStore | None = None,
    resume: bool = False,
    skip: Any = (),
    plugins: Sequence[JSON] = (),
) -> TrainJob:
    """Everything a trainer is told. plugins: those that the run uses, as `written` says them."""
    return TrainJob(
        config=session.config.as_json(),
        cache=cache,
        loader=session.reference(LOADER),
        trainer=session.reference(TRAINER),
        directory=session.directory,
        seed=session.config.random_seed,
        opener=OPENER,
        resume=session.directory if resume else None,
        initial_weights=load,
        save_checkpoints="skip_save_progress" not in skip,
        save_statistics="skip_save_training_statistics" not in skip,
        plugins_block=tuple(session.plugins.block),
        mirror=session.mirror,
        plugins=plugins,
    )


def _evaluate_test_split(
    session: Session, cache: Cache, model: Path, skip: Any, summary: JSON
) -> tuple[JSON, Path | None]:
    """Evaluate and predict the test split in one pass over it: (the metrics, the predictions'
    file).

    summary: is given what the split shows beside that."""
    from distcore_data.artifact import open_artifact
    from distcore_data.cache import open_cache
    from distcore_torch.evaluation import Evaluation
    from distcore_torch.prediction import split_batches

    assert session.directory is not None
    artifact = open_artifact(model, plugins=session.plugins, trust=True)
    evaluation = Evaluation(artifact.features, "test")
    path = None if "skip_save_predictions" in skip else session.directory / results.PREDICTIONS
    with open_cache(cache, session.plugins) as reader:
        session.progress.begin("test", total=reader.rows("test"))
        rows = session.config.trainer.eval_batch_size
        batches = split_batches(artifact, reader, "test", rows if isinstance(rows, int) else None)
        results.predictions(
            path,
            evaluation.run(batches, session.progress, decode=path is not None),
            artifact.features,
        )
        session.progress.end()
        statistics = evaluation.statistics()
        if "skip_save_report" not in skip and reader.rows("test"):
            of_test_split(session, summary, reader, artifact, statistics)
    results.write(session, "test_statistics.json", statistics, skip, "skip_save_eval_stats")
    results.write(
        session, "test_diagnostics.json", evaluation.drawings(), skip, "skip_save_eval_stats"
    )
    if path is not None:
        session.plugins.manager.hook.predictions_written(path=path, rows=evaluation.rows)
    return statistics, path


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
        overwrite: Replace a file that is there.

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
        trust: See `load`.
        output_directory: Where `test_statistics.json` and `predictions.parquet` go.
        skip: See `train`.
        view: See `train`.
        credentials: See `load`.

    Returns:
        {output feature: {metric: number}}.
    """
    return _answer(AnswerRequest(command="evaluate", **locals()))[1]


def _answer(asked: AnswerRequest) -> tuple[Path | str | None, JSON]:
    from distcore.workflow.answers import answer

    return answer(asked)


@told
def load(model_path: str | Path, *, trust: bool = False, credentials: Any = None) -> LoadedModel:
    """Open a model folder (or the experiment's folder around it); `.predict(frame)` gives a table.

    Args:
        model_path: The folder, or its address in a bucket.
        trust: Allow a model that names a class from outside the installed plugins; opening it
            imports that class.
        credentials: Of the bucket that it lies in, a mapping or the path of a JSON file; None: what
            the environment gives.

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

    Raises:
        DistcoreError: What `train` would raise before any work.
    """
    from distcore.workflow.planning import plan as make_plan

    data = Data(dataset, training_set, validation_set, test_set, data_format)
    return make_plan(config, data, backend=backend, random_seed=random_seed, gpus=gpus, scale=scale)
