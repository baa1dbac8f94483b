"""A model's folder as it lies on this machine or in a bucket: where it is, and model.json, which
checks every byte of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from distcore_core.contracts import JSON, ResultsStore
from distcore_core.errors import ArtifactError
from distcore_core.io.digest import digest_file
from distcore_core.io.temporaries import BUILDING, REMOVING
from distcore_data.run_files import MODEL_JSON, SEARCH
from distcore_data.seals import damaged, read_bounded, unsealed
from distcore_data.stores import Credentials
from distcore_data.stores.addresses import folder_or_address
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL, Mirror
from distcore_data.temporaries import temporary_folder

if TYPE_CHECKING:
    from distcore_data.sources.datafile import State

VERSION = 2
"""Version of the layout of model.json."""

MOST_BYTES = 1 << 30
"""Of model.json, which holds the vocabularies of its features."""

GIVE = "Give the folder that `distcore train` wrote, such as results/experiment_run"
RESTORE = "Take the model from a backup, or train again."

_checked: ContextVar[tuple[Path, JSON] | None] = ContextVar("checked", default=None)
"""The folder that is being opened and its model.json: its trainer, which is given the folder alone,
reads the same again, and that may be 26 MB of JSON and gigabytes of weights."""


@contextmanager
def model_here(place: Path | ResultsStore) -> Iterator[Path]:
    """A model's folder, or the experiment's around it, on this machine: what is in a bucket is
    copied for the block.

    What is said of the copy is said of what was copied."""
    if isinstance(place, Path):
        yield place
        return
    with temporary_folder("model") as folder:
        for name in ("", MODEL):
            with suppress(FileNotFoundError):
                place.get_folder(name, folder / MODEL, MODEL_JSON)
                break
        else:
            raise _no_model(place.url, place.url, bool(place.folders(CHECKPOINTS)))
        try:
            yield folder
        except ArtifactError as error:
            raise ArtifactError(str(error).replace(str(folder), place.url)) from error


def model_place(
    path: str | Path | ResultsStore, credentials: Credentials | None = None
) -> Path | ResultsStore:
    """Where a model lies: a folder of this machine, or one in a bucket.

    path: its place, or the store that holds it already. credentials: of a bucket."""
    if not isinstance(path, str | Path):
        return path
    place = folder_or_address(path, "The model's path")
    return place if isinstance(place, Path) else Mirror.at(place, credentials)


@contextmanager
def unchanged(directory: Path) -> Iterator[None]:
    """The block reads a model's folder. Raises ArtifactError if its files are others afterwards:
    the weights may be of one model, and what the values were scaled by of another."""
    before = _states(directory)
    try:
        yield
        failed: Exception | None = None
    except (ArtifactError, OSError) as error:
        failed = error
    if _states(directory) != before:
        raise ArtifactError(
            f"{directory} was replaced while it was being opened. Open it again. To replace a "
            "model in use, rename a link to its folder over the old link (`mv -T`): a link is "
            "followed once."
        ) from failed
    if failed is not None:
        raise failed


def _states(directory: Path) -> dict[str, State]:
    """What tells the files of a folder from others under their names."""
    from distcore_data.sources.datafile import state_of

    try:
        return {each.name: state_of(each.path) for each in os.scandir(directory)}
    except OSError:
        return {}


def find_model(path: Path) -> Path:
    """The folder with model.json: the path itself, or `model/` in it; links on the way to it are
    followed here and never again, for they may be renamed to another model. Raises ArtifactError
    if there is none, which says how to go on with a run that has checkpoints."""
    for candidate in (path, path / MODEL):
        if (candidate / MODEL_JSON).is_file():
            real = os.path.realpath(candidate)
            return candidate if real == os.path.abspath(candidate) else Path(real)
    run = path.parent if path.name == MODEL else path
    if not run.exists():
        raise ArtifactError(f"{path}: there is no such folder. {GIVE}.")
    if (run / SEARCH).is_file():
        raise ArtifactError(
            f"{path} holds no model, but a search. If it was stopped, `distcore hyperopt "
            f"--model_resume_path {run} --dataset …` goes on with it, and delivers the model. If "
            "it is over and was not to save models, train once with the values of its best trial; "
            "if every trial failed, their trial.json say why."
        )
    saved = [each.name for each in (run / CHECKPOINTS).glob("*")]
    whole = [name for name in saved if BUILDING not in name and REMOVING not in name]
    raise _no_model(path, run, any(not name.startswith(".") for name in whole))


def _no_model(path: Path | str, run: Path | str, checkpoints: bool) -> ArtifactError:
    """path: as it was given. run: around it."""
    advice = f"{GIVE}, or train again without --skip_save_model."
    if checkpoints:
        advice = (
            "There are checkpoints, so its run was stopped, is still at work or was not to save "
            f"the model: `distcore train --model_resume_path {run} --dataset …` goes on from the "
            "last one, and writes the model."
        )
    return ArtifactError(
        f"{path} holds no model: there is no {MODEL_JSON} in it or in {path}/{MODEL}. {advice}"
    )


@contextmanager
def read_once(directory: Path, manifest: JSON) -> Iterator[None]:
    """The block reads the folder again, whose manifest this is: checked, so it is not checked
    anew."""
    token = _checked.set((directory, manifest))
    try:
        yield
    finally:
        _checked.reset(token)


def read_manifest(directory: Path) -> JSON:
    """model.json, checked by its own digest, with every file it lists checked by length and
    sha256: once within `read_once`."""
    checked = _checked.get()
    if checked is not None and checked[0] == directory:
        return checked[1]
    path = directory / MODEL_JSON
    try:
        if path.is_symlink():
            raise ValueError("it is a link, and links are not followed")
        content = read_bounded(path, MOST_BYTES)
        if not content.startswith(b'{\n "digest"'):
            raise ValueError("it does not begin with its own digest, as models of this version do")
        manifest = unsealed(content, most_bytes=MOST_BYTES)
        files = {name: (each["bytes"], each["sha256"]) for name, each in manifest["files"].items()}
        version = manifest["version"]
    except (OSError, ValueError) as error:
        raise ArtifactError(damaged(path, error, RESTORE)) from error
    except (KeyError, TypeError, AttributeError) as error:
        raise ArtifactError(f"{path} is none that distcore wrote ({error!r}). {RESTORE}") from error
    if version != VERSION:
        raise ArtifactError(
            f"{path} has version {version!r}; this distcore reads version {VERSION}. "
            f"It was written by distcore {manifest.get('distcore', '?')}: install that version, or "
            "train again."
        )
    _check_parts(path, manifest)
    for name, expected in files.items():
        if Path(name).name != name or name in ("", ".", ".."):
            raise ArtifactError(
                f"{path} names a file outside its folder: {name!r}. Do not use this model."
            )
        _check(directory / name, expected)
    return manifest


PARTS: Mapping[str, type] = {
    "trainer": dict,
    "model": dict,
    "preprocessing": dict,
    "random_seed": int,
    "extensions": list,
    "plugins": list,
    "features": list,
    "metadata": dict,
    "extra": dict,
}
"""What model.json holds, beside what is looked at first."""


def _check_parts(path: Path, manifest: JSON) -> None:
    """Raise ArtifactError if a part is missing or none of ours: a seal can be made by anybody."""
    wrong = [name for name, kind in PARTS.items() if not isinstance(manifest.get(name), kind)]
    if not wrong:
        named = [
            ("trainer", manifest["trainer"]),
            *(("extensions", each) for each in manifest["extensions"]),
        ]
        wrong += [where for where, each in named if not _is_reference(each)]
        wrong += ["plugins" for each in manifest["plugins"] if not _is_offer(each)]
        wrong += [
            "features"
            for each in manifest["features"]
            if not (_is_reference(each) and "name" in each)
        ]
        wrong += [
            name
            for name in ("model", "weights")
            if not isinstance(manifest["extra"].get(name, {}), dict)
        ]
    if wrong:
        raise ArtifactError(
            f"{path} is none that distcore wrote: {wrong[0]} is not what it should be. {RESTORE}"
        )


def _is_offer(part: Any) -> bool:
    names = ("kind", "name", "distribution", "version")
    return isinstance(part, dict) and all(isinstance(part.get(name), str) for name in names)


def _is_reference(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _check(path: Path, expected: tuple[int, str]) -> None:
    if not path.is_file() or path.is_symlink():
        raise ArtifactError(f"{path} is missing. {RESTORE}")
    found = digest_file(path)
    if (found.bytes, found.sha256) != expected:
        what = (
            f"{found.bytes} bytes instead of {expected[0]}"
            if found.bytes != expected[0]
            else "other content than model.json says"
        )
        raise ArtifactError(f"{path} was changed after it was written: it has {what}. {RESTORE}")
