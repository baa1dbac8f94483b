"""A dataset's file as it was when it was opened: whoever reads it later finds out if it is another
by then.

A cache is found by the digest of its data, so rows of other data must never get under that digest.
Inode, size and both times of change are compared before and after each read, and again before
anything is committed. The times tell of the beginning of a write alone, so a file that changed
shortly before is also digested at both ends. Files are read, never
mapped: a mapping of a file that somebody cuts short ends the process.
"""

from __future__ import annotations

import functools
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from distcore_core.contracts import SourceBase
from distcore_core.errors import DataError
from distcore_data.os_errors import readable
from distcore_data.sources.digests import file_digest, file_digests
from distcore_data.sources.fetch import Workplace, removed

TICK = 0.02
"""Seconds within which two changes may get the same time: the kernel's clock for files ticks
every 4 to 10 ms."""

RECENT = 60.0
"""Seconds after which no write that set a file's times can still be under way, through a mapping
included."""


class State(NamedTuple):
    """What tells one version of a file from the next; times in nanoseconds."""

    inode: int
    bytes: int
    modified: int
    changed: int


@dataclass(frozen=True)
class DataFile:
    """A file of a dataset, and how it was when the dataset was opened on the machine `host`.

    shown: what the user calls it. content: its digest, if it had changed shortly before. Travels
    with partitions: on another machine, whose view of inodes and times may be its own, the size is
    compared, and that nothing changes during a read.
    """

    path: str
    shown: str
    state: State
    host: str
    content: str | None = None

    @classmethod
    def at(cls, path: str | Path, shown: str) -> DataFile:
        """A file that nobody else writes, as it is now."""
        return cls(str(path), shown, state_of(path), _host())

    @classmethod
    def given(cls, path: str | Path, shown: str) -> DataFile:
        """A file of the user's, as it is now; first waits until a change that comes next would
        show in its times."""
        found = cls.at(path, shown)
        while 0 <= (age := time.time() - found.state.changed / 1e9) < TICK:
            time.sleep(TICK - age)
            found = replace(found, state=found._still_there())
        if age >= RECENT:
            return found
        with found.unchanged():
            return replace(found, content=file_digest(path))

    def check(self, content: bool = False) -> None:
        """Raises DataError if the file is not as it was, or gone.

        content: digest it, if it had changed shortly before it was opened."""
        self._compare(self._still_there())
        if content and self.content is not None:
            with self.unchanged():
                found = file_digest(self.path)
            if found != self.content:
                raise self._changed()

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """The block reads the file. Raises DataError if the file is another one before or after, or
        gone after, FileNotFoundError if it is not there before: this may be a machine that does not
        see it.

        A file that is another by then is also told of if the block fails, for that is why."""
        before = state_of(self.path)
        self._compare(before)
        try:
            with readable(self.shown):
                yield
        except Exception:
            self._compare(self._still_there(), before)
            raise
        self._compare(self._still_there(), before)

    def read(self, start: int, stop: int) -> pa.Buffer:
        """The bytes [start, stop), in memory of their own. Raises as `check` if they are not
        those of the file."""
        with self.unchanged():
            return read_range(self.path, start, stop)

    def _still_there(self) -> State:
        """Its state of now. Raises DataError if it is gone."""
        try:
            return state_of(self.path)
        except FileNotFoundError as error:
            raise removed(self.shown) from error

    def _compare(self, now: State, before: State | None = None) -> None:
        if now.bytes != self.state.bytes or now != (
            self.state if self.host == _host() else before or now
        ):
            raise self._changed()

    def _changed(self) -> DataError:
        return DataError(
            f"{self.shown}: the file changed while it was being read. Nothing that was read of it "
            "is kept. Run again when it is complete and nobody writes to it."
        )


class FileSource(SourceBase):
    """What sources of files share. files: those whose bytes the digest is taken of. _place: where
    what was downloaded or unpacked lies."""

    files: Sequence[DataFile]
    _place: Workplace

    def check_unchanged(self, content: bool = True) -> None:
        """Raises DataError naming the first file that is not as it was when the dataset was
        opened."""
        for each in self.files:
            each.check(content)

    def close(self) -> None:
        """Remove what was downloaded or unpacked."""
        self._place.close()

    @functools.cached_property
    def _content(self) -> str:
        """The digest of the one file."""
        return file_digest(self.files[0].path)


def contents(source: object) -> list[str]:
    """Digests of the bytes of a source's files, however they are read; none of a source that has no
    files."""
    files = source.files if isinstance(source, FileSource) else ()
    return file_digests([each.path for each in files])


@contextmanager
def watched(files: Sequence[DataFile]) -> Iterator[None]:
    """The block opens the files. If it fails, raises DataError for one that is not as it was: what
    changes meanwhile may look like anything."""
    try:
        yield
    except Exception:
        for each in files:
            each.check()
        raise


def read_range(path: str | Path, start: int, stop: int) -> pa.Buffer:
    """The bytes [start, stop) of a file, in memory of their own. Raises OSError if it is
    shorter."""
    with open(path, "rb", buffering=0) as file:
        return read_open(file, start, stop)


def read_open(file: FileIO, start: int, stop: int) -> pa.Buffer:
    """As `read_range`, of an open file."""
    found = pa.allocate_buffer(stop - start)
    view, filled = memoryview(found).cast("B"), 0
    while filled < len(view):
        size = os.preadv(file.fileno(), [view[filled:]], start + filled)
        if not size:
            raise OSError(f"{file.name} ends at byte {start + filled}; {stop} were expected")
        filled += size
    return found


def state_of(path: str | Path) -> State:
    """What a file is now. Raises OSError."""
    found = os.stat(path)
    inode = found.st_ino if _keeps_inodes(found.st_dev) else 0
    return State(inode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@functools.cache
def _keeps_inodes(device: int) -> bool:
    """Whether a file has one inode as long as it is there: file systems by FUSE may number what
    they forgot anew."""
    try:
        return not file_system(device, Path("/proc/self/mountinfo").read_text()).startswith("fuse")
    except OSError:
        return True


def file_system(device: int, mounts: str) -> str:
    """The kind of a device's file system, or "".

    Args:
        device: As `os.stat` names it.
        mounts: Lines such as `36 35 98:0 / /mnt rw shared:1 - ext4 /dev/root rw`.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2:3] == [wanted]:
            return right.split()[0]
    return ""


@functools.cache
def _host() -> str:
    """This machine, since it was started."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = ""
    return f"{socket.gethostname()} {boot}"
