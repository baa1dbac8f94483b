"""The story, top to bottom: config → preprocess → cache → load → train → evaluate → predict →
report."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.workflow import folders, receipt, results
from distcore.workflow.answer_place import refuse_among_rows
from distcore.workflow.description import describe
from distcore.workflow.initial_weights import write_weights
from distcore.workflow.outcome import Outcome
from distcore.workflow.prepare import (
    check_predictions,
    check_storage,
    prepare,
    tell_constant_targets,
    tell_other_codes,
)
from distcore.workflow.requests import (
    ConfigLike,
    TrainRequest,
    own_extensions,
)
from distcore.workflow.session import Session, open_session
from distcore.workflow.skips import (
    SKIP_EVAL_STATS,
    SKIP_MODEL,
    SKIP_PREDICTIONS,
    SKIP_PROCESSED_INPUT,
    SKIP_PROGRESS,
    SKIP_REPORT,
    SKIP_TRAINING_DESCRIPTION,
    SKIP_TRAINING_STATISTICS,
)
from distcore.workflow.split_scores import add_split_scores
from distcore.workflow.summary import summary_of
from distcore.workflow.summary_of_test import of_test_split
from distcore.workflow.training_log import training_log
from distcore.workflow.worst_rows import Worst
from distcore_core.contracts import JSON, LOADER, TRAINER, ResultsStore, TrainJob, TrainResult
from distcore_core.errors import TrainingError
from distcore_core.io.digest import digest_file
from distcore_data.dataset import Data
from distcore_data.own_files import as_before
from distcore_data.run_files import (
    DESCRIPTION,
    SUMMARY,
    TEST_DIAGNOSTICS,
    TEST_STATISTICS,
    TRAINING_STATISTICS,
)
from distcore_torch.signals import Stoppable
from distcore_torch.training.job import OPENER
from distcore_torch.training.launched import is_other_rank

if TYPE_CHECKING:
    from distcore_data.cache import Cache


def run(asked: TrainRequest) -> Outcome:
    """`train` or `experiment`, from the config to the filled folder."""
    data = asked.data
    config, weights = asked.to_run()
    start, initial, trained_on = asked.start(config)
    folders.check_place(asked.going_on or asked.output, config.backend.credentials)
    if asked.saves_predictions and (place := folders.place_of(asked)) is not None:
        for dataset in data.named().values():
            refuse_among_rows(place / results.PREDICTIONS, dataset, "--skip_save_predictions")
    with Stoppable(), ExitStack() as stack:
        stack.enter_context(as_before(asked.output))
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
        check_storage(session, data, asked.going_on or asked.output, start)
        cache = prepare(session, data)
        # Rank 0 of a launcher may go on with what another rank has built.
        drop = SKIP_PROCESSED_INPUT in asked.skip and not is_other_rank()
        if drop and session.built_cache:
            stack.callback(results.remove_cache, cache)
            stack.callback(session.closing.close)  # before that
        check_predictions(session, cache)
        tell_constant_targets(session, cache)
        tell_other_codes(session, cache, trained_on)
        stack.enter_context(folders.run_folder(session, asked, session.backend.taken_over()))
        if weights is not None:
            start = write_weights(session, weights)
            initial = {"path": start.name, "sha256": digest_file(start).sha256}
        return _train_and_save(session, cache, asked, start, initial)


def _train_and_save(
    session: Session,
    cache: Cache,
    asked: TrainRequest,
    start: Path | ResultsStore | None,
    initial: JSON | None,
) -> Outcome:
    """Fit, and fill the experiment's folder; for an experiment, also score and predict the test
    split. start, initial: see `trained`."""
    skip = asked.skip
    with trained(session, asked.data, cache, skip, start, initial, asked.going_on) as result:
        resuming = asked.going_on is not None
        test, path, summary = None, None, summary_of(session, result, resuming)
        if SKIP_REPORT not in skip:
            add_split_scores(session, cache, result.model, summary)
        if session.command == "experiment":
            test, path = _evaluate_test_split(session, cache, result.model, skip, summary)
        results.write(session, SUMMARY, summary, skip, SKIP_REPORT)
        session.results_written()
        model: Path | None = result.model
        if SKIP_MODEL in skip:
            results.remove_model(session, result.model)
            model = None
    assert session.directory is not None
    report = results.written_report(session, skip)
    found = Outcome(session.directory, model, result.statistics, test, path, report)
    return found if session.mirror is None else found.in_bucket(session.mirror)


@contextmanager
def trained(
    session: Session,
    data: Data,
    cache: Cache,
    skip: Collection[str],
    start: Path | ResultsStore | None = None,
    initial: JSON | None = None,
    going_on: Path | str | None = None,
) -> Iterator[TrainResult]:
    """Fit, and write what tells of that into the experiment's folder, to which the block adds the
    results: a receipt before, and again when they are whole.

    start: the model to start from. initial: what the receipt says of it. going_on: the place of the
    run whose checkpoints to go on from."""
    description = describe(session, data, cache)
    session.started()
    if going_on is not None:
        begun_with = receipt.begun_with(session)
    else:
        begun_with = {receipt.BEGUN_WITH: initial}
        results.write(session, DESCRIPTION, description, skip, SKIP_TRAINING_DESCRIPTION)
        receipt.write(session, description, cache, skip, begun_with)
    # What lies in a bucket is copied to where the run works.
    resume = session.directory if isinstance(going_on, str) else going_on
    result = _fit(session, cache, start, resume, skip, description["plugins"])
    if going_on is not None:  # not before it is known that this is the run of that folder
        results.remove_what_told_of(session.former, session)
        results.write(session, DESCRIPTION, description, skip, SKIP_TRAINING_DESCRIPTION)
    results.write(session, TRAINING_STATISTICS, result.statistics, skip, SKIP_TRAINING_STATISTICS)
    yield replace(result, model=results.brought_model(session, result.model))
    receipt.finish(session, description, cache, skip, begun_with)


def build_cache(config: ConfigLike, data: Data, **options: Any) -> Cache:
    """Build the cache of a dataset, or find it, and stop. options: of `open_session`."""
    with Stoppable(), open_session("preprocess", config, **options) as session:
        session.started()
        check_storage(session, data)
        return prepare(session, data)


def _fit(
    session: Session,
    cache: Cache,
    load: Path | ResultsStore | None,
    resume: Path | None,
    skip: Collection[str],
    plugins: Sequence[JSON],
) -> TrainResult:
    """Fit a model on the cache's training split with the config's trainer.

    load: the model to start from. resume: the folder of the run whose checkpoints to go on from.
    plugins: what the run uses, for model.json."""
    job = train_job(session, cache, load, resume, skip, plugins)
    logged = None if SKIP_TRAINING_STATISTICS in skip else session.directory
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
    resume: Path | None = None,
    skip: Collection[str] = (),
    plugins: Sequence[JSON] = (),
    expected_rows: int | None = None,
) -> TrainJob:
    """Everything a trainer is told. plugins: those that the run uses, as `written` says them.
    expected_rows: see `TrainJob`; of a plan, whose cache need not be there."""
    return TrainJob(
        config=session.config.as_json(),
        cache=cache,
        loader=session.reference(LOADER),
        trainer=session.reference(TRAINER),
        directory=session.directory,
        seed=session.config.random_seed,
        opener=OPENER,
        resume=resume,
        initial_weights=load,
        save_checkpoints=SKIP_PROGRESS not in skip,
        save_statistics=SKIP_TRAINING_STATISTICS not in skip,
        plugins_block=tuple(session.plugins.block),
        mirror=session.mirror,
        plugins=plugins,
        expected_rows=expected_rows,
    )


def _evaluate_test_split(
    session: Session, cache: Cache, model: Path, skip: Collection[str], summary: JSON
) -> tuple[JSON, Path | None]:
    """Evaluate and predict the test split in one pass over it: (the metrics, the predictions'
    file).

    summary: is given what the split shows beside that."""
    from distcore_data.artifact import open_artifact
    from distcore_data.cache import open_cache
    from distcore_torch.decoding import RowNumbers
    from distcore_torch.evaluation import Evaluation
    from distcore_torch.prediction import split_batches

    assert session.directory is not None
    artifact = open_artifact(model, plugins=session.plugins, trust=True)
    evaluation = Evaluation(artifact.features, "test")
    path = None if SKIP_PREDICTIONS in skip else session.directory / results.PREDICTIONS
    with open_cache(cache, session.plugins) as reader:
        session.progress.begin("test", total=reader.rows("test"))
        size = session.config.trainer.eval_batch_size
        batches = split_batches(artifact, reader, "test", size)
        row_numbers = reader.row_numbers("test")
        worst = None
        if SKIP_REPORT not in skip and reader.rows("test"):
            worst = Worst(row_numbers, artifact)
            batches = worst.seen(batches)
        numbers = RowNumbers(row_numbers) if path is not None else None
        found = evaluation.run(batches, session.progress, numbers)
        results.predictions(path, found, artifact.features, numbered=True)
        session.progress.end()
        statistics = evaluation.statistics()
        if worst is not None:
            of_test_split(session, summary, reader, artifact, statistics, worst)
    results.write(session, TEST_STATISTICS, statistics, skip, SKIP_EVAL_STATS)
    results.write(session, TEST_DIAGNOSTICS, evaluation.drawings(), skip, SKIP_EVAL_STATS)
    if path is not None:
        session.plugins.manager.hook.predictions_written(path=path, rows=evaluation.rows)
    return statistics, path
