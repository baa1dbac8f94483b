"""Checkpoints: whole or not there, every byte checked, no pickle; a damaged newest one falls back
to the one before.

    <directory>/step-00000123/
      tensors.safetensors    weights, best weights, optimizer state, by the trainer's names
      state.json             everything else
      manifest.json          its own digest; length and sha256 of the two
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from distcore_core.contracts import JSON
from distcore_core.errors import CheckpointError, StoreError
from distcore_core.io.atomic import DirectoryBuilder, remove_directory, write_new_file
from distcore_core.io.digest import digest_file
from distcore_data.os_errors import explained, system_cause
from distcore_data.seals import parse_json, read_bounded, refuse_special, sealed, unsealed
from distcore_data.stores.run_sync import CHECKPOINTS, MANIFEST
from distcore_data.temporaries import sweep
from distcore_torch.training.tensorfile import read_tensors, tensor_writer

if TYPE_CHECKING:
    from distcore_core.contracts import ResultsStore

VERSION = 1
"""Version of the layout; another one is refused."""

MOST = 1 << 30
"""Bytes of state.json, which holds every round's scores."""

NAME = re.compile(r"step-(\d{8,})")
TENSORS, STATE = "tensors.safetensors", "state.json"
log = logging.getLogger("distcore")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, read back whole. tensors: on the CPU."""

    path: Path
    step: int
    tensors: dict[str, torch.Tensor]
    state: JSON


def save(
    directory: Path,
    step: int,
    tensors: Mapping[str, torch.Tensor],
    state: JSON,
    keep: int = 2,
    going_on: Callable[[], None] = lambda: None,
) -> Path:
    """Write the checkpoint of a step and remove all but the newest `keep`; returns its folder.

    It becomes visible by one rename once every byte is on disk. Checkpoints of later steps (a run
    that fell back to an earlier one has passed over them) are removed. going_on is called before
    each tensor, and may raise. Raises CheckpointError if the disk is full: older ones are intact.
    """
    final = directory / f"step-{step:08d}"
    with explained(
        directory, "the checkpoint", CheckpointError, advice="choose another --output_directory"
    ):
        directory.mkdir(parents=True, exist_ok=True)
        sweep(directory)
        with DirectoryBuilder(final) as folder:
            digests = {
                TENSORS: write_new_file(folder / TENSORS, tensor_writer(tensors, going_on)),
                STATE: write_new_file(folder / STATE, json.dumps(state).encode()),
            }
            files = {
                name: {"bytes": each.bytes, "sha256": each.sha256} for name, each in digests.items()
            }
            manifest = {"version": VERSION, "step": step, "files": files}
            write_new_file(folder / MANIFEST, sealed(manifest))
    found = list_checkpoints(directory)
    later = [each for each in found if step_of(each) > step]
    for old in [*later, *found[len(later) + keep :]]:
        _remove(old)
    return final


def _remove(path: Path) -> None:
    """Remove a checkpoint that nobody needs any more. Where that cannot be done it is said, once:
    the run is well."""
    try:
        remove_directory(path)
    except OSError as error:
        if path not in _kept_against_our_will:
            _kept_against_our_will.add(path)
            why = error.strerror
            log.warning(
                "The old checkpoint %s cannot be removed (%s); training goes on. Remove it by "
                "hand.",
                path,
                why,
            )


_kept_against_our_will: set[Path] = set()
"""Old checkpoints that could not be removed, of which the user was told."""


def list_checkpoints(directory: Path) -> list[Path]:
    """The folders of checkpoints, newest first, whole or not; none if the directory is not
    there."""
    if not directory.is_dir():
        return []
    found = [path for path in directory.iterdir() if NAME.fullmatch(path.name) and path.is_dir()]
    return sorted(found, key=step_of, reverse=True)


def step_of(path: Path) -> int:
    """The step of a checkpoint's folder, by its name. Raises CheckpointError if it is none."""
    match = NAME.fullmatch(path.name)
    if match is None:
        raise CheckpointError(f"{path} is no checkpoint's folder. Give one named step-<number>.")
    return int(match[1])


def load_newest(
    directory: Path, flaw: Callable[[Checkpoint], str] = lambda found: ""
) -> Checkpoint:
    """The newest checkpoint that is whole. Each damaged one before it is named in a warning.

    flaw(checkpoint): what else speaks against one, or "". Raises CheckpointError if there is none,
    none is whole (from what the system said, if it could not read one), or a newer one is not this
    user's to read.
    """
    found = list_checkpoints(directory)
    if not found:
        raise CheckpointError(
            f"There is no checkpoint in {directory}. Give the folder of a run that saved one, or "
            "start a new run."
        )
    refused: OSError | None = None
    for path in found:
        try:
            found_here = load(path)
            if why := flaw(found_here):
                raise _damaged(path / TENSORS, why)
        except CheckpointError as error:
            if isinstance(error.__cause__, PermissionError):  # training on would remove it
                raise
            log.warning("%s", error)
            refused = system_cause(error) or refused
        else:
            return found_here
    raise CheckpointError(
        f"None of the {len(found)} checkpoint{'s' if len(found) > 1 else ''} in {directory} is "
        "whole; each is named in a warning above. Restore one from a backup, or start a new run."
    ) from refused


