"""`predict` and `evaluate`: every row of a dataset through a saved model, here or elsewhere
(`partitioned/`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from distcore.workflow import answer_place, folders, results
from distcore.workflow.kept import Kept, kept_columns
from distcore.workflow.model_session import ModelSession, open_model
from distcore.workflow.requests import AnswerRequest
from distcore.workflow.results import PREDICTIONS
from distcore.workflow.skips import SKIP_EVAL_STATS, SKIP_LOG, SKIP_PREDICTIONS
from distcore_core.contracts import JSON, Source
from distcore_data.run_files import TEST_STATISTICS
from distcore_data.sources.fetch import is_url
from distcore_data.sources.memory import held
from distcore_torch.decoding import RowNumbers
from distcore_torch.evaluation import Evaluation
from distcore_torch.prediction import (
    Request,
    checked,
    encoded_stream,
    predicted,
    rows_of,
    scored_batches,
)
from distcore_torch.signals import Stoppable

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore_core.progress import Progress


def answer(asked: AnswerRequest) -> tuple[Path | str | None, JSON]:
    """(the predictions' file, the metrics: empty for `predict`)."""
    output, credentials = asked.output, asked.opened_with
    folders.check_place(output, credentials)
    with Stoppable(), ExitStack() as stack:
        directory, mirror = stack.enter_context(folders.answer_folder(output, credentials))
        session = stack.enter_context(
            open_model(
                asked.command,
                asked.model_path,
                directory,
                mirror=mirror,
                credentials=credentials,
                backend=asked.backend,
                trust=asked.trust,
                gpus=asked.gpus,
                listen=SKIP_LOG not in asked.skip,
                view=asked.view,
            )
        )
        files = _free_files(asked, answer_place.Place(directory, mirror))
        evaluation = Evaluation(session.artifact.features) if asked.command == "evaluate" else None
        answered = answered_here
        if session.backend.distributed:
            from distcore.workflow.partitioned import answered_in_pieces as answered
        dataset, rows_at_once = held(asked.dataset), rows_of(asked.batch_size)
        request = Request(
            dataset, asked.data_format, rows_at_once, decode=files.predictions is not None
        )
        session.progress.begin(asked.command)
        kept: Kept | None = None
        if asked.keep and files.predictions is not None:  # a wrong name is told before any work
            text = files.predictions.suffix == ".csv"
            kept = stack.enter_context(
                kept_columns(session.artifact, request, asked.keep, as_text=text)
            )
        # What has an address is fetched once for each of the two.
        remote = isinstance(dataset, str) and is_url(dataset)
        beside = kept.source if kept is not None and remote else None
        with answered(session, request, evaluation, beside) as predictions:
            if not asked.overwrite:
                now = answer_place.Place(directory, mirror)
                predictions = _still_free(predictions, files.names, now, asked.command)
            rows = results.predictions(
                files.predictions,
                predictions,
                session.artifact.features,
                kept,
                numbered=evaluation is not None,
            )
            statistics = evaluation.statistics() if evaluation is not None else {}
            if files.scores is not None:
                _write_scores(statistics, files)
            if mirror is not None:  # before the pieces are given up
                mirror.put_files(directory)
        path = files.predictions
        if path is None:
            return None, statistics
        session.plugins.manager.hook.predictions_written(path=path, rows=rows)
        return path if mirror is None else mirror.store.where(path.name), statistics


@dataclass(frozen=True)
class _Files:
    """What a command writes on this machine; None: it was told not to, or has no such."""

    predictions: Path | None
    scores: Path | None

    @property
    def names(self) -> list[str]:
        return [path.name for path in (self.predictions, self.scores) if path is not None]


def _free_files(asked: AnswerRequest, place: answer_place.Place) -> _Files:
    """Where the answer goes. Raises UserError, before any work, where it may not."""
    evaluates = asked.command == "evaluate"
    predictions = None if SKIP_PREDICTIONS in asked.skip else place.folder / asked.file_name
    scores = None
    if evaluates and SKIP_EVAL_STATS not in asked.skip:
        scores = place.folder / TEST_STATISTICS
        if predictions is not None:
            name = answer_place.predictions_of_evaluation(place, asked.overwrite)
            predictions = place.folder / name
    files = _Files(predictions, scores)
    if evaluates or (predictions is not None and predictions.name == PREDICTIONS):
        answer_place.refuse_a_run(place, asked.command)
    if predictions is not None and isinstance(asked.dataset, str | Path):
        answer_place.refuse_to_replace(predictions.name, place, asked.dataset)
    answer_place.refuse_beside_another(files.names, place)
    answer_place.refuse_to_overwrite(files.names, place, asked.command, asked.overwrite)
    if evaluates:
        answer_place.tell_what_stays(files.names, place)
    return files


def _write_scores(statistics: JSON, files: _Files) -> None:
    """Write them beside the predictions, or leave neither: the next evaluation would take what
    lies there for another's."""
    assert files.scores is not None
    try:
        results.write_json(files.scores, statistics)
    except BaseException:
        if files.predictions is not None:
            files.predictions.unlink(missing_ok=True)
        raise


def _still_free(
    predictions: Iterator[pa.RecordBatch],
    written: list[str],
    place: answer_place.Place,
    command: str,
) -> Iterator[pa.RecordBatch]:
    """The predictions. Raises UserError after the last if another command's results came there
    meanwhile: two that began together would leave the predictions of one beside the scores of the
    other."""
    yield from predictions
    answer_place.refuse_to_overwrite(written, place, command)


@contextmanager
def answered_here(
    session: ModelSession,
    request: Request,
    evaluation: Evaluation | None,
    beside: Source | None = None,
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Every row of the dataset through the model in this process; gives the predictions in row
    order, as they are read.

    evaluation: what is scored while they are read. beside: see `checked`."""
    artifact, progress = session.artifact, session.progress
    roles = ("input",) if evaluation is None else ("input", "output")
    with encoded_stream(artifact, request.dataset, roles, request.data_format) as (source, stream):
        if evaluation is None:
            found = _counted(predicted(artifact, stream, request.rows), progress)
            yield checked(found, source, beside=beside)
        else:
            numbers = RowNumbers() if request.decode else None
            batches = scored_batches(artifact, stream, request.rows, numbers, evaluation.cut)
            yield checked(evaluation.run(batches, progress, numbers), source, evaluation, beside)


def _counted(
    parts: Iterator[tuple[Iterator[pa.RecordBatch], int]], progress: Progress
) -> Iterator[pa.RecordBatch]:
    for batches, read in parts:
        yield from batches
        progress.done += read
