"""A rank's heartbeat: which step it is at and what it does, in a few bytes that its supervisor maps
and reads.

The rank writes when it begins to do something else, some hundred nanoseconds each time. Where
nobody reads, it writes into memory of its own. `stalls.py` reads, and may ask where the rank
stands: a thread of it answers in a second file.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from distcore_core.errors import TrainingError
from distcore_data.os_errors import FULL, explained
from distcore_data.stacks import stack_of

T = TypeVar("T")

FILE = "DISTCORE_HEARTBEAT"
"""Environment variable: the rank's file, made by whoever reads it."""

DOING = (
    "starting",
    "preparing",
    "loading",
    "computing",
    "waiting for the other ranks",
    "evaluating",
    "saving",
    "telling extensions",
)
STARTING, PREPARING, LOADING, COMPUTING, WAITING, EVALUATING, SAVING, TELLING = range(len(DOING))
AT_STEPS = (LOADING, COMPUTING, WAITING)
"""What steps consist of."""

LAYOUT = struct.Struct(f"={5 + len(DOING)}d")
"""beats (changes so far), step, what it does now, since when (monotonic), how often it was asked
where it stands (which its reader writes), and seconds in each activity so far."""

ASKED, SECONDS = 4, 5
"""Where these begin, in numbers of eight bytes."""

ANSWER_SECONDS = 0.25
"""How often a rank looks whether it was asked."""

LOOK_SECONDS = 0.05
"""How often who asked looks for the answer."""

MOST_CALLS = 6
"""The innermost calls that it answers with."""


class Pulse(NamedTuple):
    """What a heartbeat says. beats: changes so far. seconds: in each activity, without the one
    under way."""

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
        words[SECONDS + before] += now - self._begun
        self._begun, self._doing = now, what
        words[3], words[2] = now, what
        words[0] += 1
        return before

    @property
    def pulse(self) -> Pulse:
        """What a reader sees."""
        return _pulse(self._words.tolist())

    @property
    def asked(self) -> int:
        """How often somebody asked where it stands."""
        return int(self._words[ASKED])

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
    """This process's; opened at the first call."""
    if not _own:
        open_heartbeat(os.environ.get(FILE))
    return _own[0]


def open_heartbeat(path: str | None) -> None:
    """Write into this file from now on, and answer who asks where this thread stands; None: for
    nobody."""
    _own[:] = [Heartbeat(_memory(path))]
    if path is not None:
        arguments = (_own[0], answer_of(path), threading.get_ident())
        threading.Thread(
            target=_answer, args=arguments, name="distcore-heartbeat", daemon=True
        ).start()


def _memory(path: str | None) -> mmap.mmap | bytearray:
    if path is not None:
        with suppress(OSError), open(path, "r+b") as file:
            return mmap.mmap(file.fileno(), LAYOUT.size)
    return bytearray(LAYOUT.size)


def _answer(beat: Heartbeat, path: Path, thread: int) -> None:
    """Write where the thread stands whenever that is asked, for as long as this is the process's
    heartbeat.

    Python's lock keeps the calls as they are while `stacks.py` reads them. A signal's handler, as
    faulthandler has one, reads them while they change, which ends a process now and then."""
    answered = 0
    while _own[0] is beat:
        asked = beat.asked
        if asked != answered:
            with suppress(OSError):
                early = path.with_suffix(".early")
                early.write_text("\n".join([str(asked), *calls_of(thread)]))
                early.rename(path)
            answered = asked
        time.sleep(ANSWER_SECONDS)


def calls_of(thread: int) -> list[str]:
    """`loader.py:12 in batches` and so on: the innermost calls of a thread of this process."""
    return [
        f"{Path(each.code.co_filename).name}:{each.line} in {each.code.co_name}"
        for each in stack_of(thread)[:MOST_CALLS]
    ]


def answer_of(path: str | Path) -> Path:
    """Where a rank with this heartbeat says where it stands."""
    return Path(f"{path}.stands")


def _pulse(words: Sequence[float]) -> Pulse:
    beats, step, doing, *_ = words
    return Pulse(int(beats), int(step), int(doing), tuple(words[SECONDS:]))


class Listener:
    """The reading side. make: make the file, which a rank finds by its path in `FILE`; else it
    is there. Raises TrainingError if its disk has no room for it."""

    def __init__(self, path: Path, make: bool = True) -> None:
        self.path = path
        room = explained(
            path.parent,
            "the heartbeats of the ranks",
            TrainingError,
            advice="point TMPDIR to a larger disk",
            only=FULL,
        )
        with room, path.open("w+b" if make else "r+b") as file:
            if make:
                # Written, so that a full disk says so here, and not a signal once it is mapped.
                file.write(bytes(LAYOUT.size))
                file.flush()
            self._memory = mmap.mmap(file.fileno(), LAYOUT.size)

    def pulse(self) -> Pulse:
        """What the rank said last."""
        return _pulse(LAYOUT.unpack(self._memory[:]))

    def calls(self, seconds: float) -> list[str]:
        """Where the rank stands, innermost call first; [] if it does not answer within that
        time."""
        question = int(LAYOUT.unpack(self._memory[:])[ASKED]) + 1
        struct.pack_into("=d", self._memory, ASKED * 8, question)
        for _ in range(int(seconds / LOOK_SECONDS)):
            time.sleep(LOOK_SECONDS)
            with suppress(OSError):
                number, *calls = answer_of(self.path).read_text().splitlines()
                if number == str(question):
                    return calls
        return []

    def close(self) -> None:
        """Let go of the file."""
        self._memory.close()
