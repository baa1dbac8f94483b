"""Signals that end a process (ctrl-C, SIGTERM, SIGHUP, SIGQUIT) as one exception of the main
thread: `errors.Stopped`.

Within `with Stoppable():` the first of them raises `Stopped` in the main thread, or asks whoever
would rather be asked (`training.interrupt.Interrupt`). Never while a module is being imported,
which extension modules do not survive, nor while Python tries the temporary folder, where its file
would stay: it is raised once that is done. Raised if nobody can catch it (in a destructor, in a
library that swallows everything), it comes again. A thread sees signals also while the main one
waits in a library, and ends the process some seconds after a second signal, or once the time that a
request was given is over.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import FrameType
from typing import Any, NoReturn, Protocol

from distcore_core.errors import Stopped
from distcore_data.stacks import Call, calls_of, stack_of

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""The signals that ask a process to end."""

SAME_PRESS_SECONDS = 1.0
"""A terminal and a launcher may both pass on one signal; those this close together are one."""

HURRY_SECONDS = 5.0
"""How long cleaning up may take after a second signal, or when a request's time is over; then
the process just ends."""

MAIN = threading.main_thread().ident or 0

LOOK_SECONDS = 0.05
"""How often the thread looks once there was a signal."""

WAKE_SECONDS = 0.5
"""How long the main thread may take to call the handler before it is woken. A signal that comes
right before it begins to sleep wakes nobody: Python looks for signals before the call, and the
system only ends calls that have begun."""


class Asked(Protocol):
    """Who is asked to end, in place of an exception. grace_seconds: how long that may take
    (ctrl-C has no limit)."""

    grace_seconds: float

    def ask(self, number: int) -> None:
        """The signal came."""
        ...

    def last_words(self) -> str:
        """For a process that ends before that was done: what is left, and how to go on from it."""
        ...


