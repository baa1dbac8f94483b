"""The processes above this one, as Linux tells of them; anywhere else nothing is found."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

LOOK_SECONDS = 0.25
"""Shorter than `distcore_torch.signals.SAME_PRESS_SECONDS`: if mpirun hears of ctrl-C too and ends
its ranks, that and ours are one signal."""


def command_of(process: int) -> list[str]:
    """The words that a process was started with. Raises OSError."""
    return Path(f"/proc/{process}/cmdline").read_text(errors="replace").split("\0")


def parent_of(process: int) -> int:
    """The process that started it, or has adopted it. Raises OSError."""
    return int(_state(process)[1])


def is_gone(process: int) -> bool:
    """Whether it has ended, be it that nobody has asked how."""
    try:
        return _state(process)[0] in "ZX"
    except (OSError, IndexError):
        return True


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


def _state(process: int) -> list[str]:
    """The fields of /proc/…/stat from the third on: state, parent, …"""
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
