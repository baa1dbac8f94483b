"""What people are told about a disk: that it is full or failing, that a folder may not be written,
how many bytes there are."""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from distcore_core.errors import CacheError, DataError, DistcoreError, UserError
from distcore_data.figures import human_bytes
from distcore_data.memory import limit_in_words

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR})
EREMOTEIO: int = getattr(errno, "EREMOTEIO", errno.EIO)  # Linux's alone
UNREADABLE = frozenset({errno.EIO, EREMOTEIO, errno.ESTALE, errno.ENXIO, errno.ENODEV})
OF_THE_SYSTEM = (
    FULL
    | UNREADABLE
    | {
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EBUSY,
        errno.EFBIG,
        errno.ENOLCK,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
    }
)
"""What a disk, its owner or the system's limits are to blame for, and never a mistake of ours."""

AGAIN = os.strerror(errno.EAGAIN)

WHOM = "The system refused "
"""How the note begins that names another process."""

NO_PATH = frozenset({errno.ENAMETOOLONG, errno.ELOOP})
"""What is wrong with a path itself."""

LARGER = "raise that limit (`ulimit -f`)"

FEW_FILES = 100
"""A disk that takes no more files than these lacks inodes, not bytes."""


@contextmanager
def explained(
    folder: str | os.PathLike[str],
    what: str,
    kind: type[DistcoreError] = CacheError,
    *,
    advice: str = "choose another folder",
    only: Collection[int] | None = None,
) -> Iterator[None]:
    """Turn what the system says about storage into our errors.

    A full disk (or quota) becomes `kind`, a folder that may not be written a UserError, any other
    OSError `kind`.
    what: what was being written, such as "the cache". advice: what else the user can do.
    only: the errnos to translate, if the block also does other things; the rest pass through.
    """
    try:
        yield
    except OSError as error:
        if only is not None and error.errno not in only:
            raise
        raise storage_error(error, folder, what, kind, advice) from error


def storage_error(
    error: OSError,
    folder: str | os.PathLike[str],
    what: str,
    kind: type[DistcoreError],
    advice: str,
) -> DistcoreError:
    """The error to raise instead of an OSError met while writing `what` into `folder`."""
    reason = (error.strerror or str(error)).lower()
    if error.errno in FULL:
        return kind(
            f"There is no room for {what} in {os.fspath(folder)} ({reason}{room(folder)}). "
            "Nothing that was there before was changed, and what was begun was removed. Make room, "
            f"or {advice}."
        )
    leads_nowhere = error.errno == errno.EEXIST and not os.path.exists(folder)
    if leads_nowhere:
        reason = f"the link {os.fspath(error.filename or folder)} leads nowhere"
    if error.errno in REFUSED or leads_nowhere:
        return UserError(
            f"{os.fspath(folder)} cannot be written, so there is no place for {what} "
            f"({reason}). Nothing was changed. Make it writable, or {advice}."
        )
    if error.errno == errno.EFBIG:
        advice = f"if this process may write no larger files, {LARGER}, or {advice}"
    return kind(
        f"Writing {what} into {os.fspath(folder)} failed: {error}. "
        f"Nothing that was there before was changed. Look at that path, or {advice}."
    )


def is_of_the_system(error: BaseException) -> bool:
    """Whether a disk or the system's limits are to blame, for it or for what it came of."""
    return system_cause(error) is not None


def system_cause(error: BaseException, contexts: bool = True) -> OSError | None:
    """What the system said, if a disk or its limits are to blame for an error or for what it came
    of; None otherwise.

    contexts: whether it may also have come of what was being handled when it was raised.

    A plain OSError, made anew: an error that is pickled loses what it came of, so a process that
    tells another of one tells this beside it."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        if isinstance(found, OSError) and found.errno in OF_THE_SYSTEM:
            return OSError(found.errno, os.strerror(found.errno), found.filename)
        if _lacks_a_thread(found):
            return OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        found = found.__cause__ or (found.__context__ if contexts else None)
    return None


def _lacks_a_thread(error: BaseException) -> bool:
    """Whether the system gave no thread, or no process: what Python and libraries say of it is no
    OSError, and other errors than a fork's have EAGAIN in words of their own (a lock, a pipe)."""
    if isinstance(error, OSError):
        return error.errno == errno.EAGAIN and error.strerror == AGAIN
    if isinstance(error, DistcoreError) or not isinstance(error, Exception):
        return False
    said = str(error)
    return "can't start new thread" in said or ("thread" in said and AGAIN in said)


