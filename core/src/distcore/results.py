"""The experiment's folder: its JSON files, its report, and going on with a run in it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.contracts import JSON
from distcore.durable import explained, remove_directory, write_file
from distcore.errors import DistcoreError, StoreError, TrainingError, UserError
from distcore.mirror import CHECKPOINTS, MODEL, STARTED, Mirror, working_folder
from distcore.session import experiment_directory

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.cache import Cache
    from distcore.config import RunConfig
    from distcore.features import Features
    from distcore.requests import TrainRequest
    from distcore.session import Session
    from distcore.stores import Credentials

DESCRIPTION = "description.json"
"""What a run was begun with; a folder that holds it can be gone on with."""

PREDICTIONS = "predictions.parquet"


def write(session: Session, name: str, content: JSON, skip: Collection[str] = (), unless: str = "") -> None:
    """Write one JSON file of the experiment's folder, whole or not at all, unless it is to be skipped."""
    if unless and unless in skip:
        return
    path = _directory(session) / name
    write_json(path, content)
    if session.mirror is not None:
        session.mirror.put_file(name, path)


def write_json(path: Path, content: JSON) -> None:
    """Write one JSON file, whole or not at all. Raises TrainingError or UserError where it cannot be written."""
    with explained(path.parent, path.name, TrainingError, advice="choose another folder with --output_directory"):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, (json.dumps(content, indent=2) + "\n").encode())


def predictions(path: Path | None, batches: Iterator[pa.RecordBatch], features: Features) -> int:
    """Write predictions to the path, or only compute them where it is None; returns the rows that were written."""
    from distcore.prediction import empty_schema, write_predictions

    if path is not None:
        return write_predictions(path, batches, empty_schema(features))
    for _ in batches:
        continue
    return 0


def config_to_resume(config: Any, resume: Path | str | None) -> RunConfig:
    """The config, or where none is given that of the run to go on with.

    Raises UserError where the folder holds no run."""
    from distcore.config import load_config

    if config is None and resume is None:
        raise UserError("No config was given. Give one with --config or --config_str; `distcore init` writes one.")
    given = load_config(config) if config is not None else None
    if resume is not None:
        try:
            if isinstance(resume, Path):
                description = (resume / DESCRIPTION).read_bytes()
            else:
                credentials = given.backend.credentials if given is not None else None
                description = Mirror.at(resume, credentials).store.read(DESCRIPTION)
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"{resume} holds no run to go on with: there is no {DESCRIPTION}. Give the experiment's folder, "
                "such as results/experiment_run."
            ) from None
    return given if given is not None else load_config(json.loads(description)["config"])


def report(directory: Path) -> Path:
    """Write report.html."""
    from distcore.report import write_report

    with explained(directory, "the report", TrainingError):
        return write_report(directory)


def model_here(session: Session, model: Path) -> Path:
    """The model that training wrote, on this machine: a rank on another one copied it into the bucket."""
    from distcore.artifact import NAME

    if session.mirror is None or model.exists():
        return model
    session.mirror.get_folder(MODEL, _directory(session) / MODEL, NAME)
    return _directory(session) / MODEL


def remove_model(session: Session, model: Path) -> None:
    """Remove a model that was not to be saved but was needed for evaluating."""
    from distcore.artifact import NAME

    if session.mirror is not None:
        session.mirror.remove_folder(MODEL, NAME)
    remove_directory(model)


def check_weights(place: Path | Mirror) -> None:
    """Raise ArtifactError, before any work, where there is no whole model to start from (`--model_load_path`)."""
    from distcore.artifact import find_model, model_here, read_manifest

    if isinstance(place, Path) and place.suffix == ".safetensors" and place.is_file():
        return
    with model_here(place) as path:
        read_manifest(find_model(path))


def check_place(folder: Path | str, credentials: Credentials | None = None) -> None:
    """Raise, before any work, where results cannot come into the folder: UserError where a file is in its place or
    above, StoreError where the bucket cannot be read."""
    if not isinstance(folder, Path):
        with suppress(FileNotFoundError):  # which a bucket that can be read says
            Mirror.at(folder, credentials).store.read(STARTED)
        return
    for each in (folder, *folder.parents):
        if each.is_dir():
            return
        if each.exists():
            raise UserError(
                f"The results cannot be written to {folder}: {each} is a file. "
                "Give another folder with --output_directory."
            )


