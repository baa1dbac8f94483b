"""Temporary files and folders that show whether anybody still works on them, so that the next run removes the others.

Who makes one holds a lock on it, not on a file beside it: the system lets go of the lock when its holder dies, and a
rename takes it along. A temporary is looked at only if its name is one that nobody else would choose:

    .<name>.<32 hex digits>.tmp          a file on its way to <name>
    <name>.building-<32 hex digits>      a folder under construction
    <name>.removing-<32 hex digits>      a folder that is being deleted, or replaced
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BUILDING = ".building-"
"""What stands between the final name and a random one in the name of a folder under construction."""

REMOVING = ".removing-"
"""The same in the name of a folder that is being deleted."""

RANDOM = "[0-9a-f]{32}"
BESIDE = re.compile(rf"\.(.+)\.{RANDOM}\.tmp|(.+)(?:{re.escape(BUILDING)}|{re.escape(REMOVING)}){RANDOM}", re.DOTALL)

BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
"""What the system says of a lock that somebody holds."""

log = logging.getLogger("distcore")


def temporary_name(path: Path) -> Path:
    """A fresh name beside a path for a file on its way to it."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")


def building_name(final: str | os.PathLike[str]) -> Path:
    """A fresh name beside `final` for a folder under construction."""
    final = Path(final)
    return final.with_name(f"{final.name}{BUILDING}{uuid.uuid4().hex}")


def removing_name(path: Path) -> Path:
    """A fresh name beside a path for what it holds now, until that is deleted."""
    return path.with_name(f"{path.name}{REMOVING}{uuid.uuid4().hex}")


@contextmanager
def held(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold the lock on a file or folder; False: it was taken for abandoned just before, and is gone.

    If the file system has no locks nothing is held, and nobody there takes anything for abandoned."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        yield error.errno != errno.ENOENT
        return
    try:
        yield hold(handle, path)
    finally:
        os.close(handle)


def hold(handle: int, path: str | os.PathLike[str]) -> bool:
    """The same with a file or folder that is open, until it is closed."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX)
    return _is_named(path, handle)


@contextmanager
def held_folder(name: Callable[[], Path]) -> Iterator[Path]:
    """Make a folder, with its parents, and hold it; removing it is the caller's. name: gives fresh names."""
    while True:
        path = name()
        path.mkdir(mode=0o777, parents=True)
        with held(path) as mine:
            if mine:
                yield path
                return


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half done in a folder: only what is ours, and what nobody holds.

    Args:
        folder: Where to look; not in the folders there. It need not exist.
        name: Only what was on its way to this name.
    """
    for entry in entries(folder):
        found = BESIDE.fullmatch(entry.name)
        if found is not None and name in (None, found[1], found[2]):
            remove_if_abandoned(Path(entry.path))


# ------------------------------------------------------------------ inside


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
        if _is_named(path, handle):
            log.info("Removing %s, left by a run that was killed.", path)
            delete(path)
    except OSError as error:
        if error.errno not in (*BUSY, errno.ENOENT):
            log.debug("%s is left as it is: %s", path, error)
    finally:
        os.close(handle)


def delete(path: Path) -> None:
    """Delete a file, a link or a folder that nobody reads; what cannot be deleted is left for the next run to find."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def _is_named(path: str | os.PathLike[str], handle: int) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except OSError:
        return False