def note_whom(error: BaseException, whom: str, host: str) -> None:
    """Note of another process's error whom the system refused something, and where, for
    `in_words`."""
    if isinstance(error, OSError) and error.errno in OF_THE_SYSTEM:
        error.add_note(f"{WHOM}{whom} on {host}")


def in_words(error: BaseException, then: str = "run the same command again.") -> str:
    """What to say of an error that nobody had more to say of; "" unless a disk or the system's
    limits are to blame. then: what is to be done once that is mended."""
    if isinstance(error, OSError) and error.errno in NO_PATH and error.filename is not None:
        return f"{os.fsdecode(error.filename)}: {error.strerror}. Give another path."
    # Of a refused connection that was tried because a file could not be opened, this is not all.
    itself = isinstance(error, OSError) or _lacks_a_thread(error)
    found = system_cause(error, contexts=False) if itself else None
    if found is None:
        return ""
    where = f"{os.fsdecode(found.filename)}: " if found.filename is not None else ""
    # What a write says names no file, and it may be the disk of anything, as of `> output`.
    free = room(found.filename) if found.errno in FULL and found.filename is not None else ""
    whom = ""
    for note in getattr(error, "__notes__", ()):
        if note.startswith(WHOM):
            whom = f" {note.removeprefix(WHOM)}"
            if not note.endswith(f" on {socket.gethostname()}"):
                free = ""  # the room here is not that there
    look = "look at that disk"
    if isinstance(found, PermissionError):
        look = "change the permissions there, or use a copy of your own"
    elif found.errno == errno.EMFILE:
        look = "raise the limit of a process (`ulimit -n`)"
    elif found.errno == errno.EFBIG:
        look = f"if this process may write no larger files, {LARGER}"
    elif found.errno == errno.ENFILE:
        look = "the machine's limit of open files is reached: end what holds them"
    elif found.errno == errno.ENOMEM:
        look = limit_in_words().rstrip(".") or "end what takes this machine's memory"
    elif found.errno == errno.EAGAIN:
        look = "raise the limit of processes and threads (`ulimit -u`, or that of the container)"
        if words := limit_in_words():
            look = f"{words.rstrip('.')}, or {look}"
    return (
        f"{where}the system refused{whom} ({str(found.strerror).lower()}{free}). What was "
        f"saved before is as it was: {look}, then {then}"
    )


@contextmanager
def readable(shown: str) -> Iterator[None]:
    """The block reads a dataset, which the user calls `shown`. Raises DataError if its disk cannot;
    other errors pass."""
    try:
        yield
    except OSError as error:
        if error.errno not in UNREADABLE:
            raise
        raise DataError(
            f"{shown}: the system cannot read it ({os.strerror(error.errno)}). Its disk, or the "
            "network that it comes through, may be failing: copy it elsewhere, and give the copy."
        ) from error


def room(folder: str | os.PathLike[str]) -> str:
    """`; 1.2 MB of 4.0 MB are free` on the file system of the folder, or of the nearest parent that
    exists; or that it takes no more files."""
    path = Path(folder).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        usage, found = shutil.disk_usage(path), os.statvfs(path)
    except OSError:  # only a detail of a message about a worse trouble
        return ""
    if found.f_files and not found.f_favail:
        return (
            f"; it takes no more files: all of its {found.f_files} inodes are used, so remove "
            "files there"
        )
    if found.f_files and found.f_favail < FEW_FILES:  # what was begun has been removed again
        return (
            f"; it takes only {found.f_favail} more files of the {found.f_files} that its inodes "
            "are for, so remove files there"
        )
    return f"; {human_bytes(usage.free)} of {human_bytes(usage.total)} are free"