def copy_to(mirror: ResultsStore, path: Path) -> None:
    """Copy a checkpoint into a run's bucket, then remove from there whichever do not lie beside it
    (any more)."""
    mirror.put_folder(f"{CHECKPOINTS}/{path.name}", path, MANIFEST)
    kept = {each.name for each in list_checkpoints(path.parent)}
    for name in mirror.folders(CHECKPOINTS):
        if name.rpartition("/")[2] not in kept:
            try:
                mirror.remove_folder(name, MANIFEST)
            except StoreError as error:
                log.warning("An old checkpoint cannot be removed (%s) Training goes on.", error)


def copy_newest_from(mirror: ResultsStore, directory: Path) -> None:
    """Bring the newest whole checkpoint of a run's bucket into the folder; none if there is none.

    Each damaged one before it is named in a warning."""
    found = [
        each
        for each in mirror.folders(CHECKPOINTS, MANIFEST)
        if NAME.fullmatch(each.rpartition("/")[2])
    ]
    for name in sorted(found, key=lambda each: step_of(Path(each)), reverse=True):
        path = directory / name.rpartition("/")[2]
        directory.mkdir(parents=True, exist_ok=True)
        copied_before = path.is_dir()
        mirror.get_folder(name, path, MANIFEST)
        error = _flaw(path)
        if error is not None and copied_before:  # what lies here may be damaged since
            remove_directory(path)
            mirror.get_folder(name, path, MANIFEST)
            error = _flaw(path)
        if error is None:
            return
        log.warning("%s", str(error).replace(str(path), mirror.where(name)))
        remove_directory(path)


@contextmanager
def told_as_there(mirror: ResultsStore | None, run: Path) -> Iterator[None]:
    """Have errors of the block name the bucket in the place of the run's folder, where that is a
    copy."""
    try:
        yield
    except CheckpointError as error:
        if mirror is not None:
            error.args = (str(error).replace(str(run), mirror.url),)
        raise


def _flaw(path: Path) -> CheckpointError | None:
    """Why a checkpoint is not whole; None: it is."""
    try:
        load(path)
    except CheckpointError as error:
        return error
    return None


def load(path: Path) -> Checkpoint:
    """One checkpoint. Raises CheckpointError naming the file that is missing, cut, changed, or not
    this user's to read."""
    try:
        manifest = unsealed(read_bounded(path / MANIFEST))
        step, files, version = manifest["step"], manifest["files"], manifest["version"]
        expected = {
            name: (files[name]["bytes"], files[name]["sha256"]) for name in (TENSORS, STATE)
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unread(path / MANIFEST, error) from error
    if version != VERSION:
        raise _damaged(path / MANIFEST, f"version {version!r} instead of {VERSION}")
    if step != step_of(path):
        raise _damaged(path / MANIFEST, f"it is of step {step!r}")
    for name, wanted in expected.items():
        try:
            refuse_special(path / name)
            size = (path / name).stat().st_size
            if size != wanted[0]:  # what is larger may take hours to be hashed
                raise _damaged(path / name, f"{size} bytes instead of {wanted[0]}")
            found = digest_file(path / name)
        except (OSError, ValueError) as error:
            raise _unread(path / name, error) from error
        if found.sha256 != wanted[1]:
            raise _damaged(path / name, "its sha256 is not the one in the manifest")
    from safetensors import SafetensorError

    try:
        tensors = read_tensors(path / TENSORS)
    except (SafetensorError, OSError) as error:
        raise _unread(path / TENSORS, error) from error
    try:
        state = parse_json(read_bounded(path / STATE, MOST), most_bytes=MOST, finite=False)
    except (OSError, ValueError) as error:
        raise _unread(path / STATE, error) from error
    return Checkpoint(path, step, tensors, state)


def _unread(path: Path, error: Exception) -> CheckpointError:
    if isinstance(error, PermissionError):
        return CheckpointError(
            f"The checkpoint file {path} cannot be read ({str(error.strerror).lower()}). Nothing "
            "was changed. Change the permissions there, or use a copy of your own."
        )
    return _damaged(path, f"{type(error).__name__}: {error}")


def _damaged(path: Path, why: str) -> CheckpointError:
    return CheckpointError(
        f"The checkpoint file {path} is damaged ({why}). An earlier checkpoint is used if there is "
        "one."
    )
