"""A lock between processes that the system releases when its holder dies, however it dies."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
"""What the system says of a lock that somebody holds."""

LOCKLESS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
"""What it says if the file system has no locks."""

LOOKS = 100
"""So many times a lock that is shared is asked for again; who keeps it so is a holder."""


@contextmanager
def locked(
    path: str | os.PathLike[str], on_wait: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the lock file `path`; made if it is missing, gone afterwards.

    on_wait: called once when another process (or thread) holds it, before waiting; ctrl-C ends the
    wait. Raises OSError if the file cannot be made.
    """
    handle, owner = _acquire(Path(path), on_wait, wait=True), os.getpid()
    assert handle is not None
    try:
        yield
    finally:
        _release(Path(path), handle, owner)


@contextmanager
def locked_if_free(path: str | os.PathLike[str]) -> Iterator[bool]:
    """Hold the lock if nobody else does (yields True), else yield False at once."""
    handle, owner = _acquire(Path(path), None, wait=False), os.getpid()
    try:
        yield handle is not None
    finally:
        if handle is not None:
            _release(Path(path), handle, owner)


@contextmanager
def folder_if_free(folder: str | os.PathLike[str], unknown: bool = True) -> Iterator[bool]:
    """Hold a lock on a folder itself, which leaves no file in it, if nobody else does (yields
    True); else yield False.

    Args:
        folder: Which one. Raises OSError if it cannot be opened.
        unknown: What to yield if the file system has no locks: it is not known who else is there.
    """
    handle, owner = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), os.getpid()
    try:
        try:
            free = _taken(handle)
        except OSError:
            free = unknown
        yield free
    finally:
        let_go(handle, owner)


@contextmanager
def file_if_free(path: str | os.PathLike[str], *, unwritable: bool) -> Iterator[bool]:
    """Hold a lock on a file itself if nobody else does (yields True); else yield False.

    True, too, if there is no such file, and if the file system has no locks. Raises OSError.

    Args:
        unwritable: what to yield if this user may not write the file, of which NFS does not say
            whether anybody has it.
    """
    handle: int | None = None
    owner, free = os.getpid(), True
    try:
        handle = lock_file(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in BUSY | LOCKLESS | {errno.EBADF}:
            raise
        free = unwritable if error.errno == errno.EBADF else error.errno in LOCKLESS
    try:
        yield free
    finally:
        if handle is not None:
            let_go(handle, owner)


def lock_file(path: str | os.PathLike[str], how: int) -> int | None:
    """A handle of the file that has the name, locked; None if there is none.

    how: LOCK_SH or LOCK_EX, with LOCK_NB if it should not wait; then BlockingIOError if others
        hold it."""
    flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            try:
                handle = os.open(path, os.O_RDWR | flags)  # or NFS gives no exclusive lock
            except OSError:  # not ours to write
                handle = os.open(path, os.O_RDONLY | flags)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, how)
            if _is_named(path, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # it was removed, or replaced, while we waited


def let_go(handle: int, owner: int) -> None:
    """Close a handle, and give up its lock: a process that was forked meanwhile has the handle,
    too, and would hold the lock for as long as it lives.

    Args:
        handle: What is open.
        owner: The process that took the lock; another one only closes its handle.
    """
    try:
        if os.getpid() == owner:
            fcntl.flock(handle, fcntl.LOCK_UN)
    except OSError:  # there are no locks
        pass
    finally:
        os.close(handle)


def is_held(path: str | os.PathLike[str]) -> bool:
    """Whether anybody holds the lock now. Makes no file, and needs no right to write."""
    try:
        # Without waiting, if somebody laid a pipe there.
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    try:
        return not _flock(handle, fcntl.LOCK_SH)
    finally:
        let_go(handle, os.getpid())


def _acquire(path: Path, on_wait: Callable[[], None] | None, wait: bool) -> int | None:
    """An open handle that holds the lock of the file which now has the name."""
    while True:
        # In a folder of several users a link could have the file made elsewhere.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            if not _take(handle, on_wait, wait):
                os.close(handle)
                return None
            if _is_named(path, handle):
                return handle
        except BaseException:
            os.close(handle)
            raise
        # The holder we waited for removed the file: whoever comes now makes another one, so we must
        # hold that.
        os.close(handle)
        on_wait = None


def _take(handle: int, on_wait: Callable[[], None] | None, wait: bool) -> bool:
    if _taken(handle):
        return True
    if not wait:
        return False
    if on_wait is not None:
        on_wait()
    fcntl.flock(handle, fcntl.LOCK_EX)
    return True


def _taken(handle: int) -> bool:
    """Take the lock unless somebody holds it. Who only looks (`is_held`) shares it for an instant,
    and is no holder. Raises OSError if there are no locks."""
    for _ in range(LOOKS):
        if _flock(handle, fcntl.LOCK_EX):
            return True
        if not _flock(handle, fcntl.LOCK_SH):
            return False
        fcntl.flock(handle, fcntl.LOCK_UN)
        time.sleep(0.001)
    return False


def _flock(handle: int, how: int) -> bool:
    """Whether the lock could be had at once. Raises OSError if there are no locks."""
    try:
        fcntl.flock(handle, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in BUSY:
            raise
        return False
    return True


def _is_named(path: str | os.PathLike[str], handle: int) -> bool:
    try:
        named = os.stat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(handle))


def _release(path: Path, handle: int, owner: int) -> None:
    """Remove the name while the lock is still held, so that nobody can hold a file without one. A
    forked process that leaves the block, too, leaves the name: its parent still holds the lock."""
    try:
        if os.getpid() == owner:
            path.unlink(missing_ok=True)
    except OSError:
        # an empty lock file that stays does no harm; the work done under it must not fail for it
        pass
    finally:
        let_go(handle, owner)
