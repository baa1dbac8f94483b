"""The processes above this one, as Linux tells of them; anywhere else nothing is found."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from distcore_data.processes import status_of

LOOK_SECONDS = 0.25
"""Shorter than `distcore_torch.signals.SAME_PRESS_SECONDS`: if mpirun hears of ctrl-C too and ends
its ranks, that and ours are one signal."""

COMMANDS_OF_LAUNCHERS = ("horovodrun", "horovod.runner.launch")
"""What Python is told to run as horovodrun: a script by its name, or a module."""


def command_of(process: int) -> list[str]:
    """The words that a process was started with. Raises OSError."""
    return Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")


def parent_of(process: int) -> int:
    """The process that started it, or has adopted it. Raises OSError."""
    return int(status_of(process)[1])


def is_gone(process: int) -> bool:
    """Whether it has ended, be it that nobody has asked how."""
    try:
        return status_of(process)[0] in "ZX"
    except (OSError, IndexError):
        return True


def horovodrun() -> int | None:
    """The topmost process above this one that is horovodrun."""
    return next((each for each in reversed(_above()) if _is_horovodrun(each)), None)


def end_horovodruns_child() -> None:
    """Have horovodrun end with an exit code other than 0, once this process has ended by a signal
    that horovodrun passed on.

    Each rank is the child of a shell, and that of a child of horovodrun, where after a signal two
    threads ask how the shell ended. One in ten times the answer goes to the wrong one, and the
    other takes the rank's exit code to be 0. A child that was itself ended by a signal is no
    success."""
    above, launcher = _above(), horovodrun()
    if launcher in above[1:3]:
        with suppress(OSError):
            os.kill(above[above.index(launcher) - 1], signal.SIGTERM)


def end_with_shell() -> None:
    """End this process by SIGTERM when horovodrun was ended.

    With MPI, horovodrun becomes `sh -c "mpirun …"`: a signal to it ends the shell alone, and mpirun
    would go on training for nobody."""
    mpirun = os.getppid()
    with suppress(OSError, IndexError, ValueError):
        shell = parent_of(mpirun)
        _, does, command, *_ = command_of(shell)
        if does == "-c" and command.startswith("mpirun "):
            threading.Thread(
                target=_watch, args=(mpirun, shell), name="distcore-shell", daemon=True
            ).start()


def _watch(mpirun: int, shell: int) -> None:
    with suppress(OSError, IndexError):  # mpirun has ended too, and looks after its ranks
        while parent_of(mpirun) == shell:
            time.sleep(LOOK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)


def _above() -> list[int]:
    """The processes above this one, its parent first."""
    found, process = [], os.getppid()
    with suppress(OSError, IndexError, ValueError):  # no /proc
        while process > 1:
            found.append(process)
            process = parent_of(process)
    return found


def _is_horovodrun(process: int) -> bool:
    with suppress(OSError):
        return any(Path(each).name in COMMANDS_OF_LAUNCHERS for each in command_of(process)[:3])
    return False
