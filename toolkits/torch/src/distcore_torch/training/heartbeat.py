"""A rank's heartbeat: which step it is at and what it does, in a few bytes that its supervisor maps and reads.

The rank writes when it begins to do something else, some hundred nanoseconds each time. Where nobody reads, it writes
into memory of its own. `stalls.py` reads.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import signal
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")

FILE = "DISTCORE_HEARTBEAT"
"""Environment variable: the rank's file, made by whoever reads it; its stack is written into a second one beside it."""

DOING = ("starting", "preparing", "loading", "computing", "waiting for the other ranks", "evaluating", "saving")
STARTING, PREPARING, LOADING, COMPUTING, WAITING, EVALUATING, SAVING = range(len(DOING))
AT_STEPS = (LOADING, COMPUTING, WAITING)
"""What steps consist of."""

LAYOUT = struct.Struct(f"={4 + len(DOING)}d")
"""beats (changes so far), step, what it does now, since when (monotonic), and seconds in each activity so far."""

STACK_SIGNAL = signal.SIGUSR2
"""On it a rank writes the stacks of its threads into a file, also while it waits in a library."""


class Pulse(NamedTuple):
    """What a heartbeat says. beats: changes so far. seconds: in each activity, without the one under way."""

    beats: int = 0
    step: int = 0
    doing: int = STARTING
    seconds: tuple[float, ...] = (0.0,) * len(DOING)

    @property
    def step_seconds(self) -> float:
        """How long a step took so far, on average, waiting left out; 0 before the first."""
        return (self.seconds[LOADING] + self.seconds[COMPUTING]) / self.step if self.step else 0.0


class Heartbeat:
    """The writing side. memory: where to, of LAYOUT's size."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._words = memoryview(memory)[: LAYOUT.size].cast("d")
        self._begun, self._doing = time.monotonic(), STARTING
        self._own_steps = 0

    def doing(self, what: int) -> int:
        """Say what comes now; returns what it was."""
        words, now, before = self._words, time.monotonic(), self._doing
        words[4 + before] += now - self._begun
        self._begun, self._doing = now, what
        words[3], words[2] = now, what
        words[0] += 1
        return before

    @property
    def pulse(self) -> Pulse:
        """What a reader sees."""
        beats, step, doing, _, *seconds = self._words
        return Pulse(int(beats), int(step), int(doing), tuple(seconds))

    def stepped(self) -> None:
        """One more step is done."""
        self._own_steps += 1
        self._words[1] = self._own_steps

    @contextmanager
    def during(self, what: int) -> Iterator[None]:
        """Doing this inside, and what it did before afterwards."""
        before = self.doing(what)
        try:
            yield
        finally:
            self.doing(before)

    def each(self, items: Iterator[T], what: int, then: int) -> Iterator[T]:
        """The items; `what` while one is fetched, `then` while it is used."""
        while True:
            self.doing(what)
            try:
                item = next(items)
            except StopIteration:
                return
            self.doing(then)
            yield item


_own: list[Heartbeat] = []


def heartbeat() -> Heartbeat:
    """This process's; opened at the first call, with the stack's file, if somebody reads."""
    if not _own:
        open_heartbeat(os.environ.get(FILE))
    return _own[0]


def open_heartbeat(path: str | None) -> None:
    """Write into this file from now on; None: for nobody."""
    _own[:] = [Heartbeat(_memory(path))]


def _memory(path: str | None) -> mmap.mmap | bytearray:
    if path is not None:
        with suppress(OSError):
            _write_stacks_into(path)
            with open(path, "r+b") as file:
                return mmap.mmap(file.fileno(), LAYOUT.size)
    return bytearray(LAYOUT.size)


_stacks: list[object] = []
"""The open file, which faulthandler needs for as long as the process lives."""


def _write_stacks_into(path: str) -> None:
    if signal.getsignal(STACK_SIGNAL) != signal.SIG_DFL:  # the user's own
        return
    early = Path(f"{path}.early")
    file = early.open("w")
    faulthandler.register(STACK_SIGNAL, file=file, all_threads=True)
    signal.siginterrupt(STACK_SIGNAL, False)  # a call that waits in a library goes on waiting
    _stacks.append(file)
    early.rename(stack_of(path))  # from now on the signal may come; before, it would have ended this process


def stack_of(path: str | Path) -> Path:
    """Where a rank with this heartbeat writes its stacks."""
    return Path(f"{path}.stack")


class Listener:
    """The reading side. make: make the file, which a rank finds by its path in `FILE`; else it is there."""

    def __init__(self, path: Path, make: bool = True) -> None:
        self.path = path
        with path.open("w+b" if make else "r+b") as file:
            if make:
                file.truncate(LAYOUT.size)
            self._memory = mmap.mmap(file.fileno(), LAYOUT.size)

    def pulse(self) -> Pulse:
        """What the rank said last."""
        beats, step, doing, _, *seconds = LAYOUT.unpack(self._memory[:])
        return Pulse(int(beats), int(step), int(doing), tuple(seconds))

    def close(self) -> None:
        """Let go of the file."""
        self._memory.close()
