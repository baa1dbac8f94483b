"""A process for trials: without the caller's main module, used again by the next trial, stopped
with all it started."""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from distcore_data.temporaries import temporary_folder
from distcore_search.records import log_of
from distcore_torch.signals import how_it_ended
from distcore_torch.training.launched import says_which_rank

PATIENCE_SECONDS = 20.0
"""How long a trial that is asked to stop may take to save where it is."""

LOOK_SECONDS = 0.02
"""How often the ends of trials that were asked to stop are looked for."""

REFUSED = os.EX_IOERR
"""The exit code of a process that ended by what the system refused, such as room on a disk."""


class TrialProcess:
    """A fresh interpreter in a session of its own, which runs `function(work, name, raw)` as often
    as it is told to.

    Importing torch takes seconds, so a process whose trial ended well serves the next one. It ends
    when this process does, however this one ends: it watches the pipe that its work comes through.
    Its temporary files lie in a folder of their own, which is removed after it: trials are
    stopped and killed, and leave some."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        path = os.pathsep.join(map(os.path.abspath, sys.path))
        inherited = {name: each for name, each in os.environ.items() if not says_which_rank(name)}
        self._answers, answers = os.pipe()
        self._closing = ExitStack()
        folder = self._closing.enter_context(temporary_folder("trial"))
        self._process = subprocess.Popen(
            # -P: the working folder comes where `sys.path` has it, and not first.
            [sys.executable, "-P", "-m", "distcore_optuna.child", str(answers)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**inherited, "PYTHONPATH": path, "TMPDIR": str(folder), **environment},
            start_new_session=True,
            pass_fds=[answers],
        )
        os.close(answers)
        self.started = time.monotonic()
        self._done = True

    def start(
        self, function: Any, work: Any, name: str, raw: Mapping[str, Any], folder: Path
    ) -> None:
        """Begin a trial; what it prints goes to `log.txt` in its folder."""
        path = log_of(folder)
        self.started, self._done = time.monotonic(), False
        order = pickle.dumps((function, work, name, dict(raw)))
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died: its exit code tells
            pickle.dump((str(path), order), self._process.stdin)
            self._process.stdin.flush()

    @property
    def seconds(self) -> float:
        """Since the trial began."""
        return time.monotonic() - self.started

    def running(self) -> bool:
        """Whether its trial has not ended."""
        if not self._done:
            ready, _, _ = select.select([self._answers], [], [], 0)
            # A byte: the trial returned. The end of the pipe: the process is gone.
            self._done = bool(ready)
            if ready and not os.read(self._answers, 1):
                self._process.wait()
        return not self._done

    def alive(self) -> bool:
        """Whether it can take another trial."""
        return self._process.poll() is None

    def how_it_ended(self) -> str:
        """For people, if the trial left no record of its own."""
        code = self._process.returncode
        return "it left no record" if code is None else f"its process {how_it_ended(code)}"

    def was_refused(self) -> bool:
        """Whether it ended by what the system refused: its trial is not to blame."""
        return self._process.returncode == REFUSED

    def ask_to_stop(self) -> None:
        """As ctrl-C does: the trial saves where it is, and the process ends."""
        if self.alive():
            with suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGINT)

    def close(self) -> None:
        """End it, and whatever it started."""
        self._done = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        self._closing.close()


def stop(processes: list[TrialProcess]) -> None:
    """Ask all to stop, wait some time until their trials have, then end the processes.

    A trial that was at its end when it was asked comes to it, and its process then waits for
    another one."""
    for each in processes:
        each.ask_to_stop()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(each.running() for each in processes) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)
    for each in processes:
        each.close()
