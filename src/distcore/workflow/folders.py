"""The folder of a command's results, from the look at its place to what is left of it, here or
in a bucket."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from distcore.workflow import results
from distcore.workflow.remote_folders import (
    BEGINNING,
    TAKEN,
    alone_there,
    fresh_there,
    put_at_the_end,
)
from distcore_core.contracts import JSON
from distcore_core.errors import (
    CheckpointError,
    DistcoreError,
    Stopped,
    StoreError,
    UserError,
)
from distcore_core.io.atomic import remove_directory, write_file
from distcore_data.locks import folder_if_free
from distcore_data.os_errors import FULL, is_of_the_system, system_cause
from distcore_data.own_files import as_before
from distcore_data.run_files import DESCRIPTION, ENDED
from distcore_data.seals import sealed
from distcore_data.stores.run_sync import (
    CHECKPOINTS,
    MODEL,
    RESUME,
    STARTED,
    Mirror,
    how_to_go_on,
    newest_checkpoint,
    working_folder,
)
from distcore_data.temporaries import sweep, sweep_tree, temporary_folder
from distcore_torch.signals import signal_of
from distcore_torch.training.launched import is_other_rank

if TYPE_CHECKING:
    from distcore.workflow.requests import TrainRequest
    from distcore.workflow.session import Session
    from distcore_data.stores import Credentials


FRAMES = 40
"""So many of an error in `ended.json` at most."""


def check_place(folder: Path | str, credentials: Credentials | None = None) -> None:
    """Raise, before any work, if results cannot come into the folder: UserError if a file or a link
    that leads nowhere is in its place or above, StoreError if the bucket cannot be read."""
    if not isinstance(folder, Path):
        with suppress(FileNotFoundError):  # which a bucket that can be read says
            Mirror.at(folder, credentials).store.read(STARTED)
        return
    try:
        for each in (folder, *folder.parents):
            if each.is_dir():
                return
            if each.exists() or each.is_symlink():
                what = "a file" if each.exists() else f"a link to {each.readlink()}, which is gone"
                raise UserError(
                    f"The results cannot be written to {folder}: {each} is {what}. "
                    "Give another folder with --output_directory."
                )
    except OSError as error:  # a name that is too long, a link to itself
        raise UserError(
            f"The results cannot be written to {folder}: {error.strerror}. "
            "Give another folder with --output_directory."
        ) from None


@contextmanager
def run_folder(
    session: Session, asked: TrainRequest, taken_over: Path | str | None
) -> Iterator[None]:
    """Give the session its folder: that of the run to go on with, or a fresh one, which is gone
    again if the run is refused. If it is in a bucket, the session works in a copy on this machine,
    and what is new there when the run ends, whichever way, is put into the bucket. Nobody else
    trains there meanwhile.

    A launcher's ranks but the first leave no results, and work where nobody sees it: if each had a
    folder there, chance would decide which one the results come into.

    taken_over: where a lost process of this launch began the run; the launcher knows who goes on
        with it."""
    going_on, credentials = taken_over or asked.going_on, session.config.backend.credentials
    place = going_on or asked.output
    with ExitStack() as stack:
        if is_other_rank():  # rank 0, another process, holds the folder for all of them
            session.directory = stack.enter_context(temporary_folder("rank"))
        elif not isinstance(place, Path):
            if going_on:
                session.mirror = Mirror.at(place, credentials)
                if not taken_over:
                    stack.enter_context(alone_there(session.mirror))
            else:
                name = f"{asked.experiment_name}_{asked.model_name}"
                session.mirror = stack.enter_context(fresh_there(place, name, credentials))
            session.directory = stack.enter_context(working_folder(session.mirror))
            stack.enter_context(put_at_the_end(session.mirror, session.directory))
        elif going_on:
            session.directory = place
            refuse_anothers_checkpoints(place)
            sweep_tree(place)
            if not taken_over:
                stack.enter_context(alone_in(place))
        else:
            session.directory = stack.enter_context(
                fresh_folder(place, asked.experiment_name, asked.model_name)
            )
        if going_on:
            session.former = results.model_told(session)
        else:
            stack.enter_context(gone_if_refused(session))
        stack.enter_context(saying_how_to_go_on(session))
        stack.enter_context(noting_the_end(session, resuming=bool(going_on)))
        yield


def refuse_anothers_checkpoints(folder: Path) -> None:
    """Raise UserError if a run's checkpoints are a link to those of another run, which would be
    removed as old ones. A link to a folder on a larger disk will do."""
    link = folder / CHECKPOINTS
    there = Path(os.path.realpath(link)).parent
    is_anothers = link.is_symlink() and there != Path(os.path.realpath(folder))
    if is_anothers and os.path.exists(there / DESCRIPTION):
        raise UserError(
            f"{link} is a link into {there}, which is another run's folder; its checkpoints would "
            "be removed. Put a copy of them in the link's place, or go on with that run."
        )


@contextmanager
def fresh_folder(root: str | Path, experiment_name: str, model_name: str) -> Iterator[Path]:
    """Make `<root>/<experiment_name>_<model_name>`, with a number behind it if a run is or was
    there, and hold it: two runs share none. A run that was killed before it had saved anything
    makes room.

    Raises UserError if it cannot be made."""
    base = Path(root) / f"{experiment_name}_{model_name}"
    with ExitStack() as stack:
        try:
            base.parent.mkdir(parents=True, exist_ok=True)
            folder = next(each for each in _places(base) if _claimed(each, stack))
        except OSError as error:
            raise UserError(
                f"The results cannot be written to {base}: {error.strerror}. "
                "Give another --output_directory, --experiment_name or --model_name."
            ) from error
        yield folder


def place_of(asked: TrainRequest) -> Path | None:
    """The folder that the run will have if no other one begins before it; None: one in a bucket."""
    place = asked.going_on or asked.output
    if not isinstance(place, Path):
        return None
    if asked.going_on:
        return place
    base = place / f"{asked.experiment_name}_{asked.model_name}"
    return next(each for each in _places(base) if not os.path.exists(each) or _holds_nothing(each))


def _places(base: Path) -> Iterator[Path]:
    """The path, then the same with a number behind it."""
    yield base
    for number in count(1):
        yield base.with_name(f"{base.name}_{number}")


def _claimed(folder: Path, stack: ExitStack) -> bool:
    """Whether the folder is empty now, and held until the stack is closed."""
    try:
        folder.mkdir()
        made = True
    except FileExistsError:
        sweep_tree(folder)
        if not _holds_nothing(folder):
            return False
        made = False
    with ExitStack() as held:
        try:
            if not held.enter_context(folder_if_free(folder, unknown=made)):
                return False
        except OSError:
            if made and folder.exists():  # the next name would not go better
                with suppress(OSError):
                    folder.rmdir()
                raise
            return False  # somebody else's, or gone
        if not _holds_nothing(folder):  # it was used, and left, before it was held
            return False
        for each in folder.iterdir():
            if each.is_dir():
                remove_directory(each)
            else:
                each.unlink()
        stack.push(held.pop_all())
    return True


def _holds_nothing(folder: Path) -> bool:
    """Whether only that lies there with which a run begins, and nothing to go on from."""
    try:
        return not folder.is_symlink() and all(
            not any(each.iterdir()) if each.name == CHECKPOINTS else each.name in BEGINNING
            for each in folder.iterdir()
        )
    except OSError:  # a file, or nobody's to read
        return False


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Hold a run's folder: of two processes that train in it, each would remove what the other
    saves.

    Raises UserError if another one does."""
    with folder_if_free(directory) as free:
        if not free:
            raise UserError(TAKEN.format(directory))
        yield