class Stoppable:
    """The block in which signals end the work of the main thread, cleanly.

    owns_process: this process exists for the block alone (a command, a rank): it may be ended by
    force, and signals that were blocked while it started are let through. Otherwise (a notebook) a
    second ctrl-C forces nothing.
    to_the_end: the handlers stay when the block is over, while the interpreter shuts down.
    received: the first signal, 0 before. hurried: whether a second one came. last_line: what the
    command said last, of what ended it; "" before, and if it was done.

    A signal that is ignored (nohup) stays ignored, and a handler of the caller's own for SIGTERM,
    SIGHUP or SIGQUIT stays in its place. Within another block, and in another thread, this does
    nothing.
    """

    active: Stoppable | None = None
    """The block that the signals act on."""

    def __init__(self, owns_process: bool = False, to_the_end: bool = False) -> None:
        self.owns_process, self.to_the_end = owns_process, to_the_end
        self.received = 0
        self.hurried = False
        self.last_line = ""
        self.asked: list[Asked] = []
        self._settled = False
        self._before: dict[int, Any] = {}
        self._hook = sys.unraisablehook
        self._writing: int | None = None
        self._pipe_before: int | None = None
        self._busy = 0
        self._since = 0.0
        self._again = 0  # the next call of the handler is for this signal, which was counted before
        self._waiting = 0  # the signal that waits until nothing is being imported
        self._raised: Callable[[], Stopped | None] | None = None
        self._last_words: Callable[[], str] = str
        self._seen = 0.0  # these are the thread's
        self._first = 0
        self._own = 0
        self._woken = 0.0
        self._deadline = 0.0
        self._force = 0.0
        self._why = ""

    # -------------------------------------------------------------- the block

    def __enter__(self) -> Stoppable:
        if threading.current_thread() is not threading.main_thread():
            return self
        if Stoppable.active is not None:
            return Stoppable.active
        Stoppable.active = self
        try:
            self._busy = _busy(calls_of(sys._getframe(1)))
            self._begin()
        except BaseException:  # a ctrl-C that is not ours yet
            self._put_back()
            raise
        return self

    def _begin(self) -> None:
        if self.to_the_end:
            atexit.register(_deaf)  # the first that is registered is the last that is called
        self._hook, sys.unraisablehook = sys.unraisablehook, self._unraisable
        reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        threading.Thread(
            target=self._watch, args=(reading,), name="distcore-signals", daemon=True
        ).start()
        self._pipe_before = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        for number in ENDING:
            before = signal.getsignal(number)
            others = number != signal.SIGINT and before != signal.SIG_DFL
            if before not in (signal.SIG_IGN, None) and not others:
                self._before[number] = before
                signal.signal(number, self._handle)
        if self.owns_process:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def _put_back(self) -> None:
        """Everything is as it was before the block. Ctrl-C's handler is the last: from there on it
        may raise KeyboardInterrupt anywhere."""
        if sys.unraisablehook == self._unraisable:
            sys.unraisablehook = self._hook
        if self._pipe_before is not None:
            signal.set_wakeup_fd(self._pipe_before)
        if self._writing is not None:
            os.close(self._writing)
        Stoppable.active = None
        for number, before in reversed(self._before.items()):
            signal.signal(number, before)

    def __exit__(self, *_: object) -> None:
        if Stoppable.active is not self:
            return
        self.settle()
        if self.to_the_end:
            return
        self._put_back()

    def settle(self) -> None:
        """The work is over: from here on a first signal changes nothing any more, and a second
        one ends the process."""
        if Stoppable.active is self:
            self._settled = True

    # -------------------------------------------------------------- the main thread

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Python's handler. Raises Stopped, unless somebody is asked or modules are being
        loaded."""
        now, again, self._again = time.monotonic(), self._again, 0
        if not again:
            if self.received and now - self._since <= SAME_PRESS_SECONDS:
                return
            self.hurried = bool(self.received)
            self.received, self._since = self.received or number, self._since or now
        if self._settled:
            if self.hurried:
                os._exit(128 + self.received)
        elif _busy(calls_of(frame)) > self._busy:
            self._waiting = number
        elif self.asked and not self.hurried and not self._force:
            self._begin_grace(number, now)
            self.asked[-1].ask(number)
        else:
            error = Stopped(self._words(), self.received)
            self._raised = weakref.ref(error)
            try:
                raise error
            finally:
                del (
                    error
                )  # or this frame would keep it, and nobody could tell that it was swallowed

    def _begin_grace(self, number: int, now: float) -> None:
        self._last_words = self.asked[-1].last_words
        if number != signal.SIGINT and not self._deadline:
            self._deadline = now + self.asked[-1].grace_seconds

    def _unraisable(self, what: Any) -> None:
        """A destructor or a callback met our exception. It comes again, so nobody need hear of
        it."""
        if not isinstance(what.exc_value, Stopped):
            self._hook(what)

    # -------------------------------------------------------------- the thread

    def _watch(self, reading: int) -> None:
        """See every signal at once, and look after what becomes of it."""
        while True:
            if select.select([reading], [], [], LOOK_SECONDS if self._seen else None)[0]:
                numbers = os.read(reading, 64)
                if not numbers:
                    os.close(reading)
                    return
                if self._pipe_before is not None and self._pipe_before >= 0:
                    with suppress(OSError):  # who read it is gone
                        os.write(self._pipe_before, numbers)
                for number in numbers:
                    if number in self._before:
                        self._notice(number)
            if self._seen:
                self._look()

    def _notice(self, number: int) -> None:
        now = time.monotonic()
        if self._own:
            self._own -= 1
        elif not self._seen:
            self._seen, self._first = now, number
            if self.asked:
                self._begin_grace(number, now)
        elif now - self._seen > SAME_PRESS_SECONDS and not self._force:
            self._force, self._why = now + HURRY_SECONDS, "at the second signal"

    def _look(self) -> None:
        now = time.monotonic()
        uncalled = self._again or (0 if self.received else self._first)
        if uncalled and now - max(self._seen, self._woken) > WAKE_SECONDS:
            self._wake(uncalled)
        if self._force and now > self._force:
            self._end()
        elif self._deadline and now > self._deadline and not self._force:
            self._force, self._why = now + HURRY_SECONDS, "after trainer.grace_seconds"
            self._deliver(self._first)
        elif not self._settled:
            lost = self._raised is not None and self._raised() is None
            if lost:
                self._raised = None
            if lost or (self._waiting and _busy(stack_of(MAIN)) <= self._busy):
                number, self._waiting = self._waiting or self.received, 0
                self._deliver(number)

    def _deliver(self, number: int) -> None:
        """Have the main thread's handler called again."""
        self._again = number
        self._wake(number)

    def _wake(self, number: int) -> None:
        """Wake the main thread where it sleeps; it calls the handlers of all signals that have
        come."""
        self._own, self._woken = 1, time.monotonic()
        signal.pthread_kill(MAIN, number)

    def _end(self) -> None:
        """End this process as it is."""
        if self._first == signal.SIGINT and not self.owns_process:
            return
        code = 128 + self._first
        # The disk that the words are of may be what does not answer.
        late = threading.Timer(HURRY_SECONDS, os._exit, [code])
        late.daemon = True
        words = f"ended by {named(self._first)}, {self._why}."
        with suppress(RuntimeError):  # no thread is to be had
            late.start()
            words += f" {self._words()}"
        _leave(words, code)

    def _words(self) -> str:
        """The last ones; "" if they cannot be had."""
        with suppress(Exception):
            return self._last_words()
        return ""


