"""Temporary files and folders that show whether anybody still works on them.

Who makes one holds a lock on it, not on a file beside it: the system lets go of the lock when its
holder dies, and a rename takes it along. So the data toolkit's `sweep` removes what killed
processes left. Names are such that nobody else would choose:

    .<name>.<32 hex digits>.tmp          a file on its way to <name>
    <name>.building-<32 hex digits>      a folder under construction
    <name>.removing-<32 hex digits>      a folder that is being deleted, or replaced
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

BUILDING = ".building-"
"""What stands between the final name and a random one in the name of a folder under
construction."""

REMOVING = ".removing-"
"""The same in the name of a folder that is being deleted."""

RANDOM = "[0-9a-f]{32}"


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
    """Hold the lock on a file or folder; False: it was taken for abandoned just before, and is
    gone.

    If the file system has no locks nothing is held, and nobody there takes anything for
    abandoned."""
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
    return is_named(path, handle)


@contextmanager
def held_folder(name: Callable[[], Path]) -> Iterator[Path]:
    """Make a folder, with its parents, and hold it; removing it is the caller's. name: gives
    fresh names."""
    while True:
        path = name()
        path.mkdir(mode=0o777, parents=True)
        with held(path) as mine:
            if mine:
                yield path
                return


# ------------------------------------------------------------------ inside


def delete(path: Path) -> None:
    """Delete a file, a link or a folder that nobody reads; what cannot be deleted is left for
    the next run to find."""
    if path.is_symlink() or path.is_file():
        path.unlink(missing_ok=True)
    else:
        shutil.rmtree(path, ignore_errors=True)


def is_named(path: str | os.PathLike[str], handle: int) -> bool:
    """Whether the path names what is open."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(handle))
    except OSError:
        return False
