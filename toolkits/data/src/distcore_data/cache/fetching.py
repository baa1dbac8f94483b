"""The files of a cache in a bucket: fetched whole, some ahead of whoever reads them, and hashed
before use."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO

from distcore_core.errors import CacheError
from distcore_data.cache.files import CacheFiles
from distcore_data.cache.manifest import REBUILD, FileEntry, Manifest
from distcore_data.fast_digest import PassingDigest
from distcore_data.os_errors import FULL, explained
from distcore_data.stores import Seen, Store
from distcore_data.temporaries import system_folder

AHEAD_FILES, AHEAD_BYTES = 8, 256 << 20
"""Most files, and bytes of files, that are fetched before they are asked for; one file always
is."""

OPEN_BYTES = 1 << 30
"""Bytes of files that a reader keeps open, as temporary files; one file always is."""


class FetchedFiles(CacheFiles):
    """`CacheFiles` in a bucket."""

    most_bytes = OPEN_BYTES

    def __init__(self, store: Store, folder: str, home: str | None = None) -> None:
        super().__init__(store, folder, home)
        self._next: OrderedDict[str, FileEntry] = OrderedDict()
        self._ahead: dict[str, tuple[int, Future[BinaryIO]]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def opened(self, entry: FileEntry, seen: Seen | None = None) -> BinaryIO:
        """A file of the size that the manifest says, in the temporary folder."""
        advice = "point TMPDIR to a larger disk"
        with explained(
            system_folder(), "files of the cache that are fetched", advice=advice, only=FULL
        ):
            return super().opened(entry, seen)

    def open(self, entry: FileEntry) -> BinaryIO:
        """The file as a temporary one, from those that were fetched ahead or fetched now."""
        with self._lock:
            found = self._ahead.pop(entry.file, None)
            self._next.pop(entry.file, None)
            self._fill()
        return found[1].result() if found is not None else self._fetched(entry)

    def expect(self, entries: Sequence[FileEntry]) -> None:
        """Begin to fetch these; what was expected before and is not among them is dropped."""
        wanted = {entry.file for entry in entries}
        with self._lock:
            for name in [name for name in self._ahead if name not in wanted]:
                _drop(self._ahead.pop(name)[1])
            self._next = OrderedDict(
                (entry.file, entry) for entry in entries if entry.file not in self._ahead
            )
            self._fill()

    def check(self, manifest: Manifest) -> None:
        """Every file is there and as long as the manifest says, by one listing. Raises
        CacheError."""
        found = self.store.list(self.folder)
        for entry in manifest.files():
            there = found.get(self.folder + entry.file)
            if there is None:
                raise CacheError(
                    f"{self.where(entry)} of the cache is missing; {entry.bytes} bytes were "
                    f"expected. {REBUILD}"
                )
            if there.bytes != entry.bytes:
                raise CacheError(
                    f"{self.where(entry)} of the cache is damaged: {entry.bytes} bytes were "
                    f"expected, {there.bytes} found. {REBUILD}"
                )

    def close(self) -> None:
        """Drop what was fetched and not opened, and end the threads."""
        self.expect(())
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    # -------------------------------------------------------------- inside

    def _fill(self) -> None:
        """Begin to fetch as many of the next files as there is room for. Called under the lock."""
        while self._next:
            under_way = sum(size for size, _ in self._ahead.values())
            entry = next(iter(self._next.values()))
            room = len(self._ahead) < AHEAD_FILES and under_way + entry.bytes <= AHEAD_BYTES
            if self._ahead and not room:
                return
            if self._pool is None:
                self._pool = ThreadPoolExecutor(AHEAD_FILES, thread_name_prefix="distcore-ahead")
            del self._next[entry.file]
            self._ahead[entry.file] = entry.bytes, self._pool.submit(self._fetched, entry)

    def _fetched(self, entry: FileEntry) -> BinaryIO:
        passing = PassingDigest()
        file = self.opened(entry, passing)
        try:
            self.compare(file, entry, passing.of(entry.bytes))
        except BaseException:
            file.close()
            raise
        return file


def _drop(future: Future[BinaryIO]) -> None:
    """Close a file that nobody will open, now or once it has come."""

    def close(done: Future[BinaryIO]) -> None:
        if not done.cancelled() and done.exception() is None:
            done.result().close()

    future.cancel()
    future.add_done_callback(close)
