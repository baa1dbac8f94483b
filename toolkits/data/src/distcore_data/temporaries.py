"""Temporary folders and files in the system's temporary folder, and removing what killed processes
left of a run.

Their names are `distcore-<what>-<32 hex digits>`; the lock on each says whether anybody still works
on it, as for those of `distcore_core.io.temporaries`.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from distcore_core.errors import UserError
from distcore_core.io.temporaries import BUILDING, RANDOM, REMOVING, delete, held_folder, is_named
from distcore_data.locks import BUSY, is_held, locked_if_free

IN_SYSTEM = re.compile(rf"distcore-[a-z]+-{RANDOM}")

BESIDE = re.compile(
    rf"\.(.+)\.{RANDOM}\.tmp|(.+)(?:{re.escape(BUILDING)}|{re.escape(REMOVING)}){RANDOM}", re.DOTALL
)
"""Names of what is on its way to another name, or from it."""

LOCK = ".lock"
"""What holds a folder of a search, and of each trial."""

log = logging.getLogger("distcore")


def system_folder() -> Path:
    """The system's folder for temporary files. Raises UserError if there is none."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise UserError(
            f"There is no folder for temporary files: {error.strerror}. Let TMPDIR name a folder "
            "that can be written and has room, then run the same command again."
        ) from error


@contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """A folder of this user alone in the system's temporary folder, gone when the block ends.

    Args:
        what: Lower-case letters, for people: the folder is called `distcore-<what>-…`.
    """

    made: list[Path] = []

    def name() -> Path:
        made.append(Path(system_folder(), f"distcore-{what}-{uuid.uuid4().hex}"))
        return made[-1]

    try:  # from its name on: ctrl-C may come right after the folder was made
        with held_folder(name) as path:
            path.chmod(0o700)
            yield path
    finally:
        _remove(made)


def is_temporary(path: str | os.PathLike[str]) -> bool:
    """Whether a path lies in such a folder, and will be gone."""
    place = os.path.relpath(os.path.abspath(path), system_folder())
    return IN_SYSTEM.fullmatch(place.split(os.sep)[0]) is not None


def _remove(folders: list[Path]) -> None:
    """Remove them, to the end also if ctrl-C comes meanwhile."""
    try:
        for each in folders:
            shutil.rmtree(each, ignore_errors=True)
    except BaseException:
        for each in folders:
            shutil.rmtree(each, ignore_errors=True)
        raise


def unnamed_file(what: str, folder: str | os.PathLike[str] | None = None) -> BinaryIO:
    """A file without a name, to write and to read, gone with its last handle; nothing is buffered.

    Args:
        what: As for `temporary_folder`, if the file system gives no file without a name.
        folder: Where it lies; None: the system's temporary folder.
    """
    place = Path(folder or system_folder())
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        # Linux has the flag alone; elsewhere it is a folder that cannot be written to: EISDIR.
        handle = os.open(place, flags | getattr(os, "O_TMPFILE", os.O_DIRECTORY), 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.ENOENT):
            raise
        path = place / f"distcore-{what}-{uuid.uuid4().hex}"
        handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
        path.unlink(missing_ok=True)
    return cast(BinaryIO, os.fdopen(handle, "w+b", buffering=0))


def sweep_tree(folder: Path) -> None:
    """The same in a run's folder and all folders in it, and locks of those who died."""
    sweep(folder)
    for entry in entries(folder):
        if entry.is_dir(follow_symlinks=False) and BESIDE.fullmatch(entry.name) is None:
            sweep_tree(Path(entry.path))
            lock = Path(entry.path, LOCK)
            if lock.is_file():
                with suppress(OSError), locked_if_free(lock):
                    continue  # whoever holds it removes it at the end


def sweep_system() -> None:
    """Remove what this user's killed processes left in the system's temporary folder."""
    for entry in entries(system_folder()):
        if IN_SYSTEM.fullmatch(entry.name):
            remove_if_abandoned(Path(entry.path))


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half done in a folder: only what is ours, and what nobody
    holds.

    Args:
        folder: Where to look; not in the folders there. It need not exist.
        name: Only what was on its way to this name.
    """
    for path in _on_their_way(folder, name):
        remove_if_abandoned(path)


def is_being_written(path: Path) -> bool:
    """Whether a process that lives writes what will have the name; not known, and so not said,
    where the file system has no locks."""
    with suppress(OSError):
        return any(map(is_held, _on_their_way(path.parent, path.name)))
    return False


def _on_their_way(folder: Path, name: str | None) -> Iterator[Path]:
    """What in a folder is on its way to a name, or from it; None: to any."""
    for entry in entries(folder):
        found = BESIDE.fullmatch(entry.name)
        if found is not None and name in (None, found[1], found[2]):
            yield Path(entry.path)


def entries(folder: Path) -> list[os.DirEntry[str]]:
    """What lies in a folder; nothing if it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:  # not there, or not ours to look at
        return []


def remove_if_abandoned(path: Path) -> None:
    """Remove a temporary of this user's whose lock is free; what cannot be removed stays."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if os.fstat(handle).st_uid != os.geteuid():
            return
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_named(path, handle):
            log.info("Removing %s, left by a process that was killed.", path)
            delete(path)
    except OSError as error:
        if error.errno not in (*BUSY, errno.ENOENT):
            log.debug("%s is left as it is: %s", path, error)
    finally:
        os.close(handle)