@contextmanager
def answer_folder(
    place: Path | str, credentials: Credentials | None
) -> Iterator[tuple[Path, Mirror | None]]:
    """The folder for what `predict` and `evaluate` find, and the bucket that it is put into when
    the work is done."""
    if isinstance(place, Path):
        sweep(place)
        with as_before(place):
            yield place, None
        return
    mirror = Mirror.at(place, credentials)
    with working_folder(mirror) as folder:
        yield folder, mirror
        mirror.put_files(folder)


@contextmanager
def gone_if_refused(session: Session) -> Iterator[None]:
    """Remove a run's fresh folder when it fails, or is stopped, before a checkpoint, a model or
    whole results lie in it."""
    try:
        yield
    except (DistcoreError, KeyboardInterrupt, SystemExit):
        with suppress(StoreError):  # nothing is removed that was not seen to be useless
            left = session.whole or any(_left_behind(session))
            if not left and not _has_checkpoints_of_others(session):
                if session.directory is not None:
                    remove_directory(session.directory)
                if session.mirror is not None:
                    session.mirror.remove()
        raise


@contextmanager
def noting_the_end(session: Session, resuming: bool) -> Iterator[None]:
    """If the run does not end well, leave word in its folder of how it did, for `distcore runs`;
    not if it was refused to go on with the run that lies there."""
    assert session.directory is not None
    path = session.directory / ENDED
    try:
        yield
    except BaseException as error:
        if resuming and isinstance(error, UserError | CheckpointError):
            raise
        stopped = isinstance(error, KeyboardInterrupt | SystemExit)
        said: JSON = {"state": "stopped" if stopped else "failed", "error": str(error)}
        if not stopped and not isinstance(error, DistcoreError):
            said["frames"] = traceback.format_tb(error.__traceback__, -FRAMES)
        with suppress(OSError):  # a full disk, of which the error tells
            write_file(path, sealed(said))
        raise
    if resuming:
        results.remove(session, ENDED)


