"""A folder of this machine as a `Store`: plain files, replaced by renames that are forced to
disk."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from distcore_core.io.atomic import new_file_beside, sync_directory, write_file
from distcore_data.stores.store import NAME, SMALL, Seen, Stat, checked


class LocalStore:
    """A `Store` in a folder, which is made with its first object. Links are never followed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)

    def __repr__(self) -> str:
        return f"LocalStore({self.url!r})"

    def where(self, name: str) -> str:
        return str(self.root / name)

    def list(self, prefix: str = "") -> dict[str, Stat]:
        """Objects below a prefix."""
        start = self.root / checked(prefix.rstrip("/")) if prefix else self.root
        found = {}
        for folder, _, names in os.walk(start):
            for path in (Path(folder, each) for each in names):
                try:
                    status = path.lstat()
                except FileNotFoundError:  # gone meanwhile
                    continue
                name = path.relative_to(self.root).as_posix()
                if stat.S_ISREG(status.st_mode) and NAME.fullmatch(name):
                    found[name] = Stat(status.st_size, status.st_mtime)
        return found

    def read(self, name: str) -> bytes:
        """A whole small object."""
        with open_regular(self._plain(name)) as file:
            size = os.fstat(file.fileno()).st_size
            if size > SMALL:
                raise OSError(f"it has more than {SMALL} bytes")
            # A read takes the memory that it is asked for, whatever the file holds.
            return file.read(size + 1)

    def open(self, name: str, size: int, seen: Seen | None = None) -> BinaryIO:
        """The file itself, whatever its length. Nothing is fetched, so nothing is seen."""
        return open_regular(self._plain(name))

    def put(self, name: str, path: Path) -> None:
        """Copy a file to the name."""

        def copy(target: BinaryIO) -> None:
            with open(path, "rb") as source:
                shutil.copyfileobj(source, target)

        write_file(self._made(name), copy)

    def write(self, name: str, content: bytes) -> None:
        """Write or replace an object."""
        write_file(self._made(name), content)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object under a name that nothing has: a link to a finished file, which the
        system makes once."""
        path = self._made(name)
        with new_file_beside(path) as (temporary, file):
            file.write(content)
            os.fsync(file.fileno())
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        sync_directory(path.parent)
        return True

    def delete(self, names: Iterable[str]) -> None:
        """Delete files, and the folders that this leaves empty."""
        for name in names:
            path = self._path(name)
            path.unlink(missing_ok=True)
            for folder in path.parents:
                if folder == self.root:
                    break
                try:
                    folder.rmdir()
                except OSError:  # something else lies in it, or it is gone
                    break

    def _path(self, name: str) -> Path:
        return self.root / checked(name)

    def _plain(self, name: str) -> Path:
        """The path, with no link among the folders below the root, and no file."""
        path = self._path(name)
        for folder in path.parents:
            if folder == self.root:
                break
            if folder.is_symlink():
                raise OSError(f"{folder} is a link, not a folder")
            if folder.is_file():
                raise FileNotFoundError(f"{name}: {folder} is a file")
        return path

    def _made(self, name: str) -> Path:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def open_regular(path: Path) -> BinaryIO:
    """Open a plain file for reading; a link, a device, a pipe or a folder in its place is an
    OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(f"{path} is not a plain file")
    return os.fdopen(handle, "rb")
