"""`python -m distcore_optuna.child FD`: trials, one after another; what to run comes through
standard input.

When the driver dies its end of the pipe closes, and this process with all that it started ends at
once, also if it is stopped: the driver that goes on with the search must find nobody else at work
in a trial's folder."""

from __future__ import annotations

import logging
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any, BinaryIO

from distcore_data.os_errors import is_of_the_system
from distcore_data.profiling import profiled_process
from distcore_optuna.process import REFUSED
from distcore_torch.signals import own_process
from distcore_torch.training import parents


def main(answers: int) -> None:
    """Run what comes until the pipe ends. A byte after each trial says that it returned."""
    # Who wants to be asked to end (the training loop) listens for itself. Anywhere else a
    # KeyboardInterrupt may get lost, or turn into another error (in an import, in a destructor):
    # the trial would go on, or would have failed.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    own_process()
    parents.wake_at_its_end()
    work: queue.Queue[Any] = queue.Queue()
    threading.Thread(
        target=_read, args=(sys.stdin.buffer, work), name="distcore-driver", daemon=True
    ).start()
    os.set_inheritable(answers, False)  # the pipe's end must tell of this process alone
    while True:
        try:
            log, order = work.get()
            _log_to(log)
            function, work_of_trial, name, raw = pickle.loads(order)  # noqa: S301 - our parent's
            with profiled_process(f"trial {name}", "trials"):
                function(work_of_trial, name, raw)
        except BaseException as error:  # noqa: BLE001 - whatever ends this process
            code = _exit_code(error)
            with suppress(OSError):  # the disk of the log may be full
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)  # the thread that reads would make an ordinary end a SIGABRT
        os.write(answers, b".")


def _exit_code(error: BaseException) -> int:
    """As Python gives it, but `REFUSED` for what the system refused; what Python prints of the
    error is printed."""
    if isinstance(error, KeyboardInterrupt):
        return 128 + signal.SIGINT
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        return (error.code or 0) & 0xFF
    with suppress(OSError):
        traceback.print_exception(error)
    return REFUSED if is_of_the_system(error) else 1


def _read(pipe: BinaryIO, work: queue.Queue[Any]) -> None:
    """What to run stays bytes here: reading it imports and calls whatever it names, which may
    raise anything, and that is the trial's own failure."""
    while True:
        try:
            work.put(pickle.load(pipe))  # noqa: S301 - from our own parent
        except (EOFError, pickle.UnpicklingError):
            os.killpg(os.getpgid(0), signal.SIGKILL)


def _log_to(path: str) -> None:
    """Everything that is printed from now on, by any library, goes to the file."""
    sys.stdout.flush()
    sys.stderr.flush()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    logger = logging.getLogger("distcore")
    logger.setLevel(logging.INFO)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.handlers[:] = [handler]


if __name__ == "__main__":
    main(int(sys.argv[1]))