def remove_cache(cache: Cache) -> None:
    """Remove a cache that this run built and was told not to keep, and its folder where nothing else lies in it."""
    from distcore.cache import remove

    remove(cache)
    if not cache.in_bucket:
        with suppress(OSError):  # another cache lies there
            Path(cache.directory).rmdir()


@contextmanager
def as_before(folder: Path | str) -> Iterator[None]:
    """Remove, when the work fails, whichever folders of the path it made and left empty."""
    paths = (folder, *folder.parents) if isinstance(folder, Path) else ()
    missing = [each for each in paths if not each.exists()]
    try:
        yield
    except BaseException:
        for each in missing:
            try:
                each.rmdir()
            except OSError:  # something lies in it, or it was never made
                continue
        raise


@contextmanager
def run_folder(session: Session, asked: TrainRequest, going_on: Path | str | None) -> Iterator[None]:
    """Give the session its folder: that of the run to go on with, or a fresh one, which is gone again where the run is
    refused. Where it is in a bucket, the session works in a copy on this machine, and what is new there when the run
    ends, whichever way, is put into the bucket."""
    place, credentials = going_on or asked.output, session.config.backend.credentials
    with ExitStack() as stack:
        if not isinstance(place, Path):
            name = f"{asked.experiment_name}_{asked.model_name}"
            session.mirror = Mirror.at(place, credentials) if going_on else Mirror.begin(place, name, credentials)
            session.directory = stack.enter_context(working_folder(session.mirror))
            stack.enter_context(put_at_the_end(session.mirror, session.directory))
        elif going_on:
            session.directory = place
        else:
            session.directory = experiment_directory(place, asked.experiment_name, asked.model_name)
        if not going_on:
            stack.enter_context(gone_if_refused(session))
        yield


@contextmanager
def answer_folder(place: Path | str, credentials: Credentials | None) -> Iterator[tuple[Path, Mirror | None]]:
    """The folder for what `predict` and `evaluate` find, and the bucket that it is put into when the work is done."""
    if isinstance(place, Path):
        with as_before(place):
            yield place, None
        return
    mirror = Mirror.at(place, credentials)
    with working_folder(mirror) as folder:
        yield folder, mirror
        mirror.put_files(folder)


@contextmanager
def put_at_the_end(mirror: Mirror, folder: Path) -> Iterator[None]:
    """Put into the bucket what the block leaves in the folder; what stops the block matters more than the bucket."""
    try:
        yield
    except BaseException:
        with suppress(StoreError):
            mirror.put_files(folder)
        raise
    mirror.put_files(folder)


@contextmanager
def gone_if_refused(session: Session) -> Iterator[None]:
    """Remove a run's fresh folder when it fails, or is stopped, before a checkpoint or a model lies in it.

    A ctrl-C after that, while evaluating, says where the model is."""
    try:
        yield
    except (DistcoreError, KeyboardInterrupt, SystemExit) as error:
        trained, begun = _left_behind(session)
        if trained and isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(
                f"The model is trained; evaluate it with: distcore evaluate --model_path {session.home} --dataset …"
            ) from None
        if not trained and not begun:
            if session.mirror is not None:
                with suppress(StoreError):
                    session.mirror.remove()
            remove_directory(_directory(session))
        raise


def _left_behind(session: Session) -> tuple[bool, bool]:
    """Whether a run that ended early left a model, and a checkpoint."""
    directory = _directory(session)
    if session.mirror is None:
        return (directory / MODEL).exists(), any(directory.glob(f"{CHECKPOINTS}/step-*"))
    try:
        return bool(session.mirror.store.list(f"{MODEL}/")), bool(session.mirror.folders(CHECKPOINTS))
    except StoreError:  # nothing is removed that was not seen to be useless
        return True, True


def _directory(session: Session) -> Path:
    assert session.directory is not None
    return session.directory


def write_weights(session: Session, weights: Mapping[str, Any]) -> Path:
    """Write the weights of a module given from Python, for every worker to start from; returns the file."""
    from distcore.training.tensorfile import tensor_writer

    path = _directory(session) / "initial.safetensors"
    with explained(path.parent, "the initial weights", TrainingError):
        write_file(path, tensor_writer(weights))
    if session.mirror is not None:
        session.mirror.put_file(path.name, path)
    return path
