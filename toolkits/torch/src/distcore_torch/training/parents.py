"""A process that must not outlive the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress

SET_PARENT_DEATH_SIGNAL = 1
"""PR_SET_PDEATHSIG of linux/prctl.h."""

LOOK_SECONDS = 1.0
WATCH = "distcore-parent"
"""Name of the thread that looks."""


def die_with(parent: int) -> None:
    """Kill this process as soon as its parent has ended, whatever it does then, also if it is
    stopped.

    Args:
        parent: Process id of the parent, as the parent knows it. The thread that started this
            process must not end before this process does: to Linux it is the parent.
    """
    follow(parent)
    _at_its_end(signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def follow(parent: int, by: signal.Signals = signal.SIGKILL) -> None:
    """As `die_with`, for a process that some thread started: within a second. Once is enough for a
    process.

    by: SIGTERM lets it save what it has."""
    if any(each.name == WATCH for each in threading.enumerate()):
        return
    wake_at_its_end()
    threading.Thread(target=_watch, args=(parent, by), name=WATCH, daemon=True).start()


def wake_at_its_end() -> None:
    """If this process is stopped when its parent ends, let it run, so that a thread which waits for
    that end can see it. To Linux the parent is the thread that started this process, whose end
    wakes it, too."""
    _at_its_end(signal.SIGCONT)


def _at_its_end(sent: signal.Signals) -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, sent)


def _watch(parent: int, by: signal.Signals) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    os.kill(os.getpid(), by)
