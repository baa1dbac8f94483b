"""Write files and folders so that a reader sees a whole version or none: the only code in core that
renames or fsyncs.

A file or folder is made under another name in the same directory, its bytes are forced to disk, it
is renamed to its name, and the directory is forced to disk. Whatever stops that, a full disk, a
signal or an exception, leaves the old version untouched; temporaries are removed if the process
lives to do it, and else by the next run (temporaries.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, cast

from distcore_core.io.digest import Digest, HashingFile
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


def write_new_file(
    path: str | os.PathLike[str],
    content: bytes | Callable[[BinaryIO], None],
    sync: Callable[[HashingFile], None] | None = None,
) -> Digest:
    """Write a file that nobody reads yet (it lies in a folder under construction) and force its
    bytes to disk.

    content: the bytes, or a function that writes them to the file it is given. Removed again if
        that fails.
    sync: takes the file to force it to disk and close it later; the caller waits for that before
        anything says that the file is there."""
    file = HashingFile(path)
    try:
        digest = _filled(file, content)
        if sync is not None:
            sync(file)
            return digest
        os.fsync(file.fileno())
    except BaseException:
        file.close()
        Path(path).unlink(missing_ok=True)
        raise
    file.close()
    return digest


def write_file(path: str | os.PathLike[str], content: bytes | Callable[[BinaryIO], None]) -> Digest:
    """Write or replace one file: a reader sees the old bytes or the new ones, also after a power
    cut.

    Raises OSError as the system gave it (see `explained`); the old file is then as it was."""
    path = Path(path)
    with new_file_beside(path) as (temporary, file):
        digest = _filled(file, content)
        os.fsync(file.fileno())
        os.replace(temporary, path)
    sync_directory(path.parent)
    return digest


def _filled(file: HashingFile, content: bytes | Callable[[BinaryIO], None]) -> Digest:
    if callable(content):
        content(cast(BinaryIO, file))
    else:
        file.write(content)
    return file.digest()


@contextmanager
def new_file_beside(path: Path) -> Iterator[tuple[Path, HashingFile]]:
    """A new file under a temporary name beside `path`, held until the block ends; then that name
    is gone."""
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
    """Give a file that is on disk another name on the same disk, in place of whatever has it; its
    folder is made.

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
) -> None:
    """Force every file and folder under `temporary` to disk, then rename it to `final` beside it.

    A `final` that exists is moved out of the way, and deleted after. If a step fails, also the last
    one, forcing the new name to disk, the names are again as they were.

    synced: relative paths of files that are on disk already (`write_new_file` saw to that).
    """
    temporary, final = Path(temporary), Path(final)
    sync_tree(temporary, synced)
    new = os.lstat(temporary)
    with ExitStack() as stack:
        old = None
        if os.path.lexists(final):
            stack.enter_context(held(final))  # it may come back
            old = removing_name(final)
        try:  # a signal may come right after a rename
            if old is not None:
                os.rename(final, old)
            if final.exists():  # made meanwhile; a rename would replace it if it is empty
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(final))
            os.rename(temporary, final)
            sync_directory(final.parent)
        except BaseException:
            if os.path.lexists(final) and os.path.samestat(os.lstat(final), new):
                os.rename(final, temporary)
            if old is not None and os.path.lexists(old):
                os.rename(old, final)
            raise
        if old is not None:
            delete(old)


def sync_tree(folder: str | os.PathLike[str], synced: Collection[str]) -> None:
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
    """Delete a folder so that no reader ever sees half of it: it loses its name first. Nothing
    there is fine."""
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
    """`with DirectoryBuilder(final) as folder:` fill the folder; it becomes `final` at the end, or
    is gone on an error. A folder that was there is replaced (`commit_directory`)."""

    def __init__(self, final: str | os.PathLike[str]) -> None:
        self.final = Path(final)
        self._held = ExitStack()

    def __enter__(self) -> Path:
        self.path = self._held.enter_context(held_folder(lambda: building_name(self.final)))
        return self.path

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._held:
            try:
                if kind is None:
                    commit_directory(self.path, self.final)
            finally:
                if self.path.exists():
                    delete(self.path)
