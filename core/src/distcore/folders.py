"""The folder of a command's results, from the look at its place to what is left of it, here or in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from distcore.durable import remove_directory
from distcore.errors import DistcoreError, StoreError, UserError
from distcore.mirror import CHECKPOINTS, MODEL, STARTED, Mirror, working_folder
from distcore.session import experiment_directory

if TYPE_CHECKING:
    from distcore.requests import TrainRequest
    from distcore.session import Session
    from distcore.stores import Credentials


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
            if session.directory is not None:
                remove_directory(session.directory)
        raise


def _left_behind(session: Session) -> tuple[bool, bool]:
    """Whether a run that ended early left a model, and a checkpoint."""
    try:
        if session.mirror is not None:
            return bool(session.mirror.store.list(f"{MODEL}/")), bool(session.mirror.folders(CHECKPOINTS))
    except StoreError:  # nothing is removed that was not seen to be useless
        return True, True
    assert session.directory is not None
    return (session.directory / MODEL).exists(), any(session.directory.glob(f"{CHECKPOINTS}/step-*"))
