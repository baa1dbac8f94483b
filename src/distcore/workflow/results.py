"""What lies in an experiment's folder: its JSON files, its predictions and its model."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distcore.workflow.skips import SKIP_REPORT
from distcore_core.contracts import JSON
from distcore_core.errors import DistcoreError, TrainingError, UserError
from distcore_core.io.atomic import remove_directory, write_file
from distcore_data.os_errors import explained
from distcore_data.run_files import (
    MODEL_JSON,
    REPORT,
    SUMMARY,
    TEST_DIAGNOSTICS,
    TEST_STATISTICS,
)
from distcore_data.seals import read_bounded, sealed
from distcore_data.stores.run_sync import MODEL
from distcore_search.vouched import DIGESTS, SCORES, write_vouched

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.workflow.kept import Kept
    from distcore.workflow.session import Session
    from distcore_core.contracts import TrainResult
    from distcore_data.cache import Cache
    from distcore_data.features import Features

PREDICTIONS = "predictions.parquet"

OF_THE_MODEL = (PREDICTIONS, TEST_STATISTICS, TEST_DIAGNOSTICS, SUMMARY, REPORT)
"""Files that tell of the model beside them."""

log = logging.getLogger("distcore")


def write(
    session: Session, name: str, content: JSON, skip: Collection[str] = (), unless: str = ""
) -> None:
    """Write one JSON file of the experiment's folder, whole or not at all, unless it is to be
    skipped."""
    if unless and unless in skip:
        return
    path = _directory(session) / name
    write_json(path, content)
    if session.mirror is not None:
        if name in SCORES:
            session.mirror.put_file(DIGESTS, path.with_name(DIGESTS))
        session.mirror.put_file(name, path)


def remove(session: Session, name: str) -> None:
    """Remove a file of the experiment's folder, if it is there."""
    (_directory(session) / name).unlink(missing_ok=True)
    if session.mirror is not None:  # what was worked in here may never have had it
        session.mirror.delete_file(name)


def write_json(path: Path, content: JSON) -> None:
    """Write one JSON file, sealed or vouched for, whole or not at all.

    Raises TrainingError or UserError if it cannot be written."""
    with explained(
        path.parent,
        path.name,
        TrainingError,
        advice="choose another folder with --output_directory",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            if path.name in SCORES:
                write_vouched(path, content)
            else:
                write_file(path, sealed(content))
        except (TypeError, ValueError) as error:
            raise UserError(
                f"{path} cannot be written as JSON: {error}. Use plain, finite values."
            ) from error


def predictions(
    path: Path | None,
    batches: Iterator[pa.RecordBatch],
    features: Features,
    kept: Kept | None = None,
    *,
    numbered: bool = False,
) -> int:
    """Write predictions to the path, or only compute them if it is None; returns the rows that were
    written.

    kept: the columns of the dataset that come before them. numbered: whether they are an
        evaluation's, which say their row."""
    from distcore_torch.decoding import empty_schema, finite_or_told, with_row_numbers
    from distcore_torch.prediction_files import write_predictions

    batches = finite_or_told(batches)
    if path is not None:
        empty = empty_schema(features)
        if numbered:
            empty = with_row_numbers(empty)
        if kept is not None:
            batches, empty = kept.beside(batches), kept.before(empty)
        return write_predictions(path, batches, empty)
    for _ in batches:
        continue
    return 0


def brought_model(session: Session, model: Path) -> Path:
    """The model that training wrote, on this machine: a rank on another one copied it into the
    bucket."""
    if session.mirror is None or model.exists():
        return model
    session.mirror.get_folder(MODEL, _directory(session) / MODEL, MODEL_JSON)
    return _directory(session) / MODEL


def refuse_without_scores(found: TrainResult) -> None:
    """Raise TrainingError if training ended without one finite number for an output feature: its
    model is none."""
    last: dict[str, list[float | None]] = {}
    for outputs in found.statistics.values():
        for output, metrics in outputs.items():
            last.setdefault(output, []).extend(values[-1] for values in metrics.values() if values)
    for output, values in last.items():
        if values and not any(value is not None and math.isfinite(value) for value in values):
            raise TrainingError(
                f"No score of {output} is finite at the end of training, so its model is of no use "
                "and is not kept. Look at the trainer's options, and for extreme values in the "
                "data."
            )


def written_report(session: Session, skip: Collection[str]) -> Path | None:
    """The report, if this run wrote one; a resumed run that skips it has an older one."""
    path = _directory(session) / REPORT
    return path if SKIP_REPORT not in skip and path.exists() else None


def model_told(session: Session) -> bytes | None:
    """model.json of the model that lies in the experiment's folder now; None: there is none."""
    from distcore_data.model_folder import MOST_BYTES

    try:
        if session.mirror is not None:
            return session.mirror.read(f"{MODEL}/{MODEL_JSON}")
        return read_bounded(_directory(session) / MODEL / MODEL_JSON, MOST_BYTES)
    except FileNotFoundError:
        return None


def remove_what_told_of(former: bytes | None, session: Session) -> None:
    """Remove scores and predictions of a model that another one has taken the place of: a run that
    is gone on with need not make them anew, and they would be taken for those of its model.

    former: `model_told` before."""
    if model_told(session) == former:
        return
    directory, there = _directory(session), set()
    if session.mirror is not None:
        there = session.mirror.store.list().keys() & set(OF_THE_MODEL)
        session.mirror.store.delete(sorted(there))
    for name in OF_THE_MODEL:
        if (directory / name).exists():
            (directory / name).unlink()
            there.add(name)
    if there:
        log.info("Removed, because they told of the model before: %s", ", ".join(sorted(there)))


def remove_model(session: Session, model: Path) -> None:
    """Remove a model that is not to be saved."""
    if session.mirror is not None:
        session.mirror.remove_folder(MODEL, MODEL_JSON)
    remove_directory(model)


def remove_cache(cache: Cache) -> None:
    """Remove a cache that this run built and was told not to keep, and its folder if nothing
    else lies in it. What other processes use stays; this one uses it no more."""
    from distcore_data.cache.prune import remove_unused

    try:
        if why := remove_unused(cache):
            log.info("The cache %s stays: %s.", cache.where, why)
    except DistcoreError as error:  # what the run was begun for is there
        log.warning("The cache %s cannot be removed: %s", cache.where, error)
    if not cache.in_bucket:
        with suppress(OSError):  # another cache lies there
            Path(cache.directory).rmdir()


def _directory(session: Session) -> Path:
    assert session.directory is not None
    return session.directory
