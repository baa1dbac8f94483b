"""Force files to disk from threads of its own while the next ones are made."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from distcore_core.io.digest import HashingFile

SYNCING, WAITING = 4, 32
"""Files that are forced to disk at once, and those that may wait for it: each is an open file."""


class Syncer:
    """Forces files to disk from threads of its own, while the next ones are made. For use from
    any thread."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(SYNCING, thread_name_prefix="distcore-sync")
        self._room = threading.BoundedSemaphore(WAITING)
        self._errors: list[BaseException] = []

    def add(self, file: HashingFile) -> None:
        """Take a file that is written; it is closed once it is on disk. Waits while many wait
        already.

        Raises the error of one that could not be forced to disk before; this file is then still
        the caller's."""
        self._raise()
        self._room.acquire()
        try:
            self._pool.submit(self._sync, file)
        except BaseException:
            self._room.release()
            raise

    def wait(self) -> None:
        """Return when every file is on disk and no other will be taken. Raises the error of the
        first that failed."""
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
