"""horovodrun ends with a traceback of its own whenever a rank fails; what matters is said once more
after that.

    python -m distcore_horovod.afterwards <processes> <words>

This waits until the launcher and the processes that it had started are gone (one of them tells of
semaphores that are left) and writes the words to standard error, which is the launcher's. A rank
that must end starts it, in a session of its own, since the launcher ends the rank and all that is
below it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from distcore_data.processes import children_of
from distcore_horovod.processes import horovodrun, is_gone

WAIT_SECONDS = 60.0
"""How long the launcher may take to end; after that nothing is said."""

LOOK_SECONDS = 0.02

_said: list[str] = []
_launcher: list[tuple[set[int], int]] = []
"""Its process and its children, and its standard error as this process has opened it."""


def find_launcher() -> None:
    """Look for a horovodrun on this machine above this process, as long as it is there: SIGHUP
    ends it before the ranks."""
    launcher = horovodrun()
    if launcher is not None and not _launcher:
        with suppress(OSError):  # its standard error is a socket, or not ours to open
            error = os.open(f"/proc/{launcher}/fd/2", os.O_WRONLY | os.O_APPEND)
            _launcher.append(({launcher, *children_of(launcher)}, error))


def say_afterwards(words: str) -> None:
    """Have the words written to the launcher's standard error after it has ended.

    Only if `find_launcher` found one; anywhere else the words that were said must do. The first
    words are the cause; later ones are not said."""
    if not _launcher or _said:
        return
    _said.append(words)
    processes, error = _launcher[0]
    waited_for = ",".join(map(str, processes))
    with suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "distcore_horovod.afterwards", waited_for, words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=error,
            cwd="/",
            start_new_session=True,
        )


def main(processes: Sequence[int], words: str) -> None:
    """Wait, and say it."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(map(is_gone, processes)):
        if time.monotonic() > deadline:
            return
        time.sleep(LOOK_SECONDS)
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main([int(each) for each in sys.argv[1].split(",")], sys.argv[2])
