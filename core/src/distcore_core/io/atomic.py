"""Write files and folders so that a reader sees a whole version or none: the only code in core that renames or fsyncs.

A file or folder is made under another name in the same directory, its bytes are forced to disk, it is renamed to its
name, and the directory is forced to disk. Whatever stops that, a full disk, a signal or an exception, leaves the old
version untouched; temporaries are removed where the process lives to do it, and else by the next run (temporaries.py).
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from distcore_core.io.digest import Digest, HashingFile, digest_file
from distcore_core.io.temporaries import (
    BUILDING,
    REMOVING,
    building_name,
    delete,
    held,
    held_folder,
    hold,
    removing_name,
    temporary_name,
)

__all__ = [
    "BUILDING",
    "REMOVING",
    "Digest",
    "DirectoryBuilder",
    "Syncer",
    "building_name",
    "commit_directory",
    "digest_file",
    "move_file",
    "remove_directory",
    "sync_directory",
    "sync_tree",
    "write_file",
    "write_new_file",
]

SYNCING, WAITING = 4, 32
"""Files that are forced to disk at once, and those that may wait for it: each is an open file."""


def write_new_file(
    path: str | os.PathLike[str], content: bytes | Callable[[BinaryIO], None], syncer: Syncer | None = None
) -> Digest:
    """Write a file that nobody reads yet (it lies in a folder under construction) and force its bytes to disk.

    content: the bytes, or a function that writes them to the file it is given. Removed again if that fails.
    syncer: forces them to disk later; the caller waits for it before anything says that the file is there."""
    file = HashingFile(path)
    try:
        if callable(content):
            content(cast(BinaryIO, file))
        else:
            file.write(content)
        digest = file.digest()
        if syncer is not None:
            syncer.add(file)
            return digest
        os.fsync(file.fileno())
    except BaseException:
        file.close()
        Path(path).unlink(missing_ok=True)
        raise
    file.close()
    return digest


class Syncer:
    """Forces files to disk from threads of its own, while the next ones are made. For use from any thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(SYNCING, thread_name_prefix="distcore-sync")
        self._room = threading.BoundedSemaphore(WAITING)
        self._errors: list[BaseException] = []

    def add(self, file: HashingFile) -> None:
        """Take a file that is written; it is closed once it is on disk. Waits while many wait already.

        Raises the error of one that could not be forced to disk before; this file is then still the caller's."""
        self._raise()
        self._room.acquire()
        try:
            self._pool.submit(self._sync, file)
        except BaseException:
            self._room.release()
            raise

    def wait(self) -> None:
        """Return when every file is on disk and no other will be taken. Raises the error of the first that failed."""
        self.close()
        self._raise()

    def close(self) -> None:
        """Return when no thread works on any file."""
        self._pool.shutdown()

    def _sync(self, file: HashingFile) -> None:
        try:
            with file:
                os.fsync(file.fileno())
        except BaseException as error:  # noqa: BLE001 - told by the thread that waits
            self._errors.append(error)
        finally:
            self._room.release()

    def _raise(self) -> None:
        if self._errors:
            raise self._errors[0]


def write_file(path: str | os.PathLike[str], content: bytes | Callable[[BinaryIO], None]) -> Digest:
    """Write or replace one file: a reader sees the old bytes or the new ones, also after a power cut.

    Raises OSError as the system gave it (see `explained`); the old file is then as it was."""
    path = Path(path)
    with new_file_beside(path) as (temporary, file):
        if callable(content):
            content(cast(BinaryIO, file))
        else:
            file.write(content)
        digest = file.digest()
        os.fsync(file.fileno())
        os.replace(temporary, path)
    sync_directory(path.parent)
    return digest


@contextmanager
def new_file_beside(path: Path) -> Iterator[tuple[Path, HashingFile]]:
    """A new file under a temporary name beside `path`, held until the block ends; then that name is gone."""
    while True:
        temporary = temporary_name(path)
        file = HashingFile(temporary)
        if hold(file.fileno(), temporary):
            break
        file.close()
    try:
        yield temporary, file
    finally:
        temporary.unlink(missing_ok=True)
        file.close()


def move_file(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Give a file that is on disk another name on the same disk, in place of whatever has it; its folder is made.

    Raises OSError; then either name is as it was."""
    folder = Path(target).parent
    if not folder.exists():
        folder.mkdir()
        sync_directory(folder.parent)
    os.replace(source, target)
    sync_directory(folder)


def sync_directory(path: str | os.PathLike[str]) -> None:
    """Force a directory's entries (names made, renamed, removed) to disk."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit_directory(
    temporary: str | os.PathLike[str],
    final: str | os.PathLike[str],
    *,
    synced: Collection[str] = (),
    replace: bool = False,
) -> None:
    """Force every file and folder under `temporary` to disk, then rename it to `final` beside it.

    synced: relative paths of files that are on disk already (`write_new_file` saw to that).
    replace: move a `final` that exists out of the way and delete it after; otherwise it is an OSError.
    Where the last step fails too, forcing the new name to disk, the names are again as they were.
    """
    temporary, final = Path(temporary), Path(final)
    sync_tree(temporary, synced)
    with ExitStack() as stack:
        old = None
        if replace and os.path.lexists(final):
            stack.enter_context(held(final))  # it may come back
            old = removing_name(final)
            os.rename(final, old)
        renamed = False
        try:
            if final.exists():  # a rename would silently replace an empty folder
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))
            os.rename(temporary, final)
            renamed = True
            sync_directory(final.parent)
        except BaseException:
            if renamed:
                os.rename(final, temporary)
            if old is not None:
                os.rename(old, final)
            raise
        if old is not None:
            delete(old)


def sync_tree(folder: str | os.PathLike[str], synced: Collection[str] = ()) -> None:
    """Force every file and folder under `folder`, and itself, to disk; links are not followed."""
    folder = Path(folder)
    for root, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(root, name)
            if path.is_symlink() or path.relative_to(folder).as_posix() in synced:
                continue
            with open(path, "rb", buffering=0) as file:
                os.fsync(file.fileno())
        sync_directory(root)


def remove_directory(path: str | os.PathLike[str]) -> None:
    """Delete a folder so that no reader ever sees half of it: it loses its name first. Nothing there is fine."""
    path = Path(path)
    if not os.path.lexists(path):
        return
    doomed = path
    if BUILDING not in path.name and REMOVING not in path.name:
        doomed = removing_name(path)
        os.rename(path, doomed)
        sync_directory(path.parent)
    delete(doomed)


class DirectoryBuilder:
    """`with DirectoryBuilder(final) as folder:` fill the folder; it becomes `final` at the end, or is gone on an error.

    replace: as for `commit_directory`.
    """

    def __init__(self, final: str | os.PathLike[str], *, replace: bool = False) -> None:
        self.final = Path(final)
        self.replace = replace
        self._held = ExitStack()

    def __enter__(self) -> Path:
        self.path = self._held.enter_context(held_folder(lambda: building_name(self.final)))
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._held:
            try:
                if kind is None:
                    commit_directory(self.path, self.final, replace=self.replace)
            finally:
                if self.path.exists():
                    delete(self.path)
