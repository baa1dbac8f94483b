"""A worker's progress in the process that the user started: a few numbers in a small file that both have mapped.

The worker's loop sets attributes as ever; a thread on each side copies them a few times a second. Where the file cannot
be opened (another machine), the worker reports nowhere and nothing else changes.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from distcore.progress import Progress

LAYOUT = struct.Struct("<qqqdq")
"""sequence (0: nothing yet), done, total (-1: unknown), loss (NaN: none), rows per unit."""

SECONDS = 0.2


class Relay:
    """The reading side: `with Relay(progress) as relay:` keeps `progress` up to date from the file at `relay.path`."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        handle, self.path = tempfile.mkstemp(prefix="distcore-progress-")
        os.ftruncate(handle, LAYOUT.size)
        self._memory = mmap.mmap(handle, LAYOUT.size)
        os.close(handle)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="distcore-progress", daemon=True)

    def __enter__(self) -> Relay:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()
        self._memory.close()
        os.unlink(self.path)

    def _follow(self) -> None:
        begun = False
        while True:
            last = self._over.wait(SECONDS)
            sequence, done, total, loss, rows = LAYOUT.unpack(self._memory[:])
            if sequence:
                if not begun:
                    self.progress.begin("train", None if total < 0 else total, "steps", rows)
                    begun = True
                self.progress.done = done
                self.progress.loss = None if loss != loss else loss
            if last:
                break
        if begun:
            self.progress.end()


@contextmanager
def reporting(path: str) -> Iterator[Progress]:
    """The writing side: a Progress whose numbers are copied into the file until the block ends."""
    progress = Progress()
    try:
        handle = os.open(path, os.O_RDWR)
    except OSError:  # another machine: its progress is not shown
        yield progress
        return
    memory = mmap.mmap(handle, LAYOUT.size)
    os.close(handle)
    over = threading.Event()

    def write() -> None:
        sequence = 0
        while True:
            last = over.wait(SECONDS)
            if progress.stage:
                sequence += 1
                loss = float("nan") if progress.loss is None else float(progress.loss)
                total = -1 if progress.total is None else progress.total
                memory[:] = LAYOUT.pack(sequence, progress.done, total, loss, progress.rows_per_unit)
            if last:
                return

    thread = threading.Thread(target=write, name="distcore-progress", daemon=True)
    thread.start()
    try:
        yield progress
    finally:
        over.set()
        thread.join()
        memory.close()
