"""A run's files against the seals that were written with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from distcore_core.contracts import JSON
from distcore_core.errors import ArtifactError, CheckpointError, UserError
from distcore_core.io.digest import digest_file
from distcore_data.run_files import DESCRIPTION, MODEL_JSON, RECEIPT, TRAINING_LOG
from distcore_data.seals import is_special, read_bounded, unsealed
from distcore_data.stores.run_sync import CHECKPOINTS, MODEL
from distcore_torch.training.ledger import LEDGER, read_ledger


def flaws_of(folder: Path, run: str | Path) -> Iterator[str]:
    """Every file of a results folder that is not as it was written, in a sentence. Changes
    nothing."""
    try:
        receipt = unsealed(read_bounded(folder / RECEIPT))
        files: Mapping[str, JSON] = receipt.get("files", {})
    except FileNotFoundError:
        raise UserError(
            f"{run} holds no {RECEIPT}. Give the folder of a run that is whole."
        ) from None
    except ValueError as error:
        yield f"{folder / RECEIPT} was changed after it was written ({error})."
        return
    if any(_is_longer(folder / name, files.get(name, {})) for name in (LEDGER, TRAINING_LOG)):
        yield (
            f"{folder} was gone on with after it had ended and has not ended again, so its files "
            f"do not belong together. Go on with it: --model_resume_path {folder}."
        )
    for name, written in files.items():
        try:
            if not (folder / name).resolve().is_relative_to(folder.resolve()):
                yield f"{folder / RECEIPT} names a file outside of its folder, {name!r}."
                continue
            if is_special(folder / name):
                yield f"{folder / name} is a pipe or a device."
                continue
            found = digest_file(folder / name)
        except FileNotFoundError:
            yield f"{folder / name} is missing."
            continue
        except OSError as error:
            yield f"{folder / name} cannot be read ({error.strerror})."
            continue
        except ValueError as error:  # a name that no file can have
            yield f"{folder / RECEIPT} names a file {name!r} ({error})."
            continue
        if written != {"bytes": found.bytes, "sha256": found.sha256}:
            yield (
                f"{folder / name} was changed after it was written: its sha256 is not the one in "
                f"{RECEIPT}."
            )
    with suppress(OSError, ValueError, KeyError):  # told above
        if unsealed(read_bounded(folder / DESCRIPTION))["config"] != receipt["config"]:
            yield f"{folder / DESCRIPTION} and {RECEIPT} have different configs."
    yield from _flaws_of_ledger(folder / LEDGER)
    yield from _flaws_of_folders(folder, f"{MODEL}/{MODEL_JSON}" in files)


def _is_longer(path: Path, written: JSON) -> bool:
    """Whether the file goes on after what was written, a digest: lines were added to it."""
    with suppress(OSError, KeyError, TypeError):  # what is odd there is told below
        bytes_then = written["bytes"]
        if path.is_file() and path.stat().st_size > bytes_then:
            with path.open("rb") as file:
                return sha256(file.read(bytes_then)).hexdigest() == written["sha256"]
    return False


def _flaws_of_ledger(path: Path) -> Iterator[str]:
    if path.is_file():
        for flaw in read_ledger(path)[1]:
            yield f"{path}, line {flaw.line}, was changed after it was written ({flaw.why})."


def _flaws_of_folders(folder: Path, with_model: bool) -> Iterator[str]:
    """Of the model and the checkpoints, each of which says what belongs to it."""
    from distcore_data.model_folder import read_manifest
    from distcore_torch.training.checkpoint import list_checkpoints, load

    if with_model and (folder / MODEL / MODEL_JSON).exists():
        try:
            read_manifest(folder / MODEL)
        except ArtifactError as error:
            yield str(error)
    for each in list_checkpoints(folder / CHECKPOINTS):
        try:
            load(each)
        except CheckpointError as error:
            yield str(error)
