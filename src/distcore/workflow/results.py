"""What lies in an experiment's folder: its JSON files, its model, and the run to go on with."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.workflow.skips import SKIP_REPORT
from distcore_core.contracts import JSON, ResultsStore
from distcore_core.errors import ArtifactError, DistcoreError, TrainingError, UserError
from distcore_core.io.atomic import remove_directory, write_file
from distcore_core.io.digest import digest_file
from distcore_data.os_errors import explained
from distcore_data.run_files import (
    DESCRIPTION,
    MODEL_JSON,
    REPORT,
    SUMMARY,
    TEST_DIAGNOSTICS,
    TEST_STATISTICS,
)
from distcore_data.seals import damaged, read_bounded, sealed, unsealed
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL, Mirror
from distcore_search.vouched import DIGESTS, SCORES, write_vouched

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.config import RunConfig
    from distcore.workflow.kept import Kept
    from distcore.workflow.session import Session
    from distcore_core.contracts import TrainResult
    from distcore_data.cache import Cache
    from distcore_data.features import Features
    from distcore_data.stores import Credentials

NO_RUN = (
    f"there is no {DESCRIPTION} and no {CHECKPOINTS}/. Give the experiment's folder, such as "
    "results/experiment_run"
)

PREDICTIONS = "predictions.parquet"

INITIAL = "initial.safetensors"
"""The weights of a module given from Python."""

OF_THE_MODEL = (PREDICTIONS, TEST_STATISTICS, TEST_DIAGNOSTICS, SUMMARY, REPORT)
"""Files that tell of the model beside them."""

log = logging.getLogger("distcore")

CHANGED = (
    "Take it from a backup, or give the config that the run was begun with (--config): "
    "a config that was changed by hand is given like any other."
)


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


def config_to_resume(config: Any, resume: Path | str | None) -> RunConfig:
    """The config, or if none is given that of the run to go on with.

    Raises UserError if the folder holds no run, or what it was begun with is damaged."""
    from distcore.config import load_config

    if config is not None or resume is None:
        given = load_config(config)
        if resume is not None and not _was_begun(resume, given.backend.credentials):
            raise UserError(f"{resume} holds no run to go on with: {NO_RUN}.")
        return given
    try:
        description = (
            read_bounded(resume / DESCRIPTION)
            if isinstance(resume, Path)
            else Mirror.at(resume).store.read(DESCRIPTION)
        )
        return load_config(unsealed(description)["config"])
    except (FileNotFoundError, NotADirectoryError):
        if _was_begun(resume, None):
            raise UserError(
                f"{resume} has no {DESCRIPTION}, and so no config to go on with. Give the one that "
                "the run was begun with: --config."
            ) from None
        raise UserError(f"{resume} holds no run to go on with: {NO_RUN}.") from None
    except (OSError, ValueError, KeyError) as error:
        raise UserError(damaged(f"{resume}/{DESCRIPTION}", error, CHANGED)) from None


def _was_begun(place: Path | str, credentials: Credentials | None) -> bool:
    """Whether a run was begun in a folder, or at an address: its description may be left out."""
    if isinstance(place, Path):
        return any(os.path.exists(place / name) for name in (DESCRIPTION, CHECKPOINTS))
    there = Mirror.at(place, credentials).store.list()
    return any(name.partition("/")[0] in (DESCRIPTION, CHECKPOINTS) for name in there)


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
    from distcore_data.artifact import MOST_BYTES

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


def check_weights(place: Path | ResultsStore) -> str:
    """The sha256 of the weights to start from (`--model_load_path`). Raises ArtifactError, before
    any work, if there is no whole model."""
    from distcore_data.artifact import find_model, model_here, read_manifest
    from distcore_torch.training.weights_file import check_header

    if isinstance(place, Path) and place.suffix == ".safetensors" and place.is_file():
        check_header(place)  # before all of it is read
        return digest_file(place).sha256
    if isinstance(place, Path) and place.is_file():
        raise ArtifactError(
            f"{place} (--model_load_path) is a file, and of files only .safetensors are read, "
            "which run no code. Write one of it, by the names of the network's state_dict: "
            "safetensors.torch.save_file(torch.load(…), …). Or give a model's folder."
        )
    with model_here(place) as path:
        manifest = read_manifest(find_model(path))
    best = manifest["extra"].get("weights", {}).get("best")
    return str(manifest["files"].get(best, {}).get("sha256", ""))


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


def write_weights(session: Session, weights: Mapping[str, Any]) -> Path:
    """Write the weights of a module given from Python, for every worker to start from; returns
    the file."""
    from distcore_torch.training.tensorfile import tensor_writer

    path = _directory(session) / INITIAL
    with explained(path.parent, "the initial weights", TrainingError):
        write_file(path, tensor_writer(weights))
    if session.mirror is not None:
        session.mirror.put_file(path.name, path)
    return path


def _directory(session: Session) -> Path:
    assert session.directory is not None
    return session.directory
