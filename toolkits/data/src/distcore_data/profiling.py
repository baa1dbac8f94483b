"""Where the time of a process goes: a thread that looks at the stacks of all others a hundred times
a second.

The main thread's time is the clock's: what it spends off the processor is under a frame of its own,
`WAITING`. Of every other thread only the time on a processor counts, because most of them wait all
the time.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from distcore_core.io.atomic import write_file
from distcore_data.stacks import Call, stacks

log = logging.getLogger("distcore")

FOLDER = "DISTCORE_PROFILE"
"""The variable that names the folder where the processes of a profiled run lay down their parts."""

SECONDS = 0.01
"""Between two looks."""

MAIN = "MainThread"


class Function(NamedTuple):
    """name: qualified, as in `Lanes.taken`. file: from its package on; empty for what is none."""

    name: str
    file: str = ""


WAITING = Function("(waiting for a processor, other threads or processes, disk or network)")


class Part(NamedTuple):
    """Time that went to one stack. process: such as "rank 0". stack: outermost first."""

    process: str
    thread: str
    stage: str
    stack: tuple[Function, ...]
    seconds: float


class Sampler:
    """Looks at every thread of this process between `start` and `stop`.

    Args:
        process: What this process is called.
        stage: Gives the name of what the process is at.
        looking: Seconds between two looks.
    """

    def __init__(self, process: str, stage: Callable[[], str], looking: float = SECONDS) -> None:
        self.process, self.stage, self.looking = process, stage, looking
        self.processor: defaultdict[str, float] = defaultdict(float)
        """Seconds of processor time of the whole process, by stage; threads that are not Python's
        are among them."""
        # Numbers stand for codes: to hash a code takes as long as to hash all of its constants.
        self._codes: dict[int, CodeType] = {}
        self._found: defaultdict[tuple[str, str, bool, tuple[int, ...]], float]
        self._found = defaultdict(float)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="distcore-profile", daemon=True)
        self._clocks: dict[int, float] = {}

    def start(self) -> None:
        """Begin, in a thread."""
        for thread in threading.enumerate():
            self._busy(thread.native_id or 0, 0.0)
        self._thread.start()

    def stop(self) -> list[Part]:
        """End, and give what was found."""
        self._stop.set()
        self._thread.join()
        functions = {number: _function(code) for number, code in self._codes.items()}
        parts = []
        for (stage, thread, waiting, codes), seconds in self._found.items():
            stack = [functions[code] for code in codes]
            end = [WAITING] if waiting else []
            parts.append(Part(self.process, thread, stage, (*stack, *end), seconds))
        return parts

    def _look(self) -> None:
        wall, processor = time.perf_counter(), time.process_time()
        while not self._stop.wait(self.looking):
            now, used = time.perf_counter(), time.process_time()
            stage = self.stage()
            self.processor[stage] += used - processor
            self._all_threads(stage, now - wall)
            wall, processor = now, used

    def _all_threads(self, stage: str, wall: float) -> None:
        found = stacks()
        main = threading.main_thread().ident
        for thread in threading.enumerate():
            calls = found.get(thread.ident or 0)
            if not calls or thread is self._thread:
                continue
            busy = self._busy(thread.native_id or 0, wall)
            codes = self._numbers(calls)
            if busy:
                self._found[stage, thread.name, False, codes] += busy
            if thread.ident == main and wall > busy:
                self._found[stage, MAIN, True, codes] += wall - busy

    def _numbers(self, calls: Sequence[Call]) -> tuple[int, ...]:
        """Of their codes, outermost first."""
        for call in calls:
            self._codes.setdefault(id(call.code), call.code)
        return tuple(id(call.code) for call in reversed(calls))

    def _busy(self, number: int, wall: float) -> float:
        """Seconds that a thread was on a processor since the last look."""
        clock = _thread_clock(number)
        if clock is None:
            return wall
        before = self._clocks.get(number, 0.0)
        self._clocks[number] = clock
        # A number may be given again to a thread that starts later.
        return min(clock - before if clock >= before else clock, wall)


def _thread_clock(number: int) -> float | None:
    """Processor seconds of a thread of this process by the system's number; None if this system
    does not tell."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        # The number of a thread's clock as the C library makes it (clock_gettime(2)): that of a
        # thread that has ended is an error, where Python's own way reads freed memory.
        return time.clock_gettime(~number << 3 | 6)
    except OSError:
        return 0.0


def _function(code: CodeType) -> Function:
    roots = (each for each in sys.path if each and code.co_filename.startswith(f"{each}{os.sep}"))
    root = max(roots, key=len, default="")
    name = Path(code.co_filename).name if not root else code.co_filename[len(root) + 1 :]
    return Function(code.co_qualname, name)


# ------------------------------------------------------------------ other processes of the run


@contextmanager
def profiled_process(process: str, stage: str) -> Iterator[None]:
    """Look at this process until the block ends, if it belongs to a run that is profiled.

    Args:
        process: What it is called, such as "rank 0".
        stage: Of the run, that it has a part in.
    """
    folder = os.environ.get(FOLDER)
    if folder is None:
        yield
        return
    sampler = Sampler(process, lambda: stage)
    sampler.start()
    try:
        yield
    finally:
        parts = sampler.stop()
        lines = [[stage, sum(sampler.processor.values())], *parts]
        # Both: ranks of several trials have one name, and trials one process.
        path = Path(folder, f"{os.getpid()} {process}.json")
        try:
            write_file(path, json.dumps(lines).encode())
        except OSError as error:  # it must not cost what the block came to
            log.warning("The profile of %s is lost: %s.", process, error)


def of_processes(folder: Path) -> tuple[list[Part], dict[str, float]]:
    """What `profiled_process` left in a folder: (the parts, processor seconds by stage)."""
    parts: list[Part] = []
    processor: defaultdict[str, float] = defaultdict(float)
    for path in sorted(folder.glob("*.json")):
        try:
            (stage, seconds), *rows = json.loads(path.read_text())
        except (OSError, ValueError) as error:  # this must not cost what the run came to, either
            log.warning("A part of the profile cannot be read: %s.", error)
            continue
        processor[stage] += seconds
        parts += [
            Part(process, thread, at, tuple(Function(*each) for each in stack), spent)
            for process, thread, at, stack, spent in rows
        ]
    return parts, processor
