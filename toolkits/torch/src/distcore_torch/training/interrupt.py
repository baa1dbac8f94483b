"""Signals while training: the first asks for a checkpoint at the next step, the second ends at
once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import TracebackType

from distcore_core.errors import Stopped
from distcore_torch.signals import Stoppable

GRACE_SECONDS = 30.0
"""How long a checkpoint may take after SIGTERM, unless `trainer.grace_seconds` says otherwise."""


class Interrupt:
    """`with Interrupt() as interrupt:` sets `interrupt.asked` at the first ctrl-C, SIGTERM, SIGHUP
    or SIGQUIT instead of raising; the second one raises. A block that comes to its end after it was
    asked to stop raises Stopped there.

    grace_seconds: how long after SIGTERM and the like the block may still take. Then Stopped is
    raised, and where even that does not help, the process ends. last_words(): what is then said:
    which checkpoint there is, and how to go on. Works in the main thread of a process; elsewhere it
    does nothing, and `asked` stays False.
    """

    def __init__(
        self, grace_seconds: float = GRACE_SECONDS, last_words: Callable[[], str] = str
    ) -> None:
        self.grace_seconds, self.last_words = grace_seconds, last_words
        self.asked = False
        self.signal = int(signal.SIGINT)
        self._stoppable = Stoppable()
        self._listening: Stoppable | None = None

    def __enter__(self) -> Interrupt:
        self._listening = self._stoppable.__enter__()
        self._listening.asked.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._listening is not None
        self._listening.asked.remove(self)
        self._stoppable.__exit__(kind, error, trace)
        if self.asked and kind is None:
            raise self.stopped()

    def ask(self, number: int) -> None:
        """A signal came."""
        self.asked, self.signal = True, number

    def stopped(self, message: str = "") -> Stopped:
        """What to raise once everything is put away."""
        return Stopped(message, self.signal)
