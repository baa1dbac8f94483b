"""The stacks of other threads, as calls: innermost first.

CPython (seen in 3.11) makes the object of a running frame when somebody asks for it. That may start
the garbage collector, which may run Python and so let the other thread go on. The object then
stands for a frame that is over, whatever lies in its memory by now: reading it gave objects that
are no frames, or a segmentation fault, and what is written there falls upon the other thread's own.
So nothing is collected while stacks are read, and no frame is kept.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from types import CodeType, FrameType
from typing import NamedTuple


class Call(NamedTuple):
    """at: the byte of its code that runs."""

    code: CodeType
    at: int

    @property
    def line(self) -> int:
        """That it is at; looked up when asked for, which a hundred times a second for every call
        would be too often."""
        positions = islice(self.code.co_positions(), max(0, self.at) // 2, None)
        return next(positions)[0] or self.code.co_firstlineno


def calls_of(frame: FrameType | None) -> list[Call]:
    """Of this thread's own stack, from a frame on."""
    found = []
    while frame is not None:
        found.append(Call(frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found


def stacks() -> dict[int, list[Call]]:
    """{number of a thread (`threading.get_ident`): its calls}."""
    with _nothing_collected():
        return {thread: calls_of(frame) for thread, frame in sys._current_frames().items()}


def stack_of(thread: int) -> list[Call]:
    """The calls of a thread; none if it is over."""
    with _nothing_collected():
        return calls_of(sys._current_frames().get(thread))


@contextmanager
def _nothing_collected() -> Iterator[None]:
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
