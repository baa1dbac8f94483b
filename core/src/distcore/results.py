"""The experiment's folder: its JSON files, its report, and going on with a run in it."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore.addresses import must_be_local
from distcore.contracts import JSON
from distcore.durable import explained, remove_directory, write_file
from distcore.errors import DistcoreError, TrainingError, UserError

if TYPE_CHECKING:
    import pyarrow as pa

    from distcore.cache import Cache
    from distcore.features import Features
    from distcore.session import Session


def write(session: Session, name: str, content: JSON, skip: Collection[str] = (), unless: str = "") -> None:
    """Write one JSON file of the experiment's folder, whole or not at all, unless it is to be skipped."""
    if unless and unless in skip:
        return
    assert session.directory is not None
    write_json(session.directory / name, content)


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


def config_to_resume(config: Any, resume: str | Path | None) -> Any:
    """The config of the run to go on with, unless one is given.

    Raises UserError where the folder holds no run."""
    if resume is None:
        if config is None:
            raise UserError("No config was given. Give one with --config or --config_str; `distcore init` writes one.")
        return config
    must_be_local(resume, "--model_resume_path")
    path = Path(resume) / "description.json"
    if not path.is_file():
        raise UserError(
            f"{resume} holds no run to go on with: there is no description.json. Give the experiment's folder, "
            "such as results/experiment_run."
        )
    return config if config is not None else json.loads(path.read_text())["config"]


def report(directory: Path) -> Path:
    """Write report.html."""
    from distcore.report import write_report

    with explained(directory, "the report", TrainingError):
        return write_report(directory)


def remove_model(model: Path) -> None:
    """Remove a model that was not to be saved but was needed for evaluating."""
    remove_directory(model)


def check_weights(path: str | Path | None) -> None:
    """Raise ArtifactError, before any work, where there is no whole model to start from (`--model_load_path`)."""
    from distcore.artifact import find_model, read_manifest

    if path is not None and not (Path(path).suffix == ".safetensors" and Path(path).is_file()):
        read_manifest(find_model(path))


def check_folder(folder: str | Path) -> None:
    """Raise UserError, before any work, where results cannot come into the folder: a file is in its place or above."""
    for each in (Path(folder), *Path(folder).parents):
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
def as_before(folder: str | Path) -> Iterator[None]:
    """Remove, when the work fails, whichever folders of the path it made and left empty."""
    must_be_local(folder, "--output_directory")
    missing = [each for each in (Path(folder), *Path(folder).parents) if not each.exists()]
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
def gone_if_refused(directory: Path) -> Iterator[None]:
    """Remove a run's fresh folder when it fails, or is stopped, before a checkpoint or a model lies in it.

    A ctrl-C after that, while evaluating, says where the model is."""
    try:
        yield
    except (DistcoreError, KeyboardInterrupt) as error:
        if (directory / "model").exists():
            if isinstance(error, KeyboardInterrupt):
                raise KeyboardInterrupt(
                    f"The model is trained; evaluate it with: distcore evaluate --model_path {directory} --dataset …"
                ) from None
        elif not any(directory.glob("checkpoints/step-*")):
            remove_directory(directory)
        raise


def write_weights(directory: Path, weights: Mapping[str, Any]) -> Path:
    """Write the weights of a module given from Python, for every worker to start from; returns the file."""
    from distcore.training.tensorfile import tensor_writer

    path = directory / "initial.safetensors"
    with explained(directory, "the initial weights", TrainingError):
        write_file(path, tensor_writer(weights))
    return path