def _leave(words: str, code: int) -> NoReturn:
    """End this process as it is, with a last line if anybody reads it."""
    try:
        if select.select([], [2], [], 0)[1]:  # a pipe that is full is not waited for
            os.write(2, f"distcore: {words.rstrip()}\n".encode())
    finally:
        os._exit(code)


def _busy(calls: Iterable[Call]) -> int:
    """How many of them are such in which nothing may be raised: Python's imports and its try of
    the temporary folder, and the block's own beginning and end."""
    codes = [each.code for each in calls]
    return sum(
        each.co_filename.startswith("<frozen importlib")
        or each.co_name == "_get_default_tempdir"  # by name, so as not to import tempfile
        or each in _OURS
        for each in codes
    )


_OURS = (Stoppable.__enter__.__code__, Stoppable.__exit__.__code__, Stoppable.settle.__code__)


def _deaf() -> None:
    """The interpreter is about to be gone, and Python's handlers with it."""
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


def _in_a_fork() -> None:
    """A forked child shares the pipe and has no thread that reads it: it is none of ours. Its main
    thread is the one that forked."""
    global MAIN
    MAIN = threading.get_ident()
    active, Stoppable.active = Stoppable.active, None
    if active is None:
        return
    signal.set_wakeup_fd(-1)
    if active._writing is not None:
        os.close(active._writing)
    sys.unraisablehook = active._hook
    for number, before in active._before.items():
        signal.signal(number, before)


os.register_at_fork(after_in_child=_in_a_fork)


def own_process() -> None:
    """Say that this process exists for distcore's work alone, for one that works outside of a
    block that owns it."""
    global _owned
    _owned = True


_owned = False


def is_own_process() -> bool:
    """Whether this process exists for distcore's work alone: a command or a rank, not a program
    that called distcore."""
    active = Stoppable.active
    return _owned or (active is not None and active.owns_process)


def signal_received() -> int:
    """The first signal that asked this process's work to end, or 0."""
    return Stoppable.active.received if Stoppable.active is not None else 0


def end_process(words: str) -> bool:
    """End this process as it is, with exit code 1 and a last line, whatever its threads do.

    Args:
        words: What ended it, in sentences.

    Returns:
        False: it is the process of a program that called distcore, and goes on.
    """
    if not is_own_process():
        return False
    _leave(words, 1)


def signal_of(error: BaseException) -> int:
    """The signal that a KeyboardInterrupt stands for."""
    return error.signal if isinstance(error, Stopped) else int(signal.SIGINT)


def named(number: int) -> str:
    """A signal as people know it."""
    return "ctrl-C" if number == signal.SIGINT else signal.Signals(number).name


def how_it_ended(code: int) -> str:
    """`was killed by SIGKILL` or `ended with exit code 1`, of a process whose exit code, as
    `subprocess` and `multiprocessing` give it, is -9 or 1."""
    if code >= 0:
        return f"ended with exit code {code}"
    known = -code in {*signal.Signals}  # those of real time have no names
    return f"was killed by {signal.Signals(-code).name if known else f'signal {-code}'}"
