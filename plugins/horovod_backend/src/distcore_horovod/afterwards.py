"""horovodrun ends with a traceback of its own whenever a rank fails; what matters is said once more
after that.

    python -m distcore_horovod.afterwards <process of the launcher> <words>

This waits until the launcher is gone and writes the words to standard error, which is the
launcher's. A rank that must end starts it, in a session of its own, since the launcher ends the
rank and all that is below it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from distcore_horovod.processes import command_of, is_gone, parent_of

WAIT_SECONDS = 60.0
"""How long the launcher may take to end; after that nothing is said."""

LOOK_SECONDS = 0.02

LAUNCHERS = ("horovodrun", "horovod.runner.launch")
"""What Python is told to run: a script by its name, or a module."""


def say_afterwards(words: str) -> None:
    """Have the words written to the launcher's standard error after it has ended.

    Only if a horovodrun on this machine is above this process; anywhere else the words that were
    said must do."""
    launcher = _launcher()
    if launcher is None:
        return
    with suppress(OSError):  # its standard error is a socket, or not ours to open
        error = os.open(f"/proc/{launcher}/fd/2", os.O_WRONLY | os.O_APPEND)
        try:
            subprocess.Popen(
                [sys.executable, "-m", "distcore_horovod.afterwards", str(launcher), words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=error,
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(error)


def _launcher() -> int | None:
    """The topmost process above this one that is horovodrun."""
    found, process = None, os.getppid()
    with suppress(OSError, IndexError, ValueError):  # no /proc
        while process > 1:
            if any(Path(each).name in LAUNCHERS for each in command_of(process)[:3]):
                found = process
            process = parent_of(process)
    return found


def main(launcher: int, words: str) -> None:
    """Wait, and say it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_gone(launcher):
        if time.monotonic() > deadline:
            return
        time.sleep(LOOK_SECONDS)
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