@contextmanager
def saying_how_to_go_on(session: Session) -> Iterator[None]:
    """A signal that stops the run says what it leaves: the model that was being evaluated, or
    the last checkpoint. So does an error that a disk or a limit is to blame for."""
    try:
        yield
    except DistcoreError as error:
        if is_of_the_system(error) and RESUME not in str(error):
            with suppress(StoreError, OSError, ValueError):  # the disk may be what failed
                model, checkpoint = _left_to_go_on(session)
                if model:
                    error.args = (f"{error} {_finished(session, checkpoint)}",)
                elif checkpoint:
                    error.args = (f"{error} {how_to_go_on(checkpoint, session.home)}",)
                cause = system_cause(error)
                full = cause is not None and cause.errno in FULL
                if full and checkpoint and session.mirror is None:
                    error.args = (f"{error} (or with a copy of it on a disk that has room)",)
        raise
    except KeyboardInterrupt as error:
        words = str(error)
        with suppress(StoreError, OSError, ValueError):  # the disk may be what failed
            model, checkpoint = _left_to_go_on(session)
            if model:
                words = _finished(session, "")
            elif checkpoint and not words:
                words = how_to_go_on(checkpoint, session.home)
        raise Stopped(words, signal_of(error)) from None


def _finished(session: Session, checkpoint: str) -> str:
    """How to have the rest of a run whose model is trained. checkpoint: its last, "" if none is
    to be gone on from."""
    if checkpoint:
        return f"The model is trained; have the rest made with {RESUME} {session.home}"
    command = f"distcore evaluate --model_path {session.home} --dataset …"
    return f"The model is trained; evaluate it with: {command}"


def _left_to_go_on(session: Session) -> tuple[bool, str]:
    """As `_left_behind`; the model of the run as it was before is none if there is a checkpoint."""
    model, checkpoint = _left_behind(session)
    if model and checkpoint and session.former is not None:
        model = results.model_told(session) != session.former
    return model, checkpoint


def _left_behind(session: Session) -> tuple[bool, str]:
    """Of a run that ended early: whether it left a model, and its last checkpoint ("": none)."""
    checkpoint = newest_checkpoint(session.directory, session.mirror)
    if session.mirror is not None:
        return bool(session.mirror.store.list(f"{MODEL}/")), checkpoint
    assert session.directory is not None
    return (session.directory / MODEL).exists(), checkpoint


def _has_checkpoints_of_others(session: Session) -> bool:
    """Whether a trainer that names its checkpoints in its own way has left some."""
    if session.mirror is not None:
        found = session.mirror.store.list(f"{CHECKPOINTS}/")
        names = [name.removeprefix(f"{CHECKPOINTS}/") for name in found]
    else:
        assert session.directory is not None
        names = [each.name for each in (session.directory / CHECKPOINTS).glob("*")]
    return any(not name.startswith(("step-", ".")) for name in names)
