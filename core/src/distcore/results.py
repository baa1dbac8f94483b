"""What lies in an experiment's folder: its JSON files, its report, its model, and the run to go on with."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.contracts import JSON
from distcore.disk import explained
from distcore.durable import remove_directory, write_file
from distcore.errors import TrainingError, UserError
from distcore.mirror import MODEL, Mirror

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.cache import Cache
    from distcore.config import RunConfig
    from distcore.features import Features
    from distcore.session import Session

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


def brought_model(session: Session, model: Path) -> Path:
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


def remove_cache(cache: Cache) -> None:
    """Remove a cache that this run built and was told not to keep, and its folder where nothing else lies in it."""
    from distcore.cache import remove

    remove(cache)
    if not cache.in_bucket:
        with suppress(OSError):  # another cache lies there
            Path(cache.directory).rmdir()


def write_weights(session: Session, weights: Mapping[str, Any]) -> Path:
    """Write the weights of a module given from Python, for every worker to start from; returns the file."""
    from distcore.training.tensorfile import tensor_writer

    path = _directory(session) / "initial.safetensors"
    with explained(path.parent, "the initial weights", TrainingError):
        write_file(path, tensor_writer(weights))
    if session.mirror is not None:
        session.mirror.put_file(path.name, path)
    return path


def _directory(session: Session) -> Path:
    assert session.directory is not None
    return session.directory
