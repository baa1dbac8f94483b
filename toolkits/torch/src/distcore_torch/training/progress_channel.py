"""A worker's progress in the process that the user started: a few numbers in a small file that both
have mapped.

The worker's loop sets attributes as ever; a thread on each side copies them a few times a second.
Evaluation rounds are lines of a second file. A backend whose workers are on other machines has a
progress channel of its own (`contracts.Backend`); `Numbers` and `Round` are what travels.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TextIO

from distcore_core.progress import Progress, Round
from distcore_data.seals import append
from distcore_data.temporaries import temporary_folder

LAYOUT = struct.Struct("<qqqddq")
"""sequence (0: nothing yet), done, total (-1: unknown), loss (NaN: none), rows per unit."""

SECONDS = 0.2

log = logging.getLogger("distcore")


class Reporter(Protocol):
    """The writing side, as it travels to a worker: small and picklable."""

    def reporting(self) -> AbstractContextManager[Progress]:
        """A Progress that is shown in the process that the user started until the block ends."""
        ...


class Numbers(NamedTuple):
    """How far training is: done and total in steps, the last loss, rows of a step, and the steps
    that were done before it began."""

    done: int
    total: int | None
    loss: float | None
    rows_per_unit: float
    first: int = 0

    @classmethod
    def of(cls, progress: Progress) -> Numbers:
        """What a worker's progress says; reading the loss waits for its device."""
        loss = None if progress.loss is None else float(progress.loss)
        return cls(progress.done, progress.total, loss, progress.rows_per_unit, progress.first)

    def show(self, progress: Progress, begun: bool) -> None:
        """Copy into the progress that is drawn. begun: its stage is under way already, and is
        measured from where it began, also after workers were started again."""
        if not begun:
            progress.begin("train", self.total, "steps", self.rows_per_unit)
        progress.first = min(progress.first, self.first) if progress.done else self.first
        progress.done, progress.loss = self.done, self.loss


class FileProgressChannel:
    """The reading side: keeps `progress` up to date from what `reporter` got. Made by
    `file_progress_channel`."""

    def __init__(
        self, progress: Progress, reporter: Reporter, memory: mmap.mmap, rounds: TextIO
    ) -> None:
        self.progress, self.reporter = progress, reporter
        self._memory, self._rounds = memory, rounds

    def follow(self, over: threading.Event) -> None:
        """Look a few times a second, and once more when it is over."""
        begun = False
        while True:
            last = over.wait(SECONDS)
            sequence, done, total, loss, rows, first = LAYOUT.unpack(self._memory[:])
            if sequence:
                numbers = Numbers(
                    *(done, None if total < 0 else total, None if loss != loss else loss),
                    *(rows, first),
                )
                numbers.show(self.progress, begun)
                begun = True
            self._tell_rounds()
            if last:
                break
        if begun:
            self.progress.end()

    def _tell_rounds(self) -> None:
        """Tell the rounds whose lines are whole."""
        while True:
            start = self._rounds.tell()
            line = self._rounds.readline()
            if not line.endswith("\n"):
                self._rounds.seek(start)
                return
            try:
                found = json.loads(line)
            except ValueError as error:
                log.warning("A round that a worker told of cannot be read (%s).", error)
                continue
            self.progress.tell(Round(**found))


@contextmanager
def file_progress_channel(progress: Progress) -> Iterator[FileProgressChannel]:
    """A channel whose file is there until the block ends, also if ctrl-C comes while it is made."""
    with temporary_folder("progress") as folder:
        path = folder / "numbers"
        path.write_bytes(bytes(LAYOUT.size))
        _rounds_of(path).touch()
        with (
            path.open("r+b") as file,
            mmap.mmap(file.fileno(), LAYOUT.size) as memory,
            _rounds_of(path).open(encoding="utf-8") as rounds,
        ):
            channel = FileProgressChannel(progress, FileReporter(str(path)), memory, rounds)
            with beside(channel.follow):
                yield channel


@contextmanager
def beside(function: Callable[[threading.Event], None]) -> Iterator[None]:
    """Run a function in a thread; when the block ends, set its event and wait for it."""
    over = threading.Event()
    thread = threading.Thread(target=function, args=(over,), name="distcore-progress", daemon=True)
    try:
        thread.start()
        yield
    finally:
        over.set()
        if thread.is_alive():  # ctrl-C may come before it is
            thread.join()


def _rounds_of(path: str | Path) -> Path:
    return Path(path).with_suffix(".rounds")


@dataclass(frozen=True)
class FileReporter:
    """Reports into the file of a `FileProgressChannel`. Where it cannot be opened, the worker
    reports nowhere."""

    path: str

    @contextmanager
    def reporting(self) -> Iterator[Progress]:
        """The writing side: a Progress whose numbers are copied into the file until the block
        ends."""
        progress = Progress()
        try:
            handle = os.open(self.path, os.O_RDWR)
        except OSError:  # another machine: its progress is not shown
            yield progress
            return
        memory = mmap.mmap(handle, LAYOUT.size)
        os.close(handle)
        progress.on_round.append(self._write_round)

        def write(over: threading.Event) -> None:
            sequence = 0
            while True:
                last = over.wait(SECONDS)
                if (
                    sequence or progress.stage
                ):  # the last numbers are those of a stage that has ended
                    sequence += 1
                    done, total, loss, rows, first = Numbers.of(progress)
                    told = (float("nan") if loss is None else loss, -1 if total is None else total)
                    memory[:] = LAYOUT.pack(sequence, done, told[1], told[0], rows, first)
                if last:
                    return

        with memory, beside(write):
            yield progress

    def _write_round(self, found: Round) -> None:
        with suppress(OSError):
            append(_rounds_of(self.path), f"{json.dumps(asdict(found))}\n".encode())
